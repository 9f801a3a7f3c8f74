"""A report as the cells that every format shows: the same columns, rounded once.

Invariant: what is shown adds up. The total of all costs is the exact one rounded to cents; it is split over the cost
columns by largest remainder (so a column's total does not depend on the grouping), and each column's total over its
rows by controlled rounding, so that a row's total is within a cent of its exact one too. Idle and total costs are sums
of shown cells. Hours and kWh are split over the rows at four places.

For writers of formats: take the columns from `COLUMNS` (old ones first, in their order; new ones come after `complete`).
`total_cost` = `allocated_cost` + `idle_cost` + `unused_commitment_cost` + `adjustment_cost`, and `idle_cost` is the sum
of `IDLE_SPLIT`. `allocated_unused_cost` is a part of `allocated_cost` (never more), not added to it. `list_cost` and
`contracted_cost` price the use (allocated and idle) by the catalog and by the contract: they are part of no sum, None
where not known, and the total's own cells where nothing but the catalog's prices counts. `adjustment_cost` may be
negative. A row `(unused commitment)` or `(adjustment)` carries only that one cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pricing import garbage
from pricing.money import largest_remainder
from pricing.report import COST_PARTS, IDLE_PARTS, Report, Row
from pricing.reports.rounding import capped, controlled

CENTS, FINE = 2, 4
MEASURES = ("gpu_hours", "idle_gpu_hours", "utilization_ratio", "energy_kwh")
COSTS = ("allocated_cost", "idle_cost", "unused_commitment_cost", "total_cost")
SUMMED = ("gpu_hours", "idle_gpu_hours", "energy_kwh")
IDLE_SPLIT = IDLE_PARTS
PRICE_LEVELS = ("list_cost", "contracted_cost")
ADDED = ("adjustment_cost", "idle_billing_cost", "allocated_unused_cost", *PRICE_LEVELS)
COLUMNS = (*MEASURES, *COSTS, *IDLE_SPLIT[:3], "complete", *ADDED)
"""After the group keys. `complete` is False where some of the row's time has no price."""

Cell = str | Decimal | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` and `totals` hold one cell per `group_by` key and column; a key's cell of the totals is left out."""

    group_by: tuple[str, ...]
    rows: tuple[dict[str, Cell], ...]
    totals: dict[str, Cell]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.group_by, *COLUMNS)


@garbage.paused()
def table(report: Report, goals: Mapping[str, Decimal | None] = {}) -> Table:
    """The shown cells of a report. `goals`: what some columns are to sum to instead of their own rounded sum.

    A goal is the column's exact sum rounded up or down (see `pricing.reports.pages`).
    """
    rows, totals = report.rows, report.totals
    parts = _split([getattr(totals, part) for part in COST_PARTS], CENTS)
    sums: dict[str, Decimal | None] = {**dict(zip(COST_PARTS, parts, strict=True)), **goals}
    shown = _cost_cells(rows, sums)
    _add_unused(rows, totals, shown, sums)
    for name in SUMMED:
        sums.setdefault(name, _rounded(getattr(totals, name), FINE))
        shown[name] = _split([getattr(row, name) for row in rows], FINE, sums[name])
    costs = [row.total_cost for row in rows]
    for name in PRICE_LEVELS:
        _add_level(name, report, costs, shown, sums)
    cells = [dict(zip(shown, values, strict=True)) for values in zip(*shown.values(), strict=True)]
    return Table(
        report.group_by,
        tuple(
            {**dict(zip(report.group_by, row.keys, strict=True)), **_cells(row, known)}
            for row, known in zip(rows, cells, strict=True)
        ),
        _cells(totals, sums),
    )


def _cost_cells(rows: Sequence[Row], sums: dict[str, Decimal | None]) -> dict[str, list[Decimal | None]]:
    """The cost columns in cents; rows without a price have none."""
    priced = [place for place, row in enumerate(rows) if row.allocated_cost is not None]
    exact = {part: [_scaled(getattr(rows[place], part), CENTS) for place in priced] for part in COST_PARTS}
    used = [part for part in COST_PARTS if any(exact[part])]
    units = controlled([exact[part] for part in used], [_cents(sums[part]) for part in used])
    shown: dict[str, list[Decimal | None]] = {part: [None] * len(rows) for part in COST_PARTS}
    for part in COST_PARTS:
        column = units[used.index(part)] if part in used else [0] * len(priced)
        for place, unit in zip(priced, column, strict=True):
            shown[part][place] = Decimal(unit).scaleb(-CENTS)
    return shown


def _add_unused(
    rows: Sequence[Row], totals: Row, shown: dict[str, list[Decimal | None]], sums: dict[str, Decimal | None]
) -> None:
    """`allocated_unused_cost`: split like the others, but nowhere above the shown `allocated_cost`."""
    name, whole = "allocated_unused_cost", shown["allocated_cost"]
    priced = [place for place, cell in enumerate(whole) if cell is not None]
    limits = [_cents(whole[place]) for place in priced]
    wanted = sums[name] if name in sums else _rounded(totals.allocated_unused_cost, CENTS)
    goal = min(_cents(wanted), _cents(sums["allocated_cost"]))
    scaled = [_scaled(rows[place].allocated_unused_cost or Fraction(0), CENTS) for place in priced]
    if any((row.allocated_unused_cost or 0) > (row.allocated_cost or 0) for row in rows):  # jobs without a GPU took from it
        goal = min(goal, int(sum(min(unit, limit) for unit, limit in zip(scaled, limits, strict=True))))
    units = capped(scaled, goal, limits)
    shown[name] = [None] * len(rows)
    for place, unit in zip(priced, units, strict=True):
        shown[name][place] = Decimal(unit).scaleb(-CENTS)
    sums[name] = None if totals.allocated_cost is None else Decimal(sum(units) if rows else goal).scaleb(-CENTS)


def _add_level(
    name: str,
    report: Report,
    costs: Sequence[Fraction | None],
    shown: dict[str, list[Decimal | None]],
    sums: dict[str, Decimal | None],
) -> None:
    """A price level: the shown totals themselves where it is the total (`costs`) in every row."""
    levels: list[Fraction | None] = [getattr(row, name) for row in report.rows]
    if all(level is cost or level == cost for level, cost in zip(levels, costs, strict=True)):
        shown[name] = [
            None if cost is None else _sum([shown[part][place] for part in COST_PARTS]) for place, cost in enumerate(costs)
        ]
        sums[name] = None if report.totals.total_cost is None else _sum([sums[part] for part in COST_PARTS])
        return
    sums.setdefault(name, _rounded(getattr(report.totals, name), CENTS))
    shown[name] = _split(levels, CENTS, sums[name])


def _cells(row: Row, known: dict[str, Decimal | None]) -> dict[str, Cell]:
    """All columns in their order; `known` holds those that were split."""
    priced = row.allocated_cost is not None
    ratio = row.utilization_ratio
    derived: dict[str, Cell] = {
        "utilization_ratio": None if ratio is None else round(Decimal(ratio), FINE),
        "idle_cost": _sum([known[part] for part in IDLE_SPLIT]) if priced else None,
        "total_cost": _sum([known[part] for part in COST_PARTS]) if priced else None,
        "complete": row.complete,
    }
    return {name: derived[name] if name in derived else known[name] for name in COLUMNS}


def _scaled(part: Fraction, places: int) -> Fraction:
    """In units of the last place. Half of all parts are 0."""
    return part * 10**places if part else part


def _cents(amount: Decimal | None) -> int:
    return 0 if amount is None else int(amount.scaleb(CENTS))


def _sum(values: Sequence[Decimal | None]) -> Decimal | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _rounded(value: Fraction | Decimal | None, places: int) -> Decimal | None:
    """Half to even."""
    return None if value is None else Decimal(round(Fraction(value) * 10**places)).scaleb(-places)


def _split(parts: Sequence[Fraction | None], places: int, goal: Decimal | None = None) -> list[Decimal | None]:
    """Each part that is known rounded so that they sum to `goal` (where it can be: else to their own rounded sum)."""
    scaled = [_scaled(part, places) for part in parts if part is not None]
    whole = sum(scaled, Fraction(0))
    wanted = round(whole) if goal is None else int(goal.scaleb(places))
    units = iter(largest_remainder(scaled, wanted if abs(wanted - whole) < 1 else round(whole)))
    return [None if part is None else Decimal(next(units)).scaleb(-places) for part in parts]
