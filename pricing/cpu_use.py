"""What jobs without a GPU cost: their processors and memory, taken out of what the holders of the node pay.

Invariant: for each placement and moment these costs sum to 0, so what is allocated plus what is idle stays the price of
the node, in every grouping: the agent's rows of one moment sum to 0 (see `ledger_cpu`), and all have the same rates.

Of what a holder of a GPU loses so, as much was unused as of the GPU in that hour: then what is held and unused stays a part
of what is allocated, and of an hour it is the same in whatever report.

The part of a node's price is by the weights (see `weights`) of what the node has by its agent's own account, else by the
catalog's. Where neither knows it, or the node has no price, such jobs cost nothing and its GPUs carry all of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from pricing import grouping, weights
from pricing.books import Charge
from pricing.ledger_cpu import UNUSED_UNITS, cpu_totals, has_rows, jobs_on, unused_totals
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import Among
from pricing.rates import Epoch, Rate, Rates
from pricing.report import ALLOCATED_UNUSED, Committed
from pricing.usage import KINDS, WHOLE_SHARE

Alike = Callable[[int], int]
_Place = tuple[int, int, int]
_ALLOCATED, _UNALLOCATED, _LOST = "allocated_cost", "idle_unallocated_cost", "idle_lost_cost"
_MIB_PER_GIB = 1024
_NOTHING = Fraction(0)


def cpu_charges(
    rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int, alike: Alike | None = None
) -> Iterator[Charge]:
    """The cost of each such job in [starts_ms, ends_ms), and what it takes off each holder and off what is idle.

    `alike`: a holder's id -> that of the one that stands for it, where a report cannot tell them apart.
    """
    if not has_rows(connection, starts_ms, ends_ms):
        return
    sums: dict[_Place, dict[tuple[int, int], _Amounts]] = {}
    for epoch, among, sign in _pieces(rates, starts_ms, ends_ms):
        for total in cpu_totals(connection, epoch.starts_ms, epoch.ends_ms, among):
            rate = rates.rate(total.placement_id, host=True, epoch=epoch)
            if rate is not None:
                place = total.placement_id, total.part, alike(total.holder_id) if alike else total.holder_id
                at_rates = sums.setdefault(place, {})
                amounts = at_rates.get((id(rate), sign))  # comparing prices takes longer than all else here
                if amounts is None:
                    amounts = at_rates[id(rate), sign] = _Amounts(rate, sign)
                amounts.vcpu_ms += total.vcpu_ms
                amounts.memory_ms += total.memory_ms
    for place, found in sums.items():
        worth = node_worth(rates, place[0])
        charge = None if worth is None else _summed(_charge(rates, *place), worth, found.values())
        if charge is not None:
            yield charge
    yield from _unused(rates, connection, starts_ms, ends_ms, alike)


def _unused(
    rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int, alike: Alike | None
) -> Iterator[Charge]:
    """What such jobs take of GPU time that is held and unused."""
    sums: dict[tuple[int, int], Fraction] = {}
    for epoch, among, sign in _pieces(rates, starts_ms, ends_ms):
        for total in unused_totals(connection, epoch.starts_ms, epoch.ends_ms, among):
            rate, worth = rates.rate(total.placement_id, host=True, epoch=epoch), node_worth(rates, total.placement_id)
            if rate is not None and worth is not None:
                place = total.placement_id, alike(total.holder_id) if alike else total.holder_id
                part = worth.vcpu * Fraction(total.vcpu_ms, WHOLE_SHARE) + worth.memory_gib * Fraction(total.memory_ms, _MIB_PER_GIB)
                sums[place] = sums.get(place, _NOTHING) + sign * rate.effective * part * Fraction(WHOLE_SHARE, UNUSED_UNITS)
    for (placement_id, holder_id), cost in sums.items():
        if cost:
            yield _charge(rates, placement_id, 1 + KINDS.index("held"), holder_id)._replace(part=ALLOCATED_UNUSED, cost=cost)


def notes(rates: Rates, connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[str]:
    """A sentence for each node on which such jobs cost nothing because it is not known what it has."""
    if not rates.pricing.terms.weights.of_processors:
        return
    told: dict[str, set[str]] = {}
    for placement_id, job in jobs_on(connection, starts_ms, ends_ms):
        if node_worth(rates, placement_id) is None:
            told.setdefault(rates.placements[placement_id].node, set()).add(job or "without a name")
    for node, jobs in sorted(told.items()):
        some = ", ".join(sorted(jobs)[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")
        yield (
            f"node {node}: how many vCPUs and how much memory it has is not known, so its jobs without a GPU ({some}) have no "
            "cost of their own: the holders of its GPUs, or what is idle, carry the whole price."
        )


class _Amounts:
    """vCPU and memory time at one rate; `sign` -1 for what is free: its cost is taken away again."""

    __slots__ = ("rate", "sign", "vcpu_ms", "memory_ms")

    def __init__(self, rate: Rate, sign: int) -> None:
        self.rate, self.sign = rate, sign
        self.vcpu_ms = self.memory_ms = 0


def _summed(bare: Charge, worth: weights.Worth, amounts: Iterable[_Amounts]) -> Charge | None:
    """None for what weighs nothing."""
    levels: list[Fraction | None] = [_NOTHING] * 3
    node_ms, paid = _NOTHING, dict[str, Committed]()
    for one in amounts:
        rate, vcpus, gib = one.rate, Fraction(one.vcpu_ms, WHOLE_SHARE), Fraction(one.memory_ms, _MIB_PER_GIB)
        part = worth.vcpu * vcpus + worth.memory_gib * gib  # of the node, x ms
        node_ms += part if one.sign > 0 else _NOTHING
        amount = one.sign * part * WHOLE_SHARE
        for place, price in enumerate((rate.effective, rate.listed, rate.contracted)):
            before = levels[place]
            levels[place] = None if price is None or before is None else before + price * amount
        for share in rate.paid:
            known = paid.get(share.commitment, Committed(share.commitment, _NOTHING, _NOTHING))
            hours = (known.node_hours or _NOTHING) + share.hours * amount
            paid[share.commitment] = Committed(share.commitment, known.cost + share.cost * amount, hours)
    if not (node_ms or any(levels)):
        return None
    cost, listed, contracted = levels
    return bare._replace(
        cost=cost or _NOTHING, listed=listed, contracted=contracted, node_hours=node_ms / HOUR_MS, paid=tuple(paid.values())
    )


def _pieces(rates: Rates, starts_ms: int, ends_ms: int) -> Iterator[tuple[Epoch, Among | None, int]]:
    """Stretches in which rates are constant; what is free is taken away again (-1)."""
    yield from ((epoch, among, 1) for epoch, among in rates.passes(starts_ms, ends_ms))
    for id, since, until in rates.free_windows(starts_ms, ends_ms):
        only = Among(json.dumps([id]), within=True)
        yield from ((epoch, only, -1) for epoch in rates.epochs(since, until))


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
