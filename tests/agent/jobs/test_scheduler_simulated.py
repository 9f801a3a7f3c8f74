"""Whole days of a node, played to the end: whatever the jobs, the rules hold at every moment and everybody gets their turn."""

from __future__ import annotations

import heapq
from random import Random
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.jobs.dependencies import Need, Outcome
from agent.jobs.placement import held_by
from agent.jobs.room import Room
from agent.jobs.scheduler import Decision, decide, line
from agent.jobs.shapes import Held, NodeShape, Running, Waiting, Wanted
from tests.agent.jobs.test_placement import check
from tests.support.queueing import GIB, node

SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=30)
NODE = node(4, cpus=8, memory_gib=64)
GRACE_MS = 30


class Asked(msgspec.Struct, frozen=True):
    """One job as it comes: when, what, and how long it really runs (never longer than its limit)."""

    at: int
    job: Waiting
    runs: int


@st.composite
def days(draw: Any) -> list[Asked]:
    asked: list[Asked] = []
    for number in range(draw(st.integers(1, 22))):
        share = draw(st.sampled_from([None, None, None, 250_000, 333_333, 900_000]))
        gpus = 0 if share else draw(st.sampled_from([0, 1, 1, 2, 3, 4]))
        wanted = Wanted(
            user=draw(st.sampled_from(["ann", "bob"])),
            gpus=gpus,
            share=share,
            gpu_memory_bytes=draw(st.sampled_from([None, 30 * GIB])) if share else None,
            cpu_millis=draw(st.sampled_from([0, 0, 1000, 4000, 500])),
            memory_bytes=draw(st.sampled_from([None, 8 * GIB, 40 * GIB])),
        )
        limit = draw(st.sampled_from([None, 100, 1000]))
        at = draw(st.integers(0, 300))
        before = [one.job.id for one in asked if one.at <= at]
        array = draw(st.sampled_from([None, None, "x", "y"]))
        job = Waiting(
            id=f"j{number:02}",
            wanted=wanted,
            submitted_ms=at,
            priority=draw(st.integers(0, 2)),
            deadline_ms=draw(st.sampled_from([None, None, 500])),
            longest_ms=limit,
            interruptible=draw(st.booleans()),
            after=(Need(draw(st.sampled_from(["well", "any", "notok"])), draw(st.sampled_from(before))),)
            if before and draw(st.integers(0, 4)) == 0
            else (),
            array=array,
            array_index=number if array else None,
            array_at_once={"x": 1, "y": 2, None: None}[array],
            not_before_ms=draw(st.sampled_from([None, None, None, 200])),
        )
        asked.append(Asked(at, job, draw(st.integers(1, limit or 400))))
    return asked


class Day:
    """The node and its jobs; every decision is checked when it is made."""

    def __init__(self, asked: list[Asked], shape: NodeShape, chance: Random) -> None:
        self.shape, self.chance = shape, chance
        self.asked = {one.job.id: one for one in asked}
        self.queue: dict[str, Waiting] = {}
        self.running: dict[str, Running] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.starts: dict[str, int] = {}
        self.preempted: dict[str, int] = {}
        self.now = 0
        self.moments = [one.at for one in asked]
        self.ends: dict[str, int] = {}
        self.reserved: tuple[str, float] | None = None
        self.priorities = [one.job.priority for one in asked]

    def play(self) -> None:
        heapq.heapify(self.moments)
        come = sorted(self.asked.values(), key=lambda one: one.at)
        while self.moments:
            self.now = heapq.heappop(self.moments)
            while come and come[0].at <= self.now:
                self.queue[come[0].job.id] = come[0].job
                come.pop(0)
            for id in [id for id, at in self.ends.items() if at <= self.now]:
                self.end(id)
            self.decide()

    def end(self, id: str) -> None:
        gone, asked = self.running.pop(id), self.asked[id]
        del self.ends[id]
        if gone.stopping:
            self.queue[id] = asked.job
        else:
            self.outcomes[id] = "badly" if self.chance.random() < 0.2 else "well"

    def decide(self) -> None:
        queue, running = list(self.queue.values()), list(self.running.values())
        decision = decide(queue, running, self.shape, self.now, outcomes=self.outcomes)
        self.chance.shuffle(queue)
        self.chance.shuffle(running)
        assert decide(queue, running, self.shape, self.now, outcomes=self.outcomes) == decision
        told = [*(start.id for start in decision.starts), *decision.waits, *decision.never]
        assert sorted(told) == sorted(self.queue), "each job gets one answer"
        self.check_promises(decision)
        for start in decision.starts:
            self.start(start.id, held_by(start.id, self.queue[start.id].wanted, start.placed))
        for id in decision.never:
            del self.queue[id]
            self.outcomes[id] = "badly"
        for id in decision.preempt:
            self.stop(id, decision)
        if decision.again_ms is not None:
            heapq.heappush(self.moments, decision.again_ms)
        if decision.never:
            heapq.heappush(self.moments, self.now)
        check([one.held for one in self.running.values()], self.shape)
        for array, most in (("x", 1), ("y", 2)):
            assert sum(one.array == array for one in self.running.values()) <= most
        self.check_reservation(decision)

    def start(self, id: str, held: Held) -> None:
        job = self.queue.pop(id)
        self.starts[id] = self.starts.get(id, 0) + 1
        assert self.starts[id] <= 1 + self.preempted.get(id, 0), "nothing starts twice"
        assert job.not_before_ms is None or job.not_before_ms <= self.now
        assert all(need.id in self.outcomes for need in job.after)
        self.running[id] = Running(
            held=held,
            priority=job.priority,
            interruptible=job.interruptible,
            started_ms=self.now,
            ends_ms=None if job.longest_ms is None else self.now + job.longest_ms,
            array=job.array,
        )
        self.ends[id] = self.now + self.asked[id].runs
        heapq.heappush(self.moments, self.ends[id])

    def stop(self, id: str, decision: Decision) -> None:
        victim = self.running[id]
        assert victim.interruptible
        assert not victim.stopping
        assert f"is {victim.priority})" in decision.preempt_reasons[id]
        self.preempted[id] = self.preempted.get(id, 0) + 1
        self.ends[id] = self.now + self.chance.randint(1, GRACE_MS)
        self.running[id] = msgspec.structs.replace(victim, stopping=True, ends_ms=self.now + GRACE_MS)
        heapq.heappush(self.moments, self.ends[id])

    def check_promises(self, decision: Decision) -> None:
        """Whoever others are stopped for starts at once when they are gone, and is of higher priority than each."""
        if not decision.preempt:
            return
        started = {start.id for start in decision.starts}
        gone = set(decision.preempt) | {one.id for one in self.running.values() if one.stopping}
        left = [one for one in self.running.values() if one.id not in gone]
        for start in decision.starts:
            job = self.queue[start.id]
            left.append(Running(held=held_by(start.id, job.wanted, start.placed), started_ms=self.now, array=job.array))
        waiting = [job for id, job in self.queue.items() if id not in started]
        then = {start.id for start in decide(waiting, left, self.shape, self.now, outcomes=self.outcomes).starts}
        for victim, reason in decision.preempt_reasons.items():
            higher = reason.split("job ")[1].split(",")[0]
            assert higher in then
            assert self.queue[higher].priority > self.running[victim].priority

    def check_reservation(self, decision: Decision) -> None:
        """The latest moment at which the first in line can start never moves back, unless higher ones came."""
        blocked = [id for id, why in decision.waits.items() if why.startswith("waits for ") and "to end" not in why]
        blocked = [id for id in blocked if not self.queue[id].after or all(n.id in self.outcomes for n in self.queue[id].after)]
        first = next((id for id in blocked if "being stopped" not in decision.waits[id]), None)
        if first is None or first != next(iter(blocked)):
            self.reserved = None
            return
        room, latest = Room(self.shape, (one.held for one in self.running.values())), float("inf")
        for one in sorted(self.running.values(), key=lambda one: float("inf") if one.ends_ms is None else one.ends_ms):
            room.give_back(one.held)
            if room.fits(self.queue[first].wanted):
                latest = float("inf") if one.ends_ms is None else float(one.ends_ms)
                break
        overtaken = any(line(self.asked[start.id].job) < line(self.asked[first].job) for start in decision.starts)
        if self.reserved is not None and self.reserved[0] == first and not overtaken:
            assert latest <= self.reserved[1]
        self.reserved = (first, latest)


@SLOW
@given(days(), st.integers(0, 2**32))
def test_every_day_ends_with_everybody_served_and_nothing_given_twice(asked: list[Asked], seed: int) -> None:
    day = Day(asked, NODE, Random(seed))
    day.play()
    assert not day.running
    for id, job in day.queue.items():
        raise AssertionError(f"{id} was never started: {job}")
    assert day.outcomes.keys() == day.asked.keys()


@SLOW
@given(days(), st.integers(0, 2**32), st.sampled_from(["lost", "foreign", "drained"]))
def test_a_node_with_a_broken_gpu_serves_all_that_still_fit(asked: list[Asked], seed: int, fault: str) -> None:
    fields: dict[str, Any] = {"lost": {"state": "lost"}, "foreign": {"foreign": True}, "drained": {"drained": "x"}}[fault]
    shape = msgspec.structs.replace(NODE, gpus=(msgspec.structs.replace(NODE.gpus[0], **fields), *NODE.gpus[1:]))
    day = Day(asked, shape, Random(seed))
    day.play()
    assert not day.running
    for job in day.queue.values():
        assert job.wanted.gpus == 4 or any(need.id in day.queue for need in job.after)
