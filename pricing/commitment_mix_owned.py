"""Commitments that are owned now, applied to the evidence: what they cover of each pool, and what is left to save on.

Invariant: what a commitment pays for is saved on by nothing: neither spot nor a move gives its money back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pricing.advice import Case
from pricing.calendar import milliseconds
from pricing.commitment_mix import Held, Option, Pool, Problem, run
from pricing.demand import DemandKey
from pricing.owned import Commitment, Place
from pricing.rate_card import TERM_MONTHS

CENT = Fraction(1, 1000)
"""Savings plans are bought in tenths of a cent."""


def cloud_of(case: Case, key: DemandKey) -> str | None:
    if key.cloud is not None:
        return key.cloud
    shape = case.card.shape(key)
    return shape.cloud if shape else None


def active(case: Case) -> list[Commitment]:
    """Owned ones that run now, in USD."""
    now = milliseconds(case.now)
    return [one for one in case.terms.commitments if one.starts_ms <= now < one.ends_ms and one.currency == "USD"]


def covers(case: Case, one: Commitment, key: DemandKey) -> bool:
    """A reservation of one zone counts for its region: the evidence tells no zones."""
    return replace(one, zone=None).matches(
        Place(cloud_of(case, key) or one.cloud, key.region, None, key.instance_type, "on_demand")
    )


def held_of(case: Case, keys: Sequence[DemandKey], list_prices: Sequence[Fraction]) -> list[Held]:
    """What of the owned commitments covers these keys (pools, by their place)."""
    found = []
    for one in active(case):
        places = [place for place, key in enumerate(keys) if covers(case, one, key)]
        if one.kind == "reservation":
            use = {place: Fraction(1) for place in places}
            found.append(Held(Option(one.id, "reservation", use, one.cost_per_hour), Fraction(one.count)))
        else:
            rates = {place: rate for place in places if (rate := _plan_rate(case, one, keys[place], list_prices[place]))}
            breadth = (one.family is None) + (one.region is None)
            found.append(Held(Option(one.id, "savings_plan", rates, Fraction(1), CENT, breadth), one.cost_per_hour))
    return [held for held in found if held.option.use]


def _plan_rate(case: Case, plan: Commitment, key: DemandKey, list_price: Fraction) -> Fraction | None:
    rate = plan.rate_of(key.instance_type, key.region)
    if rate is None and plan.percent is not None:
        rate = list_price * (1 - plan.percent / 100)
    if rate is None and plan.purchase is not None:
        rate = next((one.usd_per_hour for one in case.card.rates(key, plan.purchase)), None)
    return rate


def labelled(case: Case, key: DemandKey) -> np.ndarray:
    """Nodes that say they are reserved or in a savings plan, where no known commitment covers them: float64 (known hours,)."""
    if any(covers(case, one, key) for one in active(case)):
        return np.zeros(case.demand.known_hours)
    return sum((case.demand.of(key, purchase) for purchase in TERM_MONTHS), np.zeros(case.demand.hours))[case.demand.known]


def paid_on_demand(case: Case, key: DemandKey) -> np.ndarray:
    """Nodes that commitments could cover, owned ones too: float64 (known hours,)."""
    return np.maximum(case.demand.committable(key) - labelled(case, key), 0.0)


def uncovered(case: Case) -> dict[DemandKey, np.ndarray]:
    """Nodes paid on demand: float64 (known hours,), of each key with a known on-demand rate and such hours."""
    priced = {key: rate.usd_per_hour for key in case.demand.counts if (rate := case.card.on_demand(key)) is not None}
    keys = list(priced)
    if not keys or not case.demand.known_hours:
        return {}
    series = np.array([paid_on_demand(case, key) for key in keys])
    held = held_of(case, keys, list(priced.values()))
    problem = Problem(tuple(Pool(str(key), price, price) for key, price in priced.items()), series, tuple(held))
    left = run(problem, [one.amount for one in held], series).left if held else series
    return {key: hours for key, hours in zip(keys, left, strict=True) if hours.any()}
