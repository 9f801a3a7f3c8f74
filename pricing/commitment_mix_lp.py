"""Which commitments together would have cost least on the evidence: one linear program over all pools and options (HiGHS).

Invariant: the plan is never dearer on the evidence than buying nothing, and the gap it reports is a bound: no plan within
the limits is cheaper than its cost less the gap.

Pools that share nothing have a closed form (the quantile rule). For the others the hours are put into groups, and each group
stands for itself by its mean: the cost of an hour is convex in its demand, so the program over the means is a lower bound
(Jensen). The groups whose own hours cost most beyond their mean are split until the bound and the plan meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from pricing.commitment_mix import Limit, Option, Problem, cost, exact_cost, quantile, run

GROUPS = 128
ROUNDS = 2
SMALL = 4000
"""Variables of a program that is solved for whole reservations; a larger one is rounded."""
NODES = 200
CLOSE = 5e-4
"""Relative: a bound so near ends the search."""


@dataclass(frozen=True)
class Plan:
    """`bought`: of each option of the problem. Costs over all hours of the evidence, exact."""

    bought: tuple[Fraction, ...]
    cost: Fraction
    cost_of_nothing: Fraction
    bound: float
    """No plan of whole or broken amounts costs less (a lower bound of the optimum)."""

    @property
    def gap(self) -> float:
        """Relative, of the cost above the bound; 0 where it is proved to be the cheapest."""
        total = float(self.cost)
        return max(0.0, (total - self.bound) / total) if total > 0 else 0.0


def cheapest(problem: Problem, groups: int = GROUPS, rounds: int = ROUNDS) -> Plan:
    """The cheapest amounts of the problem's options within its limits."""
    nothing = exact_cost(problem, [Fraction(0)] * len(problem.options))
    alone = _alone(problem)
    candidates, bound = [alone], float(nothing)
    if problem.options:
        together, bound = _together(problem, alone, groups, rounds)
        candidates.append(together)
    best = min(candidates, key=lambda one: cost(problem, one))
    found = exact_cost(problem, best), best
    if found[0] >= nothing:
        found = nothing, tuple(Fraction(0) for _ in problem.options)
    return Plan(found[1], found[0], nothing, min(bound, float(found[0])))


def hindsight(problem: Problem, groups: int = GROUPS) -> tuple[Fraction, ...]:
    """What would have been cheapest on the evidence; to show, not to tell money of."""
    alone = _alone(problem)
    if not problem.coupled:
        return alone
    together, _ = _together(problem, alone, groups, 1)
    return min((alone, together), key=lambda one: cost(problem, one))


def _alone(problem: Problem) -> tuple[Fraction, ...]:
    """Reservations of one pool each by the quantile rule, as if there were nothing else to buy."""
    bought = [Fraction(0)] * len(problem.options)
    coupled = set(problem.coupled)
    left = run(problem, problem.amounts(bought)).left if coupled else problem.counts
    for pool, name in enumerate(problem.pools):
        of_pool = [
            (one.cost, place) for place, one in enumerate(problem.options) if one.kind == "reservation" and set(one.use) == {pool}
        ]
        if not of_pool or not name.price:
            continue
        _, place = min(of_pool)
        one = problem.options[place]
        owned = sum(
            (held.amount for held in problem.owned if set(held.option.use) == {pool} and held.option.kind == "reservation"),
            Fraction(0),
        )
        counts = left[pool] if pool in coupled else problem.counts[pool]
        count = Fraction(quantile(counts, problem.weights, one.cost / name.price, owned if pool not in coupled else Fraction(0)))
        bought[place] = _allowed(problem.limits, bought, place, count, one.step)
    return tuple(bought)


def _allowed(limits: Sequence[Limit], bought: Sequence[Fraction], place: int, amount: Fraction, step: Fraction) -> Fraction:
    """The most of `amount` that the limits leave room for, in whole steps."""
    for limit in limits:
        if weight := limit.weights.get(place):
            others = sum((w * bought[other] for other, w in limit.weights.items() if other != place), Fraction(0))
            amount = min(amount, (limit.most - others) / weight)
    return max(Fraction(0), floor(amount / step) * step)


class _Groups:
    """Hours in groups; `means` float (pools, groups), `weights` hours of each."""

    def __init__(self, problem: Problem, pools: Sequence[int], groups: int) -> None:
        self._weights = problem.weights.astype(float)
        self._counts = problem.counts[list(pools)]
        self._prices = np.array([float(problem.pools[pool].price) for pool in pools])
        self.members = [np.arange(self._counts.shape[1])]
        spread = [self._spread(self.members[0])]
        while len(self.members) < groups:
            widest = int(np.argmax(spread))
            if spread[widest] <= 0 or not self.split(widest):
                break
            spread[widest] = self._spread(self.members[widest])
            spread.append(self._spread(self.members[-1]))

    def _moments(self, hours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight, counts = self._weights[hours], self._counts[:, hours]
        mean = counts @ weight / weight.sum()
        return mean, (np.abs(counts - mean[:, None]) @ weight) * self._prices

    def _spread(self, hours: np.ndarray) -> float:
        return float(self._moments(hours)[1].sum()) if len(hours) > 1 else 0.0

    def split(self, group: int) -> bool:
        """At the mean of the pool whose money moves most."""
        hours = self.members[group]
        if len(hours) < 2:
            return False
        mean, spread = self._moments(hours)
        pool = int(np.argmax(spread))
        high = self._counts[pool, hours] > mean[pool]
        if high.all() or not high.any():
            return False
        self.members[group] = hours[~high]
        self.members.append(hours[high])
        return True

    @property
    def weights(self) -> np.ndarray:
        return np.array([self._weights[hours].sum() for hours in self.members])

    @property
    def means(self) -> np.ndarray:
        return np.stack([self._moments(hours)[0] for hours in self.members], axis=1)


def _together(problem: Problem, alone: Sequence[Fraction], groups: int, rounds: int) -> tuple[tuple[Fraction, ...], float]:
    """All options at once; (amounts, a bound from below of the cost of all hours)."""
    coupled = problem.coupled
    options = [place for place, one in enumerate(problem.options) if set(one.use) & set(coupled)]
    apart = [Fraction(0) if place in options else amount for place, amount in enumerate(alone)]
    rest = _cost_apart(problem, apart)
    if not coupled:
        return tuple(apart), rest
    parts = _Groups(problem, coupled, groups)
    best, best_cost, bound = tuple(alone), cost(problem, alone), -np.inf
    for _ in range(rounds):
        program = _Program(problem, coupled, options, parts, apart)
        amounts, low = program.solve()
        bound = max(bound, low + rest)
        plan = _whole(problem, options, apart, _settled(problem, options, program, amounts))
        total = cost(problem, plan)
        if total < best_cost:
            best, best_cost = plan, total
        if best_cost - bound <= CLOSE * abs(best_cost) or not _refine(problem, parts, plan):
            break
    return best, bound


def _cost_apart(problem: Problem, bought: Sequence[Fraction]) -> float:
    """Of the pools that share nothing."""
    amounts = (*(one.amount for one in problem.owned), *bought)
    left = run(problem, amounts).left @ problem.weights
    pools = set(range(len(problem.pools))) - set(problem.coupled)
    fixed = sum(
        float(one.cost) * float(a)
        for one, a in zip(problem.held, amounts, strict=True)
        if not set(one.use) & set(problem.coupled)
    )
    return fixed * problem.hours + sum(float(problem.pools[pool].price) * float(left[pool]) for pool in pools)


def _settled(problem: Problem, options: Sequence[int], program: _Program, amounts: np.ndarray) -> np.ndarray:
    """With whole reservations, and the plans anew beside them."""
    steps = np.array([float(problem.options[place].step) for place in options])
    kept = np.array([problem.options[place].kind == "reservation" for place in options])
    if not kept.any() or kept.all() or np.allclose(amounts[kept], np.rint(amounts[kept] / steps[kept]) * steps[kept], atol=1e-6):
        return amounts
    if program.width <= SMALL:
        found, _ = program.solve(whole=np.where(kept, steps, 0.0))
        return found
    low = np.where(kept, np.floor(amounts / steps + 0.5) * steps, 0.0)
    found, _ = program.solve(low, np.where(kept, low, np.inf))
    return found


class _Program:
    """min prices x: amounts, then per group what is left of each pool and what each shared option covers of it."""

    def __init__(
        self, problem: Problem, coupled: Sequence[int], options: Sequence[int], parts: _Groups, apart: Sequence[Fraction]
    ) -> None:
        means, weights = parts.means, parts.weights
        self.groups = len(weights)
        self._rows: list[np.ndarray] = []
        self._columns: list[np.ndarray] = []
        self._values: list[np.ndarray] = []
        self._most: list[np.ndarray] = []
        self._prices = [np.array([float(problem.options[place].cost) * float(weights.sum()) for place in options])]
        self._width = self._options = len(options)
        self._count = 0
        column = {place: number for number, place in enumerate(options)}
        self._pools(problem, coupled, means, weights)
        for held in problem.owned:
            self._option(problem, coupled, held.option, None, held.amount)
        for place in options:
            self._option(problem, coupled, problem.options[place], column[place], None)
        self._limits(problem.limits, column, apart)
        self._scaled(max(float(problem.pools[pool].price) for pool in coupled), [problem.options[place] for place in options])
        self.fixed = sum(
            float(held.option.cost * held.amount) * float(weights.sum())
            for held in problem.owned
            if set(held.option.use) & set(coupled)
        )

    def _scaled(self, money: float, options: Sequence[Option]) -> None:
        """Plans are counted in units of a node's price, rows and costs by their largest figure: the solver's tolerances are
        absolute, and prices may be fractions of a cent."""
        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        self._scale = np.ones(self._width)
        self._scale[: self._options] = [money if one.kind == "savings_plan" else 1.0 for one in options]
        values, most = np.concatenate(self._values) * self._scale[columns], np.concatenate(self._most)
        largest = np.zeros(len(most))
        np.maximum.at(largest, rows, np.abs(values))
        self.values, self.place, self.most = values / largest[rows], (rows, columns), most / largest
        prices = np.concatenate(self._prices) * self._scale
        self._top = float(prices.max())
        self.prices = prices / self._top

    @property
    def width(self) -> int:
        """Variables."""
        return self._width

    def solve(
        self, low: np.ndarray | None = None, high: np.ndarray | None = None, whole: np.ndarray | None = None
    ) -> tuple[np.ndarray, float]:
        """(amounts, cost of the coupled pools). `whole`: 1 where an amount is to be a whole number, else 0."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_matrix

        options = self._options
        least, most = np.zeros(self._width), np.full(self._width, np.inf)
        scale = self._scale[:options]
        least[:options] = 0.0 if low is None else low / scale
        most[:options] = np.inf if high is None else high / scale
        integral = np.zeros(self._width)
        integral[:options] = 0 if whole is None else whole == 1
        rows = coo_matrix((self.values, self.place), shape=(len(self.most), self._width)).tocsr()
        found = milp(
            self.prices, constraints=LinearConstraint(rows, -np.inf, self.most), bounds=Bounds(least, most), integrality=integral,
            options={"mip_rel_gap": CLOSE / 10, "node_limit": NODES},
        )  # fmt: skip
        if found.x is None:  # it cannot be infeasible or unbounded: a numerical failure is answered with nothing
            return np.zeros(options), -np.inf
        return found.x[:options] * scale, float(found.fun) * self._top + self.fixed

    def _add(self, rows: np.ndarray, columns: np.ndarray, value: float) -> None:
        self._rows.append(rows)
        self._columns.append(columns)
        self._values.append(np.full(len(rows), value))

    def _variables(self, prices: np.ndarray) -> np.ndarray:
        made = np.arange(self._width, self._width + len(prices))
        self._width += len(prices)
        self._prices.append(prices)
        return made

    def _bounds(self, most: np.ndarray) -> np.ndarray:
        made = np.arange(self._count, self._count + len(most))
        self._count += len(most)
        self._most.append(most)
        return made

    def _pools(self, problem: Problem, coupled: Sequence[int], means: np.ndarray, weights: np.ndarray) -> None:
        """Demand: what is left + what is covered >= demand."""
        self._demand = {}
        for number, pool in enumerate(coupled):
            rows = self._demand[pool] = self._bounds(-means[number])
            self._add(rows, self._variables(weights * float(problem.pools[pool].price)), -1.0)

    def _option(self, problem: Problem, coupled: Sequence[int], one: Option, column: int | None, amount: Fraction | None) -> None:
        useful = [
            pool for pool, use in one.use.items()
            if pool in self._demand and (one.kind == "reservation" or use < problem.pools[pool].list_price)
        ]  # fmt: skip
        if not useful:
            return
        if len(useful) == 1 and one.kind == "reservation" and column is not None:
            self._add(self._demand[useful[0]], np.full(self.groups, column), -1.0 / float(one.use[useful[0]]))
            return
        rows = self._bounds(np.full(self.groups, float(amount or 0)))
        if column is not None:
            self._add(rows, np.full(self.groups, column), -1.0)
        for pool in useful:
            covered = self._variables(np.zeros(self.groups))
            self._add(rows, covered, float(one.use[pool]))
            self._add(self._demand[pool], covered, -1.0)

    def _limits(self, limits: Sequence[Limit], column: dict[int, int], apart: Sequence[Fraction]) -> None:
        for limit in limits:
            inside = {column[place]: weight for place, weight in limit.weights.items() if place in column}
            if inside:
                others = sum((w * apart[place] for place, w in limit.weights.items() if place not in column), Fraction(0))
                row = self._bounds(np.array([max(0.0, float(limit.most - others))]))
                for place, weight in inside.items():
                    self._add(row, np.array([place]), float(weight))


def _whole(problem: Problem, options: Sequence[int], apart: Sequence[Fraction], amounts: np.ndarray) -> tuple[Fraction, ...]:
    """Whole steps within the limits: rounded down, then one step more wherever that is cheaper, the most broken first."""
    plan = list(apart)
    broken: list[tuple[float, int]] = []
    for place, amount in zip(options, amounts, strict=True):
        step = problem.options[place].step
        steps = float(amount) / float(step)
        plan[place] = _allowed(problem.limits, plan, place, floor(steps + 1e-6) * step, step)
        if steps - floor(steps + 1e-6) > 1e-6 and problem.options[place].kind == "reservation":
            broken.append((floor(steps) - steps, place))
    best = cost(problem, plan) if broken else 0.0
    for _, place in sorted(broken):
        step = problem.options[place].step
        tried = plan.copy()
        tried[place] = _allowed(problem.limits, plan, place, plan[place] + step, step)
        total = cost(problem, tried)
        if total < best:
            plan, best = tried, total
    return tuple(plan)


def _refine(problem: Problem, parts: _Groups, plan: Sequence[Fraction]) -> bool:
    """Splits the groups whose hours cost more than their mean; False where none does."""
    amounts = (*(one.amount for one in problem.owned), *plan)
    hours = run(problem, amounts).costs * problem.weights
    means = np.zeros((len(problem.pools), len(parts.members)))
    means[list(problem.coupled)] = parts.means
    apart = [pool for pool in range(len(problem.pools)) if pool not in set(problem.coupled)]
    for number, members in enumerate(parts.members):
        weight = problem.weights[members]
        means[apart, number] = problem.counts[np.ix_(apart, members)] @ weight / weight.sum()
    middle = run(problem, amounts, means).costs * parts.weights
    excess = np.array([hours[members].sum() for members in parts.members]) - middle
    order = np.argsort(-excess)
    chosen = [int(group) for group in order[: len(order)] if excess[group] > CLOSE / 10 * hours.sum() / len(order)]
    return sum(parts.split(group) for group in chosen) > 0
