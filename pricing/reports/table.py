"""A report as the cells that every format shows: the same columns, rounded once.

Invariant: what is shown adds up. The total of all costs is the exact one rounded to cents; it is split over the cost
columns by largest remainder (so a column's total does not depend on the grouping), and each column's total over its
rows likewise. Idle and total costs are sums of shown cells. Hours and kWh are split over the rows at four places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from pricing.report import COST_PARTS, Report, Row

CENTS, FINE = 2, 4
MEASURES = ("gpu_hours", "idle_gpu_hours", "utilization_ratio", "energy_kwh")
COSTS = ("allocated_cost", "idle_cost", "unused_commitment_cost", "total_cost")
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
    costs_total = dict(zip(COST_PARTS, _split([getattr(totals, part) for part in COST_PARTS], CENTS), strict=True))
    shown: dict[str, list[Decimal | None]] = {
        part: _split([getattr(row, part) for row in rows], CENTS, costs_total[part]) for part in COST_PARTS
    }
    for measure in ("gpu_hours", "idle_gpu_hours", "energy_kwh"):
        shown[measure] = _split([getattr(row, measure) for row in rows], FINE)
        costs_total[measure] = _sum(shown[measure], empty=measure != "energy_kwh")
    cells = [{name: column[place] for name, column in shown.items()} for place in range(len(rows))]
    return Table(
        report.group_by,
        tuple(
            {**dict(zip(report.group_by, row.keys, strict=True)), **_cells(row, known)}
            for row, known in zip(rows, cells, strict=True)
        ),
        _cells(totals, costs_total),
    )


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


def _sum(values: Sequence[Decimal | None], *, empty: bool = False) -> Decimal | None:
    """The sum of what is known; None if nothing is, or 0 for an `empty` sequence."""
    known = [value for value in values if value is not None]
    if not known:
        return Decimal(0) if empty and not values else None
    return sum(known, Decimal(0))


def _split(parts: Sequence[Fraction | None], places: int, total: Decimal | None = None) -> list[Decimal | None]:
    """Each part rounded so that they sum to `total` (default: their exact sum, rounded half to even).

    Units left over go to the largest remainders, the first of equals; each cell is within one unit of its part.
    """
    scaled = {place: part * 10**places for place, part in enumerate(parts) if part is not None}
    units = {place: value.numerator // value.denominator for place, value in scaled.items()}
    goal = round(sum(scaled.values(), Fraction(0))) if total is None else int(total.scaleb(places))
    by_remainder = sorted(units, key=lambda place: (units[place] - scaled[place], place))
    for place in by_remainder[: goal - sum(units.values())]:
        units[place] += 1
    return [Decimal(units[place]).scaleb(-places) if place in units else None for place in range(len(parts))]
