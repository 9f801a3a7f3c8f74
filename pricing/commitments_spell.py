"""Spell rules: how long a level of demand that is on stays on, from the spells of all levels of the same pool so far.

Invariant: hazards are estimated from days before the decision alone, and shrunk to a prior with the weight of the pool's mean
demand, since levels go down together.

A level is on in a day when it is covered for more than half of it; its age is the days on in a row up to yesterday. The hazard
(the chance that the next day is off) depends on the age alone. These are the published rules that `rackrate` is measured
against; it lives in commitments_own.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing.commitments_model import Deal, History
from pricing.commitments_rules import look_back

AGES = np.array([3, 7, 14, 28])
PRIOR = np.array([0.25, 0.10, 0.05, 0.03, 0.02])
"""Hazards a day at ages 1-2, 3-6, 7-13, 14-27 and 28 or more."""
RECENT, LONG, SHRINK = 3, 28, 7
"""Days: of the coverage while on; of the coverage otherwise, and what is added to its denominator."""


def ages(coverage: np.ndarray, least: float = 0.5) -> np.ndarray:
    """Int (days, levels): days on (covered for more than `least`) in a row up to and including each; 0 is off."""
    on = coverage > least
    number = np.arange(1, len(on) + 1)[:, None]
    return np.where(on, number - np.maximum.accumulate(np.where(on, 0, number), axis=0), 0)


def hazards(age: np.ndarray, weight: float) -> np.ndarray:
    """Float (5,): by bucket of ages, `PRIOR` counting as `weight` level-days."""
    before, bucket = age[:-1] > 0, np.searchsorted(AGES, age[:-1], side="right")
    exposed = np.bincount(bucket[before], minlength=5)
    ended = np.bincount(bucket[before], weights=age[1:][before] == 0, minlength=5)
    return (ended + weight * PRIOR) / (exposed + weight)


class _Level:
    """What the spell rules know of each level: `survival` float (days ahead + 1, levels), `on` and `otherwise` coverage."""

    def __init__(self, history: History, ahead: int) -> None:
        coverage, age = history.coverage, ages(history.coverage)
        self.age = age[-1]
        hazard = hazards(age, max(1.0, float(history.counts.mean())))
        stays = 1 - hazard[np.searchsorted(AGES, np.arange(self.age.max(initial=0) + ahead), side="right")]
        steps = stays[self.age[None] + np.arange(ahead)[:, None]]
        self.survival = np.concatenate([np.ones((1, len(self.age))), np.cumprod(steps, axis=0)])
        recent = coverage[: -RECENT - 1 : -1]
        length = np.clip(self.age, 1, len(recent))
        self.on = np.cumsum(recent, axis=0)[length - 1, np.arange(len(self.age))] / length
        self.otherwise = coverage[-LONG:].sum(axis=0) / (min(len(coverage), LONG) + SHRINK)


def _guarded(history: History, wanted: np.ndarray, ratio: float) -> int:
    """Levels wanted without a hole, and no more than the last day and the last three would have paid for."""
    count = int(np.minimum.accumulate(wanted).sum()) * history.unit
    return min(count, look_back(history, 1, ratio), look_back(history, RECENT, ratio))


@dataclass(frozen=True)
class Spell:
    """Buys a level whose expected coverage over the term is above the break-even by `margin` of the rest."""

    name: str = "spell"
    margin: float = 0.2

    def begin(self, deal: Deal) -> _SpellSession:
        return _SpellSession(deal, self.margin)


@dataclass(frozen=True)
class _SpellSession:
    deal: Deal
    margin: float

    def buy(self, history: History, active: np.ndarray) -> int:
        if not history.coverage.shape[1]:
            return 0
        level = _Level(history, self.deal.term_days)
        stays = level.survival[1:].mean(axis=0)
        expected = np.where(level.age > 0, stays * level.on + (1 - stays) * level.otherwise, 0.0)
        wanted = np.minimum.accumulate(expected) > self.deal.ratio + self.margin * (1 - self.deal.ratio)
        return max(0, _guarded(history, wanted, self.deal.ratio) - int(active[0]))


@dataclass(frozen=True)
class SpellStopping:
    """The same estimates, and optimal stopping over two terms: buys where that is worth more than to see another day."""

    name: str = "spell-dp"
    margin: float = 0.05

    def begin(self, deal: Deal) -> _StoppingSession:
        return _StoppingSession(deal, deal.ratio + self.margin * (1 - deal.ratio))


@dataclass(frozen=True)
class _StoppingSession:
    deal: Deal
    price: float

    def buy(self, history: History, active: np.ndarray) -> int:
        if not history.coverage.shape[1]:
            return 0
        level = _Level(history, 3 * self.deal.term_days)
        wanted = self._now(level) & (level.age > 0)
        return max(0, _guarded(history, wanted, self.deal.ratio) - int(active[0]))

    def _now(self, level: _Level) -> np.ndarray:
        """Bool (levels,): buying today is worth more than waiting while the spell lasts, with 2 x term days to go."""
        term, survival = self.deal.term_days, level.survival
        passed = np.cumsum(survival, axis=0)
        value = np.zeros((2 * term + 1, survival.shape[1]))
        now = waiting = value[0]
        for left in range(1, 2 * term + 1):
            day = 2 * term - left
            days = min(term, left)
            alive = (passed[day + days] - passed[day]) / survival[day]
            now = alive * (level.on - level.otherwise) + days * (level.otherwise - self.price)
            if left > term:
                now = now + survival[day + term] / survival[day] * value[left - term]
            waiting = survival[day + 1] / survival[day] * value[left - 1]
            value[left] = np.maximum(np.maximum(now, waiting), 0.0)
        return (now > waiting) & (now > 0)
