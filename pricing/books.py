"""Adds up what was used, per group of a report: whole numbers per rate, turned into money once, at the end.

Invariant: nothing is rounded, and every sum is of the same totals whatever the grouping is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter
from typing import NamedTuple

from pricing import grouping
from pricing.grouping import Holder
from pricing.ledger_totals import Total
from pricing.rates import Epoch, Rate, Rates
from pricing.report import ALLOCATED_UNUSED, COST_PARTS, Committed, Row
from pricing.usage import KINDS

HELD, IDLE, LOST, DOWN, HOST = range(len(KINDS))
PARTS = 4
"""The cost parts that are share x time x rate: the first of `COST_PARTS`."""
UNUSED = PARTS
"""Place of what was held and not used, beside them."""
_COLUMN = {HELD: 0, IDLE: 1, LOST: 2, DOWN: 3, HOST: 0}
_NOTHING = Fraction(0)
_NONE: list[int] = []  # never added to


class Charge(NamedTuple):
    """A cost that is not share x time x rate: an item, a billing minimum, an unused commitment, an adjustment."""

    part: str
    """One of `COST_PARTS`, or `ALLOCATED_UNUSED`: then it is in no sum."""
    label: str
    """What its group is called by every key that neither `placed` nor `facts` tells."""
    cost: Fraction
    listed: Fraction | None = _NOTHING
    contracted: Fraction | None = _NOTHING
    facts: Mapping[str, str | None] = {}
    placement_id: int | None = None
    """Whose placement's names the group carries; then `facts`, where there are any, are those of a `Holder`."""
    commitment: str | None = None
    """Of an unused commitment: which."""
    node_hours: Fraction = _NOTHING
    """Of a part of a node that went from one to another: hours of the whole node; below 0 for whom it is taken from."""
    paid: tuple[Committed, ...] = ()
    """What of it owned commitments pay."""


class _Group:
    """What has been added up for one set of labels. `amounts`: share x ms of each cost part at `rate` (place of the rate);
    `others`: the same at other rates. One object and one list in the common case: a long report has 100,000s of groups."""

    __slots__ = ("held", "idle", "host", "busy", "measured", "energy_mj", "rate", "amounts", "others", "charges", "unpriced")

    def __init__(self) -> None:
        self.held = self.idle = self.host = self.busy = self.measured = 0
        self.energy_mj: int | None = None
        self.rate: int | None = None
        self.amounts: list[int] = _NONE
        self.others: dict[int, list[int]] | None = None
        self.charges: list[Charge] | None = None
        self.unpriced = False

    def add(self, total: Total, column: int, rate: int | None, host: bool) -> None:
        unused = 0
        if total.kind == HELD:
            self.held += total.share_ms
            self.busy += total.busy
            self.measured += total.measured_share_ms
            unused = total.measured_share_ms - total.busy
        elif not host:
            self.idle += total.share_ms
        else:
            self.host += total.share_ms
        if total.energy_mj is not None:
            self.energy_mj = (self.energy_mj or 0) + total.energy_mj
        if rate is None:
            self.unpriced = True
            return
        amounts = self.amounts if rate == self.rate else self.at(rate)
        amounts[column] += total.share_ms
        amounts[UNUSED] += unused

    def at(self, rate: int) -> list[int]:
        """The amounts at this rate."""
        if rate == self.rate:
            return self.amounts
        if self.rate is None:
            self.rate, self.amounts = rate, [0] * (PARTS + 1)
            return self.amounts
        if self.others is None:
            self.others = {}
        return self.others.setdefault(rate, [0] * (PARTS + 1))

    @property
    def costs(self) -> list[tuple[int, list[int]]]:
        """(place of the rate, share x ms of each cost part)."""
        if self.rate is None:
            return []
        return [(self.rate, self.amounts), *(self.others or {}).items()]

    def join(self, other: _Group) -> None:
        """Adds all of `other`."""
        self.held += other.held
        self.idle += other.idle
        self.host += other.host
        self.busy += other.busy
        self.measured += other.measured
        if other.energy_mj is not None:
            self.energy_mj = (self.energy_mj or 0) + other.energy_mj
        self.unpriced |= other.unpriced
        if other.charges:
            if self.charges is None:
                self.charges = []
            self.charges += other.charges
        for rate, amounts in other.costs:
            mine = self.at(rate)
            for column, amount in enumerate(amounts):
                if amount:
                    mine[column] += amount

    def row(self, keys: tuple[str, ...], rates: Sequence[Rate]) -> Row:
        measured = (keys, self.held, self.idle, self.busy, self.measured, self.energy_mj)
        if self.charges:
            return self._charged(measured, rates)
        if self.rate is None and self.unpriced:
            return Row(*measured, *[None] * PARTS, False, *[None] * 6, host_share_ms=self.host)
        if self.rate is None or self.others or rates[self.rate].paid:
            parts, listed, contracted = self._amounts(rates)
            paid = self._committed(rates)
        else:  # nine rows of ten in a fine-grained report
            (parts, listed, contracted), paid = self._simply(rates[self.rate]), ()
        first, second, third, fourth, unused = parts
        return Row(
            *measured, first, second, third, fourth, not self.unpriced, _NOTHING, _NOTHING, _NOTHING, unused, listed,
            contracted, paid, (), self.host,
        )  # fmt: skip

    def _charged(self, measured: tuple[object, ...], rates: Sequence[Rate]) -> Row:
        parts, listed, contracted = self._amounts(rates)
        costs = dict(zip(COST_PARTS, parts[:PARTS], strict=False)) | dict.fromkeys(COST_PARTS[PARTS:], _NOTHING)
        costs[ALLOCATED_UNUSED] = parts[UNUSED]
        for charge in self.charges or ():
            costs[charge.part] += charge.cost
        unused = costs.pop(ALLOCATED_UNUSED)
        first, rest = list(costs.values())[:PARTS], list(costs.values())[PARTS:]
        owned = self._committed(rates), self._unused()
        moved = sum((charge.node_hours for charge in self.charges or ()), _NOTHING)
        levels = unused, listed, contracted
        return Row(*measured, *first, not self.unpriced, *rest, *levels, *owned, self.host, moved)  # type: ignore[arg-type]

    def _simply(self, rate: Rate) -> tuple[list[Fraction], Fraction | None, Fraction | None]:
        """What `_amounts` gives, of one rate: most groups have time of one kind, so that few products differ."""
        price, amounts = rate.effective, self.amounts
        known = {0: _NOTHING}
        parts = []
        for amount in (*amounts, sum(amounts[:PARTS])):
            found = known.get(amount)
            if found is None:
                found = known[amount] = Fraction(price.numerator * amount, price.denominator)
            parts.append(found)
        whole = parts.pop()
        levels = [
            whole if level is price else None if level is None else level * sum(amounts[:PARTS])
            for level in (rate.listed, rate.contracted)
        ]
        return parts, levels[0], levels[1]

    def _amounts(self, rates: Sequence[Rate]) -> tuple[list[Fraction], Fraction | None, Fraction | None]:
        """(cost parts and the unused one, list cost, contracted cost)."""
        parts = [_cost(self.costs, column, rates) for column in range(PARTS + 1)]
        return parts, *self._levels(parts, rates)

    def _committed(self, rates: Sequence[Rate]) -> tuple[Committed, ...]:
        """By commitment, what it pays of this group."""
        sums: dict[str, Committed] = {}
        for place, amounts in self.costs:
            for paid in rates[place].paid:
                before, amount = sums.get(paid.commitment), sum(amounts[:PARTS])
                cost, hours = paid.cost * amount, paid.hours * amount
                if before is not None:
                    cost, hours = before.cost + cost, (before.node_hours or 0) + hours
                sums[paid.commitment] = Committed(paid.commitment, cost, hours)
        for part in (part for charge in self.charges or () for part in charge.paid):
            known = sums.get(part.commitment, Committed(part.commitment, _NOTHING, _NOTHING))
            sums[part.commitment] = Committed(
                part.commitment, known.cost + part.cost, (known.node_hours or 0) + (part.node_hours or 0)
            )
        return tuple(sums.values())

    def _unused(self) -> tuple[Committed, ...]:
        """By commitment, what of it was used by nobody."""
        sums: defaultdict[str, Fraction] = defaultdict(Fraction)
        for charge in self.charges or ():
            if charge.commitment is not None:
                sums[charge.commitment] += charge.cost
        return tuple(Committed(id, cost, None) for id, cost in sums.items())

    def _levels(self, parts: Sequence[Fraction], rates: Sequence[Rate]) -> tuple[Fraction | None, Fraction | None]:
        """List and contracted cost of the use."""
        used = [rates[place] for place, _ in self.costs]
        if all(rate.effective is rate.listed is rate.contracted for rate in used):
            effective = sum((part for part in parts[:PARTS] if part), _NOTHING)
            levels = [effective, effective]
        else:
            levels = [_level(self.costs, name, rates) for name in ("listed", "contracted")]
        for place, name in enumerate(("listed", "contracted")):
            for charge in self.charges or ():
                part, level = getattr(charge, name), levels[place]
                levels[place] = None if part is None or level is None else level + part
        return levels[0], levels[1]


def _cost(costs: Sequence[tuple[int, Sequence[int]]], column: int, rates: Sequence[Rate]) -> Fraction:
    """Numerators are added per denominator: a twentieth of the time that adding fractions takes."""
    sums: dict[int, int] = {}
    for rate, amounts in costs:
        if amounts[column]:
            _add(sums, rates[rate].effective, amounts[column])
    return _whole(sums)


def _level(costs: Sequence[tuple[int, Sequence[int]]], name: str, rates: Sequence[Rate]) -> Fraction | None:
    sums: dict[int, int] = {}
    for rate, amounts in costs:
        price: Fraction | None = getattr(rates[rate], name)
        if price is None:
            return None
        _add(sums, price, sum(amounts[:PARTS]))
    return _whole(sums)


def _add(sums: dict[int, int], price: Fraction, amount: int) -> None:
    sums[price.denominator] = sums.get(price.denominator, 0) + price.numerator * amount


def _whole(sums: Mapping[int, int]) -> Fraction:
    if not sums:
        return _NOTHING
    common = math.lcm(*sums)
    return Fraction(sum(numerator * (common // denominator) for denominator, numerator in sums.items()), common)


class Books:
    """Adds totals to their groups; remembers labels and rates, which few placements and holders share."""

    def __init__(self, keys: tuple[str, ...], rates: Rates) -> None:
        self.rates = rates
        self.unpriced: defaultdict[tuple[int, bool, str], int] = defaultdict(int)
        """(placement, host, reason of a closed month or empty) -> share x ms without a price."""
        self.keys = keys
        self._day = keys.index("day") if "day" in keys else None
        self._groups: defaultdict[tuple[str, ...], _Group] = defaultdict(_Group)
        self._known: dict[tuple[int, int, int], tuple[tuple[str | None, ...], int, bool]] = {}
        self._alike: dict[tuple[int, int, object], tuple[tuple[str | None, ...], int, bool]] = {}
        asked = [place for place, key in enumerate(Holder._fields) if key in keys]
        self.names: Callable[[Holder], object] = itemgetter(*asked) if asked else bool
        """What of a holder the keys tell apart: thousands of jobs may be one group."""
        self._first: dict[object, int] = {}
        self._rates: dict[Rate, int] = {}
        self._places: dict[int, tuple[Rate, int]] = {}
        self._epoch = Epoch(-1, 0, 0)
        self._now: dict[tuple[int, bool], int | None] = {}

    def begin(self, epoch: Epoch) -> None:
        """From here on, totals are of this epoch."""
        if epoch.number != self._epoch.number:
            self._now = {}
        self._epoch = epoch

    def add(self, day: str, total: Total) -> None:
        """A total of the epoch that was begun."""
        labels, column, host = self._meaning(total)
        place = (total.placement_id, host)
        try:
            rate = self._now[place]
        except KeyError:
            rate = self._now[place] = self._place(self.rates.rate(place[0], host=host, epoch=self._epoch))
        self._groups[self._dated(labels, day)].add(total, column, rate, host)
        if rate is None:
            self.unpriced[total.placement_id, host, ""] += total.share_ms

    def add_closed(self, day: str, total: Total, column: int, rate: Rate | None, reason: str) -> None:
        """A total of a closed month with the rate and the cost part that it was closed with."""
        labels, _, host = self._meaning(total)
        self._groups[self._dated(labels, day)].add(total, column, self._place(rate), host)
        if rate is None:
            self.unpriced[total.placement_id, host, reason] += total.share_ms

    def charge(self, day: str, charge: Charge) -> None:
        if charge.placement_id is None:
            labels = grouping.facts_labels(self.keys, charge.facts, charge.label)
        else:
            whose = Holder(**charge.facts) if charge.facts else charge.label
            labels = grouping.labels(self.keys, self.rates.placements[charge.placement_id], whose)
        group = self._groups[self._dated(labels, day)]
        if group.charges is None:
            group.charges = []
        group.charges.append(charge)

    def stands_for(self, holder_id: int) -> int:
        """The first holder that was asked for and that the keys call the same."""
        return self._first.setdefault(self.names(self.rates.holders[holder_id]), holder_id)

    def _place(self, rate: Rate | None) -> int | None:
        if rate is None:
            return None
        found = self._places.get(id(rate))  # comparing prices takes longer than all else here
        if found is None:
            found = self._places[id(rate)] = rate, self._rates.setdefault(rate, len(self._rates))
        return found[1]

    def _dated(self, labels: tuple[str | None, ...], day: str) -> tuple[str, ...]:
        if self._day is not None:
            labels = (*labels[: self._day], day, *labels[self._day + 1 :])
        return labels  # type: ignore[return-value]

    def _meaning(self, total: Total) -> tuple[tuple[str | None, ...], int, bool]:
        """(labels, cost part, whether it is of a whole host)."""
        found = self._known.get(total[:3])
        if found is None:
            names = self.names(self.rates.holders[total.holder_id]) if total.kind == HELD else None
            alike = (total.placement_id, total.kind, names)
            found = self._alike.get(alike)
            if found is None:
                found = self._alike[alike] = self._understood(total)
            self._known[total[:3]] = found
        return found

    def _understood(self, total: Total) -> tuple[tuple[str | None, ...], int, bool]:
        placed, host = self.rates.placements[total.placement_id], self.rates.of_host(total)
        column = self.column(total)
        holder: Holder | str = grouping.IDLE
        if total.kind == HELD:
            holder = self.rates.holders[total.holder_id]
        elif host and column == 0:
            holder = grouping.HOST
        return grouping.labels(self.keys, placed, holder), column, host

    def column(self, total: Total) -> int:
        """Place of its cost in `COST_PARTS`."""
        if total.kind == HOST and self.rates.lacks_gpus(self.rates.placements[total.placement_id]):
            return _COLUMN[LOST]
        return _COLUMN[total.kind]

    def rows(self) -> tuple[Row, ...]:
        """One row per group, names before our own labels."""
        rates = tuple(self._rates)
        return tuple(self._groups[keys].row(keys, rates) for keys in grouping.ordered(self._groups))

    def totals(self) -> Row:
        """All groups together; costs are of what has a price."""
        total = _Group()
        for group in self._groups.values():
            total.join(group)
        return total.row((), tuple(self._rates))
