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
from pricing.ledger_totals import Among
from pricing.rates import Epoch, Rate, Rates
from pricing.usage import KINDS, WHOLE_SHARE

_Place = tuple[int, int, int]
_ALLOCATED, _UNALLOCATED, _LOST = "allocated_cost", "idle_unallocated_cost", "idle_lost_cost"
_MIB_PER_GIB = 1024


def cpu_charges(rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[Charge]:
    """The cost of each such job in [starts_ms, ends_ms), and what it takes off each holder and off what is idle."""
    if not has_rows(connection, starts_ms, ends_ms):
        return
    sums: dict[_Place, list[Fraction | None]] = {}
    for epoch, among, sign in _pieces(rates, starts_ms, ends_ms):
        for total in cpu_totals(connection, epoch.starts_ms, epoch.ends_ms, among):
            rate, part = rates.rate(total.placement_id, host=True, epoch=epoch), _part(rates, total)
            if rate is not None and part is not None:
                _add(sums.setdefault(total[:3], [Fraction(0)] * 3), rate, sign * part * WHOLE_SHARE)
    for place, (cost, listed, contracted) in sums.items():
        if cost or listed or contracted:
            yield _charge(rates, *place)._replace(cost=cost or Fraction(0), listed=listed, contracted=contracted)


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


def _add(amounts: list[Fraction | None], rate: Rate, part: Fraction) -> None:
    for place, price in enumerate((rate.effective, rate.listed, rate.contracted)):
        before = amounts[place]
        amounts[place] = None if price is None or before is None else before + price * part


def _charge(rates: Rates, placement_id: int, part: int, holder_id: int) -> Charge:
    """Whose cost it is, and which part of theirs."""
    kind = KINDS[part - 1] if part else "held"
    if kind == "held":
        facts = rates.holders[holder_id]._asdict()
        return Charge(_ALLOCATED, grouping.NONE, Fraction(0), facts=facts, placement_id=placement_id)
    if kind == "host" and not rates.lacks_gpus(rates.placements[placement_id]):
        return Charge(_ALLOCATED, grouping.HOST, Fraction(0), placement_id=placement_id)
    idle = _UNALLOCATED if kind == "idle" else _LOST
    return Charge(idle, grouping.IDLE, Fraction(0), placement_id=placement_id)
