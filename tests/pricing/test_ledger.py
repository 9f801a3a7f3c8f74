"""The ledger: each row once, after any crash, from any number of programs; and what it says when it cannot."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import ledger_schema
from pricing.errors import LedgerDamaged, LedgerError, LedgerFull, LedgerLocked, LedgerTooNew
from pricing.ledger import Ledger, Taken
from pricing.pricebook import PriceBook
from pricing.sqlite_file import SqliteFile
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.examples import examples
from tests.support.take_loop import PLACEMENTS, row, take_next
from tests.support.usage import HOUR_MS, content, random_record, take_all

ROOT = Path(__file__).parents[2]
START_MS = 1_774_000_800_000 // HOUR_MS * HOUR_MS


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger.open(":memory:") as ledger:
        yield ledger


def usage(sequence: int, starts: int = 0, ends: int = 10, **changes: object) -> Usage:
    """A row of whole seconds after START_MS."""
    whole = Usage(
        sequence, START_MS + starts * 1000, START_MS + ends * 1000, "GPU-0", "held", None, WHOLE_SHARE, "ann", None, None,
        0.5, 1000, "counter", 1,
    )  # fmt: skip
    return whole._replace(**changes)


def rows_of(ledger: Ledger, columns: str = "starts_ms, ends_ms, rows, busy, measured_ms, energy_mj") -> list[tuple[int, ...]]:
    with ledger.reading() as connection:
        return connection.execute(f"SELECT {columns} FROM usage ORDER BY starts_ms, gpu_id, holder_id").fetchall()


def take(ledger: Ledger, *rows: Usage, first_sequence: int = 1, node: str = "node", **more: object) -> Taken:
    return ledger.take(node, "meter", rows, PLACEMENTS, first_sequence, **more)  # type: ignore[arg-type]


def test_rows_that_touch_within_an_hour_become_one_with_exact_sums(ledger: Ledger) -> None:
    assert take(ledger, usage(1, 0, 10), usage(2, 10, 20), usage(3, 20, 25, utilization_ratio=None)) == Taken(3, 0, 0)
    busy = 20_000 * WHOLE_SHARE // 2
    assert rows_of(ledger) == [(START_MS, START_MS + 25_000, 3, busy, 20_000, 3000)]
    assert ledger.check() == []


def test_a_page_continues_the_row_that_the_page_before_began(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10))
    take(ledger, usage(2, 10, 20))
    assert [found[:3] for found in rows_of(ledger)] == [(START_MS, START_MS + 20_000, 2)]


@pytest.mark.parametrize(
    "change",
    [
        {"gpu": "GPU-1"}, {"kind": "idle"}, {"reason": "why"}, {"user": "bob"}, {"project": "p"}, {"job": "j"},
        {"energy_source": "integrated"}, {"share_millionths": 1}, {"starts_ms": START_MS + 11_000}, {"placement": 2},
    ],
)  # fmt: skip
def test_rows_that_differ_in_anything_else_stay_apart(ledger: Ledger, change: dict[str, object]) -> None:
    placements = [*PLACEMENTS, PLACEMENTS[0]._replace(number=2)]
    ledger.take("node", "meter", [usage(1, 0, 10), usage(2, 10, 20, **change)], placements, 1)
    assert len(rows_of(ledger)) == 2


def test_a_row_never_crosses_an_hour_and_its_parts_sum_to_it(ledger: Ledger) -> None:
    take(ledger, usage(1, 3590, 3590 + 7211, kind="down", energy_millijoules=1001, utilization_ratio=1 / 3))
    found = rows_of(ledger)
    assert [(end - start) // 1000 for start, end, *_ in found] == [10, 3600, 3600, 1]
    assert [rows for _, _, rows, *_ in found] == [1, 0, 0, 0]
    assert sum(line[3] for line in found) == round(7_211_000 * WHOLE_SHARE / 3)
    assert sum(line[5] for line in found) == 1001
    assert ledger.check() == []


def test_rows_that_are_known_are_skipped_and_told(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10), usage(2, 10, 20))
    assert take(ledger, usage(1, 0, 10), usage(2, 10, 20)) == Taken(0, 2, 0)
    assert take(ledger, usage(2, 10, 20), usage(3, 20, 30)) == Taken(1, 1, 0)
    assert take(ledger) == Taken(0, 0, 0)
    assert (ledger.cursor("node", "meter"), ledger.check()) == (3, [])


def test_rows_that_the_agent_no_longer_keeps_are_a_gap_that_is_kept(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10))
    noticed = datetime(2026, 3, 20, 12, tzinfo=UTC)
    assert take(ledger, usage(5, 90, 100), first_sequence=5, noticed_at=noticed) == Taken(1, 0, 3)
    (gap,) = ledger.gaps()
    assert (gap.node, gap.meter, gap.from_sequence, gap.to_sequence) == ("node", "meter", 2, 4)
    assert (gap.after_ms, gap.before_ms) == (START_MS + 10_000, START_MS + 90_000)
    assert gap.noticed_at_ms == round(noticed.timestamp() * 1000)
    assert (ledger.cursor("node", "meter"), ledger.check()) == (5, [])


def test_an_agent_that_has_thrown_everything_away_leaves_a_gap_and_no_row(ledger: Ledger) -> None:
    assert take(ledger, first_sequence=8) == Taken(0, 0, 7)
    assert take(ledger, usage(8), first_sequence=8) == Taken(1, 0, 0)
    assert ledger.check() == []


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ([usage(2)], "row 1 was due, but the page begins at 2"),
        ([usage(1), usage(3)], "out of order"),
        ([usage(2), usage(1)], "out of order"),
        ([usage(1), usage(1), usage(2)], "out of order"),
        ([usage(1), usage(2, 10, 10)], "row 2 ends before it starts"),
        ([usage(1, placement=9)], "names placement 9"),
        ([usage(1, share_millionths=0)], "share of 0 millionths"),
        ([usage(1, share_millionths=WHOLE_SHARE + 1)], "share of 1000001 millionths"),
        ([usage(1, kind="leased")], "unknown kind `leased`"),
    ],
)
def test_a_page_that_cannot_be_right_is_refused_whole(ledger: Ledger, page: list[Usage], sentence: str) -> None:
    with pytest.raises(LedgerError, match=sentence) as error:
        take(ledger, *page)
    assert str(error.value).startswith("node node: ") and "nothing of it was taken" in str(error.value)
    assert (ledger.cursor("node", "meter"), rows_of(ledger), ledger.check()) == (0, [], [])
    assert take(ledger, usage(1)).new == 1


def test_a_wiped_agent_begins_a_new_record(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10), usage(2, 10, 20))
    ledger.take("node", "second", [usage(1, 30, 40)], PLACEMENTS, 1)
    assert (ledger.cursor("node", "meter"), ledger.cursor("node", "second")) == (2, 1)
    assert ledger.newest_meter("node") == ("second", 1)
    assert ledger.check() == []


OLD_AND_NEW_NAME = [PLACEMENTS[0], PLACEMENTS[0]._replace(number=2, node="renamed")]


def test_a_renamed_agent_brings_only_the_rows_that_were_not_taken_under_its_old_name(ledger: Ledger) -> None:
    rows = [*(usage(n, n * 10, n * 10 + 10) for n in (1, 2, 3)), usage(4, 40, 50, placement=2)]
    take(ledger, *rows[:2])
    assert ledger.take("renamed", "meter", rows, OLD_AND_NEW_NAME, 1, last_sequence=4) == Taken(2, 2, 0)
    assert ledger.take("renamed", "meter", rows, OLD_AND_NEW_NAME, 1, last_sequence=4) == Taken(0, 4, 0)
    assert [found[2] for found in rows_of(ledger)] == [2, 1, 1]
    assert (ledger.cursor("renamed", "meter"), ledger.gaps(), ledger.check()) == (4, [], [])


def test_a_renamed_agent_that_threw_old_rows_away_lost_only_those_that_were_not_taken(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10), usage(2, 10, 20))
    assert ledger.take("renamed", "meter", [usage(5, 50, 60, placement=2)], OLD_AND_NEW_NAME, 5) == Taken(1, 0, 2)
    assert [gap[2:4] for gap in ledger.gaps()] == [(3, 4)]
    assert ledger.check() == []


def test_two_nodes_whose_records_have_the_same_name_are_two(ledger: Ledger) -> None:
    take(ledger, usage(1, 0, 10), usage(2, 10, 20))
    placements = [PLACEMENTS[0]._replace(node="twin")]
    assert ledger.take("twin", "meter", [usage(1, 0, 10), usage(2, 10, 20)], placements, 1) == Taken(2, 0, 0)
    assert ledger.check() == []


def test_a_placement_that_was_written_is_never_altered(ledger: Ledger) -> None:
    take(ledger, usage(1))
    ledger.take("node", "meter", [usage(2, 10, 20)], [PLACEMENTS[0]._replace(usd_per_hour="99")], 1)
    with ledger.reading() as connection:
        assert connection.execute("SELECT usd_per_hour FROM placements").fetchall() == [("8",)]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12))
def test_any_pages_that_overlap_or_come_twice_give_the_same_ledger(seed: int, cuts: list[tuple[int, int]]) -> None:
    record = random_record(Random(seed), "node", START_MS)
    with Ledger.open(":memory:") as whole, Ledger.open(":memory:") as cut:
        take_all(whole, record)
        for begin, length in cuts:
            reached = cut.cursor("node", record.meter)
            begin = min(begin, reached)
            cut.take("node", record.meter, record.rows[begin : begin + length], record.placements, 1)
        take_all(cut, record, page=1 + seed % 7)
        assert content(cut) == content(whole)
        assert cut.check() == whole.check() == []


def run_loop(path: Path, last: int, *limit: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.take_loop", str(path), str(last), *limit],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen[str]) -> str:
    with process:
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 0
    return said


def fed_whole(last: int) -> dict[str, list[tuple[object, ...]]]:
    """What a ledger holds that took rows 1 to `last` in one page."""
    with Ledger.open(":memory:") as ledger:
        ledger.take("node", "meter", [row(sequence) for sequence in range(1, last + 1)], PLACEMENTS, 1, last_sequence=last)
        return content(ledger)


def test_kills_at_random_moments_lose_no_row_and_double_none(tmp_path: Path) -> None:
    path, rng = tmp_path / "ledger.db", random.Random(2)
    Ledger.open(path).close()
    cursors: list[int] = []
    deadline = time.monotonic() + 120
    while len(cursors) < 25 or (not cursors[-1] and time.monotonic() < deadline):
        process = run_loop(path, 10**9)
        time.sleep(rng.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Ledger.open(path) as ledger:
            cursors.append(ledger.cursor("node", "meter"))
    with Ledger.open(path) as ledger:
        assert cursors == sorted(cursors) and cursors[-1] > 0
        last = cursors[-1] + 500
        while take_next(ledger, last):
            pass
        with ledger.writing() as connection:
            connection.execute("UPDATE meters SET agent_last = ?", (last,))
        assert ledger.check() == []
        assert content(ledger) == fed_whole(last)


def test_two_programs_that_sync_at_once_take_each_row_once(tmp_path: Path) -> None:
    path, last = tmp_path / "ledger.db", 15_000
    said = [finish(process) for process in [run_loop(path, last) for _ in range(2)]]
    assert sum(int(line.split()[1]) for line in said) == last
    with Ledger.open(path) as ledger:
        assert ledger.check() == []
        assert content(ledger) == fed_whole(last)


@pytest.mark.parametrize("kind", [Ledger, PriceBook])
def test_programs_that_make_the_same_file_at_once_all_get_it(kind: type[SqliteFile], tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def open_once(path: Path, together: threading.Barrier) -> None:
        together.wait()
        try:
            kind.open(path).close()
        except BaseException as error:
            failures.append(error)

    for attempt in range(20):
        together = threading.Barrier(8)
        path = tmp_path / f"{attempt}.db"
        threads = [threading.Thread(target=open_once, args=(path, together)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_a_file_that_may_not_grow_leaves_the_ledger_whole(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    said = finish(run_loop(path, 10**9, "400000"))
    word, cursor, sentence = said.split(maxsplit=2)
    assert word == "full" and "no space is left for the ledger; it is as it was" in sentence
    with Ledger.open(path) as ledger:
        assert ledger.cursor("node", "meter") == int(cursor) > 0
        last = int(cursor) + 300
        while take_next(ledger, last):
            pass
        assert ledger.check() == []
        assert content(ledger) == fed_whole(last)


def test_a_full_disk_is_a_sentence_and_nothing_of_the_page_is_there(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        with ledger.reading() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(LedgerFull, match="Free some space"):
            take(ledger, *[usage(n, n * 20, n * 20 + 10, job=f"job {n}") for n in range(1, 2000)])
        assert (ledger.cursor("node", "meter"), rows_of(ledger), ledger.check()) == (0, [], [])
        assert take(ledger, usage(1)).new == 1


def test_a_ledger_that_stays_locked_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as holder, Ledger.open(path, timeout_seconds=0.05) as other:
        with holder.writing(), pytest.raises(LedgerLocked, match="another program kept the ledger locked"):
            take(other, usage(1))
        assert take(other, usage(1)).new == 1


def test_a_reader_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as writer, Ledger.open(path, timeout_seconds=0.05) as reader:
        with writer.writing():
            assert reader.cursor("node", "meter") == 0


def test_a_ledger_of_a_newer_version_says_which_and_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = '7.2' WHERE key = 'written_by'")
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(LedgerTooNew, match=r"written by rackrate 7.2 \(format 99\).*Upgrade rackrate"):
        Ledger.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", [b"this is no database, " * 300, b"x" * 40])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(text)
    with pytest.raises(LedgerDamaged, match="not a ledger, or a damaged one"):
        Ledger.open(path)
    assert path.read_bytes() == text


def test_another_programs_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE usage (sequence INTEGER)")
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged, match="another program's database"):
        Ledger.open(path)
    assert path.read_bytes() == before


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        take(ledger, *[usage(n, n * 20, n * 20 + 10) for n in range(1, 3000)])
    raw = bytearray(path.read_bytes())
    for offset in range(4096 * 12, len(raw), 4096):
        raw[offset : offset + 512] = b"\xff" * 512
    path.write_bytes(raw)
    try:
        with Ledger.open(path) as ledger:
            assert ledger.check()
    except LedgerDamaged as error:
        assert str(path) in str(error)


def test_a_folder_that_does_not_exist_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger.open(tmp_path / "nowhere" / "ledger.db")


FAULTS = {
    "UPDATE usage SET rows = rows + 1": "were taken, but",
    "DELETE FROM usage WHERE starts_ms = (SELECT MAX(starts_ms) FROM usage)": "sums of hours",
    "UPDATE days SET share_ms = share_ms + 1": "sums of days",
    "UPDATE usage SET ends_ms = ends_ms + 1 WHERE gpu_id = 1 AND hour = (SELECT MIN(hour) FROM usage)": "overlaps itself",
    "UPDATE usage SET starts_ms = starts_ms + 1 WHERE hour > (SELECT MIN(hour) FROM usage)": "has a hole",
    "UPDATE usage SET share = share - 1": "has shares of 999999 millionths",
    "UPDATE usage SET share = share + 1": "has shares of 1000001 millionths",
}


@pytest.mark.parametrize(("statement", "sentence"), FAULTS.items())
def test_a_check_finds_what_does_not_add_up(ledger: Ledger, statement: str, sentence: str) -> None:
    rows = [usage(n, n * 600, n * 600 + 600) for n in range(1, 12)]
    take(ledger, *rows, last_sequence=11)
    assert ledger.check() == []
    with ledger.writing() as connection:
        connection.execute(statement)
    assert any(sentence in fault for fault in ledger.check())


def test_half_a_shared_gpu_is_a_fault_only_when_no_more_is_to_come(ledger: Ledger) -> None:
    half = {"share_millionths": WHOLE_SHARE // 2}
    take(ledger, usage(1, **half), usage(2, user="bob", **half), usage(3, 10, 20, **half), last_sequence=4)
    assert ledger.check() == []
    take(ledger, usage(4, 10, 20, user="bob", **half), last_sequence=4)
    assert ledger.check() == []
    with ledger.writing() as connection:
        connection.execute("DELETE FROM usage WHERE first_sequence = 2")
    assert any("has shares of 500000" in fault for fault in ledger.check())


def test_opening_a_ledger_that_is_up_to_date_does_not_import_sqlite_utils_and_making_one_not_pandas(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    code = f"import sys; from pricing.ledger import Ledger; Ledger.open({str(path)!r}).close(); print('sqlite_utils' in sys.modules)"
    code += f"; Ledger.open({str(tmp_path / 'new.db')!r}).close(); print('sqlite_utils' in sys.modules, 'pandas' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == "False\nTrue False\n"


def test_the_schema_is_recorded_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (ledger_schema.SCHEMA_VERSION,)
        assert [name for (name,) in connection.execute("SELECT name FROM _sqlite_migrations")][:2] == ["0001_first", "0002_closed_months"]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_owned_nodes_facts_come_back_exactly(ledger: Ledger) -> None:
    from decimal import Decimal

    from pricing.ledger_dictionary import read_placements
    from pricing.usage import Owned

    placed = Placed(1, "node", on_premises=Owned(Decimal("250000.10"), Decimal(4)), gpu_count=8, tags={"a": "ü"})
    ledger.take("node", "meter", [usage(1)], [placed], 1)
    with ledger.reading() as connection:
        assert list(read_placements(connection).values()) == [placed]
