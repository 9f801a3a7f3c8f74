"""The fitted market: what is remembered, and that a fit finds what a market was drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from pricing.spot import UNKNOWN, Decision, Job
from pricing.spot_expected import drawn
from pricing.spot_hazard import SHIPPED, Memory, SpotModel, fit
from pricing.spot_solve import solve

JOB = Job(160 * 3_600_000, 200 * 3_600_000, 0, 600_000, 3.06, 0.9731)


def test_the_share_starts_at_the_prior_and_follows_what_is_seen() -> None:
    memory = Memory(SHIPPED, 2)
    assert memory.share == pytest.approx(SHIPPED.prior_share)
    for _ in range(6 * 400):
        memory.observe(np.array([1, 0], np.uint8), 600_000)
    assert memory.share == pytest.approx([1, 0], abs=1e-3)
    assert memory.age_hours == pytest.approx(SHIPPED.first_age_hours + 400 - 1 / 6, abs=1e-6)


def test_an_unknown_tick_teaches_nothing_and_ends_no_spell() -> None:
    memory = Memory(SHIPPED, 1)
    for state in (0, 1, 1):
        memory.observe(np.array([state], np.uint8), 3_600_000)
    share, age = memory.share.copy(), memory.age_hours.copy()
    memory.observe(np.array([UNKNOWN], np.uint8), 3_600_000)
    assert memory.share == pytest.approx(share) and memory.age_hours == pytest.approx(age + 1)
    memory.observe(np.array([1], np.uint8), 3_600_000)
    assert memory.age_hours == pytest.approx(age + 2)
    memory.observe(np.array([0], np.uint8), 3_600_000)
    assert memory.age_hours == pytest.approx(0)


def test_a_fit_finds_the_market_that_the_traces_were_drawn_from() -> None:
    states = drawn(SHIPPED, JOB, 24, 1).states
    found = fit([(row, 1 / 6) for row in states], "drawn")
    for available in (True, False):
        ages, shares = np.array([0.1, 0.5, 2.0, 6.0]), np.array([0.6, 0.6, 0.8, 0.4])
        assert found.hazard(available, ages, shares) == pytest.approx(SHIPPED.hazard(available, ages, shares), rel=0.25)
    assert found.source == "drawn"


def test_a_market_of_two_figures_has_constant_hazards() -> None:
    model = SpotModel.of_hazard(0.3, 2.0)
    assert model.hazard(True, np.array([0.0, 9.0]), np.array([0.1, 0.9])) == pytest.approx([0.3, 0.3])
    assert model.hazard(False, np.array([0.0, 9.0]), np.array([0.1, 0.9])) == pytest.approx([0.5, 0.5])
    with pytest.raises(ValueError, match="above 0"):
        SpotModel.of_hazard(0.0, 1.0)


def test_unknown_ticks_are_no_ends_of_spells_in_a_fit() -> None:
    rng = np.random.default_rng(0)
    states = (np.cumsum(rng.random(4000) < 0.1) % 2).astype(np.uint8)
    holes = states.copy()
    holes[::50] = UNKNOWN
    whole, holed = (fit([(one, 1 / 6)], "x") for one in (states, holes))
    ages, shares = np.array([0.5]), np.array([0.5])
    assert holed.hazard(True, ages, shares) == pytest.approx(whole.hazard(True, ages, shares), rel=0.1)


def test_where_no_spell_ends_there_is_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="no available spell ends"):
        fit([(np.zeros(100, np.uint8), 1 / 6)], "x")
    with pytest.raises(ValueError, match="no available spell ends"):
        fit([], "x")


def test_a_plan_waits_for_spot_and_leaves_alone_spot_that_does_not_last() -> None:
    job = Job(8 * 3_600_000, 12 * 3_600_000, 720_000, 600_000, 3.06, 0.9731)
    waits = (12.0, np.array([4.0]), np.array([False]), np.array([False]), np.array([0.5]), np.array([0.5]))
    assert solve(job, SpotModel.of_hazard(0.2, 0.3)).look_up(*waits)[0] == Decision.IDLE
    there = (12.0, np.array([0.5]), np.array([True]), np.array([True]), np.array([0.5]), np.array([0.5]))
    assert solve(job, SpotModel.of_hazard(0.05, 1.0)).look_up(*there)[0] == Decision.SPOT
    assert solve(job, SpotModel.of_hazard(5.0, 1.0)).look_up(*there)[0] == Decision.ON_DEMAND
