"""What jobs without a GPU cost: their processors and memory, taken out of what the holders of the node pay.

Invariant: for each placement and moment these costs sum to 0, so what is allocated plus what is idle stays the price of
the node, in every grouping: the agent's rows of one moment sum to 0 (see `ledger_cpu`), and all have the same rates.

The part of a node's price is by the weights (see `weights`) of what the node has by its agent's own account, else by the
catalog's. Where neither knows it, or the node has no price, such jobs cost nothing and its GPUs carry all of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from fractions import Fraction

from pricing import grouping, weights
from pricing.books import Charge
from pricing.ledger_cpu import CpuTotal, cpu_totals, has_rows
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import Among
from pricing.rates import Epoch, Rate, Rates
from pricing.report import Committed
from pricing.usage import KINDS, WHOLE_SHARE

_Place = tuple[int, int, int]
_ALLOCATED, _UNALLOCATED, _LOST = "allocated_cost", "idle_unallocated_cost", "idle_lost_cost"
_MIB_PER_GIB = 1024
_NOTHING = Fraction(0)


def cpu_charges(rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[Charge]:
    """The cost of each such job in [starts_ms, ends_ms), and what it takes off each holder and off what is idle."""
    if not has_rows(connection, starts_ms, ends_ms):
        return
    sums: dict[_Place, _Sum] = {}
    for epoch, among, sign in _pieces(rates, starts_ms, ends_ms):
        for total in cpu_totals(connection, epoch.starts_ms, epoch.ends_ms, among):
            rate, part = rates.rate(total.placement_id, host=True, epoch=epoch), _part(rates, total)
            if rate is not None and part is not None:
                sums.setdefault(total[:3], _Sum()).add(rate, part, sign)
    for place, found in sums.items():
        if found.counts:
            yield found.charge(_charge(rates, *place))


class _Sum:
    """What one holder has of a node, or gives of his part."""

    def __init__(self) -> None:
        self._levels: list[Fraction | None] = [_NOTHING] * 3
        self._node_ms = _NOTHING
        self._paid: dict[str, Committed] = {}

    def add(self, rate: Rate, part: Fraction, sign: int) -> None:
        """`part`: of the node, x ms. `sign` -1 takes its cost away again."""
        amount = sign * part * WHOLE_SHARE
        for place, price in enumerate((rate.effective, rate.listed, rate.contracted)):
            before = self._levels[place]
            self._levels[place] = None if price is None or before is None else before + price * amount
        if sign > 0:
            self._node_ms += part
        for paid in rate.paid:
            known = self._paid.get(paid.commitment, Committed(paid.commitment, _NOTHING, _NOTHING))
            hours = (known.node_hours or _NOTHING) + paid.hours * amount
            self._paid[paid.commitment] = Committed(paid.commitment, known.cost + paid.cost * amount, hours)

    @property
    def counts(self) -> bool:
        """Not for what weighs nothing."""
        return bool(self._node_ms or any(self._levels))

    def charge(self, bare: Charge) -> Charge:
        cost, listed, contracted = self._levels
        return bare._replace(
            cost=cost or _NOTHING, listed=listed, contracted=contracted, node_hours=self._node_ms / HOUR_MS,
            paid=tuple(self._paid.values()),
        )  # fmt: skip


def _pieces(rates: Rates, starts_ms: int, ends_ms: int) -> Iterator[tuple[Epoch, Among | None, int]]:
    """Stretches in which rates are constant; what is free is taken away again (-1)."""
    yield from ((epoch, among, 1) for epoch, among in rates.passes(starts_ms, ends_ms))
    for id, since, until in rates.free_windows(starts_ms, ends_ms):
        only = Among(json.dumps([id]), within=True)
        yield from ((epoch, only, -1) for epoch in rates.epochs(since, until))


def _part(rates: Rates, total: CpuTotal) -> Fraction | None:
    """Part of the node x ms."""
    worth = node_worth(rates, total.placement_id)
    if worth is None:
        return None
    return worth.vcpu * total.vcpu_ms / WHOLE_SHARE + worth.memory_gib * total.memory_ms / _MIB_PER_GIB


def node_worth(rates: Rates, placement_id: int) -> weights.Worth | None:
    """How the price of a node divides; None where it is not known what it has."""
    placed = rates.placements[placement_id]
    vcpus, memory = placed.vcpus, placed.memory_bytes
    if (vcpus is None or memory is None) and placed.cloud is not None and placed.instance_type is not None:
        shape = rates.pricing.catalog.instance(placed.cloud, placed.instance_type)
        if shape is not None:
            vcpus, memory = vcpus or shape.vcpus, memory or shape.memory_bytes
    return weights.worth(placed.gpu_count, vcpus, memory, rates.pricing.terms.weights)


def _charge(rates: Rates, placement_id: int, part: int, holder_id: int) -> Charge:
    """Whose cost it is, and which part of theirs."""
    kind = KINDS[part - 1] if part else "held"
    if kind == "held":
        facts = rates.holders[holder_id]._asdict()
        return Charge(_ALLOCATED, grouping.NONE, _NOTHING, facts=facts, placement_id=placement_id)
    if kind == "host" and not rates.lacks_gpus(rates.placements[placement_id]):
        return Charge(_ALLOCATED, grouping.HOST, _NOTHING, placement_id=placement_id)
    idle = _UNALLOCATED if kind == "idle" else _LOST
    return Charge(idle, grouping.IDLE, _NOTHING, placement_id=placement_id)
