"""Retention: rows of long ago go, the sums per hour and day that the ledger keeps of them stay.

Invariant: what is rolled up is the rows of whole UTC hours, only where their sums are right, a day in one transaction: the
rows go and the record of them (`rolled_hours` and its siblings, `cpu_hours`) comes together or not at all. So a report over
whole hours is the same before and after to the last digit, `Ledger.check` still accounts for every agent row, and a late
row of such an hour is taken like any other, because neither cursors nor sums were touched.

A time zone whose days begin within a UTC hour (half-hour zones) cuts one hour a day: those hours keep their rows for the
zones that retention is told, and those of closed months, so their days stay exact too. Other ranges that cut an hour that
was rolled up spread it evenly.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from pricing import calendar, ledger_cpu_hours
from pricing.errors import LedgerDamaged
from pricing.ledger import Ledger
from pricing.ledger_check import rolled_until, wrong_hours
from pricing.ledger_merge import HOUR_MS, HOURS_PER_DAY

_CHOSEN = "hour IN (SELECT value FROM json_each(:hours))"
_NEXT_HOUR = (
    "SELECT MIN(hour) FROM (SELECT MIN(hour) AS hour FROM usage WHERE hour > ?1"
    " UNION ALL SELECT MIN(hour) FROM cpu_usage WHERE hour > ?1)"
)


class RolledUp(NamedTuple):
    """What one run rolled up, or would. `until`: rows before it are sums only, but for hours that a zone cuts."""

    until: datetime
    hours: int
    ledger_rows: int
    agent_rows: int
    kept_hours: int
    """Before `until`, with their rows, because the zones' days begin within them."""


def retain(
    ledger: Ledger,
    before: datetime,
    now: datetime,
    *,
    zones: Iterable[str] = (),
    dry_run: bool = False,
    on_progress: Callable[[datetime], None] = lambda day: None,
) -> RolledUp:
    """Rolls up the rows before `before` (its UTC midnight); `on_progress` gets each UTC day that is done.

    Others may use the ledger meanwhile, and a run that was stopped is gone on with by the next. LedgerDamaged where the
    sums of a day are not those of its rows (that day and later ones keep their rows); LedgerError; BadRange.
    """
    until = calendar.milliseconds(before) // HOUR_MS // HOURS_PER_DAY * HOURS_PER_DAY
    with ledger.reading() as connection:
        hours = list(_hours_with_rows(connection, until))
        closed_zones = {tz for (tz,) in connection.execute("SELECT DISTINCT tz FROM closed_months")}
    cut = {hour for tz in {*zones, *closed_zones} for hour in _cut_hours(hours, tz)}
    chosen = [hour for hour in hours if hour not in cut]
    run = _Run(ledger, calendar.milliseconds(now), until)
    days = [(day, list(of_day)) for day, of_day in groupby(chosen, key=lambda hour: hour // HOURS_PER_DAY)]
    if dry_run:
        rows = [run.count(of_day) for _, of_day in days]
    else:
        rows = []
        for day, of_day in days:
            rows.append(run.roll_up(of_day, (day + 1) * HOURS_PER_DAY))
            on_progress(calendar.instant(day * HOURS_PER_DAY * HOUR_MS))
        run.finish()
    sums = [sum(column) for column in zip(*rows, strict=True)] or [0, 0]
    return RolledUp(calendar.instant(until * HOUR_MS), len(chosen), *sums, len(hours) - len(chosen))


def _hours_with_rows(connection: sqlite3.Connection, until: int) -> Iterator[int]:
    hour = -(2**62)
    while True:
        hour = connection.execute(_NEXT_HOUR, (hour,)).fetchone()[0]
        if hour is None or hour >= until:
            return
        yield hour


def _cut_hours(hours: list[int], tz: str) -> set[int]:
    """The hours within which a day of the zone begins."""
    calendar.zone(tz)
    if not hours:
        return set()
    first, last = (calendar.instant(hour * HOUR_MS) for hour in (hours[0], hours[-1] + 1))
    starts = [calendar.milliseconds(day.start) for day in calendar.days(first, last, tz)]
    return {start // HOUR_MS for start in starts if start % HOUR_MS}


class _Run:
    """One run of retention: notes what it did in one line of `rollups`."""

    def __init__(self, ledger: Ledger, now_ms: int, until: int) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._until = until
        self._line: int | None = None

    def count(self, hours: list[int]) -> tuple[int, int]:
        """(ledger rows, agent rows) of these hours."""
        with self._ledger.reading() as connection:
            return _counted(connection, {"hours": json.dumps(hours)})

    def roll_up(self, hours: list[int], until: int) -> tuple[int, int]:
        """Rolls up these hours of one day, in one transaction."""
        values = {"hours": json.dumps(hours)}
        with self._ledger.writing() as connection:
            counts = _counted(connection, values)
            self._refuse_wrong(connection, hours)
            _record(connection, values)
            connection.execute(f"DELETE FROM usage WHERE {_CHOSEN}", values)
            ledger_cpu_hours.roll_up(connection, _CHOSEN, values)
            self._note(connection, until, counts)
        return counts

    def finish(self) -> None:
        """Notes how far the run reached, where it found anything."""
        if self._line is not None:
            with self._ledger.writing() as connection:
                self._note(connection, self._until, (0, 0))

    def _refuse_wrong(self, connection: sqlite3.Connection, hours: list[int]) -> None:
        wrong = wrong_hours(connection, hours)
        if wrong:
            day = calendar.instant(hours[0] * HOUR_MS).date()
            raise LedgerDamaged(
                f"{self._ledger.path}: {wrong} sums of {day} are not those of its rows, so these rows were kept, and those of "
                "later days. `rackrate ledger check` tells more; restore a backup."
            )

    def _note(self, connection: sqlite3.Connection, until: int, counts: tuple[int, int]) -> None:
        if self._line is None:
            reached = max(until, rolled_until(connection) or until)
            self._line = connection.execute(
                "INSERT INTO rollups (done_at_ms, until_hour, ledger_rows, agent_rows) VALUES (?, ?, ?, ?)",
                (self._now_ms, reached, *counts),
            ).lastrowid
            return
        connection.execute(
            "UPDATE rollups SET until_hour = MAX(until_hour, ?), ledger_rows = ledger_rows + ?, agent_rows = agent_rows + ?"
            " WHERE id = ?",
            (until, *counts, self._line),
        )


def _counted(connection: sqlite3.Connection, values: dict[str, str]) -> tuple[int, int]:
    return connection.execute(
        f"SELECT COUNT(*), COALESCE(SUM(rows), 0) FROM (SELECT rows FROM usage WHERE {_CHOSEN}"
        f" UNION ALL SELECT rows FROM cpu_usage WHERE {_CHOSEN})",
        values,
    ).fetchone()


def _record(connection: sqlite3.Connection, values: dict[str, str]) -> None:
    """Keeps of the rows what must outlive them."""
    connection.execute(
        "INSERT INTO rolled_hours SELECT hour, meter_id, SUM(rows), SUM((ends_ms - starts_ms) * share), SUM(busy),"
        f" SUM(measured_ms * share), SUM(energy_mj) FROM usage WHERE {_CHOSEN} GROUP BY hour, meter_id"
        " ON CONFLICT DO UPDATE SET rows = rows + excluded.rows, share_ms = share_ms + excluded.share_ms,"
        " busy = busy + excluded.busy, measured_share_ms = measured_share_ms + excluded.measured_share_ms, energy_mj ="
        " COALESCE(energy_mj + excluded.energy_mj, energy_mj, excluded.energy_mj)",
        values,
    )
    connection.execute(
        f"INSERT INTO rolled_gpus SELECT meter_id, gpu_id, MAX(ends_ms) FROM usage WHERE {_CHOSEN} GROUP BY meter_id, gpu_id"
        " ON CONFLICT DO UPDATE SET ends_ms = MAX(ends_ms, excluded.ends_ms)",
        values,
    )
    connection.execute(
        f"INSERT INTO rolled_placements SELECT placement_id, MIN(starts_ms), MAX(ends_ms) FROM usage WHERE {_CHOSEN}"
        " GROUP BY placement_id ON CONFLICT DO UPDATE SET starts_ms = MIN(starts_ms, excluded.starts_ms),"
        " ends_ms = MAX(ends_ms, excluded.ends_ms)",
        values,
    )
