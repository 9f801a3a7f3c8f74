"""What each GPU of a node cost today and how much energy it took, from the ledger.

Invariant: the figures are those of the ledger as it was read, with the moment up to which it tells; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from tui import format as fmt
from tui.money_files import MoneyFiles

if TYPE_CHECKING:
    from pricing.gpu_cost import GpuCost

JOULES_PER_KWH = 3_600_000


class Today(NamedTuple):
    """Of one GPU, or of all of a node. Money in USD; None: not known."""

    total: Fraction | None
    idle: Fraction | None
    energy_joules: float | None
    until: datetime | None

    def amounts(self) -> tuple[str, str, str]:
        """(energy, cost, its idle part)."""
        energy = fmt.UNKNOWN if self.energy_joules is None else f"{self.energy_joules / JOULES_PER_KWH:,.2f} kWh"
        return energy, fmt.usd(self.total), fmt.usd(self.idle)

    def age(self, now: datetime) -> str:
        """How long ago the record ends."""
        return fmt.UNKNOWN if self.until is None else fmt.age(max(0.0, (now - self.until).total_seconds()))


class NodeToday(NamedTuple):
    """All GPUs of a node by UUID, and their sum."""

    gpus: Mapping[str, Today]
    whole: Today


def read_today(files: MoneyFiles, node: str, now: datetime) -> NodeToday:
    """Since midnight in the reader's time zone. Empty where there is no ledger yet."""
    if not files.has_ledger:
        return NodeToday({}, Today(None, None, None, None))
    from pricing.calendar import day_start
    from pricing.gpu_cost import gpu_costs
    from pricing.ledger import Ledger

    assert files.ledger is not None
    with Ledger.open(files.ledger) as ledger:
        start = day_start(now, files.timezone)
        costs = gpu_costs(ledger, files.pricing(), node, start, now) if now > start else {}
    gpus = {uuid: _today(cost) for uuid, cost in costs.items()}
    return NodeToday(gpus, _whole(list(gpus.values())))


def _today(cost: GpuCost) -> Today:
    return Today(cost.total, cost.idle, cost.energy_joules, cost.until)


def _whole(parts: list[Today]) -> Today:
    """A sum with an unknown part is not known."""
    totals, idle = [one.total for one in parts], [one.idle for one in parts]
    energy = [one.energy_joules for one in parts if one.energy_joules is not None]
    until = [one.until for one in parts if one.until is not None]
    return Today(
        sum((one for one in totals if one is not None), Fraction(0)) if parts and None not in totals else None,
        sum((one for one in idle if one is not None), Fraction(0)) if parts and None not in idle else None,
        sum(energy) if energy else None,
        min(until) if until else None,
    )
