"""The record as it is kept: pages, a full disk, retention, another name."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent import meter_waiting, wire
from agent.errors import StateDirectoryError
from agent.meter import Meter
from tests.support.metering import ANN, BOB, INFO, Node, all_rows, check_cover, check_gpu_tiles, gpu, ms, sample


@pytest.fixture
def node() -> Iterator[Node]:
    one = Node()
    yield one
    one.meter.close()


def test_pages_follow_each_other_and_name_their_placements(node: Node) -> None:
    for _ in range(60):
        node.see(1000, gpu(0, ANN), gpu(1))
    first = node.meter.usage(0, 3)
    assert [row.sequence for row in first.rows] == [1, 2, 3] and first.last_sequence == 12 and first.first_sequence == 1
    second = node.meter.usage(3, 10_000)
    assert [row.sequence for row in second.rows] == list(range(4, 13))
    assert [one.id for one in second.placements] == [1] and second.meter == node.meter.meter and second.node == "n1"
    assert node.meter.usage(12).rows == ()


def test_a_renamed_node_keeps_the_name_that_old_rows_were_written_under(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0))
    node.see(1000, gpu(0))
    node.meter.close()
    renamed = Meter.open(tmp_path / "usage.db", "n2", clock=node.hands.clock())
    for _ in range(6):
        node.hands.pass_ms(1000)
        renamed.observe(sample(gpu(0), at_ms=node.hands.wall_ms), INFO)
    rows, _ = all_rows(renamed)
    assert {(row.sequence, row.node) for row in rows if row.sequence < 3} == {(1, "n1"), (2, "n1")}
    renamed.close()


def test_a_full_disk_keeps_the_rows_until_there_is_room_again(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0, ANN))
    node.see(11_000, gpu(0, ANN))
    written = node.meter.usage().last_sequence
    limit_pages(node.meter, 1)
    for number in range(400):
        person = wire.Process(pid=1, user=f"user-{number}-{'x' * 200}")
        node.see(1000, gpu(0, person))
        node.meter.flush()
    assert node.meter.problem is not None and "no space is left" in node.meter.problem and "usage.db" in node.meter.problem
    assert node.meter.waiting_rows > 300 and node.meter.usage().last_sequence < written + 100
    limit_pages(node.meter, 1_000_000)
    node.meter.flush()
    assert node.meter.problem is None and node.meter.waiting_rows == 0
    rows, placements = all_rows(node.meter)
    check_gpu_tiles(rows, "GPU-0")
    check_cover(rows, placements)
    node.meter.close()


def test_rows_that_a_full_disk_takes_with_it_are_said_at_the_end(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db")
    node.see(0, gpu(0, ANN))
    limit_pages(node.meter, 1)
    node.see(5000, gpu(0, wire.Process(pid=1, user="x" * 100_000)))
    node.see(5000, gpu(0))
    with pytest.raises(StateDirectoryError, match="rows are lost.*no space is left"):
        node.meter.close()


def test_a_disk_that_stays_full_merges_rows_but_loses_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path / "usage.db")
    node.meter._waiting._merge_above = 50
    monkeypatch.setattr(meter_waiting, "MAX_WAITING_ROWS", 50)
    node.see(0, gpu(0, ANN, BOB, power_watts=100.0))
    limit_pages(node.meter, 1)
    failing = sqlite3.connect(tmp_path / "usage.db", isolation_level=None)
    failing.execute("BEGIN IMMEDIATE")
    node.meter._store._db.execute("PRAGMA busy_timeout = 0")
    for _ in range(4000):
        node.see(1000, gpu(0, ANN, BOB, power_watts=100.0))
    assert node.meter.waiting_rows <= 60 and node.meter.problem is not None and "locked" in node.meter.problem
    failing.execute("ROLLBACK")
    failing.close()
    limit_pages(node.meter, 1_000_000)
    node.meter.flush()
    rows = node.rows()
    check_gpu_tiles(rows, "GPU-0")
    assert sum(row.energy_joules or 0 for row in rows) == pytest.approx(400_000)
    node.meter.close()


def limit_pages(meter: Meter, pages: int) -> None:
    """SQLite answers SQLITE_FULL, as it does on a full disk, once the file has so many pages (never fewer than it has)."""
    meter._store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_retention_deletes_the_oldest_rows_and_moves_the_first_sequence(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db", retention_days=1)
    for hour in range(50):
        node.see(3_599_000 if hour else 0, gpu(0))
        node.see(1000, gpu(0))
    node.meter.flush()
    page = node.meter.usage(0, 10_000)
    oldest = ms(page.rows[0].ends_at)
    assert page.first_sequence == page.rows[0].sequence > 1
    assert node.hands.wall_ms - 26 * 3_600_000 < oldest <= node.hands.wall_ms - 22 * 3_600_000
    assert [row.sequence for row in page.rows] == list(range(page.first_sequence, page.last_sequence + 1))
    node.meter.close()


def test_a_record_whose_rows_are_all_too_old_keeps_its_place(tmp_path: Path) -> None:
    node = Node(tmp_path / "usage.db", retention_days=1)
    node.see(0, gpu(0))
    node.see(15_000, gpu(0))
    node.meter.close()
    again = Node(tmp_path / "usage.db", node.hands, retention_days=1)
    again.see(100 * 86_400_000, gpu(0))
    again.see(5000, gpu(0))
    again.see(5000, gpu(0))
    page = again.meter.usage()
    assert page.last_sequence > 2 and page.rows[-1].sequence == page.last_sequence
    again.meter.close()
