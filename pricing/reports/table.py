"""A report as the cells that every format shows: the same columns, rounded once.

Invariant: what is shown adds up. The total of all costs is the exact one rounded to cents; it is split over the cost
columns by largest remainder (so a column's total does not depend on the grouping), and each column's total over its
rows by controlled rounding, so that a row's total is within a cent of its exact one too. Idle and total costs are sums of shown cells. Hours and kWh are split over the rows at four places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pricing.money import round_largest_remainder
from pricing.report import COST_PARTS, Report, Row
from pricing.reports.rounding import controlled

CENTS, FINE = 2, 4
MEASURES = ("gpu_hours", "idle_gpu_hours", "utilization_ratio", "energy_kwh")
COSTS = ("allocated_cost", "idle_cost", "unused_commitment_cost", "total_cost")
SUMMED = ("gpu_hours", "idle_gpu_hours", "energy_kwh")
IDLE_SPLIT = ("idle_unallocated_cost", "idle_lost_cost", "idle_down_cost")
COLUMNS = (*MEASURES, *COSTS, *IDLE_SPLIT, "complete")
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


def table(report: Report) -> Table:
    """The shown cells of a report."""
    rows, totals = report.rows, report.totals
    parts = _split([getattr(totals, part) for part in COST_PARTS], CENTS)
    sums: dict[str, Decimal | None] = dict(zip(COST_PARTS, parts, strict=True))
    shown = _cost_cells(rows, sums)
    for name in SUMMED:
        sums[name] = _rounded(getattr(totals, name), FINE)
        shown[name] = _split([getattr(row, name) for row in rows], FINE)
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
    exact = [[getattr(rows[place], part) * 10**CENTS for place in priced] for part in COST_PARTS]
    units = controlled(exact, [int((sums[part] or Decimal(0)).scaleb(CENTS)) for part in COST_PARTS])
    shown: dict[str, list[Decimal | None]] = {part: [None] * len(rows) for part in COST_PARTS}
    for part, column in zip(COST_PARTS, units, strict=True):
        for place, unit in zip(priced, column, strict=True):
            shown[part][place] = Decimal(unit).scaleb(-CENTS)
    return shown


def _cells(row: Row, known: dict[str, Decimal | None]) -> dict[str, Cell]:
    """All columns in their order; `known` holds those that were split."""
    idle = _sum([known[part] for part in IDLE_SPLIT])
    priced = row.allocated_cost is not None
    ratio = row.utilization_ratio
    derived: dict[str, Cell] = {
        "utilization_ratio": None if ratio is None else round(Decimal(ratio), FINE),
        "idle_cost": idle if priced else None,
        "unused_commitment_cost": Decimal("0.00") if priced else None,
        "total_cost": _sum([known["allocated_cost"], idle]) if priced else None,
        "complete": row.complete,
    }
    return {name: derived[name] if name in derived else known[name] for name in COLUMNS}


def _sum(values: Sequence[Decimal | None]) -> Decimal | None:
    """The sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known, Decimal(0)) if known else None


def _rounded(value: Fraction | Decimal | None, places: int) -> Decimal | None:
    """Half to even."""
    return None if value is None else Decimal(round(Fraction(value) * 10**places)).scaleb(-places)


def _split(parts: Sequence[Fraction | None], places: int) -> list[Decimal | None]:
    """Each part that is known rounded so that they sum to their rounded sum."""
    rounded = iter(round_largest_remainder([part for part in parts if part is not None], places))
    return [None if part is None else next(rounded) for part in parts]
