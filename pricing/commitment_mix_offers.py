"""From the evidence and the rates to the problem of the mix: which pools, what is owned, what may be bought, and how much.

Invariant: a pool without a known on-demand rate and an offer without a known rate are in no problem; usage that runs on spot
or in a capacity block is no demand for commitments.

How much may be bought is not what hindsight says: of each pool at most what `pricing.commitments.recommend` would hold, and
of each savings plan what it would hold of the demand above that, taken together over the plan's types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pricing import advice_spot
from pricing.advice import Case
from pricing.calendar import milliseconds
from pricing.commitment_mix import Limit, Option, Pool, Problem, normalised_units, run
from pricing.commitment_mix_owned import CENT, active, cloud_of, held_of, labelled, paid_on_demand
from pricing.commitments import Held as HeldCount
from pricing.commitments import Recommendation, recommend
from pricing.demand import DemandKey
from pricing.rate_card import Rate

RESERVED = {"reserved_1y": 12, "reserved_3y": 36}
PLANS = {"savings_plan_1y": 12, "savings_plan_3y": 36}
DAY_MS = 86_400_000
LONG_TERM_DAYS = 180
"""Of evidence, before three years are advised, unless they are asked for: whatever else is on offer, so that another offer
never makes the plan dearer."""
YEARLY_FALL = Fraction(15, 100)
"""Three years are advised only where they are cheaper than three times one year at prices that fall so much each year: p4d
fell by 33 % and p5 by 44 % in the two years to June 2025 (AWS price lists), g5 and p3 by nothing."""
STEPS = 200
"""In which a savings plan's demand is told to the rule that sizes it."""


class Offer(NamedTuple):
    """One option with what is needed to tell of it."""

    option: Option
    purchase: str
    term_months: int
    payment: str | None
    rates: Mapping[DemandKey, Rate]
    scope: str
    """`reservation`, `Compute`, `EC2Instance`, or `plan`: a savings plan of which the source does not tell the kind."""

    @property
    def is_plan(self) -> bool:
        return self.option.kind == "savings_plan"

    @property
    def key(self) -> DemandKey:
        return next(iter(self.rates))


@dataclass(frozen=True)
class Mix:
    """The problem with its limits, and what each part of it is."""

    case: Case
    keys: tuple[DemandKey, ...]
    offers: tuple[Offer, ...]
    problem: Problem
    told: Mapping[DemandKey, Recommendation]
    """What the rule says of each pool that may be reserved, at that rate."""
    series: np.ndarray
    """float (pools, known hours)."""
    notes: tuple[str, ...]

    @cached_property
    def unlimited(self) -> Problem:
        """For the optimum in hindsight."""
        return replace(self.problem, limits=())


_newest: list[tuple[Case, Mix | None]] = []
"""The mix of the last case: its actions and its notes are asked for one after the other."""


def mix_of(case: Case) -> Mix | None:
    """None where no price of what ran is known."""
    if not _newest or _newest[0][0] is not case:
        _newest[:] = [(case, _mix_of(case))]
    return _newest[0][1]


def _mix_of(case: Case) -> Mix | None:
    keys = [key for key in case.demand.counts if case.card.on_demand(key) is not None and paid_on_demand(case, key).any()]
    if not keys:
        return None
    notes: list[str] = []
    priced = [_pool(case, key, notes) for key in keys]
    pools = [pool for pool, _ in priced]
    notes += [f"{key}: {_sure(case, key)}" for key in keys if labelled(case, key).any()]
    series = np.array([paid_on_demand(case, key) * share for key, (_, share) in zip(keys, priced, strict=True)])
    owned = held_of(case, keys, [pool.list_price for pool in pools])
    offers = [*_reservations(case, keys, pools), *_plans(case, keys, pools)]
    problem = Problem.of(pools, series, [offer.option for offer in offers], owned)
    told, limits = _limits(case, keys, offers, problem, series)
    return Mix(case, tuple(keys), tuple(offers), replace(problem, limits=limits), told, series, tuple(notes))


def _pool(case: Case, key: DemandKey, notes: list[str]) -> tuple[Pool, float]:
    """(the pool at what an uncovered hour really costs, the share of its demand that is worth a commitment).

    Work that may run on spot, for less than any commitment, belongs there and is no demand for one. Where spot is the dearer,
    it is still what such work would cost without a commitment: an uncovered hour costs the mean of both.
    """
    rate = case.card.on_demand(key)
    assert rate is not None  # noqa: S101 - only priced keys are asked for
    list_price = rate.usd_per_hour
    share, place = advice_spot.interruptible(case, key), advice_spot.place_of(case, key)
    if not share or place is None or place.effective >= list_price:
        return Pool(str(key), list_price, list_price), 1.0
    best = [_best(case, [one for one in _committed(case, key) if one.purchase in kind]) for kind in (RESERVED, PLANS)]
    cheaper = min((one.usd_per_hour for one in best if one is not None), default=None)
    if cheaper is None or place.effective >= cheaper:
        return Pool(str(key), list_price, list_price * (1 - share) + place.effective * share), 1.0
    what = "nothing to commit to" if share == 1 else "a commitment for the rest only"
    notes.append(
        f"{key}: {what}: {float(share):.0%} of its work may run on spot, at ${float(place.effective):.4f} an hour of work, less "
        f"than the cheapest committed rate (${float(cheaper):.4f})."
    )
    return Pool(str(key), list_price, list_price), float(1 - share)


def _sure(case: Case, key: DemandKey) -> str:
    nodes = float(labelled(case, key).mean())
    return (
        f"{nodes:.1f} of its nodes say that they are reserved or in a savings plan, but none is known (terms.toml): "
        "nothing is advised for them."
    )


def _committed(case: Case, key: DemandKey) -> list[Rate]:
    return [rate for rate in case.card.rates(key) if rate.purchase in (*RESERVED, *PLANS) and rate.zone is None]


# --- what may be bought ------------------------------------------------------------------------------------------------


def _reservations(case: Case, keys: Sequence[DemandKey], pools: Sequence[Pool]) -> list[Offer]:
    """Of each pool the best term and way to pay; of a size-flexible family the size that is cheapest for its units."""
    found: dict[object, Offer] = {}
    for place, key in enumerate(keys):
        rate = _best(case, [one for one in _committed(case, key) if one.purchase in RESERVED])
        if rate is None or rate.usd_per_hour >= pools[place].price:
            continue
        name = f"{rate.purchase} {key.instance_type} {key.region}"
        use, units, step = _flexible(case, keys, place) or ({place: Fraction(1)}, Fraction(1), Fraction(1))
        option = Option(name, "reservation", use, rate.usd_per_hour / units, step)
        same = tuple(sorted(use))
        if same not in found or option.cost < found[same].option.cost:
            found[same] = Offer(option, rate.purchase, RESERVED[rate.purchase], rate.payment, {key: rate}, "reservation")
    return list(found.values())


def _flexible(case: Case, keys: Sequence[DemandKey], place: int) -> tuple[dict[int, Fraction], Fraction, Fraction] | None:
    """(pool -> units, units of an instance, step) where the family is size-flexible; the GPU families of AWS are not."""
    key = keys[place]
    family = key.instance_type.partition(".")[0]
    chosen = case.options.get("size_flexible", ())
    units = normalised_units(key.instance_type)
    if family not in chosen or units is None:  # type: ignore[operator]
        return None
    same = {
        other: size for other, one in enumerate(keys)
        if one[:2] == key[:2] and one.instance_type.partition(".")[0] == family and (size := normalised_units(one.instance_type))
    }  # fmt: skip
    return same, units, units


def _best(case: Case, rates: Sequence[Rate]) -> Rate | None:
    """The cheapest of the terms that the evidence allows. `longest_term_months` of the options is the user's own bound."""
    longest = longest_term(case)
    payment = case.options.get("payment")
    allowed = [one for one in rates if (one.term_months or 0) <= longest and payment in (None, one.payment)]
    short = min((one for one in allowed if (one.term_months or 0) <= 12), key=_price, default=None)
    long = min((one for one in allowed if (one.term_months or 0) > 12), key=_price, default=None)
    if short is None or long is None:
        return short or long
    pays = 3 * long.usd_per_hour < short.usd_per_hour * (1 + (1 - YEARLY_FALL) + (1 - YEARLY_FALL) ** 2)
    return long if pays else short


def longest_term(case: Case) -> int:
    """Months that may be committed to."""
    usual = 36 if case.demand.days >= LONG_TERM_DAYS else 12
    return int(case.options.get("longest_term_months", usual))  # type: ignore[call-overload]


def _price(rate: Rate) -> tuple[Fraction, Fraction]:
    return rate.usd_per_hour, rate.upfront


def _plans(case: Case, keys: Sequence[DemandKey], pools: Sequence[Pool]) -> list[Offer]:
    """Of each scope (any type; one family in one region) one plan: its best term and way to pay."""
    groups: dict[tuple[str, ...], dict[tuple[str, str | None], dict[int, Rate]]] = {}
    for place, key in enumerate(keys):
        for rate in _committed(case, key):
            if rate.purchase in PLANS and rate.usd_per_hour < min(pools[place].price, pools[place].list_price):
                scope = _scope(case, key, rate)
                ways = groups.setdefault(scope, {}).setdefault((rate.purchase, rate.payment), {})
                if place not in ways or _price(rate) < _price(ways[place]):
                    ways[place] = rate
    found = []
    for scope, ways in sorted(groups.items()):
        usable = _best_way(case, keys, pools, ways)
        if usable is not None:
            (purchase, payment), rates = usable
            name = " ".join(part for part in (purchase, *scope) if part)
            breadth = 0 if scope[0] == "EC2Instance" else 2
            option = Option(
                name, "savings_plan", {place: rate.usd_per_hour for place, rate in rates.items()}, Fraction(1), CENT, breadth
            )
            found.append(
                Offer(option, purchase, PLANS[purchase], payment, {keys[place]: rate for place, rate in rates.items()}, scope[0])
            )
    return found


def _scope(case: Case, key: DemandKey, rate: Rate) -> tuple[str, ...]:
    cloud = cloud_of(case, key) or ""
    if rate.source.endswith("EC2Instance"):
        return ("EC2Instance", cloud, key.region, key.instance_type.partition(".")[0])
    return ("Compute" if rate.source.endswith("Compute") else "plan", cloud)


def _best_way(
    case: Case, keys: Sequence[DemandKey], pools: Sequence[Pool], ways: Mapping[tuple[str, str | None], dict[int, Rate]]
) -> tuple[tuple[str, str | None], dict[int, Rate]] | None:
    """The way that saves most on the average hour, of the best term of the type that runs most."""
    weight = [float(paid_on_demand(case, key).mean()) for key in keys]
    most = max((place for rates in ways.values() for place in rates), key=lambda place: weight[place] * float(pools[place].price))
    best = _best(case, [rates[most] for rates in ways.values() if most in rates])
    if best is None:
        return None

    def saved(way: tuple[str, str | None]) -> float:
        return sum(weight[place] * float(pools[place].price - rate.usd_per_hour) for place, rate in ways[way].items())

    way = max(
        (way for way in sorted(ways, key=str) if way[0] == best.purchase and case.options.get("payment") in (None, way[1])),
        key=saved,
    )
    return way, ways[way]


# --- how much may be bought --------------------------------------------------------------------------------------------


def _limits(
    case: Case, keys: Sequence[DemandKey], offers: Sequence[Offer], problem: Problem, series: np.ndarray
) -> tuple[dict[DemandKey, Recommendation], tuple[Limit, ...]]:
    rest = _left(problem, series)
    told: dict[DemandKey, Recommendation] = {}
    limits: list[Limit] = []
    layer = np.zeros(len(keys))
    for place, offer in enumerate(offers):
        if not offer.is_plan:
            pool = keys.index(offer.key)
            rate = offer.rates[offer.key].usd_per_hour
            size = offer.option.use[pool]
            hours = sum(float(use / size) * rest[other] for other, use in offer.option.use.items())
            one = told[offer.key] = _recommended(
                case, offer, hours, rate, problem.pools[pool].price, _held(case, problem, keys, pool)
            )
            layer[pool] = one.count
            limits.append(Limit({place: Fraction(1)}, one.count * offer.option.step))
    narrow: dict[int, Fraction] = {}
    for place in sorted(range(len(offers)), key=lambda place: offers[place].option.breadth):
        if offers[place].is_plan:
            limit, narrow[place] = _plan_limit(case, place, offers, keys, problem, rest, layer, narrow)
            limits.append(limit)
    return told, tuple(limits)


def _left(problem: Problem, series: np.ndarray) -> np.ndarray:
    """Of each pool, what owned savings plans leave; what its own reservations cover is in it again."""
    amounts = problem.amounts([0] * len(problem.options))
    left = run(problem, amounts, series).left
    for held in problem.owned:
        if held.option.kind == "reservation" and len(held.option.use) == 1:
            (pool,) = held.option.use
            left[pool] += np.minimum(series[pool] - left[pool], float(held.amount))
    return left


def _held(case: Case, problem: Problem, keys: Sequence[DemandKey], pool: int) -> list[HeldCount]:
    ends = {one.id: (one.ends_ms - milliseconds(case.now)) // DAY_MS for one in active(case)}
    return [
        HeldCount(int(one.amount), int(ends[one.option.id]))
        for one in problem.owned if one.option.kind == "reservation" and set(one.option.use) == {pool}
    ]  # fmt: skip


def _recommended(
    case: Case, offer: Offer, series: np.ndarray, rate: Fraction, price: Fraction, held: Sequence[HeldCount]
) -> Recommendation:
    days = round(offer.term_months * 365 / 12)
    known = case.demand.known
    whole = np.zeros(len(known))
    whole[known] = series
    return recommend(whole, rate, price, term_days=days, known=known, held=held)


def _plan_limit(
    case: Case, place: int, offers: Sequence[Offer], keys: Sequence[DemandKey], problem: Problem, rest: np.ndarray,
    layer: np.ndarray, narrow: Mapping[int, Fraction],
) -> tuple[Limit, Fraction]:  # fmt: skip
    """(limit, $ an hour that the plan alone may hold). With the reservations and narrower plans under it, up to theirs.

    The plan may hold what the rule holds of the demand above the reservations' limits, or of all, whichever is more: another
    offer beside it never narrows it.
    """
    plan = offers[place]
    pools = list(plan.option.use)
    rates = np.array([float(plan.option.use[pool]) for pool in pools])
    own = [one for one in problem.owned if one.option.kind == "reservation" and len(one.option.use) == 1]
    have = np.array([float(sum(one.amount for one in own if pool in one.option.use)) for pool in pools])
    whole = np.maximum(rest[pools] - have[:, None], 0.0)
    prices = np.array([float(problem.pools[pool].price) for pool in pools])
    above = _dollars(case, plan, rates, prices, np.maximum(whole - layer[pools][:, None], 0.0))
    alone = _dollars(case, plan, rates, prices, whole)
    under, room = _under(plan, offers, keys, layer)
    for other, most in narrow.items():
        shared = [pool for pool in offers[other].option.use if pool in plan.option.use]
        if shared and offers[other].option.breadth < plan.option.breadth:
            demand = whole[[pools.index(pool) for pool in shared]].mean(axis=1)
            paid = [
                sum(float(one.option.use[pool]) * d for pool, d in zip(shared, demand, strict=True))
                for one in (plan, offers[other])
            ]
            under[other] = Fraction(paid[0] / paid[1]).limit_denominator(10_000) if paid[1] else Fraction(1)
            above = max(above, under[other] * most)
    return Limit({place: Fraction(1)} | under, max(above + room, alone)), max(above, alone)


def _under(
    plan: Offer, offers: Sequence[Offer], keys: Sequence[DemandKey], layer: np.ndarray
) -> tuple[dict[int, Fraction], Fraction]:
    """(weights of the reservations of single types that the plan could stand in for, $ an hour of their limits)."""
    under = {
        other: plan.option.use[pool]
        for other, one in enumerate(offers)
        if not one.is_plan and (pool := keys.index(one.key)) in plan.option.use and set(one.option.use) == {pool}
    }
    room = sum((weight * int(layer[keys.index(offers[other].key)]) for other, weight in under.items()), Fraction(0))
    return under, room


def _dollars(case: Case, plan: Offer, rates: np.ndarray, prices: np.ndarray, nodes: np.ndarray) -> Fraction:
    """What the rule would hold of a plan for these nodes, float (pools, hours), taken together: $ an hour."""
    dollars = rates @ nodes
    unit = float(dollars.max(initial=0.0)) / STEPS
    if not unit > 0:
        return Fraction(0)
    ratio = Fraction(float(dollars.mean() / (prices @ nodes.mean(axis=1))))
    return _recommended(case, plan, np.floor(dollars / unit + 1e-9), ratio, Fraction(1), ()).count * Fraction(unit)
