"""Whether a ledger is whole: every agent row once, and the time of each GPU tiled without overlap or hole.

Invariant: only reads; an empty list of sentences means that all of it was looked at and all of it is right. Of hours
whose rows were rolled up: that their number and their sums per meter are still those that went in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from pricing.ledger_cpu import unbalanced
from pricing.ledger_merge import HOURS_PER_DAY
from pricing.ledger_tiling import FAULTS, Tiling
from pricing.sqlite_beside import Beside

Progress = Callable[[int, int], None]
"""(hours that were looked at, hours in all)"""


def check(connection: sqlite3.Connection, on_progress: Progress = lambda done, count: None) -> list[str]:
    """One sentence per fault, at most twenty of a kind. Reads the whole ledger, which takes seconds per million rows."""
    with Beside(connection) as beside:
        damage, sums = beside.run(_damage), beside.run(_sums)
        try:
            rest = [*_counts(connection), *_tiled(connection, on_progress), *_processors(connection)]
            rest = [*sums.result(), *rest]
        except Exception:  # noqa: BLE001 - whatever damage does to those who read it
            if not damage.result():
                raise
        return damage.result() or rest


def _damage(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(f"PRAGMA integrity_check({FAULTS})")
    return [f"SQLite finds damage: {text}" for (text,) in found if text != "ok"]


def _tiled(connection: sqlite3.Connection, on_progress: Progress) -> list[str]:
    hours = list(_hours_with_rows(connection))
    tiling = Tiling(connection, rolled_until(connection) or 0)
    on_progress(0, len(hours))
    for done, hour in enumerate(hours, 1):
        tiling.take(hour)
        if not done % HOURS_PER_DAY or done == len(hours):
            on_progress(done, len(hours))
    return tiling.faults()


def _sums(connection: sqlite3.Connection) -> list[str]:
    """Whether the sums per hour and per day are those of the rows: hour by hour, so that what is sorted fits into memory."""
    rolled = {hour for (hour,) in connection.execute("SELECT DISTINCT hour FROM rolled_hours")}
    sums = _Sums(connection, rolled)
    for hour in _hours_with_rows(connection):
        sums.take(hour)
    return list(sums.faults())


def _hours_with_rows(connection: sqlite3.Connection) -> Iterator[int]:
    """The UTC hours of which there are rows, in order."""
    hour = -(2**62)
    while (hour := connection.execute("SELECT MIN(hour) FROM usage WHERE hour > ?", (hour,)).fetchone()[0]) is not None:
        yield hour


def _processors(connection: sqlite3.Connection) -> Iterator[str]:
    for node, hour in islice(unbalanced(connection), FAULTS):
        yield f"node {node}: what jobs without a GPU held in the UTC hour {hour} is not what is taken from others"


def _counts(connection: sqlite3.Connection) -> Iterator[str]:
    for node, meter, due, missing, rows in connection.execute(
        "WITH gone AS (SELECT meter_id, SUM(to_sequence - from_sequence + 1) AS missing FROM gaps GROUP BY meter_id),"
        " here AS (SELECT meter_id, SUM(rows) AS rows FROM (SELECT meter_id, SUM(rows) AS rows FROM usage"
        " GROUP BY hour, node_id, meter_id UNION ALL SELECT meter_id, rows FROM rolled_hours"
        " UNION ALL SELECT meter_id, rows FROM cpu_usage UNION ALL SELECT meter_id, rows FROM cpu_hours"
        " JOIN placements ON placements.id = placement_id) GROUP BY meter_id)"
        " SELECT nodes.name, meters.name, cursor - elsewhere, COALESCE(missing, 0), COALESCE(rows, 0) FROM meters"
        " JOIN nodes ON nodes.id = node_id LEFT JOIN gone ON gone.meter_id = meters.id"
        " LEFT JOIN here ON here.meter_id = meters.id"
    ):
        if rows != due - missing:
            yield f"node {node}, meter {meter}: {due - missing} agent rows were taken, but {rows} are here"


class _Sums:
    """Whether the sums per hour and per day are those of the rows."""

    def __init__(self, connection: sqlite3.Connection, rolled: set[int]) -> None:
        self._connection = connection
        self._rolled = rolled
        self._wrong = self._right = 0

    def take(self, hour: int) -> None:
        """One hour with rows."""
        if hour not in self._rolled:
            due, found = _compared(self._connection, "hours", _ROWS_OF_HOUR, hour)
            self._wrong += due - found
            self._right += found

    def faults(self) -> Iterator[str]:
        """After the last hour. Sums without any row are wrong too."""
        among = json.dumps(sorted(self._rolled))
        sums = self._connection.execute(
            "SELECT COUNT(*) FROM hours WHERE at NOT IN (SELECT value FROM json_each(?))", (among,)
        ).fetchone()[0]
        wrong = max(self._wrong, sums - self._right)
        if self._rolled:
            wrong += wrong_hours(self._connection, sorted(self._rolled))
        if wrong:
            yield f"{wrong} sums of hours are not those of the rows"
        wrong = self._wrong_days()
        if wrong:
            yield f"{wrong} sums of days are not those of the rows"

    def _wrong_days(self) -> int:
        wrong = right = 0
        for day in _days_with_hours(self._connection):
            due, found = _compared(self._connection, "days", _HOURS_OF_DAY, day)
            wrong, right = wrong + due - found, right + found
        return max(wrong, self._connection.execute("SELECT COUNT(*) FROM days").fetchone()[0] - right)


def _days_with_hours(connection: sqlite3.Connection) -> Iterator[int]:
    day = -(2**50)
    query = f"SELECT MIN(at) / {HOURS_PER_DAY} FROM hours WHERE at >= ?"
    while (day := connection.execute(query, ((day + 1) * HOURS_PER_DAY,)).fetchone()[0]) is not None:
        yield day


def _compared(connection: sqlite3.Connection, table: str, due: str, at: int) -> tuple[int, int]:
    """(sums that are due at this hour or day, how many of them the table has)."""
    return connection.execute(
        f"SELECT COUNT(*), COUNT({table}.at) FROM (SELECT {_GROUP}, {due}) AS due LEFT JOIN {table} ON {table}.at = :at"
        + "".join(f" AND {table}.{name} = due.{name}" for name in _GROUP.split(", "))
        + f" AND share_ms = due_share_ms AND {table}.busy = due_busy AND measured_share_ms = due_measured"
        f" AND {table}.energy_mj IS due_energy_mj",
        {"at": at},
    ).fetchone()


_GROUP = "placement_id, kind, holder_id"
_SUMS = "SUM(share_ms), SUM(busy), SUM(measured_share_ms), SUM(energy_mj)"
_OF_ROWS = "SUM((ends_ms - starts_ms) * share), SUM(busy), SUM(measured_ms * share), SUM(energy_mj)"


def _due(sums: str, source: str) -> str:
    names = ("due_share_ms", "due_busy", "due_measured", "due_energy_mj")
    said = ", ".join(f"{one} AS {name}" for one, name in zip(sums.split(", "), names, strict=True))
    return f"{said} FROM {source} GROUP BY {_GROUP}"


_ROWS_OF_HOUR = _due(_OF_ROWS, "usage WHERE hour = :at")
_HOURS_OF_DAY = _due(_SUMS, f"hours WHERE at >= :at * {HOURS_PER_DAY} AND at < (:at + 1) * {HOURS_PER_DAY}")


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
