"""Commitments that the user owns, and how one hour of them covers what ran in it.

Invariant: in every hour, the cost of what is covered plus the cost of what is unused is what the commitments cost, exactly.
Nothing is banked: what an hour does not use is unused. The order of the file decides nothing.

Reservations come first (those of one zone before those of a region), then savings plans: of all (plan, type) pairs the
one with the highest discount off the on-demand list price first; of equals the narrower plan, then the lower rate. What
several alike nodes share is split in proportion to their node-hours, so that equal nodes pay an equal rate.
A reservation is of one instance type: the clouds' size flexibility does not hold for the GPU families.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Literal, NamedTuple

from pricing.contracts import type_matches
from pricing.instances import name_key
from pricing.ledger_merge import HOUR_MS

COVERABLE = (None, "on_demand", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y")
"""What a node may say that it was bought as, to be covered: all of it runs on demand. Spot and capacity blocks do not."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """One reservation (`count` instances of a type) or savings plan (`cost_per_hour` to spend at its rates)."""

    id: str
    kind: Literal["reservation", "savings_plan"]
    cloud: str
    starts_ms: int
    ends_ms: int
    cost_per_hour: Fraction
    """Amortised: of one instance, the upfront payment over the hours of the term plus the hourly fee; of a whole plan."""
    currency: str = "USD"
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    family: str | None = None
    """Of a savings plan: only these types, a pattern like `p5`, which means `p5.*`."""
    count: int = 1
    percent: Fraction | None = None
    """A savings plan's discount off the on-demand list price."""
    rates: Mapping[str, Fraction] = field(default_factory=dict)
    """A savings plan's own price per hour of a type, or of `region/type`; counts before `percent` and `purchase`."""
    purchase: str | None = None
    """Take a savings plan's rates from the catalog's prices of this purchase option."""
    upfront: Fraction = Fraction(0)
    """What of `cost_per_hour` was paid once at the start, as it was paid (of one instance)."""

    def matches(self, place: Place) -> bool:
        """Whether it may cover nodes of this place and type."""
        return (
            place.purchase in COVERABLE
            and place.cloud == self.cloud
            and self.region in (None, place.region)
            and self.zone in (None, place.zone)
            and (self.instance_type is None or _key(self, self.instance_type) == _key(self, place.instance_type))
            and (self.family is None or type_matches(self.cloud, self._pattern(), place.instance_type))
        )

    def _pattern(self) -> str:
        family = self.family or ""
        return family if any(sign in family for sign in "*?[.") else f"{family}.*"

    def rate_of(self, instance_type: str, region: str | None = None) -> Fraction | None:
        """The plan's own rate of a type, where it states one: that of the region first."""
        wanted, everywhere = _key(self, instance_type), None
        for name, rate in self.rates.items():
            place, _, kind = name.rpartition("/")
            if _key(self, kind) == wanted:
                if place and place.lower() == region:
                    return rate
                everywhere = everywhere if place else rate
        return everywhere

    def part_of_hour(self, hour: int) -> Fraction:
        """How much of a UTC hour lies in the term."""
        held = min(self.ends_ms, (hour + 1) * HOUR_MS) - max(self.starts_ms, hour * HOUR_MS)
        return Fraction(max(0, held), HOUR_MS)

    @property
    def whole_cost(self) -> Fraction:
        """Per hour, used or not."""
        return self.cost_per_hour * (self.count if self.kind == "reservation" else 1)


def _key(commitment: Commitment, instance_type: str) -> str:
    return name_key(commitment.cloud, instance_type)


class Place(NamedTuple):
    """Where a node was and what it was, in lower case."""

    cloud: str | None
    region: str | None
    zone: str | None
    instance_type: str
    purchase: str | None


class Demand(NamedTuple):
    """Nodes alike in one hour."""

    place: Place
    node_hours: Fraction
    list_price: Fraction | None
    """Per node-hour, on demand, without discounts."""
    plan_rates: Mapping[str, Fraction]
    """Savings plan id -> what a node-hour costs under it."""


class Covered(NamedTuple):
    """`hours` of node time that commitments pay for, and their part of what those cost."""

    hours: Fraction
    cost: Fraction

    def plus(self, hours: Fraction, cost: Fraction) -> Covered:
        return Covered(self.hours + hours, self.cost + cost)


_NOTHING = Covered(Fraction(0), Fraction(0))


class HourCovered(NamedTuple):
    covered: dict[Hashable, Covered]
    unused: dict[str, Fraction]
    """Commitment id -> cost of what no node used."""
    paid: Mapping[Hashable, Mapping[str, Covered]] = {}
    """What is covered, by the commitment that pays it."""


class _Hour:
    """What is still uncovered while commitments are applied, one after the other."""

    def __init__(self, demands: Mapping[Hashable, Demand]) -> None:
        self.demands = demands
        self.left = {key: demand.node_hours for key, demand in demands.items() if demand.node_hours}
        self.covered: dict[Hashable, Covered] = {}
        self.paid: dict[Hashable, dict[str, Covered]] = {}

    def take(self, keys: Sequence[Hashable], hours: Fraction, rate: Fraction, id: str) -> Fraction:
        """Covers up to `hours` of the keys, in proportion; returns how many were used."""
        wanted = sum((self.left[key] for key in keys), Fraction(0))
        used = min(wanted, hours)
        for key in keys if used else ():
            part = self.left[key] * used / wanted
            self.covered[key] = self.covered.get(key, _NOTHING).plus(part, part * rate)
            payers = self.paid.setdefault(key, {})
            payers[id] = payers.get(id, _NOTHING).plus(part, part * rate)
            self.left[key] -= part
        return used


def cover(commitments: Sequence[Commitment], demands: Mapping[Hashable, Demand], hour: int) -> HourCovered:
    """Applies the commitments to one hour's node-hours; costs are in each commitment's own money."""
    state = _Hour(demands)
    unused: dict[str, Fraction] = {}
    held = [(one, one.part_of_hour(hour)) for one in sorted(commitments, key=lambda one: (one.zone is None, one.id))]
    for one, part in held:
        if one.kind == "reservation" and part:
            instances = one.count * part
            used = state.take(_matching(one, state), instances, one.cost_per_hour, one.id)
            unused[one.id] = (instances - used) * one.cost_per_hour
    money = {one.id: one.cost_per_hour * part for one, part in held if one.kind == "savings_plan" and part}
    plans = [one for one, _ in held if one.id in money]
    for (_, _, rate, id), pairs in groupby(sorted(_pairs(plans, state), key=lambda pair: pair[0]), key=lambda pair: pair[0]):
        keys = [key for _, key in pairs]
        money[id] -= state.take(keys, money[id] / rate, rate, id) * rate
    return HourCovered(state.covered, unused | money, state.paid)


def _matching(commitment: Commitment, state: _Hour) -> list[Hashable]:
    return [key for key, left in state.left.items() if left and commitment.matches(state.demands[key].place)]


def _pairs(plans: Sequence[Commitment], state: _Hour) -> list[tuple[tuple[Fraction, int, Fraction, str], Hashable]]:
    """((minus discount, breadth, rate, plan), key) of every use that a plan makes cheaper."""
    found: list[tuple[tuple[Fraction, int, Fraction, str], Hashable]] = []
    for plan in plans:
        breadth = (plan.family is None) + (plan.region is None)
        for key in _matching(plan, state):
            demand = state.demands[key]
            rate = demand.plan_rates.get(plan.id)
            if rate and demand.list_price and rate < demand.list_price:
                found.append(((rate / demand.list_price - 1, breadth, rate, plan.id), key))
    return found
