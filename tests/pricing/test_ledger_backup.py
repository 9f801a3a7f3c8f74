"""Backup and vacuum: whole or not at all, while others write; and many programs at one ledger, killed at any moment."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from pricing.errors import LedgerDamaged, LedgerError, LedgerFull, LedgerLocked
from pricing.ledger import Ledger
from pricing.ledger_backup import backup, vacuum
from pricing.ledger_retention import retain
from tests.support.take_loop import PLACEMENTS, row, take_next
from tests.support.usage import content

ROOT = Path(__file__).parents[2]
ROWS = 4000
NOW = datetime(2027, 6, 1, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with some rows, closed."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.take("node", "meter", [row(sequence) for sequence in range(1, ROWS + 1)], PLACEMENTS, 1, last_sequence=ROWS)
    return path


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path, timeout_seconds=0.1) as ledger:
        yield ledger


def others(folder: Path) -> set[str]:
    """What lies in the folder beside the ledger."""
    return {name for name in os.listdir(folder) if not name.startswith("ledger.db")}


def test_a_backup_is_one_file_that_opens_as_the_same_ledger(ledger: Ledger, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    target = tmp_path / "copy.db"
    done = backup(ledger, target, on_progress=lambda now, total: heard.append((now, total)))
    assert others(tmp_path) == {"copy.db"}
    assert heard[-1] == (done.size_bytes, target.stat().st_size)
    assert target.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(target)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    with Ledger.open(target) as copy:
        assert content(copy) == content(ledger) and copy.check() == []
        assert copy.take("node", "meter", [row(ROWS + 1)], PLACEMENTS, 1).new == 1


def test_a_backup_holds_one_moment_while_another_program_writes(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    before = content(ledger)
    with Ledger.open(path) as writer:
        written = []

        def write(done: int, total: int) -> None:
            if not written:
                written.append(writer.take("node", "meter", [row(ROWS + 1)], PLACEMENTS, 1).new)

        backup(ledger, tmp_path / "copy.db", on_progress=write)
        assert written == [1]
    with Ledger.open(tmp_path / "copy.db") as copy:
        assert content(copy) == before
    assert ledger.cursor("node", "meter") == ROWS + 1


def test_a_file_that_exists_is_replaced_only_by_force(ledger: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(LedgerError, match="exists and was not touched.*--force"):
        backup(ledger, target)
    assert target.read_text() == "precious"
    backup(ledger, target, force=True)
    assert others(tmp_path) == {"copy.db"}
    with Ledger.open(target) as copy:
        assert copy.check() == []


def test_what_a_killed_backup_left_goes_after_a_day(ledger: Ledger, tmp_path: Path) -> None:
    left = tmp_path / ".copy.db.abc.partial"
    left.write_text("half")
    os.utime(left, (0, 0))
    backup(ledger, tmp_path / "copy.db")
    assert not left.exists() and (tmp_path / "copy.db").exists()


def test_a_file_that_comes_while_the_copy_is_made_is_not_replaced(ledger: Ledger, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with pytest.raises(LedgerError, match="made by another program meanwhile"):
        backup(ledger, target, on_progress=lambda done, total: target.write_text("precious") and None)
    assert target.read_text() == "precious" and others(tmp_path) == {"copy.db"}


def test_places_where_no_backup_can_be_are_refused(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    linked = tmp_path / "linked.db"
    linked.symlink_to(path)
    for target in (path, linked, Path(f"{path}-wal")):
        with pytest.raises(LedgerError, match="this is the ledger itself"):
            backup(ledger, target, force=True)
    with pytest.raises(LedgerError, match="this is a folder"):
        backup(ledger, tmp_path)
    with pytest.raises(LedgerError, match="there is no folder"):
        backup(ledger, tmp_path / "nowhere" / "copy.db")
    with Ledger.open(tmp_path / "other.db"), pytest.raises(LedgerError, match="is in use as a ledger"):
        backup(ledger, tmp_path / "other.db", force=True)
    assert ledger.check() == []


def test_a_disk_without_room_is_told_before_anything_is_written(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LedgerFull, match=r"the backup needs [\d.]+ MB, and 0.0 MB are free there"):
        backup(ledger, tmp_path / "copy.db")
    with pytest.raises(LedgerFull, match=r"needs [\d.]+ MB beside it .* 0.0 MB are free. Nothing was changed"):
        vacuum(ledger)
    assert others(tmp_path) == set()


def test_a_disk_that_fills_while_the_copy_is_made_leaves_the_backup_of_before(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom pricing.ledger import Ledger\n"
        "from pricing.ledger_backup import backup\nledger = Ledger.open(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try: backup(ledger, Path(sys.argv[2]), force=True)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    assert path.stat().st_size > 50_000
    said = subprocess.run(
        [sys.executable, "-c", code, str(path), str(target)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("LedgerFull") and "no space is left for the backup; nothing of it was kept" in said
    assert target.read_text() == "precious" and others(tmp_path) == {"copy.db"}


def test_a_damaged_ledger_replaces_no_good_backup(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with closing(sqlite3.connect(path)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'gpus'").fetchone()[0]
    raw = bytearray(path.read_bytes())
    raw[4096 * (page - 1) + 8 : 4096 * page] = b"\xff" * 4088
    path.write_bytes(raw)
    with Ledger.open(path) as ledger, pytest.raises(LedgerDamaged, match="no backup was written"):
        backup(ledger, target, force=True)
    assert target.read_text() == "precious" and others(tmp_path) == {"copy.db"}


def test_vacuum_gives_back_the_room_of_rows_that_were_rolled_up(ledger: Ledger, path: Path) -> None:
    rows = [row(sequence)._replace(job=f"job-{sequence}") for sequence in range(ROWS + 1, 3 * ROWS)]
    ledger.take("node", "meter", rows, PLACEMENTS, 1)
    retain(ledger, NOW, NOW)
    before = content(ledger)
    done = vacuum(ledger)
    assert done.after_bytes == path.stat().st_size < done.before_bytes and not done.in_use
    assert content(ledger) == before and ledger.check() == []


def test_vacuum_beside_a_reader_says_that_the_file_shrinks_later(path: Path, ledger: Ledger) -> None:
    with Ledger.open(path) as other, other.reading() as connection:
        connection.execute("SELECT COUNT(*) FROM usage").fetchone()
        assert vacuum(ledger).in_use
    assert not vacuum(ledger).in_use


def test_vacuum_beside_a_writer_that_does_not_end_is_a_sentence(path: Path, ledger: Ledger) -> None:
    with Ledger.open(path) as other, other.writing():
        with pytest.raises(LedgerLocked, match="another program kept the ledger locked"):
            vacuum(ledger)
        with pytest.raises(LedgerLocked):
            retain(ledger, NOW, NOW)
    assert ledger.check() == []


class Program(NamedTuple):
    """One of those that use the ledger at once."""

    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes]
    said: Path

    def rounds(self) -> int:
        return self.said.read_text().count("round")


def start(tmp_path: Path, place: int, arguments: tuple[str, ...]) -> Program:
    said = tmp_path / f"said-{place}"
    with said.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )  # fmt: skip
    return Program(arguments, process, said)


def test_writers_a_reader_and_a_keeper_killed_at_any_moment_lose_nothing(tmp_path: Path) -> None:
    path, rng = tmp_path / "ledger.db", random.Random(5)
    Ledger.open(path).close()
    writer = ("tests.support.take_loop", str(path), str(10**9))
    loop = (
        ("tests.support.ledger_loop", "read", str(path), "-"),
        ("tests.support.ledger_loop", "keep", str(path), str(tmp_path / "b.db")),
    )
    programs = [start(tmp_path, place, arguments) for place, arguments in enumerate((writer, writer, *loop))]
    try:
        deadline = time.monotonic() + 240
        kills = 0
        while (kills < 16 or not all(one.rounds() for one in programs[2:])) and time.monotonic() < deadline:
            time.sleep(rng.uniform(0.1, 0.5))
            place = rng.randrange(4)
            assert programs[place].process.poll() is None, programs[place].said.read_text()
            if place >= 2 and not programs[place].rounds():
                continue
            programs[place].process.send_signal(signal.SIGKILL)
            programs[place].process.wait()
            programs[place] = start(tmp_path, place, programs[place].arguments)
            kills += 1
        assert [one.process.poll() for one in programs] == [None] * 4
        assert all(one.rounds() for one in programs[2:])
    finally:
        for one in programs:
            one.process.kill()
            one.process.wait()
    with Ledger.open(path) as ledger, Ledger.open(":memory:") as whole:
        last = ledger.cursor("node", "meter") + 500
        while take_next(ledger, last):
            pass
        assert [fault for fault in ledger.check() if "has shares" not in fault] == []
        whole.take("node", "meter", [row(sequence) for sequence in range(1, last + 1)], PLACEMENTS, 1, last_sequence=last)
        found, due = content(ledger), content(whole)
        assert {name: found[name] for name in ("hours", "days", "meters")} == {
            name: due[name] for name in ("hours", "days", "meters")
        }
