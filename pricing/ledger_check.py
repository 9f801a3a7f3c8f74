"""Whether a ledger is whole: every agent row once, and the time of each GPU tiled without overlap or hole.

Invariant: only reads; an empty list of sentences means that all of it was looked at and all of it is right. Of hours
whose rows were rolled up: that their number and their sums per meter are still those that went in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import NamedTuple

from pricing.ledger_cpu import unbalanced
from pricing.ledger_merge import HOURS_PER_DAY
from pricing.usage import WHOLE_SHARE

FAULTS = 20
"""As many are told of a kind; who reads more has a ledger to restore."""


def check(connection: sqlite3.Connection) -> list[str]:
    """One sentence per fault, at most twenty of a kind. Reads the whole ledger, which takes seconds per million rows."""
    damage = connection.execute(f"PRAGMA integrity_check({FAULTS})")
    faults = [f"SQLite finds damage: {text}" for (text,) in damage if text != "ok"]
    return faults or [*_counts(connection), *_sums(connection), *_Tiling(connection).faults(), *_processors(connection)]


def _processors(connection: sqlite3.Connection) -> Iterator[str]:
    for node, hour in islice(unbalanced(connection), FAULTS):
        yield f"node {node}: what jobs without a GPU held in the UTC hour {hour} is not what is taken from others"


def _counts(connection: sqlite3.Connection) -> Iterator[str]:
    for node, meter, due, missing, rows in connection.execute(
        "WITH gone AS (SELECT meter_id, SUM(to_sequence - from_sequence + 1) AS missing FROM gaps GROUP BY meter_id),"
        " here AS (SELECT meter_id, SUM(rows) AS rows FROM (SELECT meter_id, rows FROM usage"
        " UNION ALL SELECT meter_id, rows FROM rolled_hours UNION ALL SELECT meter_id, rows FROM cpu_usage) GROUP BY meter_id)"
        " SELECT nodes.name, meters.name, cursor - elsewhere, COALESCE(missing, 0), COALESCE(rows, 0) FROM meters"
        " JOIN nodes ON nodes.id = node_id LEFT JOIN gone ON gone.meter_id = meters.id"
        " LEFT JOIN here ON here.meter_id = meters.id"
    ):
        if rows != due - missing:
            yield f"node {node}, meter {meter}: {due - missing} agent rows were taken, but {rows} are here"


def _sums(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether the sums per hour and per day are those of the rows."""
    wrong = wrong_hours(connection)
    if wrong:
        yield f"{wrong} sums of hours are not those of the rows"
    due = f"SELECT at / {HOURS_PER_DAY} AS day, {_GROUP}, {_SUMS} FROM hours GROUP BY day, {_GROUP}"
    wrong = _differing(connection, due, "SELECT * FROM days")
    if wrong:
        yield f"{wrong} sums of days are not those of the rows"


_GROUP = "placement_id, kind, holder_id"
_SUMS = "SUM(share_ms), SUM(busy), SUM(measured_share_ms), SUM(energy_mj)"
_OF_ROWS = "SUM((ends_ms - starts_ms) * share), SUM(busy), SUM(measured_ms * share), SUM(energy_mj)"


def wrong_hours(connection: sqlite3.Connection, among: Sequence[int] | None = None) -> int:
    """How many sums of hours (of these, or of all) are not those of the rows, present or rolled up."""
    chosen = "1" if among is None else "{0} IN (SELECT value FROM json_each(:hours))"
    hours, usage = chosen.format("at"), chosen.format("hour")
    rolled = f"(SELECT DISTINCT hour FROM rolled_hours WHERE {usage})"
    plain = (
        f"SELECT hour, {_GROUP}, {_OF_ROWS} FROM usage WHERE {usage} AND hour NOT IN {rolled} GROUP BY hour, {_GROUP}",
        f"SELECT * FROM hours WHERE {hours} AND at NOT IN {rolled}",
    )
    summed = (
        "SELECT hour, meter_id, SUM(a), SUM(b), SUM(c), SUM(d) FROM (SELECT hour, meter_id, share_ms AS a, busy AS b,"
        f" measured_share_ms AS c, energy_mj AS d FROM rolled_hours WHERE {usage} UNION ALL SELECT hour, meter_id,"
        f" {_OF_ROWS} FROM usage WHERE {usage} AND hour IN {rolled} GROUP BY hour, meter_id) GROUP BY hour, meter_id",
        f"SELECT at, meter_id, {_SUMS} FROM hours JOIN placements ON placements.id = placement_id"
        f" WHERE {hours} AND at IN {rolled} GROUP BY at, meter_id",
    )
    return sum(_differing(connection, *pair, hours=json.dumps(among)) for pair in (plain, summed))


def _differing(connection: sqlite3.Connection, due: str, found: str, **values: str) -> int:
    return connection.execute(
        f"WITH due AS MATERIALIZED ({due}), found AS MATERIALIZED ({found})"
        " SELECT (SELECT COUNT(*) FROM (SELECT * FROM due EXCEPT SELECT * FROM found))"
        " + ABS((SELECT COUNT(*) FROM due) - (SELECT COUNT(*) FROM found))",
        values,
    ).fetchone()[0]


def rolled_until(connection: sqlite3.Connection) -> int | None:
    """The UTC hour before which rows were rolled up; None if none ever were."""
    return connection.execute("SELECT MAX(until_hour) FROM rollups").fetchone()[0]


class _Row(NamedTuple):
    hour: int
    node: int
    gpu: int
    meter: int
    starts_ms: int
    ends_ms: int
    share: int


class _Tiling:
    """Walks the rows hour by hour; remembers per meter and GPU how far its time is covered.

    Before the hour until which rows were rolled up, the rest of a moment may be there as sums only: there it looks only
    for too much.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._covered: dict[tuple[int, int], int] = {}
        self._until: dict[tuple[int, int], int] = {}
        self._unfinished, self._gappy = self._exceptions()
        self._rolled_until = rolled_until(connection) or 0
        for meter, node, gpu, ends_ms in connection.execute(
            "SELECT meter_id, node_id, gpu_id, rolled_gpus.ends_ms FROM rolled_gpus JOIN meters ON meters.id = meter_id"
        ):
            self._covered[meter, gpu] = ends_ms
            self._until[node, gpu] = max(ends_ms, self._until.get((node, gpu), ends_ms))

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
            if group[0][0] < self._rolled_until:
                found += self._beside_rolled([_Row._make(row) for row in group])
            elif len(group) > 1 or not self._simply_goes_on(*group[0]):
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

    def _beside_rolled(self, rows: list[_Row]) -> Iterator[str]:
        """One GPU in one hour of which more may have been rolled up."""
        for row in rows:
            for covered, key in ((self._covered, (row.meter, row.gpu)), (self._until, (row.node, row.gpu))):
                covered[key] = max(row.ends_ms, covered.get(key, row.ends_ms))
        edges = sorted({edge for row in rows for edge in (row.starts_ms, row.ends_ms)})
        for start, end in zip(edges, edges[1:], strict=False):
            share = sum(row.share for row in rows if row.starts_ms < end and row.ends_ms > start)
            if share > WHOLE_SHARE:
                yield f"{self._name(rows[0])} has shares of {share} millionths from {start} to {end} ms"

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
