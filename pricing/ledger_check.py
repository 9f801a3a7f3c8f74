"""Whether a ledger is whole: every agent row once, and the time of each GPU tiled without overlap or hole.

Invariant: only reads; an empty list of sentences means that all of it was looked at and all of it is right.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from pricing.ledger_merge import HOURS_PER_DAY
from pricing.usage import WHOLE_SHARE

FAULTS = 20
"""As many are told of a kind; who reads more has a ledger to restore."""


def check(connection: sqlite3.Connection) -> list[str]:
    """One sentence per fault, at most twenty of a kind. Reads the whole ledger, which takes seconds per million rows."""
    damage = connection.execute(f"PRAGMA integrity_check({FAULTS})")
    faults = [f"SQLite finds damage: {text}" for (text,) in damage if text != "ok"]
    return faults or [*_counts(connection), *_sums(connection), *_Tiling(connection).faults()]


def _counts(connection: sqlite3.Connection) -> Iterator[str]:
    for node, meter, due, missing, rows in connection.execute(
        "WITH gone AS (SELECT meter_id, SUM(to_sequence - from_sequence + 1) AS missing FROM gaps GROUP BY meter_id),"
        " here AS (SELECT meter_id, SUM(rows) AS rows FROM usage GROUP BY meter_id)"
        " SELECT nodes.name, meters.name, cursor - elsewhere, COALESCE(missing, 0), COALESCE(rows, 0) FROM meters"
        " JOIN nodes ON nodes.id = node_id LEFT JOIN gone ON gone.meter_id = meters.id"
        " LEFT JOIN here ON here.meter_id = meters.id"
    ):
        if rows != due - missing:
            yield f"node {node}, meter {meter}: {due - missing} agent rows were taken, but {rows} are here"


def _sums(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether the sums per hour and per day are those of the rows."""
    amounts = "SUM(busy), SUM(measured_ms * share), SUM(energy_mj)"
    group = "placement_id, kind, holder_id"
    sources = {
        "hours": f"SELECT hour, {group}, SUM((ends_ms - starts_ms) * share), {amounts} FROM usage GROUP BY hour, {group}",
        "days": f"SELECT at / {HOURS_PER_DAY} AS day, {group}, SUM(share_ms), SUM(busy), SUM(measured_share_ms),"
        f" SUM(energy_mj) FROM hours GROUP BY day, {group}",
    }
    for table, rows in sources.items():
        wrong = connection.execute(
            f"WITH due AS MATERIALIZED ({rows}) SELECT (SELECT COUNT(*) FROM (SELECT * FROM due EXCEPT SELECT * FROM {table}))"
            f" + ABS((SELECT COUNT(*) FROM due) - (SELECT COUNT(*) FROM {table}))"
        ).fetchone()[0]
        if wrong:
            yield f"{wrong} sums of {table} are not those of the rows"


class _Row(NamedTuple):
    hour: int
    node: int
    gpu: int
    meter: int
    starts_ms: int
    ends_ms: int
    share: int


class _Tiling:
    """Walks the rows hour by hour; remembers per meter and GPU how far its time is covered."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._covered: dict[tuple[int, int], int] = {}
        self._until: dict[tuple[int, int], int] = {}
        self._unfinished, self._gappy = self._exceptions()

    def _exceptions(self) -> tuple[set[int], set[int]]:
        """Meters whose newest rows are still to come, and meters with a gap that explains a hole in time."""
        unfinished = self._connection.execute("SELECT id FROM meters WHERE agent_last IS NULL OR cursor < agent_last")
        gappy = self._connection.execute("SELECT DISTINCT meter_id FROM gaps")
        return {id for (id,) in unfinished}, {id for (id,) in gappy}

    def faults(self) -> list[str]:
        """At most twenty sentences."""
        self._ends = {
            (meter, gpu): end
            for meter, gpu, end in self._connection.execute(
                "SELECT meter_id, gpu_id, MAX(ends_ms) FROM usage GROUP BY meter_id, gpu_id"
            )
        }
        rows = self._connection.execute(
            "SELECT hour, node_id, gpu_id, meter_id, starts_ms, ends_ms, share FROM usage"
            " ORDER BY hour, node_id, gpu_id, starts_ms"
        )
        found: list[str] = []
        for _, same in groupby(rows, key=itemgetter(0, 1, 2)):
            group = list(same)
            if len(group) > 1 or not self._simply_goes_on(*group[0]):
                found += self._gpu_hour([_Row._make(row) for row in group])
            if len(found) >= FAULTS:
                break
        return found[:FAULTS]

    def _simply_goes_on(self, _: int, node: int, gpu: int, meter: int, starts_ms: int, ends_ms: int, share: int) -> bool:
        """The common case, quickly: one row for a whole GPU that begins where the one before ended."""
        if share != WHOLE_SHARE or self._covered.get((meter, gpu)) != starts_ms or self._until.get((node, gpu)) != starts_ms:
            return False
        self._covered[meter, gpu] = self._until[node, gpu] = ends_ms
        return True

    def _gpu_hour(self, rows: list[_Row]) -> Iterator[str]:
        """One GPU in one hour: at every moment between two edges the shares sum to one whole."""
        edges = sorted({edge for row in rows for edge in (row.starts_ms, row.ends_ms)})
        if len(edges) == len(rows) + 1 and all(row.share == WHOLE_SHARE for row in rows):
            for row in rows:
                yield from self._piece(row, row.starts_ms, row.ends_ms, [row])
            return
        for start, end in zip(edges, edges[1:], strict=False):
            yield from self._piece(rows[0], start, end, [row for row in rows if row.starts_ms < end and row.ends_ms > start])

    def _piece(self, any_row: _Row, start: int, end: int, rows: list[_Row]) -> Iterator[str]:
        if not rows:
            return
        gpu = (any_row.node, any_row.gpu)
        if start < self._until.get(gpu, start):
            yield f"{self._name(any_row)} overlaps itself at {start} ms"
        self._until[gpu] = end
        share = sum(row.share for row in rows)
        for meter in {row.meter for row in rows}:
            key = (meter, any_row.gpu)
            if self._covered.get(key, start) != start and meter not in self._gappy:
                yield f"{self._name(any_row)} has a hole from {self._covered[key]} to {start} ms"
            self._covered[key] = end
            tail = meter in self._unfinished and end == self._ends[key]
            if share > WHOLE_SHARE or (share < WHOLE_SHARE and not tail):
                yield f"{self._name(any_row)} has shares of {share} millionths from {start} to {end} ms"

    def _name(self, row: _Row) -> str:
        node = self._connection.execute("SELECT name FROM nodes WHERE id = ?", (row.node,)).fetchone()[0]
        gpu = self._connection.execute("SELECT uuid FROM gpus WHERE id = ?", (row.gpu,)).fetchone()[0]
        return f"node {node}, {gpu or 'host'}:"
