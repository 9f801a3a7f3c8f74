"""The options of `ledger` and the words behind it: `check`, `backup`, `vacuum`, `retain`.

Invariant: every one of them says what it is about to cost (`--dry-run`, space) or changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

EPILOG = """`retain` takes the rows of long ago away and keeps their sums per hour and day: reports over whole hours stay the same
to the last digit. For a time zone whose days begin within a UTC hour (India), that one hour a day keeps its rows: the zone of reports, those
of budgets and of closed months.
"""
_DAYS = {"d": 1, "w": 7, "y": 365}


def add_ledger_commands(
    commands: Any, command: Callable[..., argparse.ArgumentParser], json: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Adds `ledger` to `commands`; `command` and `json` are those of the other commands."""
    group = command(commands, "ledger", "ledger:check", "check, back up, shrink the ledger")
    group.epilog = EPILOG
    group.formatter_class = argparse.RawDescriptionHelpFormatter
    words = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    json(command(words, "check", "ledger:check", "whether every row is there once and all sums are right; what it holds"))
    backup = command(words, "backup", "ledger:backup", "copy the ledger, also while others use it")
    backup.add_argument("file", metavar="FILE", help="of the copy; is there whole or not at all")
    backup.add_argument("--force", action="store_true", help="replace FILE if it exists")
    json(backup)
    json(command(words, "vacuum", "ledger:vacuum", "give the room of deleted rows back to the disk"))
    retain = command(words, "retain", "ledger:retain", "keep only the sums per hour of rows that are older")
    retain.add_argument("--keep", required=True, type=keep_days, metavar="TIME", help="rows of this time stay: 400d, 60w, 2y")
    retain.add_argument("--dry-run", action="store_true", help="only say what would be rolled up")
    retain.add_argument("--tz", metavar="ZONE", help="whose days stay exact, IANA (default: as for reports)")
    json(retain)


def keep_days(text: str) -> int:
    """`400d`, `60w`, `2y` as days; at least one."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and unit in _DAYS) or not 1 <= int(number) * _DAYS[unit] <= 36_500:
        raise argparse.ArgumentTypeError(f"'{text[:20]}' is no time to keep: write one like 400d, 60w or 2y, at least 1d")
    return int(number) * _DAYS[unit]
