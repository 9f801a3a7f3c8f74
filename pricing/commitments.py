"""How many nodes of one pool to commit to, from the hours they ran: the recommendation and what it rests on.

Invariant: a purchase is advised only where it would have been cheaper on the evidence it was computed from, and never at a
rate at or above what an uncovered hour really costs.

The model (newsvendor): a commitment pays `rate` for every hour of its term, used or not; an hour that no commitment covers
costs `alternative` (on-demand, or spot where the work runs there). The n-th commitment pays off where the n-th node runs for
more than rate / alternative of the hours: its break-even utilisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pricing.commitments_evidence import HOURS_PER_MONTH, Evidence
from pricing.commitments_model import Deal, History
from pricing.commitments_policies import rules
from pricing.commitments_rules import look_back
from pricing.errors import PricingError

LOOK_BACKS = (7, 30, 60)
LEAST_DAYS = 7
SOON_DAYS = 31


class Held(NamedTuple):
    """Commitments owned already: how many, and in how many days from now they end (None: beyond the term)."""

    count: int
    days_left: int | None


@dataclass(frozen=True)
class Recommendation:
    """What to buy for one pool now. Money in the currency of the rates; a month is 730 hours.

    `count`: to buy now, on top of what is owned (0: nothing, and `reasons` says why). `target`: active ones wanted now.
    `owned`, `expiring`: active now, and of these those that end within the term. `saving_per_month`: exact, had the evidence
    repeated, against paying `alternative` for what `owned` does not cover; `saving_range`: from the least to the most of its
    90 % interval by a bootstrap of whole days (weeks, where there are at least 8) and of the last 7, 30 and 60 days alone.
    `utilisation`: share of the known hours in which the last commitment bought (or, with none, the next one) would have been
    used. `look_backs`: days -> the count that the clouds' rule would tell from these last days alone; windows longer than the
    history are absent.
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
    `policy`: a name of commitments_policies. PricingError: a rate that is none, a history that is no list of counts.
    """
    alternative = on_demand if alternative is None else min(alternative, on_demand)
    _check(history, known, rate, alternative, term_days)
    known = np.ones(len(history), bool) if known is None else np.asarray(known, bool)
    held = [one for one in held if one.count > 0 and (one.days_left is None or one.days_left > 0)]
    past = History.of(history, known)
    evidence = Evidence(np.asarray(history, float)[known], sum(one.count for one in held), rate, alternative)
    wanted = _wanted(past, held, rate / alternative, term_days, policy)
    count = evidence.paying(wanted)
    told = {days: look_back(past, days, float(rate / alternative)) for days in LOOK_BACKS if past.days >= days}
    expiring = sum(one.count for one in held if one.days_left is not None and one.days_left < term_days)
    saving, saving_range = evidence.saving(count), evidence.saving_range(count)
    return Recommendation(
        count=count,
        target=evidence.owned + count,
        owned=evidence.owned,
        expiring=expiring,
        rate=rate,
        alternative=alternative,
        term_days=term_days,
        break_even_utilisation=rate / alternative,
        break_even_hours_per_month=HOURS_PER_MONTH * rate / alternative,
        utilisation=evidence.utilisation(evidence.owned + max(count, 1)),
        saving_per_month=saving,
        saving_range=saving_range,
        look_backs=told,
        known_hours=len(evidence.hours),
        reasons=_reasons(past, evidence, count, wanted, term_days, held),
        risks=_risks(past, evidence, count, told, expiring, term_days, known),
    )


def _check(history: np.ndarray, known: np.ndarray | None, rate: Fraction, alternative: Fraction, term_days: int) -> None:
    if rate <= 0 or alternative <= 0:
        raise PricingError(f"A commitment at {rate} against {alternative} an hour: both must be more than 0.")
    if term_days < 1:
        raise PricingError(f"A term of {term_days} days: it must be 1 day or more.")
    if np.ndim(history) != 1 or (known is not None and np.shape(known) != np.shape(history)):
        raise PricingError("The history of a pool must be one count an hour, with as many flags of what is known.")
    counts = np.asarray(history, float) if known is None else np.asarray(history, float)[np.asarray(known, bool)]
    if not ((counts >= 0) & np.isfinite(counts)).all():
        raise PricingError("The history of a pool holds a count that is none: each known hour must be 0 or more.")


def _wanted(past: History, held: Sequence[Held], ratio: Fraction, term_days: int, policy: str) -> int:
    """What the rule would buy today, whatever the whole of the evidence says."""
    if past.days < LEAST_DAYS or ratio >= 1:
        return 0
    active = np.zeros(term_days, int)
    for one in held:
        active[: one.days_left] += one.count
    return rules(policy)[0].begin(Deal(term_days, float(ratio))).buy(past, active)


def _reasons(
    past: History, evidence: Evidence, count: int, wanted: int, term_days: int, held: Sequence[Held]
) -> tuple[str, ...]:
    ratio = evidence.rate / evidence.alternative
    if ratio >= 1:
        return ("The commitment costs as much as an hour without it, or more.",)
    if past.days < LEAST_DAYS:
        return (f"Only {past.days} days are known; a commitment needs {LEAST_DAYS} or more to rest on.",)
    if count:
        return (
            f"Each of {evidence.owned + count} nodes ran for more than {_percent(ratio)} of the hours (of all, or of the last 60 "
            f"days), the break-even, and is expected to for {term_days} days more.",
        )
    if wanted:
        return ("What is needed now was not needed for long enough: over all known hours it would not have paid off.",)
    if evidence.owned:
        soon = sum(one.count for one in held if one.days_left is not None and one.days_left <= SOON_DAYS)
        ending = f"; {soon} of them end within {SOON_DAYS} days: look again then" if soon else ""
        return (f"The {evidence.owned} owned cover what pays off{ending}.",)
    return (f"No further node is expected to run for more than {_percent(ratio)} of the next {term_days} days, the break-even.",)


def _risks(
    past: History, evidence: Evidence, count: int, told: Mapping[int, int], expiring: int, term_days: int, known: np.ndarray
) -> tuple[str, ...]:
    if not count:
        return ()
    ratio, number = evidence.rate / evidence.alternative, evidence.owned + count
    used, lately = evidence.utilisation(number) or 0.0, evidence.lately().utilisation(number) or 0.0
    changed = f" ({_percent(lately)} in the last 60 days)" if abs(lately - used) >= 0.01 else ""
    risks = [
        f"The last of them loses money below {_percent(ratio)} use ({float(HOURS_PER_MONTH * ratio):.0f} hours a month); "
        f"it had {_percent(used)}{changed}.",
        f"All are paid for {term_days} days, also when the work moves to other nodes, to spot, or ends, or prices fall.",
    ]
    if term_days > 2 * past.days:
        risks.append(f"The term is {term_days / past.days:.0f} times as long as the {past.days} days known.")
    numbers = [number, *told.values()]
    if max(numbers) - min(numbers) > max(1, 0.1 * numbers[0]):
        words = ", ".join(f"{days} days {number}" for days, number in told.items())
        risks.append(f"Look-back windows disagree with {numbers[0]} (last {words}): the demand changes, or is young.")
    if expiring:
        risks.append(f"{expiring} of the {evidence.owned} owned end within the term; look again then.")
    if known.mean() < 0.9:
        risks.append(f"{_percent(1 - known.mean())} of the hours are not known and are left out.")
    return tuple(risks)


def _percent(ratio: float | Fraction) -> str:
    return f"{100 * float(ratio):.0f} %"
