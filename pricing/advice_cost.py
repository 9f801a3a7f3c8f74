"""What a demand costs under the rates and under commitments: one function for the spend, for judging advice, and for tests.

Invariant: each hour is covered as `pricing.owned` covers it, exactly (where savings plans meet more than `MOST_EXACT` different
hours, to a millionth of a dollar each); what no commitment covers is paid at the on-demand rate,
what is known to run on spot at the spot rate. A key without a known rate is in no sum and is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pricing import owned
from pricing.demand import Demand, DemandKey
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment, Place
from pricing.rate_card import RateCard

UNITS = 10**6
"""Counts are taken to a millionth of a node."""
MOST_EXACT = 1500
"""Hours that differ, up to which savings plans are applied one hour after the other, in fractions."""
UNCOVERED = ("spot", "capacity_block")


class Cost(NamedTuple):
    """USD over the known hours of a demand."""

    total: Fraction
    committed: Fraction
    """Of it, what the commitments cost, used or not."""
    unused: Fraction
    """Of that, what no node used."""
    uncovered: Fraction
    """On demand, beside the commitments."""
    spot: Fraction
    priced_hours: Fraction
    """Node-hours that are in the total."""
    unpriced: tuple[tuple[DemandKey, str], ...]
    """Keys, and how they are bought, without a known rate."""


def middle_rate(card: RateCard, key: DemandKey, purchase: str) -> Fraction | None:
    """The middle one of the zones' rates: which zone a node will be in is not known."""
    found = sorted(rate.usd_per_hour for rate in card.rates(key, purchase))
    if not found:
        return None
    return found[len(found) // 2] if len(found) % 2 else (found[len(found) // 2 - 1] + found[len(found) // 2]) / 2


def cost_of(demand: Demand, card: RateCard, commitments: Sequence[Commitment], *, most_exact: int = MOST_EXACT) -> Cost:
    """The cost of the known hours. Commitments in other currencies than USD are left out."""
    unpriced: list[tuple[DemandKey, str]] = []
    spot, spot_hours = _of_market(demand, card, unpriced)
    prices: dict[DemandKey, Fraction] = {}
    for key in demand.counts:
        rate = card.on_demand(key)
        if rate is not None:
            prices[key] = rate.usd_per_hour
        elif demand.committable(key).any():
            unpriced.append((key, "on_demand"))
    hours = {key: Fraction(float(demand.committable(key).sum())) for key in prices}
    active = [one for one in commitments if one.currency == "USD" and _overlaps(one, demand)]
    covered = _Covered(demand, card, prices, active, most_exact).run() if active else _uncovered(prices, hours)
    return Cost(
        covered.committed + covered.uncovered + spot, covered.committed, covered.unused, covered.uncovered, spot,
        sum(hours.values(), Fraction(0)) + spot_hours, tuple(unpriced),
    )  # fmt: skip


def _overlaps(one: Commitment, demand: Demand) -> bool:
    return one.starts_ms < (demand.first_hour + demand.hours) * HOUR_MS and one.ends_ms > demand.first_hour * HOUR_MS


class _Sums(NamedTuple):
    committed: Fraction
    unused: Fraction
    uncovered: Fraction


_NONE = _Sums(Fraction(0), Fraction(0), Fraction(0))


def _uncovered(prices: Mapping[DemandKey, Fraction], hours: Mapping[DemandKey, Fraction]) -> _Sums:
    return _Sums(Fraction(0), Fraction(0), sum((prices[key] * hours[key] for key in prices), Fraction(0)))


def _of_market(demand: Demand, card: RateCard, unpriced: list[tuple[DemandKey, str]]) -> tuple[Fraction, Fraction]:
    """What is known to run on spot or in capacity blocks."""
    total, hours = Fraction(0), Fraction(0)
    for key, parts in demand.bought.items():
        for purchase in UNCOVERED:
            if purchase not in parts:
                continue
            ran = Fraction(float(parts[purchase][demand.known].sum()))
            rate = middle_rate(card, key, purchase)
            if rate is None:
                unpriced += [(key, purchase)] if ran else []
            else:
                total, hours = total + rate * ran, hours + ran
    return total, hours


class _Covered:
    """Reservations cover hours as integers, all at once; what savings plans share is covered hour by hour, alike ones once."""

    def __init__(
        self, demand: Demand, card: RateCard, prices: Mapping[DemandKey, Fraction], commitments: Sequence[Commitment], most: int
    ) -> None:
        self._demand = demand
        self._card = card
        self._prices = prices
        self._commitments = sorted(commitments, key=lambda one: (one.zone is None, one.id))
        self._keys = list(prices)
        self._most_exact = most
        self._places = {key: self._place(key) for key in self._keys}
        self._found = _NONE

    def _place(self, key: DemandKey) -> Place:
        """A key whose cloud is not told takes that of a commitment for its type."""
        cloud = key.cloud
        if cloud is None:
            same = (one.cloud for one in self._commitments if (one.instance_type or "").lower() == key.instance_type.lower())
            cloud = next(same, "")
        return Place(cloud, key.region, None, key.instance_type, "on_demand")

    def run(self) -> _Sums:
        hours = np.flatnonzero(self._demand.known) + self._demand.first_hour
        counts = np.array([self._demand.committable(key) for key in self._keys]).reshape(len(self._keys), len(hours)).T
        whole = np.rint(counts * UNITS).astype(np.int64)
        edges = self._edges(hours)
        epochs = np.searchsorted(edges, hours, side="right") - 1
        for number, edge in enumerate(edges):
            held = [one for one in self._commitments if one.part_of_hour(int(edge))]
            self._epoch([self._first_hour(one, one.part_of_hour(int(edge))) for one in held], whole[epochs == number])
        return self._found

    def _edges(self, hours: np.ndarray) -> np.ndarray:
        """Hours from which on other commitments (or other parts of them) are in force."""
        if not len(hours):
            return np.zeros(0, dtype=np.int64)
        first, last = int(hours[0]), int(hours[-1])
        moments = (ms for one in self._commitments for ms in (one.starts_ms, one.ends_ms))
        edges = {first, *(hour for ms in moments for hour in (ms // HOUR_MS, -(-ms // HOUR_MS)) if first < hour <= last)}
        return np.array(sorted(edges))

    @staticmethod
    def _first_hour(one: Commitment, part: Fraction) -> Commitment:
        """The commitment as if the hour were the first of 1970."""
        return replace(one, starts_ms=0, ends_ms=int(part * HOUR_MS))

    def _epoch(self, held: Sequence[Commitment], left: np.ndarray) -> None:
        """Hours with the same commitments; `left`: millionths of nodes, hours x keys."""
        plans = [one for one in held if one.kind == "savings_plan"]
        reservations = [one for one in held if one.kind == "reservation"]
        if any(one.part_of_hour(0) != 1 or len(self._matched(one)) > 1 for one in reservations):
            plans, reservations = list(held), []  # parts of hours, and what several keys share, one by one
        for one in reservations:
            whole = one.whole_cost * len(left)
            used = Fraction(0)
            for place in self._matched(one):
                taken = np.minimum(left[:, place], one.count * UNITS)
                left[:, place] -= taken
                used = Fraction(int(taken.sum()), UNITS) * one.cost_per_hour
            self._add(_Sums(whole, whole - used, Fraction(0)))
        if not plans:
            self._add(_Sums(Fraction(0), Fraction(0), self._on_demand(left)))
        else:
            self._shared(plans, left)

    def _matched(self, one: Commitment) -> list[int]:
        return [place for place, key in enumerate(self._keys) if one.matches(self._places[key])]

    def _on_demand(self, left: np.ndarray) -> Fraction:
        sums = left.sum(axis=0)
        return sum(
            (self._prices[key] * Fraction(int(part), UNITS) for key, part in zip(self._keys, sums, strict=True)), Fraction(0)
        )

    def _add(self, one: _Sums, times: int = 1) -> None:
        self._found = _Sums(*(total + part * times for total, part in zip(self._found, one, strict=True)))

    def _shared(self, held: Sequence[Commitment], left: np.ndarray) -> None:
        alike, times = np.unique(left, axis=0, return_counts=True)
        if len(alike) > self._most_exact and all(one.kind == "savings_plan" and one.part_of_hour(0) == 1 for one in held):
            self._add(self._plans_at_once(held, left))
            return
        for row, count in zip(alike, times, strict=True):
            self._add(self._hour(held, row), int(count))

    def _hour(self, held: Sequence[Commitment], counts: np.ndarray) -> _Sums:
        ran = {key: Fraction(int(count), UNITS) for key, count in zip(self._keys, counts, strict=True) if count}
        demands = {
            key: owned.Demand(self._places[key], ran[key], self._prices[key], self._plan_rates(held, key)) for key in ran
        }
        result = owned.cover(held, demands, 0)
        done = {key: part.hours for key, part in result.covered.items()}
        uncovered = sum(((ran[key] - done.get(key, 0)) * self._prices[key] for key in ran), Fraction(0))
        committed = sum((one.whole_cost * one.part_of_hour(0) for one in held), Fraction(0))
        return _Sums(committed, sum(result.unused.values(), Fraction(0)), uncovered)

    def _plans_at_once(self, plans: Sequence[Commitment], left: np.ndarray) -> _Sums:
        """As `owned.cover` has it: the highest discount first, what is equal in proportion. To a millionth of a dollar."""
        nodes = left / UNITS
        money = {plan.id: np.full(len(nodes), float(plan.cost_per_hour)) for plan in plans}
        for (_, _, rate, id), places in groupby(self._pairs(plans), key=lambda pair: pair[0]):
            keys = [place for _, place in places]
            wanted = nodes[:, keys].sum(axis=1)
            used = np.minimum(wanted, money[id] / float(rate))
            nodes[:, keys] *= (1 - np.divide(used, wanted, out=np.zeros_like(used), where=wanted > 0))[:, None]
            money[id] -= used * float(rate)
        unused = sum(float(part.sum()) for part in money.values())
        uncovered = float((nodes.sum(axis=0) * [float(self._prices[key]) for key in self._keys]).sum())
        committed = sum((plan.cost_per_hour for plan in plans), Fraction(0)) * len(nodes)
        return _Sums(committed, Fraction(round(unused * UNITS), UNITS), Fraction(round(uncovered * UNITS), UNITS))

    def _pairs(self, plans: Sequence[Commitment]) -> list[tuple[tuple[Fraction, int, Fraction, str], int]]:
        found = []
        for place, key in enumerate(self._keys):
            for id, rate in self._plan_rates(plans, key).items():
                plan = next(one for one in plans if one.id == id)
                if plan.matches(self._places[key]) and rate < self._prices[key]:
                    breadth = (plan.family is None) + (plan.region is None)
                    found.append(((rate / self._prices[key] - 1, breadth, rate, id), place))
        return sorted(found)

    def _plan_rates(self, held: Iterable[Commitment], key: DemandKey) -> dict[str, Fraction]:
        rates = {}
        for plan in held:
            if plan.kind != "savings_plan":
                continue
            rate = plan.rate_of(key.instance_type, key.region)
            if rate is None and plan.percent is not None:
                rate = self._prices[key] * (1 - plan.percent / 100)
            if rate is None and plan.purchase is not None:
                rate = next((one.usd_per_hour for one in self._card.rates(key, plan.purchase)), None)
            if rate:
                rates[plan.id] = rate
        return rates
