"""What several commitments together cost over the hours of the evidence: reservations and savings plans, owned and to be bought.

Invariant: commitments are applied in every hour as the clouds apply them (see pricing/owned.py), never as would be best:
reservations first, then savings plans by the highest discount; what an hour does not use is lost. `exact_cost` says the cost
as a fraction; `run` says the same in floats, fast enough to optimise with.

An `Option` has an amount: instances of a reservation, or $ per hour of a savings plan. A node-hour of a pool takes `use` of
it: 1 instance, the plan's rate of the type, or, in a family whose reservations are size-flexible, its normalised units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from math import lcm
from typing import Literal, NamedTuple

import numpy as np

UNIT = 3_600_000
"""Node-milliseconds in a node-hour: counts are kept as whole ones."""
LARGEST = 2**62
"""Whole numbers below it are reckoned with as machine words."""
SIZES = {"nano": Fraction(1, 4), "micro": Fraction(1, 2), "small": Fraction(1), "medium": Fraction(2), "large": Fraction(4)}
XLARGE = 8
"""Normalised units: AWS EC2 user guide, "How Reserved Instances are applied"; N x `xlarge` has N x 8."""


class Pool(NamedTuple):
    """Nodes that are alike. Prices per node-hour."""

    name: str
    list_price: Fraction
    """On demand, without discounts: savings plans are ranked by it."""
    price: Fraction
    """What an hour that nothing covers really costs: on demand, or a mix of it with spot."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that is owned, or that may be bought in any amount; `cost` is of one unit of it, per hour, used or not."""

    id: str
    kind: Literal["reservation", "savings_plan"]
    use: Mapping[int, Fraction]
    """Pool -> what a node-hour of it takes; absent: it does not cover the pool."""
    cost: Fraction = Fraction(1)
    step: Fraction = Fraction(1)
    """Amounts are whole multiples of it."""
    breadth: int = 0
    """Of equal discounts the narrower plan is used first: 0 one family in one region, 1 either of both, 2 any."""


class Held(NamedTuple):
    """So much of an option, running through all hours of the evidence."""

    option: Option
    amount: Fraction


class Limit(NamedTuple):
    """Sum of weight x amount over options (by their place) <= most."""

    weights: Mapping[int, Fraction]
    most: Fraction


@dataclass(frozen=True, eq=False)
class Problem:
    """`counts`: float64 (pools, hours) nodes running, of the hours that are known only; `weights`: int64 (hours,)."""

    pools: tuple[Pool, ...]
    counts: np.ndarray
    owned: tuple[Held, ...] = ()
    options: tuple[Option, ...] = ()
    limits: tuple[Limit, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(
        cls, pools: Sequence[Pool], counts: np.ndarray, options: Sequence[Option] = (), owned: Sequence[Held] = (),
        limits: Sequence[Limit] = (),
    ) -> Problem:  # fmt: skip
        """With equal hours put together."""
        columns, weights = np.unique(np.asarray(counts, float).reshape(len(pools), -1), axis=1, return_counts=True)
        return cls(tuple(pools), columns, tuple(owned), tuple(options), tuple(limits), weights.astype(np.int64))

    @property
    def hours(self) -> int:
        """Of the evidence."""
        return int(self.weights.sum())

    @cached_property
    def held(self) -> tuple[Option, ...]:
        """Owned ones first, then those that may be bought: the order of all amounts here."""
        return (*(one.option for one in self.owned), *self.options)

    def amounts(self, bought: Sequence[Fraction | int]) -> tuple[Fraction, ...]:
        """Of `held`, from what is bought of `options`."""
        return (*(one.amount for one in self.owned), *map(Fraction, bought))

    @cached_property
    def steps(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(place in `held`, pools) in the order in which hours use them; pools of one step share in proportion."""
        return (*_reservations(self.held), *_plans(self.held, self.pools))

    @cached_property
    def coupled(self) -> tuple[int, ...]:
        """Pools that share an option with another pool, or have a savings plan."""
        shared = {pool for one in self.held if len(one.use) > 1 or one.kind == "savings_plan" for pool in one.use}
        return tuple(sorted(shared))


def _reservations(held: Sequence[Option]) -> list[tuple[int, tuple[int, ...]]]:
    """Those of one type, then size-flexible ones from the smallest size up."""
    found = [(len(one.use) > 1, use, place, pool) for place, one in enumerate(held) if one.kind == "reservation"
             for pool, use in one.use.items()]  # fmt: skip
    return [(place, (pool,)) for _, _, place, pool in sorted(found)]


def _plans(held: Sequence[Option], pools: Sequence[Pool]) -> list[tuple[int, tuple[int, ...]]]:
    found = [((rate / pools[pool].list_price - 1, one.breadth, rate, one.id, place), pool)
             for place, one in enumerate(held) if one.kind == "savings_plan"
             for pool, rate in one.use.items() if rate < pools[pool].list_price]  # fmt: skip
    ranked = groupby(sorted(found), key=lambda pair: pair[0])
    return [(rank[4], tuple(pool for _, pool in pairs)) for rank, pairs in ranked]


class Run(NamedTuple):
    """`left`: float (pools, hours) node-hours that nothing covers; `used`: of each of `held`, the share that hours used."""

    costs: np.ndarray
    """Per hour, float (hours,)."""
    left: np.ndarray
    used: tuple[float | None, ...]


def run(problem: Problem, amounts: Sequence[Fraction | float], counts: np.ndarray | None = None) -> Run:
    """All hours with these amounts of `held`. `counts`: other hours than the problem's."""
    counts = problem.counts if counts is None else counts
    weights = problem.weights if counts.shape[1] == len(problem.weights) else np.ones(counts.shape[1])
    left, rest = counts.copy(), {place: np.full(counts.shape[1], float(amounts[place])) for place, _ in problem.steps}
    for place, pools in problem.steps:
        if not amounts[place]:
            continue
        use = problem.held[place].use
        wanted = sum(float(use[pool]) * left[pool] for pool in pools)
        taken = np.minimum(wanted, rest[place])
        rest[place] -= taken
        kept = 1 - np.divide(taken, wanted, out=np.zeros_like(taken), where=wanted > 0)
        for pool in pools:
            left[pool] *= kept
    fixed = sum(float(option.cost) * float(amount) for option, amount in zip(problem.held, amounts, strict=True))
    costs = fixed + np.array([float(pool.price) for pool in problem.pools]) @ left
    used = [
        1 - float(rest[place] @ weights) / (float(amount) * float(weights.sum())) if amount and place in rest else None
        for place, amount in enumerate(amounts)
    ]
    return Run(costs, left, tuple(used))


def cost(problem: Problem, bought: Sequence[Fraction | float]) -> float:
    """Of all hours together."""
    amounts = (*(one.amount for one in problem.owned), *bought)
    return float(run(problem, amounts).costs @ problem.weights)


def exact_cost(problem: Problem, bought: Sequence[Fraction | int]) -> Fraction:
    """The same without rounding: of all hours together, what is owned and bought, and what they leave uncovered."""
    amounts = problem.amounts(bought)
    whole = np.rint(problem.counts * UNIT).astype(np.int64)
    fixed = sum((one.cost * amount for one, amount in zip(problem.held, amounts, strict=True)), Fraction(0))
    total = fixed * problem.hours
    coupled = set(problem.coupled)
    for place, pool in enumerate(problem.pools):
        if place not in coupled:
            owned = sum((amount for one, amount in zip(problem.held, amounts, strict=True) if place in one.use), Fraction(0))
            total += pool.price * _uncovered(whole[place], problem.weights, owned)
    for place, left in zip(problem.coupled, _coupled(problem, whole, amounts), strict=True):
        total += problem.pools[place].price * left / UNIT
    return total


def _uncovered(whole: np.ndarray, weights: np.ndarray, owned: Fraction) -> Fraction:
    """Node-hours beyond what is owned of one pool."""
    scaled = owned * UNIT
    beyond = np.maximum(whole * scaled.denominator - scaled.numerator, 0)
    return Fraction(int(beyond @ weights), scaled.denominator * UNIT)


def _coupled(problem: Problem, whole: np.ndarray, amounts: Sequence[Fraction]) -> list[Fraction]:
    """Node-milliseconds that nothing covers, of each coupled pool, over all hours. Whole numbers and fractions, no floats."""
    left = {pool: whole[pool].copy() for pool in problem.coupled}
    credit = dict.fromkeys(left, Fraction(0))
    rest: dict[int, np.ndarray] = {}
    steps = [(place, pools) for place, pools in problem.steps if amounts[place] and pools[0] in left]
    last = {pool: number for number, (_, pools) in enumerate(steps) for pool in pools}
    for number, (place, pools) in enumerate(steps):
        use = problem.held[place].use
        scale = lcm(*(rate.denominator for rate in use.values()), amounts[place].denominator)
        have = rest.get(place)
        if have is None:
            have = _integers(whole.shape[1], int(amounts[place] * scale) * UNIT)
        uses = [(pool, int(use[pool] * scale)) for pool in pools]
        alike = len({(units, problem.pools[pool].price) for pool, units in uses}) == 1
        if alike and all(last[pool] == number for pool in pools):
            rest[place], given = _take_last(have, left, uses, problem.weights)
            credit[pools[0]] += given
        else:
            rest[place] = _take(have, left, uses)
    return [Fraction(sum((hours * problem.weights).tolist())) - credit[pool] for pool, hours in left.items()]


def _integers(length: int, value: int) -> np.ndarray:
    return np.full(length, value, np.int64 if value < LARGEST else object)


def _wanted(left: Mapping[int, np.ndarray], uses: Sequence[tuple[int, int]]) -> np.ndarray:
    """What the pools would take of an option in each hour, exact."""
    size = (
        sum(int(left[pool].max(initial=0)) * use for pool, use in uses)
        if all(left[pool].dtype == np.int64 for pool, _ in uses)
        else LARGEST
    )
    kind = np.int64 if size < LARGEST else object
    return np.add.reduce([left[pool].astype(kind) * use for pool, use in uses])


def _take_last(
    have: np.ndarray, left: dict[int, np.ndarray], uses: Sequence[tuple[int, int]], weights: np.ndarray
) -> tuple[np.ndarray, Fraction]:
    """The step after which nothing covers these pools, which cost and take the same: (what is left of the option, credit).

    Where the option runs out within an hour, the pools keep what they had, and what it still covered is told as a sum.
    """
    wanted = _wanted(left, uses)
    enough = (wanted <= have).astype(bool)
    out = ~enough & (have > 0).astype(bool)
    covered = sum(part * weight for part, weight in zip(have[out].tolist(), weights[out].tolist(), strict=True))
    for pool, _ in uses:
        left[pool] = np.where(enough, 0, left[pool])
    return np.where(enough, have - np.where(enough, wanted, 0), 0), Fraction(covered) / uses[0][1]


def _take(have: np.ndarray, left: dict[int, np.ndarray], uses: Sequence[tuple[int, int]]) -> np.ndarray:
    """Any step: takes from what is left of the pools; broken only where the option runs out."""
    (pool, use), wanted = uses[0], _wanted(left, uses)
    if len(uses) == 1 and wanted.dtype == have.dtype == np.int64 and not (have % use).any():
        taken = np.minimum(have, wanted)
        left[pool] -= taken // use
        return have - taken
    have, wanted = have.astype(object), wanted.astype(object)
    enough = (wanted <= have).astype(bool)
    out = np.flatnonzero(~enough & (have != 0).astype(bool)).tolist()
    have[enough] -= wanted[enough]
    for pool, use in uses:
        hours = left[pool].astype(object)
        hours[enough] = 0
        for hour in out:
            hours[hour] -= Fraction(have[hour], use) if len(uses) == 1 else hours[hour] * Fraction(have[hour]) / wanted[hour]
        whole = not out or all(type(hours[hour]) is int or hours[hour].denominator == 1 for hour in out)
        left[pool] = hours.astype(np.int64) if whole and left[pool].dtype == np.int64 else hours
    have[out] = 0
    return have


def normalised_units(instance_type: str) -> Fraction | None:
    """Of an AWS size (`xlarge` 8, `24xlarge` 192); None where the size has none (`metal`)."""
    size = instance_type.rpartition(".")[2]
    if size in SIZES:
        return SIZES[size]
    number = size.removesuffix("xlarge")
    if number == size or not (number == "" or number.isdigit()):
        return None
    return Fraction(XLARGE * int(number or 1))


def quantile(counts: np.ndarray, weights: np.ndarray, ratio: Fraction, owned: Fraction = Fraction(0)) -> int:
    """How many to buy on top of `owned`: all those of which each runs for more than `ratio` of the hours.

    With whole counts the smallest q with P(D > q) <= ratio, less what is owned: the (1 - ratio) quantile of the hours.
    """
    beyond = np.maximum(counts - float(owned), 0.0)
    order = np.argsort(beyond)
    values, weight = beyond[order], weights[order].astype(float)
    levels = np.arange(int(np.ceil(values[-1])) + 1) if len(values) else np.zeros(1)
    below = np.searchsorted(values, levels, side="right")
    area, above = np.concatenate(([0.0], np.cumsum(values * weight))), np.concatenate((np.cumsum(weight[::-1])[::-1], [0.0]))
    capped = area[below] + levels * above[below]
    hours = float(weight.sum())
    return int(np.count_nonzero(np.diff(capped) > float(ratio) * hours + 1e-9 * hours))
