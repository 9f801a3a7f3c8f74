"""The cells of a report arranged for a chart: days by project, utilisation, idle money, the dearest jobs.

Invariant: a view leaves no cell out: what is not shown by name is in `other`, so every view sums to the report's totals.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from pricing import grouping
from pricing.report import Report
from pricing.reports.charts import Series
from pricing.reports.pages import Source, reports, whole
from pricing.reports.table import Cell, table

MOST_PROJECTS, MOST_JOBS = 7, 12
MOST_DAYS = 93
"""A longer range is shown by month."""
OTHER = "other projects"
_OWN_CSS = {
    grouping.IDLE: "idle", grouping.HOST: "down", grouping.NONE: "s8", grouping.UNKNOWN: "s8",
    "(unused commitment)": "unused", "(adjustment)": "billing",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DayView:
    """`labels`: (short, full) per day or month; one value per label in each of `series`."""

    unit: str
    labels: tuple[tuple[str, str], ...]
    series: tuple[Series, ...]


def by_day(daily: Source) -> DayView:
    """Total cost per day and project, of a report by `day,project`: the largest projects, the others, our own labels."""
    sums: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    days: set[str] = set()
    for row in whole(daily).rows:
        days.add(str(row["day"]))
        if isinstance(row["total_cost"], Decimal):
            sums[str(row["day"]), str(row["project"])] += row["total_cost"]
    unit = "month" if len(days) > MOST_DAYS else "day"
    places = sorted({_cut(day, unit) for day in days})
    of_project: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (_, project), value in sums.items():
        of_project[project] += value
    own = [name for name in grouping.LABELS if name in of_project]
    ranked = sorted((name for name in of_project if name not in own), key=lambda name: (-of_project[name], name))
    named = ranked if len(ranked) <= MOST_PROJECTS else ranked[: MOST_PROJECTS - 1]
    series = [Series(name, _values(sums, {name}, places, unit), f"s{place + 1}") for place, name in enumerate(named)]
    rest = set(ranked) - set(named)
    if rest:
        series.append(Series(OTHER, _values(sums, rest, places, unit), "rest"))
    series += [Series(name, _values(sums, {name}, places, unit), _OWN_CSS.get(name, "s8")) for name in own]
    return DayView(unit, tuple((_short(place, unit), place) for place in places), tuple(series))


def _values(sums: dict[tuple[str, str], Decimal], projects: set[str], places: list[str], unit: str) -> tuple[Decimal, ...]:
    found = dict.fromkeys(places, Decimal(0))
    for (day, project), value in sums.items():
        if project in projects:
            found[_cut(day, unit)] += value
    return tuple(found.values())


def _cut(day: str, unit: str) -> str:
    return day[:7] if unit == "month" else day


def _short(place: str, unit: str) -> str:
    """`3 Mar`, or `Mar 2026`."""
    day = date.fromisoformat(place if unit == "day" else f"{place}-01")
    return f"{day:%-d %b}" if unit == "day" else f"{day:%b %Y}"


@dataclass(frozen=True, slots=True)
class UseView:
    """(short label, full label, GPU-hours held, idle, utilisation or None) per day or month."""

    unit: str
    rows: tuple[tuple[str, str, float, float, float | None], ...]


def utilisation(daily: Source) -> UseView:
    """Of a report by day and anything."""
    place = daily.group_by.index("day")
    rows_of_days = [row for piece in reports(daily) for row in piece.rows]
    days = {row.keys[place] for row in rows_of_days}
    unit = "month" if len(days) > MOST_DAYS else "day"
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    hours: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows_of_days:
        label = _cut(row.keys[place], unit)
        sums[label][0] += row.busy
        sums[label][1] += row.measured_share_ms
        hours[label][0] += float(row.gpu_hours)
        hours[label][1] += float(row.idle_gpu_hours)
    rows = []
    for label in sorted(sums):
        busy, measured, *_ = sums[label]
        rows.append((_short(label, unit), label, *hours[label], min(1.0, busy / measured) if measured else None))
    return UseView(unit, tuple(rows))  # type: ignore[arg-type]


def idle_parts(totals: dict[str, Cell]) -> list[tuple[str, Decimal, str, str]]:
    """(name, cost, css, what it means); they sum to `idle_cost`."""
    parts = [
        ("unallocated", "idle_unallocated_cost", "idle", "the agent measured, and nobody held the GPU"),
        ("lost", "idle_lost_cost", "lost", "the driver could not reach the GPU"),
        ("agent down", "idle_down_cost", "down", "nothing was measured: agent stopped, node off"),
        ("billed beyond use", "idle_billing_cost", "billing", "a minimum or a begun hour"),
    ]
    return [
        (name, cell, css, why)
        for name, column, css, why in parts
        if isinstance(cell := totals[column], Decimal) and (cell or column == "idle_unallocated_cost")
    ]


@dataclass(frozen=True, slots=True)
class JobBar:
    name: str
    cost: Decimal
    hours: Decimal
    ratio: str
    css: str


def top_jobs(jobs: Report) -> list[JobBar]:
    """Of a report by `job`: the dearest, the others together, then time without a job."""
    rows = table(jobs).rows
    own = [row for row in rows if row["job"] in grouping.LABELS]
    named = sorted((row for row in rows if row["job"] not in grouping.LABELS), key=lambda row: -_cost(row))
    bars = [_bar(str(row["job"]), [row], "s1") for row in named[:MOST_JOBS]]
    if len(named) > MOST_JOBS:
        bars.append(_bar(f"{len(named) - MOST_JOBS:,} other jobs", list(named[MOST_JOBS:]), "rest"))
    names = {grouping.NONE: "(no job)"}
    return bars + [_bar(names.get(str(row["job"]), str(row["job"])), [row], _OWN_CSS.get(str(row["job"]), "s8")) for row in own]


def _bar(name: str, rows: list[dict[str, Cell]], css: str) -> JobBar:
    ratio = rows[0]["utilization_ratio"] if len(rows) == 1 else None
    hours = sum((_decimal(row["gpu_hours"]) for row in rows), Decimal(0))
    shown = f"{ratio * 100:.0f} %" if isinstance(ratio, Decimal) else "–"
    return JobBar(name, sum((_cost(row) for row in rows), Decimal(0)), hours, shown, css)


def _cost(row: dict[str, Cell]) -> Decimal:
    return _decimal(row["total_cost"])


def _decimal(cell: Cell) -> Decimal:
    return cell if isinstance(cell, Decimal) else Decimal(0)
