"""What a month cost, as the app's screen of costs shows it: by any grouping, narrowed by what was drilled into, day by day.

Invariant: every figure is a cell of the reports that `rackrate report` writes, or the exact sum of such rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tui.money_files import MoneyFiles

if TYPE_CHECKING:
    from pricing.budgets import BudgetState
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from pricing.report import Report, Row
    from pricing.reports.table import Cell, Table


class Grouping(NamedTuple):
    """`keys` are those of `pricing.grouping`."""

    title: str
    keys: tuple[str, ...]


GROUPINGS: tuple[Grouping, ...] = (
    Grouping("project", ("project",)),
    Grouping("user", ("user",)),
    Grouping("node", ("node",)),
    Grouping("GPU model", ("gpu_model",)),
    Grouping("instance type", ("instance_type",)),
    Grouping("cloud/region", ("cloud", "region")),
    Grouping("purchase", ("purchase",)),
    Grouping("job", ("job",)),
    Grouping("day", ("day",)),
)
STACKS = ("project", "user", "node", "job")
"""By what days are stacked: the first that is not fixed already."""
IDLE, COMMITMENTS, CORRECTIONS = "idle", "unused commitment", "corrections"
Filters = tuple[tuple[str, str], ...]
"""(key, label) of what was drilled into."""


class Month(NamedTuple):
    """A calendar month in the reader's zone, up to now. UTC, half-open."""

    label: str
    """`2026-11`."""
    start: datetime
    end: datetime
    whole_end: datetime
    tz: str

    @property
    def days(self) -> int:
        """How many days it has in the calendar."""
        return round((self.whole_end - self.start) / timedelta(days=1))


class Groups(NamedTuple):
    """A table of costs. `report` has no rows but those that are shown."""

    month: Month
    filters: Filters
    grouping: Grouping
    report: Report
    table: Table


class Day(NamedTuple):
    """One day: what each part of it cost, largest first over the month. `known` False: none of it has a price."""

    number: int
    parts: dict[str, Fraction]
    known: bool


class Days(NamedTuple):
    """A month day by day, and the budgets as they stood at its end (or stand now)."""

    month: Month
    filters: Filters
    stacked_by: str
    names: tuple[str, ...]
    """Of all parts, the dearest first; idle and unused commitments last."""
    days: tuple[Day, ...]
    budgets: tuple[BudgetState, ...]


def month_of(now: datetime, tz: str, back: int = 0) -> Month:
    """The month that holds `now`, or the one `back` months before it."""
    from pricing import calendar

    start = calendar.month_start(now, tz)
    for _ in range(back):
        start = calendar.month_start(start - timedelta(days=1), tz)
    whole_end = calendar.month_start(start + timedelta(days=40), tz)
    label = (start + (whole_end - start) / 2).astimezone(calendar.zone(tz)).strftime("%Y-%m")
    return Month(label, start, max(min(whole_end, now), start + timedelta(milliseconds=1)), whole_end, tz)


def groupings_left(filters: Filters) -> list[Grouping]:
    """Those that are not fixed by what was drilled into; what nobody held is grouped by no holder."""
    from pricing.grouping import HOLDER_KEYS, IDLE as NOBODY

    fixed = {key for key, _ in filters}
    if any(key in HOLDER_KEYS and label == NOBODY for key, label in filters):
        fixed.update(HOLDER_KEYS)
    return [grouping for grouping in GROUPINGS if not fixed.intersection(grouping.keys)]


def read_groups(files: MoneyFiles, month: Month, filters: Filters, grouping: Grouping, now: datetime) -> Groups:
    """From the ledger. PricingError."""
    from pricing.reports.table import table

    ledger, pricing = _opened(files), files.pricing()
    with ledger:
        keys = (*(key for key, _ in filters), *grouping.keys)
        report = _narrowed(_attributed(ledger, pricing, month, keys, now), filters)
    return Groups(month, filters, grouping, report, table(report))


def read_days(
    files: MoneyFiles, month: Month, filters: Filters, now: datetime, states: Sequence[BudgetState] | None = None
) -> Days:
    """From the ledger. `states`: the budgets where they are known already."""
    ledger, pricing = _opened(files), files.pricing()
    fixed = {key for key, _ in filters}
    stack = next((key for key in STACKS if key not in fixed), STACKS[-1])
    keys = (*(key for key, _ in filters if key not in ("day", stack)), "day", stack)
    with ledger:
        report = _narrowed(_attributed(ledger, pricing, month, keys, now), filters, kept=("day", stack))
        if states is None:
            states = _states(files, ledger, pricing, month)
    return Days(month, filters, stack, *_by_day(report.rows), tuple(states))


def _opened(files: MoneyFiles) -> Ledger:
    from pricing.ledger import Ledger

    if not files.has_ledger:
        return Ledger.open(":memory:")
    assert files.ledger is not None
    return Ledger.open(files.ledger)


def _attributed(ledger: Ledger, pricing: Pricing, month: Month, keys: Sequence[str], now: datetime) -> Report:
    from pricing.attribution import attribute
    from tui.terms import options

    by = tuple(dict.fromkeys(keys))
    return attribute(ledger, pricing.catalog, month.start, month.end, by, tz=month.tz, **options(pricing, now))


def _states(files: MoneyFiles, ledger: Ledger, pricing: Pricing, month: Month) -> list[BudgetState]:
    """At the last moment of the month that has passed."""
    if not files.budgets:
        return []
    from tui.budgets import states_of

    return states_of(files.budgets, ledger, pricing, files.timezone, month.end - timedelta(milliseconds=1))


def _narrowed(report: Report, filters: Filters, kept: tuple[str, ...] = ()) -> Report:
    """The rows that the filters let through, without the filters' keys (but with those that are `kept`)."""
    if not filters and tuple(report.group_by) == tuple(kept or report.group_by):
        return report
    places = [(report.group_by.index(key), label) for key, label in filters]
    fixed = {key for key, _ in filters} - set(kept)
    shown = [place for place, key in enumerate(report.group_by) if key not in fixed]
    rows = tuple(
        row._replace(keys=tuple(row.keys[place] for place in shown))
        for row in report.rows
        if all(row.keys[place] == label for place, label in places)
    )
    keys = tuple(report.group_by[place] for place in shown)
    return dataclasses.replace(report, rows=rows, totals=together(rows), group_by=keys)


def together(rows: Sequence[Row]) -> Row:
    """All rows as one: costs are of what has a price, None where nothing has one."""
    from pricing.report import Row

    def added(name: str) -> object:
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        if name == "keys":
            return ()
        if name == "complete":
            return all(values)
        if name in ("committed", "unused"):
            return tuple(one for value in values for one in value)
        start = 0 if name.endswith(("_ms", "busy", "_mj")) else Fraction(0)
        return sum(values, start) if values or not rows else None

    return Row(**{name: added(name) for name in Row._fields})


def _by_day(rows: Iterable[Row]) -> tuple[tuple[str, ...], tuple[Day, ...]]:
    """Names of the parts, and the days that have rows. Each row's keys are (day, name)."""
    costs: dict[int, dict[str, Fraction]] = {}
    unknown: set[int] = set()
    sums: dict[str, Fraction] = {}
    for row in rows:
        number = int(row.keys[0][-2:])
        parts = costs.setdefault(number, {})
        if row.allocated_cost is None:
            unknown.add(number)
            continue
        for name, cost in _parts(row):
            parts[name] = parts.get(name, Fraction(0)) + cost
            sums[name] = sums.get(name, Fraction(0)) + cost
    ours = (IDLE, COMMITMENTS, CORRECTIONS)
    names = sorted((name for name in sums if name not in ours), key=lambda name: (-sums[name], name))
    days = tuple(Day(number, costs[number], bool(costs[number]) or number not in unknown) for number in sorted(costs))
    return (*names, *(name for name in ours if name in sums)), days


def _parts(row: Row) -> list[tuple[str, Fraction]]:
    """What a row's total consists of, by name; without what is 0."""
    parts = (
        (row.keys[1], row.allocated_cost),
        (IDLE, row.idle_cost),
        (COMMITMENTS, row.unused_commitment_cost),
        (CORRECTIONS, row.adjustment_cost),
    )
    return [(name, cost) for name, cost in parts if cost]


def write_rows(groups: Groups, rows: Sequence[dict[str, Cell]], path: Path) -> None:
    """The rows as CSV, the cells that are on the screen. FileExistsError; PricingError when it cannot be written."""
    from pricing.reports import replaced
    from pricing.reports.csv import write_tables
    from pricing.reports.table import Table

    if path.exists():
        raise FileExistsError(f"{path} is there already: type another name.")
    with replaced(path) as stream:
        write_tables([Table(groups.table.group_by, tuple(rows), groups.table.totals)], stream)  # type: ignore[arg-type]
