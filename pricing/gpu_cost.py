"""What each GPU of one node cost in a stretch of time, held and idle, and the energy that it took.

Invariant: over all GPUs of a node the amounts sum to what a report says of it for the same stretch, where no job without a
GPU took a part of it. A price that is not known is None, never 0. Rows that were rolled up into hours name no GPU any more.
"""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from typing import NamedTuple

from pricing.calendar import milliseconds
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.rates import Pricing, Rates
from pricing.usage import KINDS

_HELD = KINDS.index("held")
_OF_GPU = tuple(KINDS.index(kind) for kind in ("held", "idle", "lost", "down"))
_ROWS = (
    "SELECT gpus.uuid, placement_id, kind, starts_ms, ends_ms, share, energy_mj FROM usage"
    " JOIN gpus ON gpus.id = usage.gpu_id WHERE hour BETWEEN ? AND ? AND node_id = (SELECT id FROM nodes WHERE name = ?)"
    f" AND gpu_id != 0 AND kind IN {_OF_GPU} AND ends_ms > ? AND starts_ms < ?"
)


class GpuCost(NamedTuple):
    """`allocated` and `idle` in the report's currency; None: some of the time has no price. `until`: the record's end."""

    allocated: Fraction | None
    idle: Fraction | None
    energy_joules: float | None
    until: datetime

    @property
    def total(self) -> Fraction | None:
        return None if self.allocated is None or self.idle is None else self.allocated + self.idle


class _Sum:
    def __init__(self) -> None:
        self.held = self.idle = Fraction(0)
        self.unpriced = False
        self.energy_mj: Fraction | None = None
        self.until_ms = 0

    def cost(self) -> GpuCost:
        joules = None if self.energy_mj is None else float(self.energy_mj) / 1000
        until = datetime.fromtimestamp(self.until_ms / 1000, UTC)
        return GpuCost(None, None, joules, until) if self.unpriced else GpuCost(self.held, self.idle, joules, until)


def gpu_costs(ledger: Ledger, pricing: Pricing, node: str, start: datetime, end: datetime) -> dict[str, GpuCost]:
    """UUID -> cost in [start, end) of each GPU of the node (its own name) that the ledger knows. LedgerError."""
    since, until = milliseconds(start), milliseconds(end)
    sums: dict[str, _Sum] = {}
    with ledger.reading() as connection:
        rates = Rates(pricing, connection, start, end)
        free = list(rates.free_windows(since, until))
        for uuid, *row in connection.execute(_ROWS, (since // HOUR_MS, until // HOUR_MS, node, since, until)):
            _add(sums.setdefault(uuid, _Sum()), rates, free, since, until, *row)
    return {uuid: one.cost() for uuid, one in sums.items()}


def _add(
    into: _Sum, rates: Rates, free: list[tuple[int, int, int]], since: int, until: int,
    placement: int, kind: int, starts_ms: int, ends_ms: int, share: int, energy_mj: int | None,
) -> None:  # fmt: skip
    begin, end = max(since, starts_ms), min(until, ends_ms)
    into.until_ms = max(into.until_ms, end)
    if energy_mj is not None and ends_ms > starts_ms:
        into.energy_mj = (into.energy_mj or Fraction(0)) + Fraction(energy_mj * (end - begin), ends_ms - starts_ms)
    for epoch in rates.epochs(begin, end):
        billed = epoch.ends_ms - epoch.starts_ms - sum(
            max(0, min(epoch.ends_ms, upto) - max(epoch.starts_ms, at)) for id, at, upto in free if id == placement
        )
        rate = rates.rate(placement, host=False, epoch=epoch)
        if rate is None:
            into.unpriced = True
        elif kind == _HELD:
            into.held += rate.effective * share * billed
        else:
            into.idle += rate.effective * share * billed


