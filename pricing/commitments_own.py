"""Rackrate's own rule: buy a level where its expected coverage over the next term is above the break-even.

Invariant: what it expects rests on days before the decision, pooled over all levels of the pool; it buys no level that the last
two days would not have paid for, and nothing at a ratio of 1 or more.

A level is on in a day when it is covered for more than half of it, or for more than the break-even where that is less. What
decides whether a level that is on stays on is how deep it lies under the demand, measured in the pool's own daily moves:

    depth   z = log((m + 1) / level) / sigma        m: levels on in the last day; sigma: root mean square of the
                                                    daily changes of log(m + 1), `SIGMA` counting as `SIGMA_DAYS` days
    hazard  h = g log(1 + exp(SURFACE + ROOT sqrt(z) + SLOPE z))     a day; z at most `DEEPEST`
            g = (ended + TRUST) / (expected + TRUST)                 this pool's exits so far over those h tells for g = 1,
                                                                     each day as one event, since levels fall together
    stays   W = mean of exp(-h k) over the term's days k
    expected coverage = W x yesterday's + (1 - W) x (covered of the last 28 days) / (those days + caution)
    caution   the term's days (at most 28) x sigma / SIGMA, at most twice: days without demand that are added to the evidence

Terms of a quarter and more are decided on weeks instead of days (a weekend is no end of a level), and look back over as much
as a term.

The numbers were fitted on Philly, openb and simulated clusters; the rule is flat in all of them: fitted without any one
source, its mean cost there rises by less than two percent of the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing.commitments_model import Deal, History
from pricing.commitments_rules import TIE, look_back
from pricing.commitments_spell import ages

SIGMA, SIGMA_DAYS = 0.3, 20
SURFACE, ROOT, SLOPE, DEEPEST = 0.45, -1.1, -0.25, 10.0
TRUST = 0.5
LOOK_BACK, CAUTION, MOST_CAUTION = 28, 28, 2.0
ON = 0.5
WEEKLY_FROM = 90
"""Days of a term from which on weeks are the grain."""


@dataclass(frozen=True)
class Own:
    """The rule as the others have it."""

    name: str = "rackrate"

    def begin(self, deal: Deal) -> _OwnSession:
        return _OwnSession(deal)


@dataclass(frozen=True)
class _OwnSession:
    deal: Deal

    def buy(self, history: History, active: np.ndarray) -> int:
        return max(0, target(history, self.deal) - int(active[0]))


def target(history: History, deal: Deal) -> int:
    """How many commitments to have active now."""
    if not history.coverage.shape[1] or deal.ratio >= 1:
        return 0
    expected = expected_coverage(history, deal)
    count = int((np.minimum.accumulate(expected) > deal.ratio + TIE).sum()) * history.unit
    recent = (1, 2) if deal.term_days < WEEKLY_FROM else (7, 14)
    return min(count, *(look_back(history, days, deal.ratio) for days in recent))


def expected_coverage(history: History, deal: Deal) -> np.ndarray:
    """Float (levels,): the share of the next term in which each level will be needed; 0 where it is off now."""
    term = deal.term_days
    grain = 1 if term < WEEKLY_FROM else min(7, history.days)
    coverage = _coarse(history.coverage, grain)
    age = ages(coverage, min(ON, deal.ratio))
    sigma = volatility((age > 0).sum(axis=1))
    stays = _stays(age, sigma, -(-term // grain))
    days = history.coverage[-max(LOOK_BACK, term) :]
    caution = min(term, CAUTION) * min(MOST_CAUTION, sigma[-1] / SIGMA)
    otherwise = days.sum(axis=0) / (len(days) + caution)
    return np.where(age[-1] > 0, stays * coverage[-1] + (1 - stays) * otherwise, 0.0)


def volatility(median: np.ndarray) -> np.ndarray:
    """Float (days,): root mean square, up to each day, of the daily changes of log(median demand + 1)."""
    moves = np.concatenate([[0.0], np.cumsum(np.diff(np.log(median + 1.0)) ** 2)])
    return np.sqrt((SIGMA_DAYS * SIGMA**2 + moves) / (SIGMA_DAYS + np.arange(len(median))))


def _coarse(coverage: np.ndarray, grain: int) -> np.ndarray:
    """Means of `grain` days; the last ones are whole."""
    whole = len(coverage) // grain
    return coverage[len(coverage) - whole * grain :].reshape(whole, grain, -1).mean(axis=1)


def _stays(age: np.ndarray, sigma: np.ndarray, term: int) -> np.ndarray:
    """Float (levels,): mean chance, over the term's days, that a level which is on has been on since."""
    on = age > 0
    median = np.log(on.sum(axis=1) + 1.0)
    level = np.log(np.arange(1, age.shape[1] + 1))
    day, place = np.nonzero(on[:-1])
    weight = 1 / on.sum(axis=1)[day]
    expected = (_hazard((median[day] - level[place]) / sigma[day]) * weight).sum()
    ended = (~on[1:][day, place] * weight).sum()
    hazard = _hazard((median[-1] - level) / sigma[-1]) * (ended + TRUST) / (expected + TRUST)
    return _mean_survival(hazard, term)


def _hazard(depth: np.ndarray) -> np.ndarray:
    depth = np.clip(depth, 0.0, DEEPEST)
    return np.logaddexp(0.0, SURFACE + ROOT * np.sqrt(depth) + SLOPE * depth)


def _mean_survival(hazard: np.ndarray, term: int) -> np.ndarray:
    """Mean of exp(-hazard k) for k = 1 to `term`: a geometric sum."""
    ratio = np.exp(-np.minimum(hazard, 50.0))
    rest = np.maximum(-np.expm1(-np.minimum(hazard, 50.0)), 1e-12)
    return ratio * -np.expm1(-np.minimum(hazard * term, 500.0)) / rest / term
