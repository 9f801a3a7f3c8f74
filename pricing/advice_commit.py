"""What to commit to: how many of which type, for which term and payment, on top of what is owned.

Invariant: each purchase saves on the evidence, after those told before it; their savings add up exactly to that of the whole
plan. Nothing is advised on less than a week of evidence.

The plan is the cheapest one (`commitment_mix_lp`) within what the sizing rule would hold (`commitments.recommend`); what would
have been best in hindsight stands beside it as evidence. The range: see `commitment_range`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from math import ceil

import numpy as np

from pricing import advice_spot
from pricing.advice import HOURS_PER_MONTH, Action, Case, cents
from pricing.calendar import instant, milliseconds
from pricing.commitment_mix import Problem, exact_cost, run
from pricing.commitment_mix_calls import calls_of, commitment_of, how_of
from pricing.commitment_mix_lp import Plan, cheapest, hindsight
from pricing.commitment_mix_offers import LONG_TERM_DAYS, Mix, Offer, longest_term, mix_of
from pricing.commitment_mix_owned import active, covers
from pricing.commitment_range import Purchase, Range, range_of
from pricing.commitments import recommend
from pricing.demand import DemandKey

LEAST_DAYS = 7
ENOUGH_DAYS = 30
LOOK_BACKS = (7, 30, 60)
HALVINGS = 12
MANY = 5
"""Purchases that share pools: beyond, what each of them saves is split by floats, and only their sum is exact."""


def actions(case: Case) -> list[Action]:
    """One per purchase, largest saving first."""
    if case.demand.days < LEAST_DAYS:
        return []
    mix = mix_of(case)
    if mix is None or not mix.offers:
        return []
    plan = cheapest(mix.problem)
    chosen = [place for place, amount in enumerate(plan.bought) if amount]
    if not chosen:
        return []
    best = hindsight(mix.unlimited)
    return [_action(case, mix, part, best) for part in _parts(mix, plan, chosen) if part.saving > 0]


def notes(case: Case) -> list[str]:
    """Why nothing, or less, is advised."""
    if not case.demand.known_hours:
        return []
    if case.demand.days < LEAST_DAYS:
        return [f"The evidence tells of {case.demand.days:.1f} days: too short to commit to a term on, which takes {LEAST_DAYS}."]
    found = _rate_notes(case)
    mix = mix_of(case)
    if mix is None:
        return found
    found += mix.notes
    found += [sentence for key in mix.keys if (sentence := _too_many(case, mix, key))]
    for key, one in mix.told.items():
        if not one.count and one.reasons and mix.series[mix.keys.index(key)].any():
            found.append(f"{key}: {one.reasons[0]}")
        found += _when_expired(case, mix, key)
    return found


def _rate_notes(case: Case) -> list[str]:
    """Which rates and which owned commitments are in no advice."""
    unpriced = [
        str(key) for key in case.demand.counts
        if not any(rate.purchase.startswith(("reserved", "savings_plan")) for rate in case.card.rates(key))
    ]  # fmt: skip
    found = []
    if unpriced:
        found.append(
            f"No reserved or savings-plan rate is known for {', '.join(unpriced[:4])}{' and others' * (len(unpriced) > 4)}: "
            "no commitment is advised there (`rackrate prices refresh` fetches them, or --rates tells them)."
        )
    longer = sorted({str(key) for key in case.demand.counts for rate in case.card.rates(key)
                     if (rate.term_months or 0) > longest_term(case)})  # fmt: skip
    if longer and "longest_term_months" not in case.options:
        found.append(
            f"Three years are on offer for {', '.join(longer[:4])}{' and others' * (len(longer) > 4)}; they are advised on "
            f"{LONG_TERM_DAYS} days of evidence or more (--longest-term 3 looks at them anyway)."
        )
    now = milliseconds(case.now)
    others = [one.id for one in case.terms.commitments if one.currency != "USD" and one.starts_ms <= now < one.ends_ms]
    if others:
        found.append(f"Owned commitments in other currencies than USD are in no advice: {', '.join(others[:4])}.")
    return found


@dataclass(frozen=True)
class _Part:
    """One purchase of the plan, after those before it."""

    offer: Offer
    place: int
    amount: Fraction
    saving: Fraction
    """USD a month."""
    by_hour: np.ndarray
    """float (known hours,): what it saves in each hour."""
    covered: np.ndarray
    """float (pools,): node-hours a month that it pays for."""
    used: float | None
    left: np.ndarray
    """float (pools, known hours): what nothing before it covers."""
    falls_to: float | None = None
    """The share of the demand of today at which it no longer pays, if all of it falls alike."""


def _parts(mix: Mix, plan: Plan, chosen: Sequence[int]) -> list[_Part]:
    """Reservations first, as they are used first."""
    bought = plan.bought
    order = sorted(chosen, key=lambda place: (mix.offers[place].is_plan, place))
    steps = [
        tuple(amount if place in order[:count] else Fraction(0) for place, amount in enumerate(bought))
        for count in range(len(order) + 1)
    ]
    costs = [plan.cost_of_nothing, *_costs(mix.problem, steps[1:-1]), plan.cost]
    found = []
    before = run(mix.problem, mix.problem.amounts(steps[0]), mix.series)
    for place, step, (old, new) in zip(order, steps[1:], zip(costs, costs[1:], strict=False), strict=True):
        after = run(mix.problem, mix.problem.amounts(step), mix.series)
        hours = Fraction(HOURS_PER_MONTH, mix.problem.hours)
        part = _Part(
            mix.offers[place], place, bought[place], (old - new) * hours, before.costs - after.costs,
            np.maximum((before.left - after.left).mean(axis=1), 0.0) * HOURS_PER_MONTH,
            after.used[len(mix.problem.owned) + place], before.left,
        )  # fmt: skip
        found.append(replace(part, falls_to=_falls_to(mix, part)))
        before = after
    return found


def _costs(problem: Problem, steps: Sequence[Sequence[Fraction]]) -> list[Fraction]:
    """Exact; of many purchases in shared pools to a millionth of a dollar, since only the whole is told as one sum."""
    if not problem.coupled or len(steps) < MANY or problem.counts.size < 20_000:
        return [exact_cost(problem, step) for step in steps]
    return [Fraction(round(float(run(problem, problem.amounts(step)).costs @ problem.weights) * 10**6), 10**6) for step in steps]


def _action(case: Case, mix: Mix, part: _Part, best: Sequence[Fraction]) -> Action:
    offer = part.offer
    ratio = _ratio(mix, part)
    count = part.amount / offer.option.step if not offer.is_plan else part.amount
    told = _range(mix, part, ratio)
    partial = case.demand.days < ENOUGH_DAYS or case.demand.partial or any(rate.estimated for rate in offer.rates.values())
    return Action(
        kind="commit",
        what=_what(offer, count),
        saving_per_month=part.saving,
        saving_range=(min(told.low, part.saving), max(told.high, part.saving)),
        evidence=_evidence(case, mix, part, count, best) | told.evidence,
        break_even=_break_even(case, mix, part, ratio),
        risks=(*_risks(case, mix, part, ratio), *told.risks),
        how=how_of(case, offer, count),
        partial=bool(partial),
        claims={key: Fraction(float(hours)) for key, hours in zip(mix.keys, part.covered, strict=True) if hours > 0},
        buys=(commitment_of(case, offer, count),),
        calls=calls_of(case, offer, count),
    )


def _what(offer: Offer, count: Fraction) -> str:
    years, paid = f"{offer.term_months // 12} y", (offer.payment or "").replace("_", " ")
    term = f"{years}, {paid}" if paid else years
    if not offer.is_plan:
        return f"reserve {int(count)} {offer.key} ({term})"
    scope = f"{offer.key.instance_type.partition('.')[0]} in {offer.key.region}" if offer.scope == "EC2Instance" else "any type"
    return f"savings plan of ${float(count):.3f} an hour for {scope} ({term})"


def _ratio(mix: Mix, part: _Part) -> Fraction:
    """Committed over uncovered price, of what it covers: the break-even utilisation."""
    price = {key: mix.problem.pools[place].price for place, key in enumerate(mix.keys)}
    if not part.offer.is_plan:
        return part.offer.rates[part.offer.key].usd_per_hour / price[part.offer.key]
    weights = {key: Fraction(float(part.covered[mix.keys.index(key)])) for key in part.offer.rates}
    whole = sum((weights[key] * price[key] for key in weights), Fraction(0))
    paid = sum((weights[key] * rate.usd_per_hour for key, rate in part.offer.rates.items()), Fraction(0))
    return paid / whole if whole else Fraction(1)


def _falls_to(mix: Mix, part: _Part) -> float | None:
    """By bisection."""
    ratio, amount = float(_ratio(mix, part)), float(part.amount)
    pools, use = _covered(part)

    def pays(share: float) -> bool:
        there = np.maximum(part.left[pools] - (1 - share) * mix.series[pools], 0.0)
        return float(np.minimum(use @ there, amount).mean()) > ratio * amount

    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high if pools else None


def _covered(part: _Part) -> tuple[list[int], np.ndarray]:
    """(the pools that it pays for, what a node-hour of each takes of it)."""
    pools = [pool for pool in part.offer.option.use if part.covered[pool] > 0]
    return pools, np.array([float(part.offer.option.use[pool]) for pool in pools])


def _range(mix: Mix, part: _Part, ratio: Fraction) -> Range:
    pools, use = _covered(part)
    return range_of(
        Purchase(
            float(part.amount), float(part.offer.option.step), use @ mix.series[pools], use @ part.left[pools], part.by_hour,
            float(part.saving), float(part.offer.option.cost * part.amount) * HOURS_PER_MONTH, ratio,
            round(part.offer.term_months * 365 / 12),
        )
    )  # fmt: skip


def _evidence(case: Case, mix: Mix, part: _Part, count: Fraction, best: Sequence[Fraction]) -> dict[str, object]:
    offer, demand = part.offer, case.demand
    rate = offer.rates[offer.key]
    found: dict[str, object] = {
        "hours": demand.known_hours,
        "days": round(demand.days, 1),
        "from": f"{demand.start:%Y-%m-%dT%H:%MZ}",
        "to": f"{demand.end:%Y-%m-%dT%H:%MZ}",
        "pools": [str(key) for key, hours in zip(mix.keys, part.covered, strict=True) if hours > 0],
        "node_hours_covered_per_month": round(float(part.covered.sum()), 1),
        "utilization_ratio": None if part.used is None else round(part.used, 4),
        "hindsight_optimum": _amount(offer, best[part.place]),
        "purchase": offer.purchase,
        "payment": offer.payment,
        "rates": {str(key): _rate_text(case, key, one.usd_per_hour) for key, one in offer.rates.items()},
        "upfront_usd": str(cents(rate.upfront * count)) if not offer.is_plan else None,
        "rate_source": rate.source,
        "rate_as_of": None if rate.as_of is None else rate.as_of.isoformat(),
        "owned": [one.id for one in active(case) if any(covers(case, one, key) for key in offer.rates)],
        "share_on_spot_now": {str(key): share for key in offer.rates if (share := advice_spot.spot_share(case, key))},
        "spot_usd_per_hour": {
            str(key): advice_spot.cents4(place.effective) for key in offer.rates if (place := advice_spot.place_of(case, key))
        },
        "alternatives": _alternatives(case, offer),
    }
    told = mix.told.get(offer.key) if not offer.is_plan else None
    if told is not None:
        found |= {"target": told.target, "owned_now": told.owned, "expiring": told.expiring, "look_backs": dict(told.look_backs)}
    else:
        found["look_backs"] = _plan_look_backs(case, mix, part)
    return found | _cross_check(case, offer)


def _amount(offer: Offer, amount: Fraction) -> object:
    return str(cents(amount)) if offer.is_plan else int(amount / offer.option.step)


def _rate_text(case: Case, key: DemandKey, committed: Fraction) -> str:
    on_demand = case.card.on_demand(key)
    assert on_demand is not None  # noqa: S101 - only priced keys are in the mix
    less = float(1 - committed / on_demand.usd_per_hour)
    return f"{float(committed):.4f} (on demand {float(on_demand.usd_per_hour):.4f}, {less:.0%} less)"


def _alternatives(case: Case, offer: Offer) -> dict[str, str]:
    """Other terms and ways to pay for the first of its types."""
    return {
        " ".join(part for part in (rate.purchase, rate.payment) if part): f"{float(rate.usd_per_hour):.4f}"
        for rate in case.card.rates(offer.key)
        if rate.term_months and rate.zone is None and (rate.purchase, rate.payment) != (offer.purchase, offer.payment)
    }


def _plan_look_backs(case: Case, mix: Mix, part: _Part) -> dict[int, str]:
    """Days -> what it would have saved a month in these last days."""
    hours = part.by_hour
    return {
        days: str(cents(Fraction(float(hours[-24 * days :].mean()) * HOURS_PER_MONTH)))
        for days in LOOK_BACKS
        if len(hours) >= 24 * days
    }


def _cross_check(case: Case, offer: Offer) -> dict[str, object]:
    """What AWS itself recommends for the same thing, where it was fetched (`pricing.sources.aws_costs.Recommendation`)."""
    found = {}
    for one in case.options.get("aws_recommendations", ()):  # type: ignore[attr-defined]
        same = one.kind == offer.option.kind and (offer.is_plan or (one.region, one.instance_type) == offer.key[1:])
        if same:
            found[one.lookback.lower()] = str(one.count if one.count is not None else one.per_hour)
    return {"aws_recommends": found} if found else {}


def _break_even(case: Case, mix: Mix, part: _Part, ratio: Fraction) -> dict[str, object]:
    """`date`: when what it saved on the way has paid the whole term, if the nodes run on as they did and then stop."""
    term_days = round(part.offer.term_months * 365 / 12)
    used = part.used or 0.0
    share = float(ratio) / used if used else float("inf")
    until = case.now + timedelta(days=ceil(term_days * share)) if share <= 1 else None
    return {
        "utilization_ratio": round(float(ratio), 4),
        "hours_per_month": round(float(ratio * HOURS_PER_MONTH), 1),
        "date": None if until is None else f"{until:%Y-%m-%d}",
        "demand_ratio": None if part.falls_to is None else round(part.falls_to, 3),
        "text": "Each node must run at least so many hours a month; running as they did, they have paid the term by the date.",
    }


def _risks(case: Case, mix: Mix, part: _Part, ratio: Fraction) -> tuple[str, ...]:
    offer, demand = part.offer, case.demand
    ends = case.now + timedelta(days=round(offer.term_months * 365 / 12))
    found = [
        f"It is paid until {ends:%Y-%m-%d}, used or not: it loses where it is used in less than {float(ratio):.0%} of its hours"
        + ("." if part.falls_to is None else f", as it would be if all demand fell to {part.falls_to:.0%} of what it was."),
        f"A price cut of more than {float(1 - ratio):.0%} on demand, or a newer GPU that takes the work, makes it dearer.",
    ]
    if demand.days < ENOUGH_DAYS:
        found.append(f"The evidence is {demand.days:.1f} days, too short to tell what a month is like.")
    elif demand.days * 12 < offer.term_months * 365 / 12:
        found.append(
            f"The evidence is {demand.days:.0f} days; the term is {offer.term_months * 365 / 12 / demand.days:.0f} times as long."
        )
    told = mix.told.get(offer.key) if not offer.is_plan else None
    if told is not None:
        found += told.risks
        if len(set(told.look_backs.values())) > 1:
            found.append(
                "The look-back windows disagree: "
                + ", ".join(f"{days} days tell {count}" for days, count in told.look_backs.items())
                + "."
            )
    for key in list(offer.rates)[:3]:
        place = advice_spot.place_of(case, key)
        if place is not None and place.effective < offer.rates[key].usd_per_hour and not advice_spot.interruptible(case, key):
            price = advice_spot.cents4(place.effective)
            found.append(f"If the work on {key} bears interruptions, spot is ${price} an hour of work: then do not commit.")
    if offer.scope == "plan":
        found.append(
            "Which kind of savings plan the rates are of is not told: taken as one for every type, region and size that has one."
        )
    if any(rate.estimated for rate in offer.rates.values()):
        found.append("Its rate is an estimate.")
    return tuple(dict.fromkeys(found))


def _too_many(case: Case, mix: Mix, key: DemandKey) -> str | None:
    """More reserved than ever ran: bought for more, or told twice."""
    owned = [one for one in active(case) if one.kind == "reservation" and covers(case, one, key)]
    count, most = sum(one.count for one in owned), float(mix.series[mix.keys.index(key)].max(initial=0.0))
    if count <= ceil(most):
        return None
    names = ", ".join(one.id for one in owned[:4])
    overlap = f"; {names} run at the same time: is one told twice?" if len(owned) > 1 else f" ({names})."
    return f"{key}: {count} are reserved and at most {most:g} ran at once: {count - ceil(most)} are paid and never used{overlap}"


def _when_expired(case: Case, mix: Mix, key: DemandKey) -> list[str]:
    """What to buy once owned ones have ended, as the evidence stands."""
    ending = sorted(
        (one for one in active(case) if one.kind == "reservation" and covers(case, one, key)), key=lambda one: one.ends_ms
    )  # fmt: skip
    offer = next((one for one in mix.offers if not one.is_plan and one.key == key), None)
    if not ending or offer is None:
        return []
    days = round(offer.term_months * 365 / 12)
    full = np.zeros(case.demand.hours)
    full[case.demand.known] = case.demand.committable(key)
    pool = mix.problem.pools[mix.keys.index(key)]
    later = recommend(full, offer.rates[key].usd_per_hour, pool.price, term_days=days, known=case.demand.known)
    more = later.count - mix.told[key].count
    last = [one for one in ending if one.ends_ms < ending[0].ends_ms + days * 86_400_000]
    if more <= 0 or not last:
        return []
    names = ", ".join(f"{one.id} ({one.count}, ends {instant(one.ends_ms):%Y-%m-%d})" for one in last[:4])
    return [f"{key}: {names}: once these have ended, {more} more would pay off, as the evidence stands."]
