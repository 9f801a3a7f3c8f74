"""Jobs without a GPU: what they hold of processors and memory, and from whom it is taken."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from agent.meter_claims import Claim
from agent.meter_cpu import MIB, CpuClaim, parts_of
from agent.meter_holders import HOST, IDLE, LOST, WHOLE, Holder, held_by
from tests.support.metering import ANN, BOB, INFO, T0_MS, HandClock, Node, all_rows, check_cover, check_sequences, gpu, lost, ms

GIB = 1 << 30
PREP = CpuClaim("eve", "data", "prep", 4_000, 8 * GIB)
TINY = CpuClaim("ann", None, "tiny", 500, 0)


def node(path: str | Path = ":memory:", hands: HandClock | None = None) -> Node:
    made = Node(path, hands)
    made.info = msgspec.structs.replace(INFO, cpu_count=16, memory_total_bytes=64 * GIB)
    return made


def check_zero_sum(rows: list[wire.UsageRow]) -> None:
    """At every moment all rows of kind `cpu` sum to nothing, and they lie in time that is measured."""
    sums: dict[tuple[datetime, datetime], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for row in rows:
        if row.kind == "cpu":
            assert row.gpu is None and row.share == 0 == row.gpu_seconds
            assert row.vcpus is not None and row.memory_bytes is not None and (row.vcpus or row.memory_bytes)
            assert (row.vcpus >= 0 and row.memory_bytes >= 0) == (row.taken_from is None)
            sums[row.starts_at, row.ends_at][0] += row.vcpus
            sums[row.starts_at, row.ends_at][1] += row.memory_bytes
        else:
            assert row.vcpus is row.memory_bytes is row.taken_from is None
    assert all(one == [0, 0] for one in sums.values())
    down = [(row.starts_at, row.ends_at) for row in rows if row.kind == "down"]
    assert not any(start < end_down and end > start_down for start, end in sums for start_down, end_down in down)


def cpu_rows(rows: list[wire.UsageRow]) -> list[tuple[int, int, str | None, str | None, Decimal | None, int]]:
    """(from, to, job or user, taken from, vCPUs, GiB)."""
    return [
        (ms(row.starts_at) - T0_MS, ms(row.ends_at) - T0_MS, row.job or row.user, row.taken_from, row.vcpus, (row.memory_bytes or 0) // GIB)
        for row in rows
        if row.kind == "cpu"
    ]


def test_a_job_without_a_gpu_takes_its_processors_from_those_who_hold_the_node() -> None:
    one = node()
    one.see(0, gpu(0, ANN), gpu(1))
    one.meter.claim({}, (PREP,))
    one.see(5_000, gpu(0, ANN), gpu(1))
    one.meter.claim({})
    rows = one.rows()
    assert cpu_rows(rows) == [
        (0, 5_000, "prep", None, 4, 8),
        (0, 5_000, "ann", "held", -2, -4),
        (0, 5_000, None, "idle", -2, -4),
    ]
    assert rows[0].project == "data"
    check_zero_sum(rows)
    check_sequences(rows)


def test_on_a_host_without_gpus_it_is_taken_from_the_host() -> None:
    one = node()
    one.see(0, reason="no driver")
    one.meter.claim({}, (PREP, TINY))
    one.see(1_000, reason="no driver")
    assert [row[2:5] for row in cpu_rows(one.rows())] == [("prep", None, 4), ("tiny", None, Decimal("0.5")), (None, "host", Decimal("-4.5"))]


def test_rows_end_where_holders_change_and_at_the_row_length() -> None:
    one = node()
    one.see(0, gpu(0))
    one.meter.claim({}, (TINY,))
    for wait, holders in ((4_000, (ANN,)), (3_000, (ANN,)), (15_000, (ANN,))):
        one.see(wait, gpu(0, *holders))
    found = [row[:4] for row in cpu_rows(one.rows()) if row[3] is not None]
    assert found == [(0, 4_000, None, "idle"), (4_000, 10_000, "ann", "held"), (10_000, 20_000, "ann", "held"), (20_000, 22_000, "ann", "held")]


def test_more_than_the_node_has_is_scaled_down_to_it() -> None:
    parts = parts_of([PREP, PREP._replace(job="x", cpu_millis=36_000, memory_bytes=120 * GIB)], [IDLE], 16, 64 * GIB)
    assert [(part.vcpus, part.memory) for part in parts] == [(1_600_000, 4096), (14_400_000, 61_440), (-16_000_000, -65_536)]


def test_lost_gpus_lend_too_and_nobody_lends_where_nothing_is_claimed() -> None:
    parts = parts_of([TINY], [LOST, IDLE, held_by(Holder("ann"), Holder("bob"))], None, None)
    assert [(part.taken_from, part.vcpus) for part in parts[1:]] == [("lost", -166_666), ("idle", -166_667), ("held", -83_333), ("held", -83_334)]
    assert parts_of([], [HOST], 4, GIB) == () == parts_of([TINY], [], 4, GIB)


def test_a_restart_goes_on_with_what_is_claimed_then_and_the_time_between_has_none(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    one = node(path, hands)
    one.see(0, gpu(0))
    one.meter.claim({}, (TINY,))
    one.see(4_000, gpu(0))
    one.meter.close()
    hands.pass_ms(60_000)
    two = node(path, hands)
    two.meter.claim({}, (PREP,))
    two.see(0, gpu(0))
    two.see(5_000, gpu(0))
    rows = two.rows()
    assert [row[:3] for row in cpu_rows(rows) if row[3] is None] == [(0, 4_000, "tiny"), (64_000, 69_000, "prep")]
    check_zero_sum(rows)
    two.meter.close()


def test_time_that_nobody_measured_has_none() -> None:
    one = node()
    one.see(0, gpu(0))
    one.meter.claim({}, (TINY,))
    one.see(5_000, gpu(0))
    one.see(120_000, gpu(0))
    one.see(1_000, gpu(0))
    rows = one.rows()
    assert [row[:2] for row in cpu_rows(rows) if row[3] is None] == [(0, 5_000), (125_000, 126_000)]
    check_zero_sum(rows)


def test_retention_forgets_them_with_the_rest_and_an_older_record_is_taken_over(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    one = node(path, hands)
    one.see(0, gpu(0))
    one.meter.claim({}, (TINY,))
    one.see(25_000, gpu(0))
    one.meter.flush()
    one.meter._store.prune(hands.wall_ms + 1)
    first = one.meter.usage().first_sequence
    kept = one.meter._store._db.execute("SELECT MIN(sequence) FROM cpu").fetchone()
    assert first > 1 and kept == (first,)
    one.meter.close()
    with sqlite3.connect(path) as older:
        older.execute("DROP TABLE cpu")
        older.execute("DROP TABLE interruption")
        older.execute("DELETE FROM usage WHERE kind = 5")
        older.execute("PRAGMA user_version = 1")
    older.close()
    two = node(path, hands)
    two.meter.claim({}, (TINY,))
    two.see(1_000, gpu(0))
    two.see(1_000, gpu(0))
    check_zero_sum(two.rows())
    two.meter.close()


def test_a_gpu_node_restarted_after_such_rows_has_no_host_of_its_own(tmp_path: Path) -> None:
    path, hands = tmp_path / "usage.db", HandClock()
    for _ in range(2):
        one = node(path, hands)
        one.meter.claim({}, (TINY,))
        one.see(1_000, gpu(0))
        one.see(1_000, gpu(0))
        one.meter.close()
    reader = node(path, hands)
    rows, placements = all_rows(reader.meter)
    check_cover(rows, placements)
    assert {row.kind for row in rows if row.gpu is None} == {"cpu"}
    reader.meter.close()


CLAIMS = st.lists(st.builds(CpuClaim, st.sampled_from("ab"), st.none(), st.sampled_from("xyz"), st.integers(0, 9_000), st.integers(0, 30 * GIB)), max_size=4)


@given(CLAIMS, st.lists(st.sampled_from([IDLE, LOST, held_by(Holder("a")), held_by(Holder("a"), Holder("b"), Holder())]), max_size=8))
def test_parts_of_a_moment_sum_to_nothing_and_never_exceed_the_node(claims: list[CpuClaim], tenures: list[object]) -> None:
    parts = parts_of(claims, tenures, 16, 64 * GIB)  # type: ignore[arg-type]
    assert sum(part.vcpus for part in parts) == 0 == sum(part.memory for part in parts)
    jobs = [part for part in parts if part.taken_from is None]
    assert sum(part.vcpus for part in jobs) <= 16_000_000 and sum(part.memory for part in jobs) <= 64 * GIB // MIB


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_gpus_are_tiled_and_processors_sum_to_nothing(seed: int) -> None:
    rng, one = Random(seed), node()
    one.see(0, gpu(0), gpu(1))
    for _ in range(150):
        one.hands.pass_ms(rng.choice((1, 700, 9_000)))
        jobs = tuple(rng.choice((PREP, TINY))._replace(job=f"j{number}") for number in range(rng.randrange(3)))
        share = rng.choice((0, WHOLE // 3, WHOLE))
        one.meter.claim({"GPU-0": (Claim("ann", None, "g", share),)} if share else {}, jobs)
        gpus = [lost(place) if rng.random() < 0.1 else gpu(place, *rng.choice(((), (ANN,), (ANN, BOB)))) for place in (0, 1)]
        one.see(rng.choice((1, 3_000, 40_000)), *gpus)
    rows = one.rows()
    check_zero_sum(rows)
    check_sequences(rows)
    check_cover(rows, {each.id: each for each in one.meter.usage(0, 10_000).placements})
