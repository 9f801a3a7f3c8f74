"""Several commitments as one optimisation: it agrees with the exact cover of every hour, and with the quantile rule."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import owned
from pricing.commitment_mix import Held, Limit, Option, Pool, Problem, cost, exact_cost, normalised_units, quantile, run
from pricing.commitment_mix_lp import cheapest

F = Fraction
TYPES = ("p4d.24xlarge", "g5.xlarge", "g5.12xlarge")
PRICES = (F(22), F(1), F(567, 100))
END = 10**15


def pools(count: int = 3, scale: Fraction = F(1)) -> list[Pool]:
    return [Pool(name, price * scale, price * scale) for name, price in zip(TYPES[:count], PRICES, strict=False)]


def reservation(pool: int, share: Fraction, scale: Fraction = F(1)) -> Option:
    return Option(f"r{pool}-{share}", "reservation", {pool: F(1)}, PRICES[pool] * share * scale)


def plan(name: str, shares: dict[int, Fraction], breadth: int = 2, scale: Fraction = F(1)) -> Option:
    uses = {pool: PRICES[pool] * share * scale for pool, share in shares.items()}
    return Option(name, "savings_plan", uses, F(1), F(1, 1000) * scale, breadth)


COMPUTE = plan("compute", {0: F(74, 100), 1: F(70, 100), 2: F(72, 100)})
FAMILY = plan("g5", {1: F(62, 100), 2: F(63, 100)}, breadth=0)
OFFERS = [reservation(0, F(60, 100)), reservation(1, F(61, 100)), COMPUTE, FAMILY]
counts_of = st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=30)


def array(rows: list[tuple[int, ...]]) -> np.ndarray:
    return np.array(rows, float).T


def commitments_of(problem: Problem, amounts: list[Fraction]) -> list[owned.Commitment]:
    made = []
    for one, amount in zip(problem.held, amounts, strict=True):
        common = {"id": one.id, "kind": one.kind, "cloud": "aws", "starts_ms": 0, "ends_ms": END, "region": "r"}
        if one.kind == "reservation" and amount:
            (pool,) = one.use
            made.append(owned.Commitment(**common, cost_per_hour=one.cost, instance_type=TYPES[pool], count=int(amount)))
        elif amount:
            wide = {"family": "g5"} if one.breadth == 0 else {"region": None}
            made.append(owned.Commitment(**(common | wide), cost_per_hour=amount))
    return made


def covered_cost(problem: Problem, counts: np.ndarray, amounts: list[Fraction]) -> Fraction:
    """By `pricing.owned.cover`, hour by hour."""
    commitments = commitments_of(problem, amounts)
    total = F(0)
    for column in counts.T:
        demands = {}
        for pool, number in enumerate(column):
            rates = {one.id: one.use[pool] for one in problem.held if one.kind == "savings_plan" and pool in one.use}
            place = owned.Place("aws", "r", None, TYPES[pool], "on_demand")
            demands[pool] = owned.Demand(place, F(number), problem.pools[pool].list_price, rates)
        result = owned.cover(commitments, demands, 0)
        total += sum((part.cost for part in result.covered.values()), F(0)) + sum(result.unused.values(), F(0))
        for pool, demand in demands.items():
            done = result.covered[pool].hours if pool in result.covered else F(0)
            total += (demand.node_hours - done) * problem.pools[pool].price
    return total


@given(counts_of, st.lists(st.integers(0, 4), min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_the_exact_cost_is_what_the_cover_of_every_hour_comes_to(rows: list[tuple[int, ...]], numbers: list[int]) -> None:
    counts = array(rows)
    problem = Problem.of(pools(), counts, OFFERS)
    amounts = [F(numbers[0]), F(numbers[1]), F(numbers[2] * 7, 3), F(numbers[3] * 5, 7)]
    exact = exact_cost(problem, amounts)
    assert exact == covered_cost(problem, counts, amounts)
    assert cost(problem, amounts) == pytest.approx(float(exact), rel=1e-12)


def test_plans_of_one_discount_share_in_proportion_as_the_bill_does() -> None:
    one = Option("compute", "savings_plan", dict.fromkeys(range(3), F(14, 10)), breadth=2)
    two = plan("g5", {1: F(8, 10), 2: F(75, 100)}, breadth=0)
    counts = array([(1, 3, 2), (0, 1, 5), (2, 2, 2)])
    twin = [Pool(name, F(2), F(2)) for name in TYPES]
    problem = Problem.of(twin, counts, [one, two])
    amounts = [F(3), F(2)]
    assert exact_cost(problem, amounts) == covered_cost(problem, counts, amounts)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(1, 99), st.integers(0, 4))
def test_one_type_and_one_option_is_the_quantile_rule_and_exhaustive_search(hours: list[int], percent: int, have: int) -> None:
    ratio = F(percent, 100)
    problem = Problem.of(
        [Pool("p", F(3), F(3))], np.array([hours], float),
        [Option("r", "reservation", {0: F(1)}, 3 * ratio)],
        [Held(Option("have", "reservation", {0: F(1)}, 3 * ratio), F(have))],
    )  # fmt: skip
    (bought,) = cheapest(problem).bought
    at_level = min(q for q in range(11) if sum(hour > q for hour in hours) <= ratio * len(hours))
    assert bought == max(0, at_level - have)
    costs = [exact_cost(problem, [F(q)]) for q in range(11)]
    assert exact_cost(problem, [bought]) == min(costs) and costs.index(min(costs)) == bought


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(1, 99))
@settings(max_examples=15, deadline=None)
def test_the_linear_program_finds_the_quantile_too(hours: list[int], percent: int) -> None:
    """A plan that covers one type alone goes through HiGHS: the same money as the closed form."""
    rate = 3 * F(percent, 100)
    pool, counts = [Pool("p", F(3), F(3))], np.array([hours], float)
    solved = cheapest(Problem.of(pool, counts, [Option("s", "savings_plan", {0: rate}, F(1), F(1, 1000))]))
    known = quantile(counts[0], np.ones(len(hours)), F(percent, 100))
    closed = exact_cost(Problem.of(pool, counts, [Option("r", "reservation", {0: F(1)}, rate)]), [F(known)])
    assert float(solved.cost) == pytest.approx(float(closed), abs=1e-2 * len(hours))
    assert solved.cost >= closed


@given(counts_of)
@settings(max_examples=20, deadline=None)
def test_a_plan_is_never_dearer_than_doing_nothing_and_close_to_its_bound(rows: list[tuple[int, ...]]) -> None:
    found = cheapest(Problem.of(pools(), array(rows), OFFERS))
    assert found.cost <= found.cost_of_nothing
    assert found.bound <= float(found.cost) + 1e-9


@given(counts_of, st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_one_more_offer_never_makes_the_plan_dearer(rows: list[tuple[int, ...]], left_out: int) -> None:
    few = [one for place, one in enumerate(OFFERS) if place != left_out]
    less = cheapest(Problem.of(pools(), array(rows), few))
    more = cheapest(Problem.of(pools(), array(rows), OFFERS))
    assert float(more.cost) <= float(less.cost) * (1 + 1e-6) + 0.02 * len(rows), "but for whole counts and steps of $0.001"


@given(counts_of, st.integers(1, 1000))
@settings(max_examples=12, deadline=None)
def test_scaling_all_prices_scales_the_plan(rows: list[tuple[int, ...]], factor: int) -> None:
    scale = F(factor, 100)
    scaled = [reservation(0, F(60, 100), scale), plan("compute", {0: F(74, 100), 1: F(70, 100), 2: F(72, 100)}, scale=scale)]
    plain = [reservation(0, F(60, 100)), COMPUTE]
    once = cheapest(Problem.of(pools(), array(rows), plain))
    again = cheapest(Problem.of(pools(3, scale), array(rows), scaled))
    assert float(again.cost) == pytest.approx(float(once.cost * scale), rel=1e-6, abs=1e-6)


def test_the_best_of_all_small_plans_is_found() -> None:
    counts = array([(2, 1, 0), (2, 4, 1), (3, 0, 2), (2, 2, 2), (0, 3, 1)])
    problem = Problem.of(pools(), counts, OFFERS[:3])
    best = min(exact_cost(problem, [F(a), F(b), F(c, 4)]) for a, b, c in product(range(4), range(5), range(0, 60)))
    found = cheapest(problem)
    assert float(found.cost) <= float(best) * 1.0005 and found.gap < 0.002


def test_what_is_owned_is_used_first_and_nothing_is_bought_over_it() -> None:
    counts = array([(3, 0, 0)] * 24)
    have = Held(Option("ri-1", "reservation", {0: F(1)}, F(10)), F(2))
    found = cheapest(Problem.of(pools(), counts, OFFERS[:1], [have]))
    assert found.bought == (F(1),)
    spend = Held(Option("sp-1", "savings_plan", {0: F(15)}, F(1)), F(45))
    nothing = cheapest(Problem.of(pools(), counts, OFFERS[:1], [spend]))
    assert nothing.bought == (F(0),) and nothing.cost == nothing.cost_of_nothing == 45 * 24


def test_limits_hold_the_plan_below_the_optimum() -> None:
    counts = array([(4, 6, 2)] * 10)
    limits = [Limit({0: F(1)}, F(3)), Limit({2: F(1)}, F(2))]
    found = cheapest(Problem.of(pools(), counts, OFFERS[:3], limits=limits))
    assert found.bought[0] == 3 and found.bought[2] <= 2
    free = cheapest(Problem.of(pools(), counts, OFFERS[:3]))
    assert free.cost < found.cost and free.bought[0] == 4


def test_a_size_flexible_reservation_covers_the_other_sizes_of_its_family() -> None:
    units = {1: normalised_units("g5.xlarge"), 2: normalised_units("g5.12xlarge")}
    assert units == {1: F(8), 2: F(96)} and normalised_units("g5.metal") is None
    flexible = Option("ri-g5", "reservation", {p: u for p, u in units.items() if u}, F(5, 80), F(8))
    counts = array([(0, 12, 0), (0, 0, 1)] * 12)
    found = cheapest(Problem.of(pools(), counts, [flexible]))
    assert found.bought == (F(96),), "twelve small ones and one large take the same units"
    fixed = cheapest(Problem.of(pools(), counts, [reservation(1, F(60, 100)), reservation(2, F(60, 100))]))
    assert found.cost < fixed.cost == fixed.cost_of_nothing, "either runs for half of the hours only"


def test_unused_hours_of_a_plan_are_lost_and_told() -> None:
    problem = Problem.of(pools(1), np.array([[1.0, 0.0]]), [reservation(0, F(6, 10))])
    told = run(problem, [F(1)])
    assert told.used == (0.5,) and float(told.left.sum()) == 0.0


def test_a_year_of_a_thousand_nodes_in_dozens_of_pools_is_near_its_bound() -> None:
    rng = np.random.default_rng(3)
    count, hours = 12, 1500
    many = [Pool(f"p{i}", F(3 + i), F(3 + i)) for i in range(count)]
    level = rng.integers(5, 90, count)[:, None]
    wave = 1 + 0.3 * np.sin(np.arange(hours) * 2 * np.pi / 24 + np.arange(count)[:, None])
    counts = np.maximum(0, np.rint(level * wave + rng.normal(0, 2, (count, hours))))
    offers = [Option(f"r{i}", "reservation", {i: F(1)}, many[i].price * F(6, 10)) for i in range(count)]
    offers.append(Option("sp", "savings_plan", {i: one.price * F(70 + i, 100) for i, one in enumerate(many)}, F(1), F(1, 1000)))
    found = cheapest(Problem.of(many, counts, offers))
    assert found.gap < 0.01 and found.cost < found.cost_of_nothing * F(8, 10)


def whole_program(problem: Problem) -> float:
    """The same linear program written out hour by hour, without groups or closed forms."""
    from scipy.optimize import linprog

    options, hours, count = problem.options, problem.counts.shape[1], len(problem.pools)
    width = len(options) + hours * count * (1 + len(options))
    costs, rows, most = np.zeros(width), [], []
    costs[: len(options)] = [float(one.cost) * problem.hours for one in options]
    for hour in range(hours):
        base = len(options) + hour * count * (1 + len(options))
        for pool in range(count):
            costs[base + pool] = float(problem.pools[pool].price) * problem.weights[hour]
            row = np.zeros(width)
            row[[base + pool, *(base + count * (1 + place) + pool for place, one in enumerate(options) if pool in one.use)]] = -1
            rows.append(row)
            most.append(-problem.counts[pool, hour])
        for place, one in enumerate(options):
            row = np.zeros(width)
            row[place] = -1
            for pool, use in one.use.items():
                row[base + count * (1 + place) + pool] = float(use)
            rows.append(row)
            most.append(0.0)
    return float(linprog(costs, A_ub=np.array(rows), b_ub=most).fun)


def test_the_bound_over_groups_of_hours_lies_below_the_program_over_all_hours_and_meets_it() -> None:
    counts = np.random.default_rng(1).integers(0, 7, (3, 25)).astype(float)
    problem = Problem.of(pools(), counts, OFFERS)
    optimum = whole_program(problem)
    coarse, fine = cheapest(problem, groups=4, rounds=1), cheapest(problem)
    assert coarse.bound <= optimum + 1e-6 <= float(coarse.cost) + 2e-6
    assert fine.bound == pytest.approx(optimum, rel=1e-6)
    assert float(fine.cost) <= optimum * 1.01, "whole reservations cost a little more than broken ones"


@pytest.mark.parametrize("scale", [F(1, 10_000), F(10_000)])
def test_prices_of_any_size_give_the_same_plan(scale: Fraction) -> None:
    counts = np.random.default_rng(2).integers(0, 7, (3, 40)).astype(float)
    offers = [reservation(0, F(60, 100), scale), plan("compute", {0: F(74, 100), 1: F(70, 100), 2: F(72, 100)}, scale=scale)]
    once = cheapest(Problem.of(pools(), counts, [reservation(0, F(60, 100)), COMPUTE]))
    again = cheapest(Problem.of(pools(3, scale), counts, offers))
    assert again.bought[0] == once.bought[0]
    assert float(again.cost) == pytest.approx(float(once.cost * scale), rel=1e-6)
    assert again.gap == pytest.approx(once.gap, abs=1e-6)
