"""Which GPUs and CPUs: near each other, leaving large pieces, and never one that somebody else has."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import JobRefused
from agent.jobs import placement
from agent.jobs.placement import cpu_millis_of, place, share_of
from agent.jobs.shapes import WHOLE, Held, NodeShape, Placed, Wanted
from tests.support.queueing import GIB, node


def held(job: str, *gpus: str, **more: Any) -> Held:
    return Held(job=job, gpus=gpus, user=more.pop("user", "ann"), **more)


def want(gpus: int = 0, **more: Any) -> Wanted:
    return Wanted(gpus=gpus, user=more.pop("user", "ann"), **more)


def with_gpu(shape: NodeShape, index: int, **fields: Any) -> NodeShape:
    gpus = list(shape.gpus)
    gpus[index] = msgspec.structs.replace(gpus[index], **fields)
    return msgspec.structs.replace(shape, gpus=tuple(gpus))


def placed(wanted: Wanted, shape: NodeShape, *taken: Held) -> Placed:
    found = place(wanted, shape, taken)
    assert isinstance(found, Placed), found
    return found


def waits(wanted: Wanted, shape: NodeShape, *taken: Held) -> str:
    found = place(wanted, shape, taken)
    assert isinstance(found, str), found
    return found


def test_gpus_of_one_numa_node_with_its_cpus_and_the_rest_left_together() -> None:
    found = placed(want(2, cpu_millis=8000), node(), held("a", "g4", "g5", cpu_ids=(16, 17), cpu_millis=2000))
    assert (found.gpu_indexes, found.cpu_ids, found.numa_nodes) == ((6, 7), tuple(range(18, 26)), (1,))
    assert found.reason == "GPUs 6-7 on NUMA node 1 with CPUs 18-25; best fit: leaves 4 together"


def test_the_numa_node_with_enough_cpus_is_taken_before_the_better_fit() -> None:
    taken = held("a", "g4", "g5", cpu_ids=tuple(range(16, 30)), cpu_millis=14_000)
    assert placed(want(2, cpu_millis=8000), node(), taken).gpu_indexes == (0, 1)
    assert placed(want(2, cpu_millis=2000), node(), taken).gpu_indexes == (6, 7)


def test_a_run_is_cut_at_its_end() -> None:
    assert placed(want(1), node(8, numa=1), held("a", "g0")).gpu_indexes == (1,)
    assert placed(want(2), node(8, numa=1), held("a", "g3")).gpu_indexes in ((0, 1), (1, 2), (4, 5))


def test_more_than_a_numa_node_has_is_taken_from_as_few_as_can_be() -> None:
    found = placed(want(6, cpu_millis=8000), node(), held("a", "g0"))
    assert found.gpu_indexes == (1, 2, 4, 5, 6, 7)
    assert found.cpu_ids == (0, 1, 2, 3, 16, 17, 18, 19)
    assert "no NUMA node has so many free" in found.reason


def test_nvlink_pairs_are_kept_together() -> None:
    links = (("g0", "g2"), ("g1", "g3"), ("g4", "g6"), ("g5", "g7"))
    shape = node(8, numa=1, links=links)
    assert placed(want(2), shape).gpu_indexes == (0, 2)
    assert placed(want(4), shape).gpu_indexes == (0, 1, 2, 3)
    assert placed(want(1), shape, held("a", "g4")).gpu_indexes == (6,)


def test_a_share_joins_the_fullest_gpu_that_has_room() -> None:
    taken = [held("a", "g0"), held("b", "g2", share=300_000), held("c", "g5", share=600_000)]
    assert placed(want(share=400_000), node(), *taken).gpu_indexes == (5,)
    assert placed(want(share=400_001), node(), *taken).gpu_indexes == (2,)
    assert placed(want(share=800_000), node(), *taken).gpu_indexes == (1,)
    assert "0.4 of it, 0 left beside others" in placed(want(share=400_000), node(), *taken).reason


def test_shares_sum_to_exactly_one_and_no_millionth_more() -> None:
    third = share_of(Decimal("0.333333"))
    taken = [held(f"j{place}", "g0", share=third) for place in range(3)]
    assert placed(want(share=1), node(1, numa=1), *taken).gpu_indexes == (0,)
    assert waits(want(share=2), node(1, numa=1), *taken) == "waits for 0.000002 of a GPU: none of 1 has so much left"


def test_one_gpu_is_shared_by_one_user() -> None:
    sentence = waits(want(share=100_000, user="bob"), node(1, numa=1), held("a", "g0", share=100_000))
    assert "1 shared by another user" in sentence
    assert placed(want(share=100_000, user="bob"), node(2, numa=1), held("a", "g0", share=100_000)).gpu_indexes == (1,)


def test_gpu_memory_caps_sum_to_the_gpus_memory() -> None:
    taken = held("a", "g0", share=100_000, gpu_memory_bytes=50 * GIB)
    assert placed(want(share=100_000, gpu_memory_bytes=30 * GIB), node(1, numa=1), taken).gpu_indexes == (0,)
    assert "31.0 GiB of its memory" in waits(want(share=100_000, gpu_memory_bytes=31 * GIB), node(1, numa=1), taken)


def test_no_more_clients_than_mps_takes() -> None:
    shape = with_gpu(node(1, numa=1), 0, mps_clients=2)
    taken = [held(f"j{place}", "g0", share=10) for place in range(2)]
    assert isinstance(place(want(share=10), shape, taken), str)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"state": "lost"}, "GPU 0 is lost"),
        ({"state": "error"}, "GPU 0 has the state error"),
        ({"foreign": True}, "GPU 0 is held by a process that is not a job"),
        ({"foreign": True, "foreign_reason": "python (4711) of ann"}, "GPU 0 is held by python (4711) of ann"),
        ({"drained": "process 9 of job x cannot be killed"}, "GPU 0 is not used: process 9 of job x cannot be killed"),
    ],
)
def test_a_gpu_that_must_not_be_used_is_not_and_is_told(fields: dict[str, Any], word: str) -> None:
    shape = with_gpu(node(1, numa=1), 0, **fields)
    assert waits(want(1), shape) == f"waits for 1 GPU: none of 1 is free ({word})"
    assert word in waits(want(share=1), shape)
    assert isinstance(place(want(cpu_millis=1000), shape, ()), Placed)


@pytest.mark.parametrize("fields", [{"mig": True}, {"mps_ok": False}])
def test_a_gpu_that_cannot_be_shared_is_only_given_whole(fields: dict[str, Any]) -> None:
    shape = with_gpu(node(1, numa=1), 0, **fields)
    assert isinstance(place(want(share=1), shape, ()), str)
    assert placed(want(1), shape).gpus == ("g0",)


def test_whole_cpus_are_given_to_one_job_each_and_parts_only_counted() -> None:
    shape = node(0, cpus=4, numa=1)
    part = held("a", cpu_millis=500)
    assert placed(want(cpu_millis=3000), shape, part).cpu_ids == (0, 1, 2)
    assert waits(want(cpu_millis=4000), shape, part) == "waits for 4 CPUs: 3.5 of 4 are free"
    assert placed(want(cpu_millis=1500), shape, part).cpu_ids == ()


def test_jobs_without_cpus_run_also_where_all_cpus_are_given() -> None:
    assert (
        placed(want(), node(0, cpus=2, numa=1), held("a", cpu_ids=(0, 1), cpu_millis=2000), held("b", cpu_millis=9000)).cpu_ids
        == ()
    )


def test_memory_limits_sum_to_the_machines() -> None:
    assert "waits for 200.0 GiB of memory: 156.0 GiB of 256.0 GiB are not promised yet" == waits(
        want(memory_bytes=200 * GIB), node(), held("a", memory_bytes=100 * GIB)
    )
    unknown = msgspec.structs.replace(node(), memory_bytes=None)
    assert isinstance(place(want(memory_bytes=200 * GIB), unknown, [held("a", memory_bytes=100 * GIB)]), Placed)


def test_a_closed_node_starts_nothing() -> None:
    assert place(want(), node(closed="the cloud takes this node at 12:02"), ()) == "the cloud takes this node at 12:02"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        (want(9), "the job asks for 9 GPUs, and this node has 8"),
        (want(cpu_millis=33_000), "the job asks for 33 CPUs, and jobs can have 32 on this node"),
        (want(memory_bytes=257 * GIB), "the job asks for 257.0 GiB of memory, and jobs can have 256.0 GiB on this node"),
        (want(share=1, gpu_memory_bytes=81 * GIB), "the largest GPU that can be shared has 80.0 GiB"),
        (want(share=1, cpu_millis=33_000), "the job asks for 33 CPUs"),
    ],
)
def test_what_can_never_run_here_is_refused(wanted: Wanted, sentence: str) -> None:
    assert sentence in (placement.refusal(wanted, node()) or "")


def test_what_could_run_later_is_not() -> None:
    broken = with_gpu(node(), 0, state="lost", foreign=True, drained="x")
    assert placement.refusal(want(8, cpu_millis=32_000, memory_bytes=256 * GIB), broken) is None
    assert placement.refusal(want(share=999_999, gpu_memory_bytes=80 * GIB), broken) is None
    assert "has none" in (placement.refusal(want(share=1), node(0)) or "")
    assert "this node has none" in (placement.refusal(want(1), node(0)) or "")
    mig = with_gpu(node(1, numa=1), 0, mps_ok=False, mps_reason="MIG is on")
    assert placement.refusal(want(share=1), mig) == "no GPU of this node can be shared: MIG is on"


@pytest.mark.parametrize("text", ["0", "1", "1.5", "-0.1", "NaN", "Infinity", "0.0000001"])
def test_a_share_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(JobRefused, match="a share of a GPU"):
        share_of(Decimal(text))


@pytest.mark.parametrize("text", ["0", "-1", "NaN", "0.0001", "1000000"])
def test_a_number_of_cpus_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(JobRefused, match="the number of CPUs"):
        cpu_millis_of(Decimal(text))


def test_right_ones_are_exact() -> None:
    assert (share_of(Decimal("0.1")), share_of(None), cpu_millis_of(Decimal("0.5")), cpu_millis_of(None)) == (
        100_000,
        None,
        500,
        0,
    )


def test_ranges_are_written_as_the_kernel_does() -> None:
    assert placement.ranges([8, 0, 2, 1, 10, 11]) == "0-2,8,10-11"
    assert placement.ranges([]) == ""


WANTED = st.builds(
    Wanted,
    user=st.sampled_from(["ann", "bob"]),
    gpus=st.integers(0, 4),
    cpu_millis=st.sampled_from([0, 0, 500, 1000, 3000, 9000]),
    memory_bytes=st.sampled_from([None, 10 * GIB, 200 * GIB]),
) | st.builds(
    Wanted,
    user=st.sampled_from(["ann", "bob"]),
    share=st.sampled_from([1, 333_333, 500_000, 999_999]),
    gpu_memory_bytes=st.sampled_from([None, 10 * GIB, 70 * GIB]),
    cpu_millis=st.sampled_from([0, 2000]),
)


@given(st.lists(WANTED, max_size=25), st.integers(1, 3), st.sets(st.integers(0, 5), max_size=2), st.randoms())
def test_nothing_is_ever_given_twice_and_what_does_not_fit_is_told(
    wishes: list[Wanted], numa: int, bad: set[int], chance: Any
) -> None:
    shape = node(6, numa=numa, cpus=12)
    for index in bad:
        shape = with_gpu(shape, index, foreign=True)
    taken: list[Held] = []
    for number, wanted in enumerate(wishes):
        found = place(wanted, shape, taken)
        assert found == place(wanted, shape, chance.sample(taken, len(taken)))
        if isinstance(found, str):
            assert found.startswith("waits for ")
            continue
        assert len(found.gpus) == (1 if wanted.share else wanted.gpus)
        assert len(found.cpu_ids) == (wanted.cpu_millis // 1000 if wanted.cpu_millis % 1000 == 0 else 0)
        taken.append(placement.held_by(str(number), wanted, found))
        check(taken, shape)


def check(taken: list[Held], shape: NodeShape) -> None:
    """Nothing is given twice: said without the books of the code under test."""
    for gpu in shape.gpus:
        own = [one for one in taken if gpu.uuid in one.gpus]
        assert not (own and (gpu.foreign or gpu.drained or gpu.state != "ok"))
        assert sum(WHOLE if one.share is None else one.share for one in own) <= WHOLE
        assert len({one.user for one in own}) <= 1
        assert sum(one.gpu_memory_bytes or 0 for one in own) <= (gpu.memory_bytes or 0)
    cpus = [cpu for one in taken for cpu in one.cpu_ids]
    assert len(cpus) == len(set(cpus))
    assert sum(one.cpu_millis for one in taken) <= 1000 * sum(map(len, shape.cpus.values()))
    assert sum(one.memory_bytes or 0 for one in taken) <= (shape.memory_bytes or 0)
