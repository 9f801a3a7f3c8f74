"""One GPU's track: cutting, energy, and merging without losing anything."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.meter_holders import IDLE, Holder, held_by
from agent.meter_placement import PlacementRef, placement_facts
from agent.meter_track import EnergyReader, Stretch, Track, merge
from tests.support.metering import INFO

REF = PlacementRef(placement_facts("n1", INFO, 1, []))
TWO = held_by(Holder("ann"), Holder("bob"))


def track(rows: list[Stretch], starts_ms: int = 0, row_ms: int = 1000) -> Track:
    one = Track("GPU-0", starts_ms, row_ms, rows, REF)
    one.enter(IDLE, REF)
    return one


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 1e6), st.booleans()), max_size=30), st.integers(0, 3000))
def test_stretches_tile_and_keep_every_millijoule(steps: list[tuple[int, float, bool]], starts_ms: int) -> None:
    rows: list[Stretch] = []
    one = track(rows, starts_ms)
    for wait, joules, shared in steps:
        one.extend(one.until_ms + wait, 0.5, joules, "counter")
        one.enter(TWO if shared else IDLE, REF)
    one.extend(one.until_ms + 1, 0.5, 0.0, "counter")
    one.finish()
    spans = sorted({(row.starts_ms, row.ends_ms) for row in rows})
    assert spans[0][0] == starts_ms and all(a[1] == b[0] for a, b in pairwise(spans))
    assert all(end - start <= 1000 and start // 1000 == (end - 1) // 1000 for start, end in spans)
    total = sum(joules for _, joules, _ in steps)
    assert sum(row.energy_mj or 0 for row in rows) == pytest.approx(total * 1000, abs=1)


def test_a_leap_of_the_counter_is_not_believed() -> None:
    energy = EnergyReader()
    energy.grow(0, 100.0, 50.0, True)
    assert energy.grow(1000, 1.8e16, 50.0, True) == (50.0, "integrated")


def test_power_known_at_one_end_stands_for_the_interval() -> None:
    energy = EnergyReader()
    energy.grow(0, None, None, True)
    assert energy.grow(2000, None, 60.0, True) == (120.0, "integrated")
    assert energy.grow(3000, None, None, True) == (60.0, "integrated")
    assert energy.grow(4000, None, None, True) == (None, None)


def test_unseen_time_counts_by_the_counter_only() -> None:
    energy = EnergyReader()
    energy.grow(0, 5.0, 60.0, True)
    assert energy.grow(1000, 65.0, 60.0, False) == (60.0, "counter")
    assert energy.grow(2000, None, 60.0, False) == (None, None)


def test_a_row_with_both_sources_says_integrated() -> None:
    rows: list[Stretch] = []
    one = track(rows)
    one.extend(300, None, 10.0, "counter")
    one.extend(600, None, 10.0, "integrated")
    one.finish()
    assert [(row.energy_mj, row.energy_source) for row in rows] == [(20_000, "integrated")]


def test_merged_rows_cover_the_same_time_with_the_same_sums() -> None:
    rows: list[Stretch] = []
    one = track(rows)
    one.enter(TWO, REF)
    for busy in (0.0, 0.5, 1.0):
        one.extend(one.until_ms + 1000, busy, 30.0, "counter")
    one.enter(IDLE, REF)
    one.extend(4000, None, None, None)
    merged = merge(rows)
    assert [(row.kind, row.starts_ms, row.ends_ms, row.utilization, row.energy_mj) for row in merged] == [
        ("held", 0, 3000, 0.5, 45_000), ("held", 0, 3000, 0.5, 45_000), ("idle", 3000, 4000, None, None),
    ]  # fmt: skip
