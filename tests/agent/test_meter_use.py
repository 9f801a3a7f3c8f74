"""Several holders on one GPU (time-slicing): equal parts of it, and each one's own use of his part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.meter_claims import Claim
from agent.meter_holders import WHOLE, Holder, held_by
from agent.meter_use import use_of_parts
from tests.support.metering import ANN, BOB, EVE, Node, check_cover, check_sequences, gpu

FOUR = tuple(f"user{number}" for number in range(4))


def at_work(*loads: float | None, kind: str = "compute") -> tuple[wire.Process, ...]:
    """One process for each user, with its part of the SMs."""
    return tuple(
        wire.Process(pid=100 + place, user=FOUR[place], utilization_ratio=load, kind=kind)  # type: ignore[arg-type]
        for place, load in enumerate(loads)
    )


def means(node: Node) -> dict[str | None, float | None]:
    """user -> utilisation of the newest row."""
    return {row.user: row.utilization_ratio for row in node.rows()}


def shared(*processes: wire.Process, busy: float | None = 0.99, seconds: int = 10) -> Node:
    node = Node(durable=False)
    node.see(0, gpu(0, *processes, utilization_ratio=busy))
    for _ in range(seconds):
        node.see(1000, gpu(0, *processes, utilization_ratio=busy))
    return node


def test_a_tenant_who_only_waits_is_not_told_as_busy_because_another_computes() -> None:
    assert means(shared(*at_work(0.99, 0.0, 0.0, 0.0))) == {FOUR[0]: 1.0, FOUR[1]: 0.0, FOUR[2]: 0.0, FOUR[3]: 0.0}


def test_tenants_that_take_turns_are_as_busy_as_the_gpu() -> None:
    node = Node(durable=False)
    node.see(0, gpu(0, *at_work(0.0, 0.0), utilization_ratio=0.0))
    for second in range(10):
        turn = at_work(0.8, 0.0) if second % 2 else at_work(0.0, 0.8)
        node.see(1000, gpu(0, *turn, utilization_ratio=0.8))
    assert means(node) == {FOUR[0]: pytest.approx(0.8), FOUR[1]: pytest.approx(0.8)}


def test_each_has_an_equal_part_whatever_he_computes_and_all_are_one_gpu() -> None:
    rows = shared(*at_work(0.9, 0.05, 0.0)).rows()
    assert [row.share * WHOLE for row in rows[-3:]] == [333_334, 333_333, 333_333]


@pytest.mark.parametrize(
    "processes",
    [at_work(None, None), at_work(0.5, None), at_work(0.0, 0.0), at_work(0.5, 0.1, kind="mps")],
    ids=["not told", "of some only", "none has a figure", "under MPS"],
)
def test_where_tenants_cannot_be_told_apart_each_has_the_gpus_own_figure(processes: tuple[wire.Process, ...]) -> None:
    assert set(means(shared(*processes)).values()) == {0.99}


def test_a_gpu_that_tells_no_utilisation_has_none_in_its_rows() -> None:
    assert set(means(shared(*at_work(0.5, 0.1), busy=None)).values()) == {None}


def test_a_row_of_which_some_seconds_are_told_apart_holds_both() -> None:
    node = Node(durable=False)
    node.see(0, gpu(0, ANN, BOB))
    node.see(1000, gpu(0, ANN, BOB, utilization_ratio=0.4))
    told = [wire.Process(pid=11, user="ann", project="vision", utilization_ratio=0.3), wire.Process(pid=12, user="bob", job="j-7", utilization_ratio=0.1)]
    node.see(1000, gpu(0, *told, utilization_ratio=0.4))
    assert means(node) == {"ann": pytest.approx((0.4 + 0.6) / 2), "bob": pytest.approx((0.4 + 0.2) / 2)}


def test_a_job_that_has_a_part_by_claim_is_told_by_its_own_processes() -> None:
    node = Node(durable=False)
    node.meter.claim({"GPU-0": (Claim("ann", "vision", "j1", 250_000),)})
    processes = [wire.Process(pid=1, user="ann", job="j1", utilization_ratio=0.1), wire.Process(pid=2, user="eve", utilization_ratio=0.3)]
    for second in (0, 1000, 1000):
        node.see(second, gpu(0, *processes, utilization_ratio=0.4))
    assert means(node) == {"ann": pytest.approx(0.4), "eve": pytest.approx(0.4)}


LOADS = st.lists(st.sampled_from([None, 0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=4)


@given(LOADS, st.floats(0, 1))
def test_the_parts_together_are_as_busy_as_the_gpu(loads: list[float | None], busy: float) -> None:
    parts = held_by(*(Holder(user) for user in FOUR[: len(loads)])).parts
    uses = use_of_parts(parts, gpu(0, *at_work(*loads), utilization_ratio=busy), {})
    if uses is not None:
        assert sum(use * part.share for use, part in zip(uses, parts, strict=True)) == pytest.approx(busy * WHOLE)


@given(st.lists(LOADS, max_size=12), st.floats(0, 1))
def test_no_row_is_busier_than_wholly_and_rows_tile_the_time(readings: list[list[float | None]], busy: float) -> None:
    node = Node(durable=False)
    for loads in ([None], *readings):
        node.see(1_700, gpu(0, *at_work(*loads), EVE, utilization_ratio=busy))
    rows = node.rows()
    check_sequences(rows)
    check_cover(rows, {one.id: one for one in node.meter.usage(0, 10_000).placements})
    assert all(row.utilization_ratio is None or 0 <= row.utilization_ratio <= 1 for row in rows)
    node.meter.close()
