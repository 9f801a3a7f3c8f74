"""The file of the usage record: what is said of a bad one, and that nobody else can read it."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from agent.errors import StateDirectoryError, StateFull, StateLocked, StateTooNew
from agent.meter import Meter
from agent.meter_store import MIGRATIONS, USAGE
from tests.support.metering import ANN, INFO, T0_MS, all_rows, gpu, sample


def record(path: Path) -> Meter:
    """A record with one written row, still open."""
    meter = Meter.open(path, "n1")
    for at_ms in (T0_MS, T0_MS + 10_000):
        meter.observe(sample(gpu(0, ANN), at_ms=at_ms), INFO, at_ms=at_ms)
    meter.flush()
    return meter


def run(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    record(path).close(T0_MS + 10_000)
    run(path, f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StateTooNew, match=r"usage\.db was written by a newer version .*install that version"):
        Meter.open(path, "n1")


@pytest.mark.parametrize("content", [b"this is no database, and long enough to be sure" * 50, b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_record_is_named_and_left_where_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "usage.db"
    path.write_bytes(content)
    with pytest.raises(StateDirectoryError, match=r"usage\.db.*(damaged|cannot be used)"):
        Meter.open(path, "n1")
    assert path.read_bytes() == content


def test_a_record_without_its_tables_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    record(path).close(T0_MS + 10_000)
    run(path, "DROP TABLE usage")
    with pytest.raises(StateDirectoryError, match="is damaged .*move the file away"):
        Meter.open(path, "n1")


def test_an_empty_file_becomes_a_record(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    path.touch()
    record(path).close(T0_MS + 10_000)


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateDirectoryError, match=r"nowhere/usage\.db cannot be opened: No such file"):
        Meter.open(tmp_path / "nowhere" / "usage.db", "n1")


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    meter = record(tmp_path / "usage.db")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    meter.close()
    assert modes and set(modes.values()) == {0o600}, modes


def test_the_name_of_a_record_stays_and_a_new_one_gets_another(tmp_path: Path) -> None:
    one = record(tmp_path / "usage.db")
    name = one.meter
    one.close(T0_MS + 10_000)
    again = Meter.open(tmp_path / "usage.db", "n1")
    other = Meter.open(":memory:", "n1")
    assert again.meter == name != other.meter
    again.close()
    other.close()


@pytest.mark.parametrize(("durable", "level"), [(True, 2), (False, 1)])
def test_a_durable_record_syncs_each_transaction(tmp_path: Path, durable: bool, level: int) -> None:
    meter = Meter.open(tmp_path / "usage.db", "n1", durable=durable)
    answers = [meter._store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
    meter.close()
    assert answers == [level, "wal"]


def test_a_second_writer_cannot_break_the_sequence(tmp_path: Path) -> None:
    one, two = record(tmp_path / "usage.db"), Meter.open(tmp_path / "usage.db", "n1")
    for meter in (one, two):
        for at_ms in (T0_MS + 20_000, T0_MS + 30_000):
            meter.observe(sample(gpu(0, ANN), at_ms=at_ms), INFO, at_ms=at_ms)
        meter.flush()
    assert one.problem is None and two.problem is not None and "only one agent may use it" in two.problem
    rows, _ = all_rows(one)
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    one.close(T0_MS + 30_000)
    with pytest.raises(StateDirectoryError, match="rows are lost"):
        two.close(T0_MS + 30_000)


def test_reading_a_closed_record_is_an_error_of_ours() -> None:
    meter = Meter.open(":memory:", "n1")
    meter.close()
    with pytest.raises(StateDirectoryError):
        meter.usage()


def test_a_page_is_never_larger_than_ten_thousand_rows_nor_empty_by_request(tmp_path: Path) -> None:
    meter = record(tmp_path / "usage.db")
    assert len(meter.usage(0, 0).rows) == 1 and len(meter.usage(-5, 10**9).rows) == 1
    meter.close(T0_MS + 10_000)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_FULL, StateFull, "no space is left to write /state/usage.db"),
        (sqlite3.SQLITE_BUSY, StateLocked, "locked by another program"),
        (sqlite3.SQLITE_CORRUPT, StateDirectoryError, "damaged"),
        (sqlite3.SQLITE_READONLY, StateDirectoryError, "rights on its folder"),
        (sqlite3.SQLITE_IOERR, StateDirectoryError, "check the disk"),
    ],
)
def test_each_answer_of_sqlite_becomes_a_sentence(code: int, kind: type[StateDirectoryError], words: str) -> None:
    error = sqlite3.OperationalError("detail")
    error.sqlite_errorcode = code  # type: ignore[misc]
    fault = USAGE.translate(error, "/state/usage.db")
    assert type(fault) is kind and words in str(fault) and "/state/usage.db" in str(fault)
