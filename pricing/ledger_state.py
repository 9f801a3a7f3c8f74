"""How much a ledger holds: rows, nodes, time, size.

Invariant: all figures are of one moment; only reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from pricing.ledger import Ledger
from pricing.ledger_check import rolled_until
from pricing.ledger_merge import HOUR_MS


class LedgerState(NamedTuple):
    """Times are UTC milliseconds; None for an empty ledger."""

    rows: int
    """Rows in detail; each stands for one or more of an agent's."""
    agent_rows: int
    """Taken from agents and here, in detail or as sums."""
    rolled_up_rows: int
    """Of these, those of which only the sums are left."""
    missing_rows: int
    """Thrown away by an agent before they were taken."""
    nodes: int
    starts_ms: int | None
    ends_ms: int | None
    rolled_up_until_ms: int | None
    size_bytes: int


def state(ledger: Ledger) -> LedgerState:
    """Reads the tables of rows once. LedgerError."""
    with ledger.reading() as connection:
        rows, agent_rows = connection.execute(
            "SELECT COUNT(*), COALESCE(SUM(rows), 0) FROM (SELECT rows FROM usage UNION ALL SELECT rows FROM cpu_usage)"
        ).fetchone()
        rolled = connection.execute(
            "SELECT COALESCE(SUM(rows), 0) FROM (SELECT rows FROM rolled_hours UNION ALL SELECT rows FROM cpu_hours)"
        ).fetchone()[0]
        missing = connection.execute("SELECT COALESCE(SUM(to_sequence - from_sequence + 1), 0) FROM gaps").fetchone()[0]
        nodes = connection.execute("SELECT COUNT(DISTINCT node_id) FROM meters").fetchone()[0]
        firsts = connection.execute(
            "SELECT (SELECT MIN(starts_ms) FROM usage WHERE hour = (SELECT MIN(hour) FROM usage)),"
            " (SELECT MIN(starts_ms) FROM rolled_placements)"
        ).fetchone()
        last = connection.execute("SELECT MAX(ends_ms) FROM meters").fetchone()[0]
        until = rolled_until(connection)
    first = min((at for at in firsts if at is not None), default=None)
    until_ms = None if until is None else until * HOUR_MS
    return LedgerState(rows, agent_rows + rolled, rolled, missing, nodes, first, last, until_ms, size_bytes(ledger.path))


def files(path: str) -> Iterator[str]:
    """The ledger's file and those that SQLite keeps beside it while it is in use."""
    yield from (path, f"{path}-wal", f"{path}-shm", f"{path}-journal")


def size_bytes(path: str) -> int:
    """On the disk, with what was not yet moved from the log into the file."""
    total = 0
    for name in files(path):
        if not name.endswith("-shm") and os.path.exists(name):
            total += os.stat(name).st_size
    return total
