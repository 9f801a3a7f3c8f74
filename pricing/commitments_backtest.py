"""What rules of commitment would have cost on recorded demand, beside all on-demand and the clairvoyant optimum.

Invariant: every rule is charged alike, for the same hours, from the same first day; none sees an hour before it has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pricing.commitments_lp import clairvoyant
from pricing.commitments_model import HOURS, Deal, History
from pricing.commitments_rules import Rule


class Result(NamedTuple):
    """Costs in uncovered node-hours. `purchases`: int (days,), zero before the first day."""

    policy: str
    series: str
    deal: Deal
    cost: float
    on_demand: float
    clairvoyant: float
    purchases: np.ndarray

    @property
    def ratio(self) -> float | None:
        """Cost over the clairvoyant's; None where nothing ran."""
        return self.cost / self.clairvoyant if self.clairvoyant else None

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
    rules: Sequence[Rule], name: str, counts: np.ndarray, deal: Deal, start: int, tail: str = "truncate"
) -> list[Result]:
    """All rules on one series of whole days."""
    scored = counts[start * HOURS :]
    last = None if tail == "truncate" else len(scored) // HOURS - deal.term_days
    best = clairvoyant(scored, deal, last_purchase=last).cost
    results = []
    for rule in rules:
        bought = purchases(rule, counts, deal, start, tail)
        results.append(Result(rule.name, name, deal, cost(counts, bought, deal, start), float(scored.sum()), best, bought))
    return results
