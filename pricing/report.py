"""A cost report as exact numbers; rounding happens in `pricing.reports`.

Invariant: of each row, `allocated_cost` + `idle_cost` + `unused_commitment_cost` + `adjustment_cost` = `total_cost`,
exactly; the rows sum to the totals. A cost that is not known is None, and what it would have been part of says `complete`
False. Allocated and idle cost are *effective*: discounts and owned commitments are in them; `list_cost` and
`contracted_cost` tell what the same use would cost without the commitments, and without both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

SHARE_MS_PER_HOUR = 3_600_000 * 1_000_000
"""Milliseconds x millionths of one GPU for one hour."""
MILLIJOULES_PER_KWH = 3_600_000_000
IDLE_PARTS = ("idle_unallocated_cost", "idle_lost_cost", "idle_down_cost", "idle_billing_cost")
COST_PARTS = ("allocated_cost", *IDLE_PARTS, "unused_commitment_cost", "adjustment_cost")
"""What a row's total consists of."""
ALLOCATED_UNUSED = "allocated_unused_cost"
"""Part of `allocated_cost`, and of no sum."""


class Committed(NamedTuple):
    """A part of a group's cost that one owned commitment pays."""

    commitment: str
    cost: Fraction
    node_hours: Fraction | None
    """Of whole nodes; None for what nobody used."""


class Row(NamedTuple):
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
    idle_billing_cost: Fraction | None = Fraction(0)
    """Billed beyond what ran (a minimum, a begun hour); 0 unless the terms ask for it."""
    unused_commitment_cost: Fraction | None = Fraction(0)
    """Paid for by a commitment and used by no node."""
    adjustment_cost: Fraction | None = Fraction(0)
    """Corrections of closed months that were noticed in this range; may be negative."""
    allocated_unused_cost: Fraction | None = Fraction(0)
    """Of `allocated_cost`: held, measured, and no kernel ran. (A row cut at less than a millisecond may bring -1e-9.)
    Where jobs without a GPU take a part of a GPU, that part was as unused as the GPU in that hour; so only a report that cuts
    such an hour may tell more than `allocated_cost`, and tables do not."""
    list_cost: Fraction | None = None
    """The same use at the catalog's prices; None if not known. Nothing for unused commitments and adjustments."""
    contracted_cost: Fraction | None = None
    """The same use at list prices less the contract's discounts; None if not known."""
    committed: tuple[Committed, ...] = ()
    """What of allocated and idle cost which commitment pays."""
    unused: tuple[Committed, ...] = ()
    """What of `unused_commitment_cost` is of which commitment."""
    host_share_ms: int = 0
    """Like `held_share_ms`, of whole nodes without GPUs."""
    moved_node_hours: Fraction = Fraction(0)
    """Node-hours by cost, of jobs without a GPU: what they have of the node; below 0, what they take off this group."""

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
        return _sum([getattr(self, part) for part in IDLE_PARTS])

    @property
    def total_cost(self) -> Fraction | None:
        return _sum([getattr(self, part) for part in COST_PARTS])


def _sum(parts: list[Fraction | None]) -> Fraction | None:
    """The sum; None as soon as one part is not known."""
    total: Fraction | None = None
    for part in parts:
        if part is None:
            return None
        if part:
            total = part if total is None else total + part
    return Fraction(0) if total is None else total


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
    notes: tuple[str, ...] = ()
    """Sentences a reader should know: closed months in the range, exchange rates that were used."""

    @property
    def complete(self) -> bool:
        """All time has a price and no usage row is missing."""
        return self.totals.complete and not self.missing
