"""What a demand costs under the rates and under commitments: one function for the spend, for judging advice, and for tests.

Invariant: each hour is covered as `pricing.owned` covers it, exactly; what no commitment covers is paid at the on-demand rate,
what is known to run on spot at the spot rate. A key without a known rate is in no sum and is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pricing import owned
from pricing.demand import Demand, DemandKey
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment, Place
from pricing.rate_card import RateCard

PLACES = 6
"""Decimals of a node to which counts are taken, so that hours that are alike are computed once."""
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


def cost_of(demand: Demand, card: RateCard, commitments: Sequence[Commitment]) -> Cost:
    """The cost of the known hours. Commitments in other currencies than USD are left out by the caller."""
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
    covered = _Covered(demand, card, prices, active).run() if active else _uncovered(prices, hours)
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
    """Hours that are alike (the same nodes, the same commitments) are covered once."""

    def __init__(
        self, demand: Demand, card: RateCard, prices: Mapping[DemandKey, Fraction], commitments: Sequence[Commitment]
    ) -> None:
        self._demand = demand
        self._card = card
        self._prices = prices
        self._commitments = commitments
        self._keys = list(prices)
        self._places = {key: self._place(key) for key in self._keys}

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
        whole = np.rint(counts * 10**PLACES).astype(np.int64)
        parts = np.array([[one.part_of_hour(int(hour)) for one in self._commitments] for hour in self._edges(hours)], dtype=object)
        epoch = np.searchsorted(self._edges(hours), hours, side="right") - 1
        alike, times = np.unique(np.column_stack([epoch, whole]), axis=0, return_counts=True)
        committed = unused = uncovered = Fraction(0)
        for row, count in zip(alike, times, strict=True):
            one = self._hour(parts[row[0]], row[1:])
            committed, unused, uncovered = (
                total + part * int(count) for total, part in zip((committed, unused, uncovered), one, strict=True)
            )
        return _Sums(committed, unused, uncovered)

    def _edges(self, hours: np.ndarray) -> np.ndarray:
        """Hours from which on other commitments (or other parts of them) are in force."""
        first, last = int(hours[0]), int(hours[-1])
        moments = (ms for one in self._commitments for ms in (one.starts_ms, one.ends_ms))
        edges = {first, *(hour for ms in moments for hour in (ms // HOUR_MS, -(-ms // HOUR_MS)) if first < hour <= last)}
        return np.array(sorted(edges))

    def _hour(self, parts: Iterable[Fraction], counts: np.ndarray) -> _Sums:
        ran = {key: Fraction(int(count), 10**PLACES) for key, count in zip(self._keys, counts, strict=True) if count}
        held = [self._whole(one, part) for one, part in zip(self._commitments, parts, strict=True) if part]
        demands = {key: owned.Demand(self._places[key], ran[key], self._prices[key], self._plan_rates(held, key)) for key in ran}
        result = owned.cover(held, demands, 0)
        done = {key: part.hours for key, part in result.covered.items()}
        uncovered = sum(((ran[key] - done.get(key, 0)) * self._prices[key] for key in ran), Fraction(0))
        return _Sums(sum((one.whole_cost * one.part_of_hour(0) for one in held), Fraction(0)), sum(result.unused.values(), Fraction(0)), uncovered)

    @staticmethod
    def _whole(one: Commitment, part: Fraction) -> Commitment:
        """The commitment as if the hour were the first of 1970."""
        return replace(one, starts_ms=0, ends_ms=int(part * HOUR_MS))

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
            if rate is not None:
                rates[plan.id] = rate
        return rates

