"""Spot policies: the same hours as a slow loop, never late, never with knowledge of the future, never below the optimum."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.errors import ImpossibleDeadline, SpotJobError
from pricing.spot import (
    AVAILABLE,
    HOUR_MS,
    POLICIES,
    UNKNOWN,
    Array,
    Decision,
    Job,
    Policy,
    State,
    expected,
    job_of,
    policy_of,
)
from pricing.spot_backtest import Outcome, Worlds, simulate
from pricing.spot_hazard import SpotModel
from pricing.spot_optimum import optimum
from pricing.spot_own import Rackrate
from tests.support.examples import examples

CAUSAL = [name for name in POLICIES if name != "omniscient"]
MODEL = SpotModel.of_hazard(0.6, 0.7)


def worlds_of(states: Array, history: Array | None = None) -> Worlds:
    return Worlds(states, np.empty((len(states), 0), np.uint8) if history is None else history, np.arange(len(states)))


def random_worlds(seed: int, runs: int, ticks: int, chance: float = 0.2) -> Array:
    """Spells of geometric length."""
    rng = np.random.default_rng(seed)
    flips = rng.random((runs, ticks)) < chance
    return ((np.cumsum(flips, axis=1) + rng.integers(0, 2, (runs, 1))) % 2).astype(np.uint8)


def all_traces(ticks: int) -> Array:
    return np.array(list(product((0, 1), repeat=ticks)), np.uint8)


def job(work: float, deadline: float, changeover: float, tick_ms: int = 600_000, spot: float = 0.9731) -> Job:
    return job_of(
        work_hours=work, deadline_hours=deadline, changeover_hours=changeover, on_demand=3.06, spot=spot, tick_ms=tick_ms
    )


# A second implementation, one run and one tick at a time, on the text of the paper.


def slow(rule: str, trace: list[int], j: Job) -> tuple[int, int, int, int, bool]:
    """(spot ticks, on-demand ticks, work on spot, work on demand, late)."""
    gap, change, ticks = j.tick_ms, j.changeover_ms, j.deadline_ms // j.tick_ms
    work, where, pending, locked = j.work_ms, "idle", 0, False
    used, done = {"spot": 0, "od": 0}, {"spot": 0, "od": 0}
    slice_now, forced = 0, False
    for tick in range(ticks):
        if work <= 0:
            break
        there = trace[tick] == 1
        if where == "spot" and not there:
            where, pending = "idle", 0
        passed, left = tick * gap, (ticks - tick) * gap
        if where != "spot" and -(-(work + 2 * change) // gap) >= left // gap:
            locked = True
        if rule == "greedy":
            wish = "spot" if there else "idle"
        elif rule == "on_demand":
            wish = "od"
        elif rule.startswith("time_sliced"):
            n = int(rule.rsplit("_", 1)[1])
            index = min(n - 1, passed * n // j.deadline_ms)
            if index != slice_now:
                slice_now, forced = index, False
            missing = -(-j.work_ms * (index + 1) // n) - (j.work_ms - work)
            rest = j.deadline_ms * (index + 1) // n - passed
            if where != "spot" and missing + 2 * change > rest - gap:
                forced = True
            forced = forced and missing > 0
            wish = "od" if forced and where != "spot" else "spot" if there else "idle"
        else:
            pace, progress = Fraction(j.work_ms, j.deadline_ms), j.work_ms - work
            if where == "od" and rule == "uniform_progress":
                wish = "spot" if there and progress >= (passed + 2 * change) * pace else "od"
            else:
                wish = "spot" if there else "od" if progress < passed * pace else "idle"
        if locked:
            wish = "od"
        if wish == "idle":
            where, pending = "idle", 0
            continue
        if wish != where:
            where, pending = wish, change
        lost = min(pending, gap)
        pending -= lost
        got = min(work, gap - lost)
        work -= got
        used[where] += 1
        done[where] += got
    return used["spot"], used["od"], done["spot"], done["od"], work > 0


@pytest.mark.parametrize("name", [name for name in CAUSAL if name != "rackrate"])
@pytest.mark.parametrize(("tick_ms", "changeover"), [(600_000, 0.2), (195_000, 0.02), (300_000, 0.4), (3_600_000, 0.5)])
def test_a_policy_does_what_a_slow_loop_on_the_papers_text_does(name: str, tick_ms: int, changeover: float) -> None:
    j = job(6, 8, changeover, tick_ms)
    states = random_worlds(7, 60, j.deadline_ms // tick_ms, 0.1)
    outcome = simulate(policy_of(name), worlds_of(states), j)
    columns = (outcome.spot_ticks, outcome.on_demand_ticks, outcome.spot_work_ms, outcome.on_demand_work_ms, outcome.late)
    assert [tuple(row) for row in zip(*(column.tolist() for column in columns), strict=True)] == [
        slow(name, row.tolist(), j) for row in states
    ]


def least_cost(trace: tuple[int, ...], j: Job) -> float:
    """By trying everything."""

    @cache
    def best(tick: int, where: int, pending: int, work: int) -> float:
        if work <= 0:
            return 0.0
        if tick == len(trace):
            return float("inf")
        if where == Decision.SPOT and not trace[tick]:
            where, pending = Decision.IDLE, 0
        costs = [best(tick + 1, Decision.IDLE, 0, work)]
        for kind, price in ((Decision.SPOT, j.spot), (Decision.ON_DEMAND, j.on_demand)):
            if kind == Decision.SPOT and not trace[tick]:
                continue
            due = pending if kind == where else j.changeover_ms
            lost = min(due, j.tick_ms)
            costs.append(price * j.tick_ms / HOUR_MS + best(tick + 1, kind, due - lost, work - (j.tick_ms - lost)))
        return min(costs)

    return best(0, Decision.IDLE, 0, j.work_ms)


@pytest.mark.parametrize(("work", "changeover"), [(0.8, 0.2), (0.5, 0.1), (0.9, 0.05), (0.6, 0.3), (1.0, 0.0)])
def test_the_omniscient_optimum_is_the_least_of_all_that_could_have_been_done(work: float, changeover: float) -> None:
    j = job(work, 8.5 / 6, changeover)
    states = all_traces(8)[::3]
    outcome, exact = optimum(states, j)
    assert exact
    assert outcome.cost(j) == pytest.approx([least_cost(tuple(row.tolist()), j) for row in states], abs=1e-9)
    assert (outcome.spot_work_ms + outcome.on_demand_work_ms == j.work_ms).all()


@pytest.mark.parametrize(("tick_ms", "changeover", "exact"), [(600_000, 0.2, True), (195_000, 0.4, True), (600_000, 0.123456, False)])
def test_no_policy_is_cheaper_than_the_omniscient_optimum(tick_ms: int, changeover: float, exact: bool) -> None:
    j = job(5, 7, changeover, tick_ms)
    states = random_worlds(3, 60, j.deadline_ms // tick_ms)
    least, told = optimum(states, j)
    assert told is exact
    for name in CAUSAL:
        assert (simulate(policy_of(name), worlds_of(states), j).cost(j) >= least.cost(j) - 1e-9).all(), name


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize(
    ("work", "changeover", "ticks"),
    [(0.9, 0.2, 11), (1.0, 0.4, 11), (0.25, 0.5, 11), (1.33, 0.02, 11), (1.5, 0.3, 11), (1.8, 0.0, 11), (0.05, 0.45, 9)],
)
def test_nobody_is_ever_late_whatever_spot_does(name: str, work: float, changeover: float, ticks: int) -> None:
    """Every possible trace of this length: spot goes at the worst tick, comes for one tick, never comes."""
    j = job(work, ticks / 6, changeover)
    outcome = simulate(policy_of(name), worlds_of(all_traces(ticks)), j)
    assert not outcome.late.any()
    assert (outcome.spot_work_ms + outcome.on_demand_work_ms == j.work_ms).all()


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_possible_deadline_is_met_for_any_tick_work_changeover_and_trace(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(CAUSAL))
    tick_ms = data.draw(st.integers(1_000, 2_000_000))
    ticks = data.draw(st.integers(1, 60))
    changeover = data.draw(st.integers(0, 3 * tick_ms))
    most = ticks * tick_ms - changeover
    if most < 1:
        return
    work = data.draw(st.integers(1, most))
    more = data.draw(st.integers(0, tick_ms - 1))
    j = Job(work, ticks * tick_ms + more, changeover, tick_ms, 3.06, data.draw(st.sampled_from([0.3, 0.9731, 3.0])))
    states = np.array(data.draw(st.lists(st.lists(st.integers(0, 2), min_size=ticks, max_size=ticks), min_size=1, max_size=8)), np.uint8)
    assert not simulate(policy_of(name), worlds_of(states), j).late.any()


@pytest.mark.parametrize("name", CAUSAL)
def test_the_future_changes_no_decision(name: str) -> None:
    j = job(6, 8, 0.2)
    ticks, cut = 48, 20
    states = random_worlds(5, 40, ticks)
    other = states.copy()
    other[:, cut:] = 1 - other[:, cut:]
    assert (recorded(name, states, j)[:cut] == recorded(name, other, j)[:cut]).all()


def recorded(name: str, states: Array, j: Job) -> Array:
    policy, choices = policy_of(name), list[Array]()
    choose: Callable[..., Array] = policy.choose

    def keep(look: object) -> Array:
        choices.append(choose(look))
        return choices[-1]

    policy.choose = keep  # type: ignore[method-assign]
    simulate(policy, worlds_of(states), j)
    return np.array(choices)


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("spot", [3.06, 4.0])
def test_spot_that_is_not_cheaper_is_never_used(name: str, spot: float) -> None:
    j = job(4, 6, 0.2, spot=spot)
    outcome = simulate(policy_of(name), worlds_of(random_worlds(1, 50, 36)), j)
    assert not outcome.spot_ticks.any() and not outcome.late.any()


@pytest.mark.parametrize("name", CAUSAL)
def test_an_unknown_tick_is_no_spot(name: str) -> None:
    j = job(4, 6, 0.2)
    states = random_worlds(2, 50, 36)
    unknown = states.copy()
    unknown[:, 10:20] = UNKNOWN
    absent = np.where(unknown == UNKNOWN, 0, unknown).astype(np.uint8)
    with_gap, without = (simulate(policy_of(name), worlds_of(one), j) for one in (unknown, absent))
    assert not with_gap.late.any()
    if name != "rackrate":
        assert (with_gap.spot_ticks == without.spot_ticks).all(), "only what is remembered of it differs"


@pytest.mark.parametrize("name", CAUSAL)
def test_a_live_job_decides_as_the_backtest_does(name: str) -> None:
    j = job(6, 8, 0.2)
    states = random_worlds(11, 1, 48)
    outcome, live = simulate(policy_of(name), worlds_of(states), j), policy_of(name)
    assert drive(live, states[0].tolist(), [j.tick_ms] * 48, j) == (int(outcome.spot_ticks[0]), int(outcome.on_demand_ticks[0]), 0)


def drive(policy: Policy, trace: list[int], lengths: list[int], j: Job) -> tuple[int, int, int]:
    """(spot ticks, on-demand ticks, work left) of one live job whose looks are `lengths` apart."""
    policy.start(j)
    left, work, where, pending = j.deadline_ms // j.tick_ms * j.tick_ms, j.work_ms, Decision.IDLE, 0
    used = {Decision.IDLE: 0, Decision.SPOT: 0, Decision.ON_DEMAND: 0}
    for there, length in zip(trace, lengths, strict=True):
        if where is Decision.SPOT and there != AVAILABLE:
            where, pending = Decision.IDLE, 0
        policy.observe(np.array([there], np.uint8), length)
        decision = policy.decide(State(left, work, where, pending, None if there == UNKNOWN else bool(there)))
        assert decision is not Decision.SPOT or there == AVAILABLE
        pending = 0 if decision is Decision.IDLE else j.changeover_ms if decision is not where else pending
        where, lost = decision, min(pending, length)
        pending -= lost
        work -= 0 if where is Decision.IDLE else min(work, length - lost)
        left -= length
        if work <= 0:
            used[where] += 1
            break
        used[where] += 1
    return used[Decision.SPOT], used[Decision.ON_DEMAND], work


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CAUSAL), st.integers(0, 2**32 - 1), st.floats(0.3, 0.98), st.integers(0, 1_500_000))
def test_a_live_job_with_uneven_looks_is_in_time(name: str, seed: int, tight: float, changeover: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [int(one) for one in rng.integers(1_000, 600_001, size=40)]
    total = sum(lengths)
    work = max(1, int((total - changeover - 600_000) * tight))
    if work + changeover > total - 600_000:
        return
    j = Job(work, total, changeover, 600_000, 3.06, 0.9731)
    policy = policy_of(name)
    policy.start(j)
    trace = [int(one) for one in rng.integers(0, 2, size=40)]
    left, work_left, where, pending = total, work, Decision.IDLE, 0
    for there, length in zip(trace, lengths, strict=True):
        if where is Decision.SPOT and not there:
            where, pending = Decision.IDLE, 0
        policy.observe(np.array([there], np.uint8), length)
        decision = policy.decide(State(left, work_left, where, pending, bool(there)))
        pending = 0 if decision is Decision.IDLE else changeover if decision is not where else pending
        where, lost = decision, min(pending, length)
        pending -= lost
        work_left -= 0 if where is Decision.IDLE else length - lost
        left -= length
        if work_left <= 0:
            return
    raise AssertionError("late")


def test_a_live_job_does_not_start_on_spot_while_its_price_is_above_on_demand() -> None:
    policy = policy_of("greedy")
    policy.start(job(4, 8, 0.2))
    dear = State(8 * HOUR_MS, 4 * HOUR_MS, Decision.IDLE, 0, available=True, spot=3.5)
    assert policy.decide(dear) is Decision.IDLE
    assert policy.decide(State(8 * HOUR_MS, 4 * HOUR_MS, Decision.IDLE, 0, available=True, spot=1.0)) is Decision.SPOT


def test_our_own_policy_uses_the_slack_that_the_papers_net_leaves_unused() -> None:
    """At exactly one changeover of slack and one tick it may still wait; at less it has to go on demand."""
    j = job(2, 2 + 0.2 + 1 / 6 + 1e-9, 0.2, tick_ms=60_000)
    waits = Rackrate(MODEL)
    waits.start(j)
    waits.wish = lambda look: np.zeros(len(look.work_left_ms), np.int8)  # type: ignore[method-assign]
    enough = j.work_ms + j.changeover_ms + j.tick_ms
    assert waits.decide(State(enough, j.work_ms, Decision.IDLE, 0, available=False)) is Decision.IDLE
    assert waits.decide(State(enough - 1, j.work_ms, Decision.IDLE, 0, available=False)) is Decision.ON_DEMAND


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"work_hours": 48, "deadline_hours": 48}, "48.33 h even on demand"),
        ({"work_hours": 48, "deadline_hours": 40}, "cannot be met"),
    ],
)
def test_an_impossible_deadline_says_the_least_time(figures: dict[str, float], said: str) -> None:
    with pytest.raises(ImpossibleDeadline, match=said):
        job_of(**figures, changeover_hours=0.2, on_demand=3.06, spot=0.9731)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"work_hours": 0.0}, "work of 0 h"),
        ({"work_hours": float("nan")}, "work of nan"),
        ({"changeover_hours": -0.1}, "changeover of -0.1"),
        ({"spot": 0.0}, "a price of 0 is unknown"),
        ({"on_demand": float("inf")}, "on-demand price"),
        ({"deadline_hours": 1e9}, "at most"),
    ],
)
def test_a_figure_that_is_none_is_named(wrong: dict[str, float], said: str) -> None:
    figures = {"work_hours": 4.0, "deadline_hours": 6.0, "changeover_hours": 0.2, "on_demand": 3.0, "spot": 1.0} | wrong
    with pytest.raises(SpotJobError, match=said):
        job_of(**figures)


def test_a_policy_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(SpotJobError, match=r"`clever`; there are on_demand, greedy"):
        policy_of("clever")
    assert policy_of("time_sliced(8)").name == "time_sliced_8"


def test_the_best_plan_of_a_known_market_beats_the_rules_in_it() -> None:
    figures = {"work_hours": 12, "deadline_hours": 15, "changeover_hours": 0.2, "on_demand": 3.06, "spot": 0.9731}
    found = {name: expected(name, MODEL, **figures, starts=300) for name in ("rackrate", "uniform_progress", "greedy", "omniscient")}
    assert found["omniscient"].cost < found["rackrate"].cost < found["uniform_progress"].cost < found["greedy"].cost
    assert {one.late_chance for one in found.values()} == {0.0}
    assert found["rackrate"].cost_low < found["rackrate"].cost < found["rackrate"].cost_high < found["rackrate"].on_demand_cost * 1.05
    assert found["rackrate"] == expected("rackrate", MODEL, **figures, starts=300), "the same seed, the same worlds"
    assert "0.6 interruptions an hour" in found["greedy"].source


def test_outcomes_of_parts_come_together_in_their_order() -> None:
    j = job(4, 6, 0.2)
    states = random_worlds(4, 10, 36)
    whole = simulate(policy_of("greedy"), worlds_of(states), j)
    odd, even = (simulate(policy_of("greedy"), worlds_of(states[rows]), j) for rows in (slice(1, None, 2), slice(0, None, 2)))
    order = np.argsort(np.r_[1:10:2, 0:10:2])
    assert (Outcome.joined([odd, even], order).spot_ticks == whole.spot_ticks).all()
