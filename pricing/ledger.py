"""The ledger: one SQLite file that holds what every node used, each agent row exactly once.

Invariant: a page's rows, the sums over them and the cursor (node, meter) change in one transaction; whatever fails,
the ledger is as it was, and taking the same page again is safe. Several programs may use it at once.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from pricing import ledger_cpu, ledger_schema
from pricing.errors import LedgerDamaged, LedgerError, LedgerFull, LedgerLocked, LedgerTooNew
from pricing.ledger_check import Progress, check
from pricing.ledger_dictionary import Dictionary
from pricing.ledger_merge import (
    HOUR_MS,
    STORED_COLUMNS,
    Ids,
    LedgerRow,
    Merger,
    sums_of,
)
from pricing.sqlite_faults import Faults
from pricing.sqlite_file import SqliteFile, identity, upgrade, write_ahead
from pricing.usage import CPU, WHOLE_SHARE, Interruption, Placed, Usage

_FAULTS = Faults(
    "ledger", LedgerError, LedgerLocked, LedgerFull, LedgerDamaged,
    "Restore a copy, or move it away and sync again: agents still keep their newer rows.",
)  # fmt: skip


class Taken(NamedTuple):
    """What became of one page: rows that were new, that were known already, and that the agent no longer keeps."""

    new: int
    duplicates: int
    missing: int


class Gap(NamedTuple):
    """Rows that an agent threw away before they were taken. `after_ms`, `before_ms`: the time they lie between."""

    node: str
    meter: str
    from_sequence: int
    to_sequence: int
    after_ms: int | None
    before_ms: int | None
    noticed_at_ms: int | None


class Ledger(SqliteFile):
    """Use `open`; close it, or use it as a context manager. Safe to use from several threads."""

    translated = staticmethod(_FAULTS.translated)

    @classmethod
    def open(cls, path: str | Path, *, timeout_seconds: float = 10.0) -> Ledger:
        """Opens the ledger, or makes one where there is none; `:memory:` is allowed.

        Raises LedgerTooNew, LedgerLocked (busy longer than the timeout), LedgerDamaged, LedgerFull, or LedgerError.
        """
        with _FAULTS.translated(str(path), timeout_seconds):
            connection = sqlite3.connect(
                path, timeout=timeout_seconds, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            try:
                _prepare(connection, str(path), time.monotonic() + timeout_seconds)
            except BaseException:
                connection.close()
                raise
        return cls(connection, os.fspath(path))

    @contextlib.contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """No transaction, and no other thread: for what SQLite does not do within one."""
        with self._lock, _FAULTS.translated(self.path):
            yield self._connection

    def cursor(self, node: str, meter: str) -> int:
        """The newest sequence that was taken from this meter; 0 if none."""
        with self.reading() as connection:
            row = connection.execute(
                "SELECT cursor FROM meters JOIN nodes ON nodes.id = node_id WHERE nodes.name = ? AND meters.name = ?",
                (node, meter),
            ).fetchone()
        return row[0] if row else 0

    def newest_meter(self, node: str) -> tuple[str, int] | None:
        """(meter, cursor) that this node was last seen with."""
        with self.reading() as connection:
            return connection.execute(
                "SELECT meters.name, cursor FROM meters JOIN nodes ON nodes.id = node_id WHERE nodes.name = ?"
                " ORDER BY ends_ms DESC, meters.id DESC LIMIT 1",
                (node,),
            ).fetchone()

    def gaps(self) -> list[Gap]:
        """Rows that were lost because no sync came before the agent's retention ended."""
        with self.reading() as connection:
            return [
                Gap(*row)
                for row in connection.execute(
                    "SELECT nodes.name, meters.name, from_sequence, to_sequence, after_ms, before_ms, noticed_at_ms"
                    " FROM gaps JOIN meters ON meters.id = meter_id JOIN nodes ON nodes.id = node_id ORDER BY gaps.id"
                )
            ]

    def check(self, on_progress: Progress = lambda done, count: None) -> list[str]:
        """One sentence per fault; empty when every agent row is here once and each GPU's time is tiled."""
        with self.reading() as connection:
            return check(connection, on_progress)

    def take(
        self,
        node: str,
        meter: str,
        rows: Sequence[Usage],
        placements: Sequence[Placed],
        first_sequence: int,
        *,
        last_sequence: int | None = None,
        noticed_at: datetime | None = None,
        interruptions: Sequence[Interruption] = (),
    ) -> Taken:
        """Takes one page of an agent: rows in order without holes; those that are known already are skipped.

        `first_sequence` is the oldest row that the agent still keeps: older ones that were never taken are recorded
        as a gap. `last_sequence` is the agent's newest (for `check`), `noticed_at` the time to note with a gap;
        `interruptions` are what the record tells now of them.
        Raises LedgerError for a page that cannot be right; then nothing of it was taken.
        """
        with self.writing() as connection:
            page = _Page(connection, node, meter)
            page.names.interruptions(page.meter_id, interruptions)
            return page.take(rows, placements, first_sequence, last_sequence, noticed_at)


class _Page:
    """One page on its way into the ledger, inside one transaction."""

    def __init__(self, connection: sqlite3.Connection, node: str, meter: str) -> None:
        self.connection = connection
        self.node = node
        self.names = Dictionary(connection)
        self.node_id = self.names.node(node)
        self.meter_id, self.cursor, self.ends_ms = self.names.meter(self.node_id, meter)
        self.elsewhere = self.names.cursors_elsewhere(self.node_id, meter)

    def take(
        self,
        rows: Sequence[Usage],
        placements: Sequence[Placed],
        first_sequence: int,
        last_sequence: int | None,
        noticed_at: datetime | None,
    ) -> Taken:
        fresh = self._fresh(rows)
        absent = self._absent(fresh, first_sequence)
        new = self._without_elsewhere(fresh, placements)
        known = 0 if self.cursor else min(absent, max(self.elsewhere.values(), default=0))
        if absent > known:
            self._note_gap(self.cursor + known + 1, self.cursor + absent, fresh, noticed_at)
        if new:
            self._insert(new, placements)
        self.connection.execute(
            "UPDATE meters SET cursor = ?, elsewhere = elsewhere + ?, ends_ms = ?, agent_last = COALESCE(?, agent_last)"
            " WHERE id = ?",
            (
                self.cursor + absent + len(fresh),
                known + len(fresh) - len(new),
                self._newest_end(fresh),
                last_sequence,
                self.meter_id,
            ),
        )
        return Taken(len(new), len(rows) - len(new), absent - known)

    def _without_elsewhere(self, fresh: Sequence[Usage], placements: Sequence[Placed]) -> Sequence[Usage]:
        """Leaves out rows of a renamed agent that were taken under the name which they still carry."""
        reached = {placed.number: self.elsewhere.get(placed.node, 0) for placed in placements if placed.node != self.node}
        if not any(reached.values()):
            return fresh
        return [row for row in fresh if row.sequence > reached.get(row.placement, 0)]

    def _newest_end(self, fresh: Sequence[Usage]) -> int | None:
        ends = [row.ends_ms for row in fresh]
        if self.ends_ms is not None:
            ends.append(self.ends_ms)
        return max(ends, default=None)

    def _fresh(self, rows: Sequence[Usage]) -> Sequence[Usage]:
        """The rows above the cursor, after checking that the page has no hole."""
        if not rows:
            return rows
        first = rows[0].sequence
        if rows[-1].sequence - first != len(rows) - 1 or any(
            row.sequence != sequence for sequence, row in enumerate(rows, first)
        ):
            raise self._wrong(f"its page from row {first} to {rows[-1].sequence} has {len(rows)} rows out of order")
        return rows[max(0, self.cursor + 1 - first) :]

    def _absent(self, fresh: Sequence[Usage], first_sequence: int) -> int:
        """How many rows between the cursor and this page are gone for ever."""
        due = self.cursor + 1
        if not fresh:
            return max(0, first_sequence - due)
        absent = fresh[0].sequence - due
        if absent and first_sequence < fresh[0].sequence:
            raise self._wrong(f"row {due} was due, but the page begins at {fresh[0].sequence}")
        return absent

    def _note_gap(self, first: int, last: int, fresh: Sequence[Usage], noticed_at: datetime | None) -> None:
        before = min((row.starts_ms for row in fresh), default=None)
        noticed = None if noticed_at is None else round(noticed_at.timestamp() * 1000)
        self.connection.execute(
            "INSERT INTO gaps (meter_id, from_sequence, to_sequence, after_ms, before_ms, noticed_at_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (self.meter_id, first, last, self.ends_ms, before, noticed),
        )

    def _insert(self, fresh: Sequence[Usage], placements: Sequence[Placed]) -> None:
        numbers = self.names.placements(self.meter_id, placements, {row.placement for row in fresh})
        cpu = [row for row in fresh if row.kind == CPU]
        if cpu:
            self._take_cpu(cpu, numbers)
            fresh = [row for row in fresh if row.kind != CPU]
        merger = Merger(self._stored({row.starts_ms // HOUR_MS for row in fresh}))
        known: dict[tuple[object, ...], Ids] = {}
        for row in fresh:
            who = (row[3:10], row[12], row[13])
            ids = known.get(who)
            if ids is None:
                ids = known[who] = self._ids(row, numbers)
            if row.ends_ms <= row.starts_ms:
                raise self._wrong(f"row {row.sequence} ends before it starts")
            merger.add(row, ids)
        self._write(list(merger.touched.values()))

    def _take_cpu(self, rows: Sequence[Usage], numbers: dict[int, int]) -> None:
        for row in rows:
            if row.placement not in numbers or row.ends_ms <= row.starts_ms:
                raise self._wrong(f"row {row.sequence} ends before it starts, or names a placement that the page does not bring")
        try:
            ledger_cpu.take(self.names, self.node_id, self.meter_id, rows, numbers)
        except ValueError:
            raise self._wrong("a row of processors is taken from an unknown kind") from None

    def _ids(self, row: Usage, numbers: dict[int, int]) -> Ids:
        if row.placement not in numbers:
            raise self._wrong(f"row {row.sequence} names placement {row.placement}, which the page does not bring")
        if not 0 < row.share_millionths <= WHOLE_SHARE:
            raise self._wrong(f"row {row.sequence} has a share of {row.share_millionths} millionths of a GPU")
        try:
            return self.names.ids(row, numbers[row.placement])
        except ValueError:
            raise self._wrong(f"row {row.sequence} is of the unknown kind `{row.kind}`") from None

    def _stored(self, hours: set[int]) -> list[LedgerRow]:
        """The ledger rows that the page's rows may continue."""
        found: list[LedgerRow] = []
        for hour in hours:
            found += map(
                LedgerRow.stored,
                self.connection.execute(
                    f"SELECT {STORED_COLUMNS} FROM usage WHERE hour = ? AND node_id = ? AND meter_id = ?",
                    (hour, self.node_id, self.meter_id),
                ),
            )
        return found

    def _write(self, rows: Sequence[LedgerRow]) -> None:
        self.connection.executemany(
            f"INSERT INTO usage VALUES ({', '.join('?' * 18)}) ON CONFLICT DO UPDATE SET ends_ms = excluded.ends_ms,"
            " busy = excluded.busy, measured_ms = excluded.measured_ms, energy_mj = excluded.energy_mj,"
            " rows = excluded.rows, last_sequence = excluded.last_sequence",
            [row.record(self.node_id, self.meter_id) for row in rows],
        )
        for table, sums in zip(("hours", "days"), sums_of(rows), strict=True):
            self.connection.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " share_ms = share_ms + excluded.share_ms, busy = busy + excluded.busy,"
                " measured_share_ms = measured_share_ms + excluded.measured_share_ms, energy_mj ="
                " COALESCE(energy_mj + excluded.energy_mj, energy_mj, excluded.energy_mj)",
                [(*place, *amounts) for place, amounts in sums.items()],
            )

    def _wrong(self, what: str) -> LedgerError:
        return LedgerError(
            f"node {self.node}: {what}; nothing of it was taken. Is the agent of a newer version, or its usage.db damaged?"
        )


def _prepare(connection: sqlite3.Connection, path: str, deadline: float) -> None:
    """Checks what the file is, and brings it to the newest schema."""
    version = _version(connection, path)
    write_ahead(connection, deadline)
    connection.execute("PRAGMA synchronous = NORMAL")  # the cursor is in the same transaction: a lost one is taken again
    connection.execute("PRAGMA cache_size = -65536")
    if version == ledger_schema.SCHEMA_VERSION:
        return
    upgrade(connection, lambda: _version(connection, path), ledger_schema.SCHEMA_VERSION, ledger_schema.migrate)


def _version(connection: sqlite3.Connection, path: str) -> int:
    version, application, tables = identity(connection)
    if application != ledger_schema.APPLICATION_ID and (version or application or tables):
        raise LedgerDamaged(f"{path}: this is another program's database, not a ledger; it was not touched. Name another file.")
    if version > ledger_schema.SCHEMA_VERSION:
        raise LedgerTooNew(
            f"{path}: this ledger was written by {ledger_schema.written_by(connection)} (format {version}); this is "
            f"rackrate {ledger_schema.program_version()}, which reads up to format {ledger_schema.SCHEMA_VERSION}. "
            "Upgrade rackrate, or name another ledger; nothing was changed."
        )
    return version
