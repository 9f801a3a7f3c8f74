"""How much a commitment may save, or lose, over its term: the range beside the saving, and how it was made.

Invariant: every figure follows from the evidence alone and a fixed seed; the range holds the saving of the whole evidence, of
its look-back windows and of its weeks, of a walk-forward, and of 90 % of the ways in which demand may go on.

What was seen does not repeat for a year: of 43 purchases for the clusters of Philly, judged on the weeks that followed, the
windows and the walk-forward hold 2, with the random walk 38 (tests/bench/bench_advice.py prints it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pricing.commitments_evidence import HOURS_PER_MONTH, Evidence
from pricing.commitments_model import Deal, History
from pricing.commitments_policies import rules

DAY, WEEK = 24, 24 * 7
LOOK_BACKS = (7, 30, 60)
BLOCK_DAYS, MANY_BLOCKS = 28, 6
BASE_DAYS = 28
"""Demand goes on from these last days."""
DRAWS, TAIL = 400, 0.05
USUAL_CHANGE, USUAL_WEEKS = 0.2, 2
"""A week's demand differs by so much (as a logarithm) from the one before it: what is supposed for two weeks more than there
are, so that few alike weeks are no proof. The sum of Philly's clusters changes by 0.19 a week, single ones by more."""
SHARES = np.concatenate(([0.0], np.geomspace(0.02, 8.0, 48)))
MOST_ORIGINS = 6
STEPS = 200
"""In which the demand for a savings plan is told to the rule."""


@dataclass(frozen=True)
class Purchase:
    """What was bought of one pool or of several. Money in USD."""

    amount: float
    """Units: instances, or $ an hour of a savings plan."""
    step: float
    whole: np.ndarray
    """float (known hours,): what all demand would use of it, in units."""
    left: np.ndarray
    """The same of the demand that nothing before it covers."""
    by_hour: np.ndarray
    """float (known hours,): what it saves in each."""
    saving: float
    """A month."""
    cost: float
    """A month, used or not."""
    ratio: Fraction
    """Of its price to that of an uncovered hour: the break-even."""
    term_days: int

    def used(self, needed: np.ndarray) -> float:
        """Share of it that these hours use."""
        return float(np.minimum(np.maximum(needed, 0.0), self.amount).mean()) / self.amount

    def saving_at(self, used: float) -> float:
        """A month in which so much of it is used."""
        now = self.used(self.left)
        return self.saving if not now else (self.saving + self.cost) * used / now - self.cost


@dataclass(frozen=True)
class Range:
    """Savings a month; what they rest on, for the evidence card, and what would make them wrong."""

    low: Fraction
    high: Fraction
    evidence: Mapping[str, object]
    risks: tuple[str, ...]


def range_of(bought: Purchase) -> Range:
    """Of the purchase, over its term."""
    seen = _windows(bought)
    forward = _walk_forward(bought)
    most = bought.saving_at(1.0)
    realised = [min(most, max(-bought.cost, bought.saving * share)) for share in forward.shares]
    drift, change = _drift(bought)
    low, high = (end((bought.saving, *seen, *realised, *drift)) for end in (min, max))
    evidence = {
        "range_seen": [_cents(end(seen or [bought.saving])) for end in (min, max)],
        "range_if_demand_walks_on": [_cents(end) for end in drift],
        "range_how": f"90 of 100 random walks of the demand over the term, which changes by {change:.0%} from week to week "
        f"({len(bought.whole) // WEEK} were seen, and {USUAL_WEEKS} usual ones of {USUAL_CHANGE:.0%} added).",
        "walk_forward": forward.text,
    }
    return Range(_fraction(low), _fraction(high), evidence, _risks(bought, low, forward.shares))


def _windows(bought: Purchase) -> list[float]:
    """Of the look-back windows and of each week (of each four, where there are many)."""
    hours = bought.by_hour
    windows = [hours[-DAY * days :] for days in LOOK_BACKS if len(hours) >= DAY * days]
    block = DAY * (BLOCK_DAYS if len(hours) >= DAY * MANY_BLOCKS * BLOCK_DAYS else 7)
    windows += [hours[start : start + block] for start in range(0, len(hours) - block + 1, block)]
    return [float(window.mean()) * HOURS_PER_MONTH for window in windows]


@dataclass(frozen=True)
class _Forward:
    shares: tuple[float, ...]
    """Realised over promised, of each origin."""
    text: str


def _walk_forward(bought: Purchase) -> _Forward:
    """The same rule at earlier dates of the evidence, each time judged on all the hours that followed."""
    days, unit = len(bought.left) // DAY, bought.step
    if bought.left.max(initial=0.0) > STEPS * unit:
        unit = float(bought.left.max()) / STEPS
    counts = np.floor(bought.left / unit + 1e-9)
    counts = counts[len(counts) - days * DAY :]
    origins = [7 * week for week in range(1, days // 7) if days - 7 * week >= 7]
    if len(origins) > MOST_ORIGINS:
        origins = [origins[round(place * (len(origins) - 1) / (MOST_ORIGINS - 1))] for place in range(MOST_ORIGINS)]
    found: list[tuple[int, float]] = []
    history, (rule,) = History.of(counts), rules("rackrate")
    for origin in origins:
        session = rule.begin(Deal(bought.term_days, float(bought.ratio)))
        evidence = Evidence(counts[: origin * DAY], 0, bought.ratio, Fraction(1))
        count = evidence.paying(session.buy(history.until(origin), np.zeros(bought.term_days, int)))  # as `recommend` does
        if count:
            later = counts[origin * DAY :][: bought.term_days * DAY]
            used = float(np.minimum(later, count).mean()) - float(bought.ratio) * count
            found.append((days - origin, used * HOURS_PER_MONTH / float(evidence.saving(count))))
    return _Forward(tuple(share for _, share in found), _forward_text(len(origins), found))


def _forward_text(tried: int, found: list[tuple[int, float]]) -> str:
    if not tried:
        return "The evidence is too short for one: it takes two weeks."
    if not found:
        return f"Over {tried} origins: nothing would have been bought at any of them, so that it tells nothing."
    after, shares = sorted(days for days, _ in found), sorted(share for _, share in found)
    bought = "" if len(found) == tried else f" (at {tried - len(found)} more nothing would have been bought)"
    origins = f"{len(found)} origin{'' if len(found) == 1 else 's'}"
    days = f"{after[0]} days" if after[0] == after[-1] else f"{after[0]} to {after[-1]} days"
    told = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (shares[0], shares[-1])))
    return f"Over {origins}{bought}, judged on the {days} that followed: {told} of what was promised came true."


def _drift(bought: Purchase) -> tuple[tuple[float, float], float]:
    """((5 % and 95 % of the savings a month, mean over the term), change from week to week)."""
    change = _weekly_change(bought.whole)
    base = slice(-BASE_DAYS * DAY, None)
    whole, left = bought.whole[base], bought.left[base]
    used = np.array([bought.used(left - (1 - share) * whole) for share in SHARES])
    weeks = max(1, round(bought.term_days / 7))
    steps = np.random.default_rng(0).normal(size=(DRAWS, weeks)) * change
    level = np.exp(np.cumsum(steps, axis=1))
    means = np.interp(level, SHARES, used).mean(axis=1)
    low, high = (bought.saving_at(float(end)) for end in np.quantile(means, (TAIL, 1 - TAIL)))
    return (low, high), change


def _weekly_change(hours: np.ndarray) -> float:
    """Root mean square of the logarithmic changes of the weekly means, with `USUAL_WEEKS` of the usual one added."""
    weeks = len(hours) // WEEK
    means = hours[len(hours) - weeks * WEEK :].reshape(weeks, WEEK).mean(axis=1)
    changes = np.diff(np.log(means + 0.05 * means.mean() + 1e-9)) if weeks > 1 else np.zeros(0)
    return float(np.sqrt(((changes**2).sum() + USUAL_WEEKS * USUAL_CHANGE**2) / (len(changes) + USUAL_WEEKS)))


def _risks(bought: Purchase, low: float, shares: tuple[float, ...]) -> tuple[str, ...]:
    found = []
    if low < 0:
        found.append(
            f"In the low end of its range it loses money: that is a use of {float(bought.ratio) * (1 + low / bought.cost):.0%} over "
            "the term, and demand may fall so far by all that is known."
        )
    if not shares:
        found.append("No earlier purchase of this kind could be judged on the evidence: the range rests on supposed changes.")
    return tuple(found)


def _cents(amount: float) -> str:
    return f"{round(amount, 2) + 0.0:.2f}"


def _fraction(amount: float) -> Fraction:
    return Fraction(round(amount * 100), 100)


