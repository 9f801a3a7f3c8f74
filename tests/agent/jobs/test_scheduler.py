"""Who starts, who waits and why, who must make room: one rule a test. test_scheduler_simulated.py runs whole days."""

from __future__ import annotations

import random
import time
from decimal import Decimal

import msgspec
import pytest

from agent.jobs import arrays
from agent.jobs.dependencies import parse
from agent.jobs.scheduler import Decision, decide, running_of, waiting_of, would_start
from agent.jobs.shapes import Held, Placed, Running, Waiting, Wanted
from tests.support.queueing import GIB, HOUR, T0, T0_MS, after, job_id, node, row, running, waiting

ONE = node(1, numa=1)
TWO = node(2, numa=1)
A, B = "a" * 12, "b" * 12


def started(decision: Decision) -> list[str]:
    return [start.id for start in decision.starts]


def test_order_is_priority_then_deadline_then_age_then_id() -> None:
    queue = [
        waiting("old", submitted=1),
        waiting("b", submitted=2),
        waiting("a", submitted=2),
        waiting("soon", submitted=3, deadline_ms=T0_MS + 2),
        waiting("sooner", submitted=4, deadline_ms=T0_MS + 1),
        waiting("high", submitted=5, priority=1),
    ]
    assert started(decide(queue, [], node(), T0_MS)) == ["high", "sooner", "soon", "old", "a", "b"]


def test_tasks_of_an_array_go_by_number() -> None:
    tasks = [waiting_of(one) for one in arrays.rows(row(1, array=(2, 10, 1), gpus=1))[1:]]
    assert started(decide(tasks, [], node(), T0_MS)) == [f"{job_id(1)}_{index}" for index in (1, 2, 10)]


def test_the_first_in_line_is_told_what_it_waits_for_and_until_when() -> None:
    taken = [
        running("r1", *[f"g{index}" for index in range(4)], ends=2 + 5 / 60, limit_ms=8 * HOUR),
        running("r2", "g4", "g5", "g6"),
    ]
    decision = decide([waiting("w", 2)], taken, node(), T0_MS)
    assert decision.waits == {"w": "waits for 2 GPUs: 1 of 8 is free; r1 (8h limit) ends at 14:05 UTC at the latest"}
    later = decide([waiting("w", 6)], taken, node(), T0_MS)
    assert later.waits == {"w": "waits for 6 GPUs: 1 of 8 is free; r2 has no time limit"}
    tomorrow = decide([waiting("w", 8)], [running("r", "g0", ends=13)], node(), T0_MS)
    assert tomorrow.waits["w"].endswith("ends at 2026-03-05 01:00 UTC at the latest")
    overdue = decide([waiting("w", 8)], [running("r", "g0", ends=-1)], node(), T0_MS)
    assert overdue.waits["w"].endswith("; r should have ended by now")


def test_a_deadline_that_is_over_is_said() -> None:
    decision = decide([waiting("w", 1, deadline_ms=T0_MS - HOUR)], [running("r", "g0")], ONE, T0_MS)
    assert decision.waits["w"].endswith("; its deadline of 11:00 UTC is over")


def test_a_short_job_goes_ahead_and_a_long_one_does_not() -> None:
    taken = [running("r", "g0", ends=2)]
    first = waiting("first", 2)
    for hours, ahead in ((2, True), (2.01, False), (None, False)):
        decision = decide([first, waiting("small", 1, submitted=1, hours=hours)], taken, TWO, T0_MS)
        assert started(decision) == (["small"] if ahead else [])
    assert decision.waits["small"] == "could start, but might hold up job first, which is first in line"


def test_a_long_one_goes_ahead_where_both_fit_at_the_reserved_moment() -> None:
    taken = [running("r", "g0", "g1", "g2", ends=2)]
    queue = [waiting("first", 3), waiting("one", 1, submitted=1), waiting("two", 1, submitted=2)]
    assert started(decide(queue, taken, node(4), T0_MS)) == ["one"]
    queue[0] = waiting("first", 2)
    assert started(decide(queue, [*taken, running("q", "g3", ends=1)], node(4), T0_MS)) == []
    assert started(decide(queue, taken, node(5, numa=1), T0_MS)) == ["first"]


def test_several_may_go_ahead_only_as_far_as_all_fit_beside_the_first() -> None:
    taken = [running("r", "g0", "g1", "g2", "g3", ends=2)]
    queue = [waiting("first", 5), *(waiting(f"s{place}", 1, submitted=place + 1) for place in range(4))]
    assert started(decide(queue, taken, node(), T0_MS)) == ["s0", "s1", "s2"]


def test_cpus_and_memory_are_reserved_for_the_first_too() -> None:
    taken = [running("r", memory_bytes=200 * GIB, ends=2)]
    first = waiting("first", memory_bytes=200 * GIB)
    for gib, ahead in ((56, True), (57, False)):
        decision = decide([first, waiting("small", submitted=1, memory_bytes=gib * GIB)], taken, node(), T0_MS)
        assert started(decision) == (["small"] if ahead else [])
    busy = [running("r", cpu_ids=tuple(range(20)), cpu_millis=20_000, ends=2)]
    queue = [waiting("first", cpu_millis=30_000), waiting("small", submitted=1, cpu_millis=3000)]
    assert started(decide(queue, busy, node(), T0_MS)) == []


def test_a_job_without_a_limit_does_not_starve_one_that_waits_for_another_without() -> None:
    taken = [running("r", "g0", "g1", "g2", "g3")]
    queue = [
        waiting("first", 6),
        waiting("s0", 2, submitted=1),
        waiting("s1", 2, submitted=2),
        waiting("s2", 2, submitted=3, hours=9),
    ]
    decision = decide(queue, taken, node(), T0_MS)
    assert started(decision) == ["s0", "s2"]


def test_what_cannot_run_as_the_node_is_now_holds_up_nobody() -> None:
    broken = msgspec.structs.replace(TWO, gpus=(TWO.gpus[0], msgspec.structs.replace(TWO.gpus[1], foreign=True)))
    decision = decide([waiting("big", 2, priority=9), waiting("small", 1)], [], broken, T0_MS)
    assert started(decision) == ["small"]
    assert decision.waits["big"] == (
        "cannot start as the node is now: it needs 2 GPUs: 1 of 2 is free (GPU 1 is held by a process that is not a job)"
    )


def test_dependencies_are_waited_for_and_hopeless_ones_are_given_back() -> None:
    queue = [
        waiting("met", after=parse((A,))),
        waiting("open", after=parse((B,))),
        waiting("lost", after=parse((f"notok:{A}",))),
    ]
    decision = decide(queue, [], ONE, T0_MS, outcomes={A: "well"})
    assert started(decision) == ["met"]
    assert decision.waits == {"open": f"waits for job {B} to end well"}
    assert decision.never == {"lost": f"its dependency {A} ended well and should have failed, so it will never start"}


def test_a_pause_before_a_retry_is_kept_and_the_time_to_look_again_is_said() -> None:
    queue = [
        waiting("w", not_before_ms=T0_MS + 10_500),
        waiting("v", not_before_ms=T0_MS + 5000),
        waiting("u", not_before_ms=T0_MS),
    ]
    decision = decide(queue, [], ONE, T0_MS)
    assert started(decision) == ["u"]
    assert decision.again_ms == T0_MS + 5000
    assert decision.waits["w"] == "waits until 12:00:10 UTC before it is tried again"


def test_no_more_tasks_of_an_array_run_than_may() -> None:
    tasks = [waiting_of(one) for one in arrays.rows(row(1, array=(1, 2, 3, 4), array_at_once=2))[1:]]
    decision = decide(tasks, [running("x", array=job_id(1))], node(), T0_MS)
    assert started(decision) == [f"{job_id(1)}_1"]
    assert decision.waits[f"{job_id(1)}_2"] == "array: 2 of 2 tasks run already"
    assert len(started(decide([*tasks, waiting("other", submitted=2**62)], [], node(), T0_MS))) == 3


def test_the_turn_of_the_first_task_is_not_given_to_a_smaller_one() -> None:
    x = {"array": "x", "array_at_once": 2}
    queue = [
        waiting("x_1", 2, array_index=1, **x),
        waiting("x_2", array_index=2, hours=9, **x),
        waiting("other", submitted=1, hours=1),
    ]
    decision = decide(queue, [running("x_0", "g0", array="x", ends=2)], TWO, T0_MS)
    assert started(decision) == ["other"]
    assert decision.waits["x_2"] == "array: 1 of 2 tasks run, and 1 more start before it"


def test_a_task_is_not_stopped_where_another_of_its_array_would_take_its_turn() -> None:
    queue = [waiting("x_9", 1, priority=5, array="x", array_index=9, array_at_once=1), waiting("w", 1, priority=2)]
    taken = [running("x_0", "g0", array="x", interruptible=True), running("r", "g1", interruptible=True)]
    assert decide(queue, taken, TWO, T0_MS).preempt == ("r",)
    assert decide(queue, taken[:1], ONE, T0_MS).preempt == ()


def test_a_closed_node_starts_and_stops_nothing() -> None:
    shape = msgspec.structs.replace(ONE, closed="the cloud takes this node at 12:02")
    decision = decide([waiting("w", 1, priority=9)], [running("r", "g0", interruptible=True)], shape, T0_MS)
    assert decision == Decision(waits={"w": "the cloud takes this node at 12:02"})


def test_the_fewest_and_then_the_youngest_make_room() -> None:
    taken = [
        running("old", "g0", started=1, interruptible=True),
        running("young", "g1", started=9, interruptible=True),
        running("pair", "g2", "g3", started=5, interruptible=True),
        *(running(f"x{index}", f"g{index}") for index in range(4, 8)),
    ]
    assert decide([waiting("w", 1, priority=1)], taken, node(), T0_MS).preempt == ("young",)
    assert decide([waiting("w", 2, priority=1)], taken, node(), T0_MS).preempt == ("pair",)
    decision = decide([waiting("w", 3, priority=1)], taken, node(), T0_MS)
    assert set(decision.preempt) == {"young", "pair"}
    assert decision.preempt_reasons["pair"] == "had to make room for job w, whose priority is 1 (its own is 0)"
    assert decision.waits["w"] == "waits for 3 GPUs: none of 8 is free; 2 jobs are being stopped"


def test_nobody_is_stopped_in_vain() -> None:
    taken = [
        running("same", "g0", priority=1, interruptible=True),
        running("firm", "g1"),
        running("small", "g2", interruptible=True),
        running("other", "g3", interruptible=True),
    ]
    assert decide([waiting("w", 3, priority=1)], taken, node(4), T0_MS).preempt == ()
    assert set(decide([waiting("w", 2, priority=1)], taken, node(4), T0_MS).preempt) == {"small", "other"}
    assert decide([waiting("w", 1)], taken, node(4), T0_MS).preempt == ()


def test_one_that_is_going_already_is_enough() -> None:
    taken = [running("going", "g0", stopping=True, ends=0.01, interruptible=True), running("r", "g1", interruptible=True)]
    decision = decide([waiting("w", 1, priority=1)], taken, TWO, T0_MS)
    assert decision.preempt == ()
    assert decision.waits["w"] == "waits for 1 GPU: none of 2 is free; job going is being stopped"
    both = decide([waiting("w", 1, priority=1), waiting("v", 1, priority=1, submitted=1)], taken, TWO, T0_MS)
    assert both.preempt == ("r",)


def test_what_was_made_free_for_one_is_not_given_to_another() -> None:
    taken = [running("going", "g0", stopping=True, ends=0.01), running("r", "g2", "g3")]
    queue = [waiting("high", 2, priority=5), waiting("low", 1, submitted=1)]
    decision = decide(queue, taken, node(4), T0_MS)
    assert (started(decision), decision.preempt) == ([], ())
    assert started(decide(queue, taken, node(6, numa=1), T0_MS)) == ["high", "low"]


def test_many_victims_are_found_quickly_and_none_is_spared_in_vain() -> None:
    taken = [running(f"r{place:02}", f"g{place % 8}", share=125_000, started=place, interruptible=True) for place in range(64)]
    decision = decide([waiting("w", 8, priority=1)], taken, node(), T0_MS)
    assert len(decision.preempt) == 64
    decision = decide([waiting("w", 1, priority=1)], taken, node(), T0_MS)
    assert len(decision.preempt) == 8
    assert len({int(one[1:]) % 8 for one in decision.preempt}) == 1


def test_a_dry_run_says_what_would_be() -> None:
    queue = [waiting("first", 2)]
    taken = [running("r", "g0", ends=2)]
    assert isinstance(would_start(waiting("me", 1, submitted=1, hours=1), queue, taken, TWO, T0_MS), Placed)
    assert "might hold up job first" in str(would_start(waiting("me", 1, submitted=1), queue, taken, TWO, T0_MS))
    assert would_start(waiting("me", after=parse((A,))), [], [], TWO, T0_MS, outcomes={A: "badly"}) == (
        f"its dependency {A} failed, so it will never start"
    )


def test_rows_are_read_as_upper_bounds() -> None:
    own = row(gpus=2, time_limit_seconds=3600, grace_seconds=30, user="ann", cpus=Decimal("1.5"), priority=3)
    entry = waiting_of(own)
    assert (entry.longest_ms, entry.wanted) == (3_690_000, Wanted(user="ann", gpus=2, cpu_millis=1500))
    held = {"gpus": ("g0", "g1"), "cpu_ids": (), "begun_at": T0}
    runs = running_of(msgspec.structs.replace(own, state="running", started_at=after(seconds=1), **held))
    assert (runs.started_ms, runs.ends_ms, runs.limit_ms) == (T0_MS + 1000, T0_MS + 1000 + 3_690_000, 3_600_000)
    assert runs.held == Held(job=own.id, user="ann", gpus=("g0", "g1"), cpu_millis=1500)
    stops = running_of(msgspec.structs.replace(own, state="stopping", stop_at=T0, stop_grace_seconds=5.0, **held))
    assert (stops.stopping, stops.ends_ms) == (True, T0_MS + 65_000)
    reserved = running_of(msgspec.structs.replace(own, held_until=after(seconds=60), gpus=("g0", "g1")))
    assert reserved.ends_ms == T0_MS + 60_000 + 3_690_000
    assert not running_of(
        msgspec.structs.replace(own, spec=msgspec.structs.replace(own.spec, interruptible=True), held_until=T0)
    ).interruptible


@pytest.mark.parametrize("distinct", [False, True])
def test_ten_thousand_waiting_jobs_are_decided_on_without_hanging(distinct: bool) -> None:
    chance = random.Random(1)
    taken = [
        Running(
            held=Held(
                job=f"r{place:02}", user="ann", gpus=(f"g{place // 8}",), share=120_000, cpu_ids=(place,), cpu_millis=1000
            ),
            started_ms=place,
            ends_ms=T0_MS + place if place % 3 else None,
            interruptible=True,
        )
        for place in range(64)
    ]
    queue = [
        Waiting(
            id=f"w{place:05}",
            wanted=Wanted(user="ann", gpus=chance.randint(1, 8), memory_bytes=chance.randrange(2**36) if distinct else None),
            submitted_ms=place,
            priority=chance.randint(0, 3),
            longest_ms=chance.choice([None, HOUR]),
        )
        for place in range(10_000)
    ]
    begun = time.process_time()
    decision = decide(queue, taken, node(cpus=128, memory_gib=1024), T0_MS)
    assert len(decision.waits) + len(decision.starts) == 10_000
    assert time.process_time() - begun < 5, "it is called on each change and takes less than a tenth of a second"
