"""How many nodes of one pool to commit to, from the hours they ran: the recommendation and what it rests on.

Invariant: a purchase is advised only where it would have been cheaper on the evidence it was computed from, and never at a
rate at or above what an uncovered hour really costs.

The model (newsvendor): a commitment pays `rate` for every hour of its term, used or not; an hour that no commitment covers
costs `alternative` (on-demand, or spot where the work runs there). The n-th commitment pays off where the n-th node runs for
more than rate / alternative of the hours: its break-even utilisation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pricing.commitments_model import History
from pricing.errors import PricingError

HOURS_PER_MONTH = 730
LOOK_BACKS = (7, 30, 60)


class Held(NamedTuple):
    """Commitments owned already: how many, and in how many days from now they end (None: beyond the term)."""

    count: int
    days_left: int | None


@dataclass(frozen=True)
class Recommendation:
    """What to buy for one pool now. Money in the currency of the rates; a month is 730 hours.

    `count`: to buy now, on top of what is owned (0: nothing, and `reasons` says why). `target`: active ones wanted now.
    `owned`, `expiring`: active now, and of these those that end within the term. `saving_per_month`: exact, had the evidence
    repeated, against paying `alternative` for what `owned` does not cover; `saving_range`: its 90 % interval by a bootstrap
    of whole days (weeks, where there are at least 8). `utilisation`: share of the known hours in which the last commitment
    bought (or, with none, the next one) would have been used. `look_backs`: days -> the count that the clouds' rule would
    tell from these last days alone; windows longer than the history are absent.
    """

    count: int
    target: int
    owned: int
    expiring: int
    rate: Fraction
    alternative: Fraction
    term_days: int
    break_even_utilisation: Fraction | None
    break_even_hours_per_month: Fraction | None
    utilisation: float | None
    saving_per_month: Fraction
    saving_range: tuple[Fraction, Fraction]
    look_backs: Mapping[int, int]
    known_hours: int
    reasons: tuple[str, ...]
    risks: tuple[str, ...]


def recommend(
    history: np.ndarray,
    rate: Fraction,
    on_demand: Fraction,
    *,
    term_days: int,
    known: np.ndarray | None = None,
    held: Sequence[Held] = (),
    alternative: Fraction | None = None,
    policy: str = "rackrate",
) -> Recommendation:
    """How many to commit to now.

    `history`: float (hours,), nodes running in each hour (time-weighted), oldest first; the last hour is the one before now.
    `known`: bool (hours,), hours that the evidence tells of (default: all). `rate`: per node-hour of the commitment, upfront
    amortised. `alternative`: what an uncovered node-hour really costs, where that is less than `on_demand` (a mix of spot).
    PricingError: a rate that is none, a history that is no list of counts.
    """
    alternative = on_demand if alternative is None else min(alternative, on_demand)
    _check(history, known, rate, alternative, term_days)
    known = np.ones(len(history), bool) if known is None else np.asarray(known, bool)
    past = History.of(history, known)
    owned = sum(one.count for one in held)
    lasting = sum(one.count for one in held if one.days_left is None or one.days_left >= term_days)
    told = {days: _look_back(past, days, rate / alternative) for days in LOOK_BACKS if past.days >= days}
    target = min(told.values(), default=0)
    hours = np.asarray(history, float)[known]
    count = _paying(hours, max(0, target - owned), owned, rate / alternative)
    saving = _saving(hours, count, owned, rate, alternative)
    return Recommendation(
        count=count,
        target=owned + count,
        owned=owned,
        expiring=owned - lasting,
        rate=rate,
        alternative=alternative,
        term_days=term_days,
        break_even_utilisation=rate / alternative,
        break_even_hours_per_month=HOURS_PER_MONTH * rate / alternative,
        utilisation=_utilisation(hours, owned + max(count, 1)),
        saving_per_month=saving,
        saving_range=(saving, saving),
        look_backs=told,
        known_hours=len(hours),
        reasons=(),
        risks=(),
    )


def _look_back(past: History, days: int, ratio: Fraction) -> int:
    return int((past.mean(days) > ratio).sum()) * past.unit


def _check(history: np.ndarray, known: np.ndarray | None, rate: Fraction, alternative: Fraction, term_days: int) -> None:
    if rate <= 0 or alternative <= 0:
        raise PricingError(f"A commitment at {rate} against {alternative} an hour: both must be more than 0.")
    if term_days < 1:
        raise PricingError(f"A term of {term_days} days: it must be 1 day or more.")
    if np.ndim(history) != 1 or (known is not None and np.shape(known) != np.shape(history)):
        raise PricingError("The history of a pool must be one count an hour, with as many flags of what is known.")


def _utilisation(hours: np.ndarray, number: int) -> float | None:
    """Share of the hours in which the `number`-th node ran."""
    return float(np.clip(hours - (number - 1), 0.0, 1.0).mean()) if len(hours) else None


def _used(hours: np.ndarray, count: int, owned: int) -> Fraction:
    """Node-hours that `count` commitments on top of `owned` would have covered."""
    return Fraction(math.fsum(np.clip(hours - owned, 0.0, count)))


def _paying(hours: np.ndarray, count: int, owned: int, ratio: Fraction) -> int:
    """The most of `count` purchases of which each would have paid on the evidence."""
    while count and _used(hours, 1, owned + count - 1) <= ratio * len(hours):
        count -= 1
    return count


def _saving(hours: np.ndarray, count: int, owned: int, rate: Fraction, alternative: Fraction) -> Fraction:
    if not count:
        return Fraction(0)
    return (alternative * _used(hours, count, owned) / len(hours) - rate * count) * HOURS_PER_MONTH
