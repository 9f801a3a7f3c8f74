"""A cost report as exact numbers; rounding happens in `pricing.reports`.

Invariant: of each row, `allocated_cost` + `idle_cost` + `unused_commitment_cost` = `total_cost`, exactly; the rows sum
to the totals. A cost that is not known is None, and what it would have been part of says `complete` False.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

SHARE_MS_PER_HOUR = 3_600_000 * 1_000_000
"""Milliseconds x millionths of one GPU for one hour."""
MILLIJOULES_PER_KWH = 3_600_000_000
COST_PARTS = ("allocated_cost", "idle_unallocated_cost", "idle_lost_cost", "idle_down_cost")


@dataclass(frozen=True, slots=True)
class Row:
    """One group. Costs are exact, in the report's currency; None where no part of the group has a price.

    Hours count GPUs only: the host of a node without GPUs costs money but has none.
    """

    keys: tuple[str, ...]
    held_share_ms: int
    idle_share_ms: int
    busy: int
    measured_share_ms: int
    energy_mj: int | None
    allocated_cost: Fraction | None
    idle_unallocated_cost: Fraction | None
    """Measured, and nobody held it."""
    idle_lost_cost: Fraction | None
    """The driver could not reach it."""
    idle_down_cost: Fraction | None
    """Nothing measured: agent stopped, node off or stalled."""
    complete: bool
    """False when some of the group's time has no price."""

    @property
    def gpu_hours(self) -> Fraction:
        """Held by someone."""
        return Fraction(self.held_share_ms, SHARE_MS_PER_HOUR)

    @property
    def idle_gpu_hours(self) -> Fraction:
        """Idle, lost or down."""
        return Fraction(self.idle_share_ms, SHARE_MS_PER_HOUR)

    @property
    def utilization_ratio(self) -> float | None:
        """Time-weighted over held time that was measured; None if none was."""
        return min(1.0, self.busy / self.measured_share_ms) if self.measured_share_ms else None

    @property
    def energy_kwh(self) -> Fraction | None:
        """As far as it was measured; None if it never was."""
        return None if self.energy_mj is None else Fraction(self.energy_mj, MILLIJOULES_PER_KWH)

    @property
    def idle_cost(self) -> Fraction | None:
        if self.idle_unallocated_cost is None or self.idle_lost_cost is None or self.idle_down_cost is None:
            return None
        return self.idle_unallocated_cost + self.idle_lost_cost + self.idle_down_cost

    @property
    def unused_commitment_cost(self) -> Fraction | None:
        """Always 0 until commitments are known to the program."""
        return None if self.allocated_cost is None else Fraction(0)

    @property
    def total_cost(self) -> Fraction | None:
        if self.allocated_cost is None or self.idle_cost is None:
            return None
        return self.allocated_cost + self.idle_cost


@dataclass(frozen=True, slots=True)
class Report:
    """What a range cost, by whom. `start` and `end` are UTC, half-open; `tz` is the zone of its days."""

    rows: tuple[Row, ...]
    totals: Row
    start: datetime
    end: datetime
    tz: str
    currency: str
    group_by: tuple[str, ...]
    unpriced: tuple[str, ...]
    """One sentence per node (and reason) whose time has no price: it is in the hours, but in no cost."""
    missing: tuple[str, ...]
    """One sentence per stretch of usage rows that an agent threw away before a sync."""

    @property
    def complete(self) -> bool:
        """All time has a price and no usage row is missing."""
        return self.totals.complete and not self.missing
