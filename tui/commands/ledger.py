"""`ledger check|backup|vacuum|retain`: looks after the ledger's file.

Invariant: none of them makes a ledger where there is none, and each fault is one sentence and exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed
from tui.exit_codes import ExitCode
from tui.output import print_json, say

if TYPE_CHECKING:
    from pricing.ledger import Ledger
    from pricing.ledger_state import LedgerState


@contextlib.contextmanager
def _existing(context: Context) -> Iterator[Ledger]:
    path = context.paths.ledger_path(context.config)
    if not path.exists():
        raise Failed(f"There is no ledger at {path} yet; `rackrate sync` makes one.")
    with context.open_ledger() as ledger:
        yield ledger


def check(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Whether the ledger is whole, and what it holds."""
    from pricing.ledger_state import state

    now = datetime.now(UTC)
    with _existing(context) as ledger:
        faults = ledger.check(_checked)
        _progress("reading what it holds")
        found = None if any("SQLite finds damage" in fault for fault in faults) else state(ledger)
    _end_progress()
    if arguments.json:
        print_json({"path": ledger.path, "whole": not faults, "faults": faults, **(_record(found, now) if found else {})})
    else:
        if found is not None:
            _print(ledger.path, found, now)
        for fault in faults:
            print(f"fault: {fmt.clean(fault)}")
        if not faults:
            print("whole: every row is here once, and all sums are right")
    if faults:
        say(f"rackrate: {ledger.path}: the ledger is not whole. Restore a backup, or sync into a new one.")
    return ExitCode.FAILED if faults else ExitCode.DONE


def _checked(done: int, count: int) -> None:
    _progress(f"{done:,} of {count:,} hours checked")


def _record(found: LedgerState, now: datetime) -> dict[str, Any]:
    age = _age(found, now)
    return {
        "rows": found.rows,
        "agent_rows": found.agent_rows,
        "rolled_up_rows": found.rolled_up_rows,
        "missing_rows": found.missing_rows,
        "nodes": found.nodes,
        "from": _text(found.starts_ms),
        "to": _text(found.ends_ms),
        "rolled_up_until": _text(found.rolled_up_until_ms),
        "size_bytes": found.size_bytes,
        "newest_row_age_seconds": None if age is None else round(age, 3),
    }


def _print(path: str, found: LedgerState, now: datetime) -> None:
    print(f"{path}: {fmt.size(found.size_bytes)}")
    print(f"{fmt.counted(found.rows, 'row')} of {fmt.counted(found.nodes, 'node')}, from {fmt.counted(found.agent_rows, 'row')} of their agents")
    if found.starts_ms is not None:
        print(f"from {_minute(found.starts_ms)} to {_minute(found.ends_ms)} UTC; the newest is {fmt.age(_age(found, now))} old")
    if found.rolled_up_until_ms is not None:
        print(f"before {_minute(found.rolled_up_until_ms)} UTC only sums per hour, of {fmt.counted(found.rolled_up_rows, 'row')} of agents")
    if found.missing_rows:
        print(f"{fmt.counted(found.missing_rows, 'row was', 'rows were')} thrown away by agents before any sync")


def _age(found: LedgerState, now: datetime) -> float | None:
    return None if found.ends_ms is None else now.timestamp() - found.ends_ms / 1000


def _minute(ms: int | None) -> str:
    from pricing.calendar import instant

    return "–" if ms is None else f"{instant(ms):%Y-%m-%d %H:%M}"


def _text(ms: int | None) -> str | None:
    from pricing.calendar import instant

    return None if ms is None else instant(ms).isoformat().replace("+00:00", "Z")


def backup(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Copies the ledger to a file."""
    from pricing.ledger_backup import backup as write

    with _existing(context) as ledger:
        done = write(ledger, Path(arguments.file), force=arguments.force, on_progress=_copied)
    _end_progress()
    if arguments.json:
        print_json({"file": arguments.file, "rows": done.rows, "size_bytes": done.size_bytes})
    else:
        print(f"{arguments.file}: {fmt.counted(done.rows, 'row')}, {fmt.size(done.size_bytes)}; checked")
    return ExitCode.DONE


def _copied(done: int, total: int) -> None:
    _progress(f"{done * 100 // max(1, total)} % of {fmt.size(total)} copied")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


def _end_progress() -> None:
    _progress("")
    if sys.stderr.isatty():
        sys.stderr.write("\r")


def vacuum(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Gives room back to the disk."""
    from pricing.ledger_backup import vacuum as run

    with _existing(context) as ledger:
        done = run(ledger)
    if arguments.json:
        saved = {"saved_bytes": done.before_bytes - done.after_bytes, "size_bytes": done.after_bytes, "in_use": done.in_use}
        print_json(saved)
    else:
        print(f"{fmt.size(max(0, done.before_bytes - done.after_bytes))} saved; the ledger has {fmt.size(done.after_bytes)}")
    if done.in_use:
        say("another program is reading the ledger: its file shrinks when that is done")
    return ExitCode.DONE


def retain(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Rolls up what is older than `--keep`."""
    from pricing.ledger_retention import retain as run

    now = datetime.now(UTC)
    zones = {context.timezone_name(arguments.tz), *(one.timezone for one in context.config.budgets if one.timezone)}
    with _existing(context) as ledger:
        done = run(
            ledger, now - timedelta(days=arguments.keep), now, zones=zones, dry_run=arguments.dry_run,
            on_progress=lambda day: _progress(f"rolled up {day:%Y-%m-%d}"),
        )  # fmt: skip
    _end_progress()
    if arguments.json:
        print_json({**done._asdict(), "until": done.until.isoformat().replace("+00:00", "Z"), "dry_run": arguments.dry_run})
        return ExitCode.DONE
    verb = "would be" if arguments.dry_run else "was" if done.ledger_rows == 1 else "were"
    what = f"{fmt.counted(done.ledger_rows, 'row')} of {fmt.counted(done.hours, 'hour')}"
    print(f"{what} before {done.until:%Y-%m-%d} {verb} rolled up: the sums stay")
    if done.kept_hours:
        print(f"{fmt.counted(done.kept_hours, 'hour keeps its', 'hours keep their')} rows, because days of a time zone in use begin within")
    if done.ledger_rows and not arguments.dry_run:
        say("`rackrate ledger vacuum` gives their room back to the disk")
    return ExitCode.DONE
