"""`rackrate ledger`: what it says of a ledger, and one sentence for everything that can be wrong with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pricing.calendar import milliseconds
from pricing.ledger import Ledger
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.cli import Done, rackrate_here, write_config

NOON = milliseconds(datetime(2024, 3, 5, 12, tzinfo=UTC))
HOUR_MS = 3_600_000
RANGE = ("--from", "2024-03-01", "--to", "2024-04-01", "--no-sync", "--json")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ledger holds three hours of a node."""
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, 'timezone = "UTC"\n')
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        row = Usage(
            1, NOON + 5, NOON + 3 * HOUR_MS + 5, "GPU-0", "held", None, WHOLE_SHARE, "ann", None, None, 0.5, 7, "counter", 1
        )
        ledger.take("a", "m", [row], [Placed(1, "a", usd_per_hour="8", gpu_count=1)], 1, last_sequence=1)
        ledger.take("b", "m2", [], [], 8)
    return tmp_path


@pytest.fixture
def run(home: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Done]:
    return lambda *arguments: rackrate_here(capfdbinary, *arguments)


def test_check_says_what_the_ledger_holds(home: Path, run: Callable[..., Done]) -> None:
    done = run("ledger", "check")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[1:3] == [
        "4 rows of 2 nodes, from 1 row of their agents",
        f"from 2024-03-05 12:00 to 2024-03-05 15:00 UTC; the newest is {lines[2].rpartition('is ')[2]}",
    ]
    assert lines[3:] == [
        "7 rows were thrown away by agents before any sync",
        "whole: every row is here once, and all sums are right",
    ]
    found = run("ledger", "check", "--json").json()
    assert (found["whole"], found["faults"], found["rows"], found["agent_rows"], found["nodes"]) == (True, [], 4, 1, 2)
    assert (found["from"], found["to"]) == ("2024-03-05T12:00:00.005000Z", "2024-03-05T15:00:00.005000Z")
    assert found["missing_rows"] == 7 and found["newest_row_age_seconds"] > 10**7 and found["size_bytes"] > 10**4
    assert found["rolled_up_until"] is None


def test_check_of_a_ledger_that_does_not_add_up_fails_and_names_the_faults(home: Path, run: Callable[..., Done]) -> None:
    with closing(sqlite3.connect(home / "ledger.db")) as connection, connection:
        connection.execute("DELETE FROM usage WHERE hour = (SELECT MAX(hour) FROM usage)")
    done = run("ledger", "check")
    assert done.code == 1 and "fault: 1 sums of hours are not those of the rows" in done.out
    assert "the ledger is not whole" in done.err
    done = run("ledger", "check", "--json")
    assert (done.code, done.json()["whole"], len(done.json()["faults"])) == (1, False, 1)


def test_backup_and_its_refusals(home: Path, run: Callable[..., Done]) -> None:
    file = str(home / "copy.db")
    assert run("ledger", "backup", file).out.endswith("; checked\n")
    done = run("ledger", "backup", file)
    assert (
        done.code == 1
        and done.err == f"rackrate: {file} exists and was not touched. Name another file, or use --force to replace it.\n"
    )
    assert run("ledger", "backup", file, "--force", "--json").json()["rows"] == 4
    with Ledger.open(file) as copy:
        assert copy.check() == []


def test_retention_keeps_the_report_and_says_what_it_did(home: Path, run: Callable[..., Done]) -> None:
    before = run("report", *RANGE).json()
    would = run("ledger", "retain", "--keep", "400d", "--dry-run")
    assert "4 rows of 4 hours before" in would.out and "would be rolled up" in would.out and would.err == ""
    assert run("ledger", "check", "--json").json()["rows"] == 4
    done = run("ledger", "retain", "--keep", "400d", "--tz", "Asia/Kolkata", "--json").json()
    assert (done["ledger_rows"], done["hours"], done["agent_rows"], done["dry_run"]) == (4, 4, 1, False)
    assert run("report", *RANGE).json() == before
    said = run("ledger", "check").out
    assert "UTC only sums per hour, of 1 row of agents" in said and "whole:" in said
    assert " saved; the ledger has " in run("ledger", "vacuum").out
    assert set(run("ledger", "vacuum", "--json").json()) == {"saved_bytes", "size_bytes", "in_use"}
    assert "0 rows of 0 hours" in run("ledger", "retain", "--keep", "60w").out


@pytest.mark.parametrize("keep", ["400", "d", "0d", "-3d", "1h", "1.5y", "101y", "²d"])
def test_a_time_to_keep_that_is_none_is_wrong_usage(home: Path, run: Callable[..., Done], keep: str) -> None:
    done = run("ledger", "retain", f"--keep={keep}")
    assert done.code == 2 and "is no time to keep: write one like 400d" in done.err


def test_ledger_alone_is_wrong_usage_that_names_its_commands(home: Path, run: Callable[..., Done]) -> None:
    assert run("ledger").code == 2
    assert run("ledger", "retain", "--keep", "1y", "--tz", "Mars/Olympus").code == 2


def _other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (a)")


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "none": (lambda path: path.unlink(), "There is no ledger at "),
    "no database": (lambda path: path.write_bytes(b"x" * 5000), "this is not a ledger, or a damaged one"),
    "another program's": (_other_program, "this is another program's database, not a ledger; it was not touched"),
    "newer": (_newer, "Upgrade rackrate"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_one_sentence_and_exit_code_1(home: Path, run: Callable[..., Done], fault: str) -> None:
    for beside in home.glob("ledger.db-*"):
        beside.unlink()
    spoil, sentence = FAULTS[fault]
    spoil(home / "ledger.db")
    for words in (("check",), ("backup", str(home / "copy.db")), ("vacuum",), ("retain", "--keep", "400d")):
        done = run("ledger", *words)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("rackrate: ") and done.err.count("\n") == 1 and sentence in done.err
    assert not (home / "copy.db").exists()


def test_a_ledger_that_another_program_holds_is_one_sentence(
    home: Path, run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Ledger.open
    monkeypatch.setattr(Ledger, "open", lambda path: opened(path, timeout_seconds=0.1))
    with opened(home / "ledger.db") as other, other.writing():
        for words in (("vacuum",), ("retain", "--keep", "400d")):
            done = run("ledger", *words)
            assert done.code == 1 and "another program kept the ledger locked" in done.err and done.err.count("\n") == 1
        assert run("ledger", "check").code == run("ledger", "backup", str(home / "copy.db")).code == 0
