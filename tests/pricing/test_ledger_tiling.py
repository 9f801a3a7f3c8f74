"""A check of a ledger finds whatever one changed row breaks, and nothing else; it tells how far it is."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pricing.ledger import Ledger
from pricing.ledger_tiling import Tiling
from pricing.usage import WHOLE_SHARE
from tests.support.examples import examples
from tests.support.usage import HOUR_MS, random_record, take_all

START_MS = 1_774_731_600_000 // HOUR_MS * HOUR_MS
CHANGES = (
    "DELETE FROM usage", "UPDATE usage SET ends_ms = ends_ms + 1", "UPDATE usage SET ends_ms = ends_ms - 1",
    "UPDATE usage SET starts_ms = starts_ms + 1", "UPDATE usage SET starts_ms = starts_ms - 1",
    "UPDATE usage SET share = share + 1", "UPDATE usage SET share = share - 1", "UPDATE usage SET share = share / 2",
)  # fmt: skip
THIS = " WHERE hour = ? AND node_id = ? AND meter_id = ? AND gpu_id = ? AND starts_ms = ? AND first_sequence = ?"


def fill(ledger: Ledger, rng: Random) -> None:
    for number in range(3):
        take_all(ledger, random_record(rng, f"n{number}", START_MS + rng.randrange(5) * HOUR_MS))
    with ledger.writing() as connection:
        connection.execute("UPDATE meters SET agent_last = cursor")


def faults(connection: sqlite3.Connection) -> list[str]:
    tiling = Tiling(connection, 0)
    for (hour,) in connection.execute("SELECT DISTINCT hour FROM usage ORDER BY hour").fetchall():
        tiling.take(hour)
    return tiling.faults()


def is_tiled(connection: sqlite3.Connection) -> bool:
    """By the simplest way: each row lasts, and at every moment from a GPU's first row to its last the shares are one whole."""
    rows: defaultdict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for node, gpu, *row in connection.execute("SELECT node_id, gpu_id, starts_ms, ends_ms, share FROM usage"):
        rows[node, gpu].append(tuple(row))  # type: ignore[arg-type]
    for of_gpu in rows.values():
        if any(starts >= ends for starts, ends, _ in of_gpu):
            return False
        edges = sorted({edge for starts, ends, _ in of_gpu for edge in (starts, ends)})
        for begin, end in zip(edges, edges[1:], strict=False):
            if sum(share for starts, ends, share in of_gpu if starts < end and ends > begin) != WHOLE_SHARE:
                return False
    return True


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
@example(172_558)  # a first row of one millisecond, cut to nothing
def test_what_is_tiled_has_no_fault_and_what_is_not_has_one(seed: int) -> None:
    rng = Random(seed)
    with Ledger.open(":memory:") as ledger:
        fill(ledger, rng)
        assert ledger.check() == []
        with ledger.writing() as connection:
            assert is_tiled(connection) and faults(connection) == []
            keys = connection.execute("SELECT hour, node_id, meter_id, gpu_id, starts_ms, first_sequence FROM usage").fetchall()
            connection.execute(rng.choice(CHANGES) + THIS, rng.choice(keys))
            assert (faults(connection) == []) == is_tiled(connection)


def test_two_records_of_one_gpu_at_the_same_time_are_told() -> None:
    with Ledger.open(":memory:") as ledger:
        fill(ledger, Random(3))
        with ledger.writing() as connection:
            node, meter = connection.execute("SELECT node_id, meter_id FROM usage LIMIT 1").fetchone()
            connection.execute("INSERT INTO meters (id, node_id, name) VALUES (99, ?, 'again')", (node,))
            columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(usage)")]
            copied = ", ".join("99" if name == "meter_id" else name for name in columns)
            connection.execute(f"INSERT INTO usage SELECT {copied} FROM usage WHERE meter_id = ?", (meter,))
            assert all("has shares of 2000000 millionths" in fault for fault in faults(connection)) and faults(connection)


def test_a_check_tells_how_far_it_is_and_can_be_left_at_any_moment(tmp_path: Path) -> None:
    path, told = tmp_path / "ledger.db", list[tuple[int, int]]()
    with Ledger.open(path) as ledger:
        for seed in range(30):
            take_all(ledger, random_record(Random(seed), f"n{seed}", START_MS))
        assert ledger.check(lambda done, count: told.append((done, count))) == []
        hours = told[0][1]
        assert told[0] == (0, hours) and told[-1] == (hours, hours) and sorted(told) == told

        def stop(done: int, count: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            ledger.check(stop)
        assert ledger.check() == []
