"""What rules of commitment would have cost on recorded demand, beside all on-demand and the clairvoyant optimum.

Invariant: every rule is charged alike, for the same hours, from the same first day; none sees an hour before it has passed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pricing.commitments_lp import clairvoyant
from pricing.commitments_model import HOURS, Deal, History
from pricing.commitments_rules import Rule

CLAIRVOYANT = "clairvoyant"


class Result(NamedTuple):
    """Costs in uncovered node-hours."""

    policy: str
    series: str
    deal: Deal
    cost: float
    on_demand: float
    clairvoyant: float
    commitments: float
    """Bought in all."""

    @property
    def ratio(self) -> float | None:
        """Cost over the clairvoyant's; None where nothing ran."""
        return self.cost / self.clairvoyant if self.clairvoyant else None

    @property
    def dearer(self) -> bool:
        """Than all on-demand."""
        return self.cost > self.on_demand * (1 + 1e-12)

    @property
    def saving(self) -> float | None:
        """Against all on-demand; None where nothing ran."""
        return 1 - self.cost / self.on_demand if self.on_demand else None


def first_day(days: int) -> int:
    """The first day of decisions of the protocol: 14, or 7 where there are at most 40 days."""
    return 14 if days > 40 else 7


def purchases(rule: Rule, counts: np.ndarray, deal: Deal, start: int, tail: str = "truncate") -> np.ndarray:
    """What the rule buys on each day of `counts` (float, (days * 24,)), from day `start` on."""
    whole, days = History.of(counts), len(counts) // HOURS
    bought = np.zeros(days, int)
    active = np.zeros(days + deal.term_days, int)
    session = rule.begin(deal)
    for day in range(start, days if tail == "truncate" else days - deal.term_days + 1):
        bought[day] = session.buy(whole.until(day), active[day : day + deal.term_days].copy())
        active[day : day + deal.term_days] += bought[day]
    return bought


def cost(counts: np.ndarray, bought: np.ndarray, deal: Deal, start: int) -> float:
    """From day `start` on; days after the end are neither charged nor used."""
    total = np.cumsum(bought)
    active = total.copy()
    active[deal.term_days :] -= total[: -deal.term_days] if deal.term_days < len(total) else 0
    uncovered = np.maximum(0.0, counts.reshape(-1, HOURS) - active[:, None])[start:].sum()
    return float(deal.ratio * HOURS * active[start:].sum() + uncovered)


def backtest(
    policies: Mapping[str, Sequence[Rule]], name: str, counts: np.ndarray, deal: Deal, start: int, tail: str = "truncate"
) -> list[Result]:
    """All policies on one series of whole days, then the clairvoyant. A policy of several rules is told by their means."""
    scored = counts[start * HOURS :]
    last = None if tail == "truncate" else len(scored) // HOURS - deal.term_days
    best = clairvoyant(scored, deal, last_purchase=last)
    all_on_demand = float(scored.sum())
    results = []
    for policy, rules in policies.items():
        bought = [purchases(rule, counts, deal, start, tail) for rule in rules]
        paid = math.fsum(cost(counts, one, deal, start) for one in bought) / len(bought)
        number = sum(int(one.sum()) for one in bought) / len(bought)
        results.append(Result(policy, name, deal, paid, all_on_demand, best.cost, number))
    return [*results, Result(CLAIRVOYANT, name, deal, best.cost, all_on_demand, best.cost, float(best.purchases.sum()))]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and its standard error (None for a single value)."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
