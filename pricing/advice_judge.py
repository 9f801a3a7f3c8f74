"""Judging advice: what the advised purchases would have cost on later usage, beside all on demand and the best in hindsight.

Invariant: the commitments are those that were advised, held from the first hour after the evidence; both sides pay the same
rates for the same hours, and commitments owned already count on both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from pricing.advice import HOURS_PER_MONTH, Action, Advice, Case
from pricing.advice_cost import Cost, cost_of
from pricing.demand import Demand, DemandKey
from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment


class Verdict(NamedTuple):
    """Over the known hours of the later usage. Savings in USD over all of them."""

    name: str
    advised: Fraction
    """What was promised for that long."""
    advised_range: tuple[Fraction, Fraction]
    realised: Fraction
    used_ratio: float | None
    """How much of what was bought was used."""


class Judgement(NamedTuple):
    """What became of the advice."""

    later: Demand
    bought: tuple[Commitment, ...]
    without: Cost
    with_advice: Cost
    single: tuple[Verdict, ...]
    """Each advised purchase on its own."""
    together: Verdict
    hindsight: Fraction | None
    """The saving of the best numbers of the same commitments, had the later usage been known; None where that is not told."""
    look_backs: Mapping[int, tuple[int, Fraction]]
    """Days -> how many the clouds' rule (the quantile of these last days) would have bought, and what that would have saved."""

    @property
    def count(self) -> int:
        """How many nodes the advised reservations are for."""
        return sum(one.count for one in self.bought if one.kind == "reservation")


def judge(advice: Advice, case: Case, later: Demand) -> Judgement | None:
    """None when no purchase was advised. The later usage must follow the evidence (`follows`)."""
    buying = [advice.actions[place] for place in advice.together if advice.actions[place].buys]
    if not buying:
        return None
    owned = tuple(case.terms.commitments)
    without = cost_of(later, case.card, owned)
    single = tuple(_verdict(action.what, [action], case, later, without) for action in buying)
    bought = tuple(held_from(one, later) for action in buying for one in action.buys)
    together = _verdict("together", buying, case, later, without)
    with_advice = cost_of(later, case.card, (*owned, *bought))
    return Judgement(
        later, bought, without, with_advice, single, together, _hindsight(case, later, buying),
        _look_backs(case, later, buying, without),
    )  # fmt: skip


def held_from(one: Commitment, later: Demand) -> Commitment:
    """The commitment from the later usage's first hour on, for its whole term."""
    starts_ms = later.first_hour * HOUR_MS
    return replace(one, starts_ms=starts_ms, ends_ms=starts_ms + one.ends_ms - one.starts_ms)


def after(case: Case, later: Demand) -> Demand:
    """The part of the later usage that comes after the evidence."""
    return later.between(case.demand.end, later.end) if later.start < case.demand.end else later


def _verdict(name: str, actions: Sequence[Action], case: Case, later: Demand, without: Cost) -> Verdict:
    bought = [held_from(one, later) for action in actions for one in action.buys]
    cost = cost_of(later, case.card, (*case.terms.commitments, *bought))
    months = Fraction(later.known_hours, HOURS_PER_MONTH)
    told = [sum((amount(action) for action in actions), Fraction(0)) * months for amount in (_saving, _low, _high)]
    new = cost.committed - without.committed
    used = 1 - float((cost.unused - without.unused) / new) if new else None
    return Verdict(name, told[0], (told[1], told[2]), without.total - cost.total, used)


def _saving(action: Action) -> Fraction:
    return action.saving_per_month


def _low(action: Action) -> Fraction:
    return action.saving_range[0]


def _high(action: Action) -> Fraction:
    return action.saving_range[1]


def _hindsight(case: Case, later: Demand, actions: Sequence[Action]) -> Fraction | None:
    """Reservations of one type each, nothing else owned: per type the quantile of what ran is the best number."""
    bought = [one for action in actions for one in action.buys]
    if case.terms.commitments or any(one.kind != "reservation" for one in bought):
        return None
    total = Fraction(0)
    for (region, name), rate in _rates(bought).items():
        keys = [key for key in later.counts if (key.region, key.instance_type.lower()) == (region, name)]
        total += max((_best(case, later, key, rate) for key in keys), default=Fraction(0))
    return total


def _rates(bought: Sequence[Commitment]) -> dict[tuple[str | None, str], Fraction]:
    rates: dict[tuple[str | None, str], Fraction] = {}
    for one in bought:
        place = one.region, (one.instance_type or "").lower()
        rates[place] = min(rates.get(place, one.cost_per_hour), one.cost_per_hour)
    return rates


def _best(case: Case, later: Demand, key: DemandKey, rate: Fraction) -> Fraction:
    on_demand = case.card.on_demand(key)
    if on_demand is None or on_demand.usd_per_hour <= rate:
        return Fraction(0)
    ran = later.committable(key)
    best = Fraction(0)
    for count in range(1, int(np.ceil(ran.max(initial=0.0))) + 1):
        used = Fraction(float(np.minimum(ran, count).sum()))
        saved = used * on_demand.usd_per_hour - rate * count * len(ran)
        if saved < best:
            break  # what one more saves falls with each
        best = saved
    return best


def _look_backs(case: Case, later: Demand, actions: Sequence[Action], without: Cost) -> dict[int, tuple[int, Fraction]]:
    """The clouds' rule for the same commitments; nothing where other kinds are advised or some of them do not tell."""
    told = [action.evidence.get("look_backs") for action in actions]
    if any(len(action.buys) != 1 or action.buys[0].kind != "reservation" for action in actions):
        return {}
    windows = [set(one) for one in told if isinstance(one, Mapping)]
    if len(windows) < len(actions):
        return {}
    found = {}
    for days in sorted(set.intersection(*windows)):
        counts = [int(one[days]) for one in told if isinstance(one, Mapping)]
        bought = [
            replace(held_from(action.buys[0], later), count=count)
            for action, count in zip(actions, counts, strict=True)
            if count
        ]
        cost = cost_of(later, case.card, (*case.terms.commitments, *bought))
        found[days] = (sum(counts), without.total - cost.total)
    return found
