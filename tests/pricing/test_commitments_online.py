"""Online reservation keeps its proven ratios, also on the demand that hurts it most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from pricing.commitments_online import Online, break_even, draw_z, excess_quantile

ALPHAS = (0.0, 0.3, 0.49, 0.6)
PRICE, TERM = 0.05, 60
"""A slot on demand, in upfront fees; slots of a term. Only whole slots can pass a threshold, so ratios are exact to `PRICE`."""


def optimum(demand: Sequence[int], alpha: float) -> float:
    """The cheapest reservations for a demand that is known, as a linear program."""
    slots = len(demand)
    paid = np.concatenate([np.ones(slots), np.full(slots, (1 - alpha) * PRICE)])
    covering = np.array([[1.0 if 0 <= slot - begin < TERM else 0.0 for begin in range(slots)] for slot in range(slots)])
    found = linprog(paid, A_ub=-np.hstack([covering, np.eye(slots)]), b_ub=-np.array(demand, float), method="highs")
    return float(found.fun) + alpha * PRICE * sum(demand)


def cost(demand: Sequence[int], alpha: float, z: float) -> float:
    online, usable, total = Online(alpha, PRICE, TERM, z), np.zeros(len(demand) + TERM), 0.0
    for slot, wanted in enumerate(demand):
        count = online.reserve(wanted)
        usable[slot : slot + TERM] += count
        covered = min(wanted, usable[slot])
        total += count + alpha * PRICE * covered + PRICE * (wanted - covered)
    return total


def stops_when_reserved(alpha: float, z: float, slots: int) -> list[int]:
    """The adversary of ski rental: demand lasts until the policy has reserved, then stops for a term."""
    online, demand, quiet = Online(alpha, PRICE, TERM, z), [], 0
    for _ in range(slots):
        wanted = 0 if quiet else 1
        demand.append(wanted)
        quiet = TERM if online.reserve(wanted) else max(0, quiet - 1)
    return demand


def demands(alpha: float) -> Iterator[list[int]]:
    yield stops_when_reserved(alpha, break_even(alpha), 160)
    for length in (5, 21, 29, 41, 60, 90):
        yield [1] * length + [0] * 60 + [1] * length
    rng = Random(5)
    for _ in range(2):
        yield [rng.choice((0, 0, 1, 2, 3)) for _ in range(120)]
        demand: list[int] = []
        while len(demand) < 120:
            demand += [rng.randint(0, 4)] * rng.randint(1, 40)
        yield demand


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_deterministic_rule_never_costs_more_than_two_less_alpha_times_the_optimum(alpha: float) -> None:
    worst = max(cost(one, alpha, break_even(alpha)) / optimum(one, alpha) for one in demands(alpha) if any(one))
    assert worst <= 2 - alpha + PRICE
    assert worst >= 2 - alpha - 3 * PRICE, "the adversary comes near the bound"


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_randomised_rule_keeps_its_ratio_in_expectation(alpha: float) -> None:
    bound = math.e / (math.e - 1 + alpha)
    draws = [draw_z(alpha, (draw + 0.5) / 40) for draw in range(40)]
    thresholds = {z: math.inf if z == math.inf else math.floor(z / PRICE + 1e-9) for z in draws}
    for demand in demands(alpha):
        costs = {least: cost(demand, alpha, z) for z, least in thresholds.items()}
        if any(demand):
            assert np.mean([costs[thresholds[z]] for z in draws]) / optimum(demand, alpha) <= bound + PRICE


@pytest.mark.parametrize("alpha", [0.3, 0.49])
def test_an_atom_at_the_break_even_instead_of_never_breaks_the_ratio(alpha: float) -> None:
    bound, draws = math.e / (math.e - 1 + alpha), [draw_z(alpha, (draw + 0.5) / 40) for draw in range(40)]
    demand = [1] * (math.floor(break_even(alpha) / PRICE + 1e-9) + 1)
    wrong = np.mean([cost(demand, alpha, min(z, break_even(alpha))) for z in draws]) / optimum(demand, alpha)
    right = np.mean([cost(demand, alpha, z) for z in draws]) / optimum(demand, alpha)
    assert right <= bound + PRICE < wrong


def test_thresholds_are_drawn_by_their_law() -> None:
    for alpha in ALPHAS:
        drawn = [draw_z(alpha, (draw + 0.5) / 4000) for draw in range(4000)]
        finite = [z for z in drawn if z < math.inf]
        assert 1 - len(finite) / 4000 == pytest.approx(alpha / (math.e - 1 + alpha), abs=1e-3)
        assert max(finite) < break_even(alpha) and finite == sorted(finite)
        half = sum(z < break_even(alpha) / 2 for z in finite) / 4000
        assert half == pytest.approx((math.exp(0.5) - 1) / (math.e - 1 + alpha), abs=1e-3)


def test_it_reserves_in_the_slot_that_passes_the_threshold_and_counts_phantoms() -> None:
    online = Online(0.0, 0.25, 8, 1.0)
    assert [online.reserve(2) for _ in range(6)] == [0, 0, 0, 0, 2, 0]
    assert [online.reserve(2) for _ in range(12)] == [0] * 10 + [2, 0], "five slots after those reserved ended"
    never = Online(0.5, 0.25, 8, math.inf)
    assert [never.reserve(9) for _ in range(50)] == [0] * 50


def test_the_least_number_that_few_enough_exceed() -> None:
    for values, allowed in product(((3.0, 1.0, 1.0, -2.0), (0.0,), (2.5, 2.5, 0.1)), range(4)):
        found = excess_quantile(np.array(values), allowed)
        assert sum(value > found for value in values) <= allowed
        assert found == 0 or sum(value > found - 1 for value in values) > allowed


@pytest.mark.parametrize("wrong", [(1.0, 0.1, 3, 1.0), (-0.1, 0.1, 3, 1.0), (0.0, 0.0, 3, 1.0), (0.0, 0.1, 0, 1.0)])
def test_a_deal_that_is_none_is_refused(wrong: tuple[float, float, int, float]) -> None:
    with pytest.raises(ValueError, match="alpha"):
        Online(*wrong)
