"""Rules of commitment on recorded demand: published figures, causality, the clairvoyant under all, and scaling."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.commitments_backtest import backtest, cost, first_day, mean_and_error, purchases
from pricing.commitments_lp import clairvoyant
from pricing.commitments_model import Deal, History
from pricing.commitments_policies import STANDARD, rules
from pricing.demand_series import openb_series, philly_series
from pricing.errors import UnknownPolicy
from pricing.traces import OPENB_START, openb_pods, philly_jobs
from tests.support.demand import plateaus
from tests.support.examples import examples

DATA = Path(__file__).parents[3] / "shared" / "data" / "usage"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the traces are not here: ../shared/data/usage")
RATIOS = (0.7, 0.63, 0.55, 0.35)
ALL = {name: rules(name) for name in STANDARD}
PUBLISHED = ("look-back-7d", "look-back-14d", "look-back-28d", "least-look-back", "online", "spell", "spell-dp")
GOLDEN = {
    ("ee9e8c", 28, 0.63): (
        195884, 145806.48, 173837.00, 176912.32, 175230.48, 170144.36, 164172.08, 167233.64, 161959.92,
    ),
    ("6c71a0", 28, 0.63): (52152, 44022.76, 50168.56, 50582.68, 50519.24, 47587.88, 48951.96, 47506.28, 45441.68),
    ("6214e9", 14, 0.55): (59196, 43669.40, 50430.40, 49760.00, 49121.20, 50413.40, 50484.60, 49544.80, 48023.60),
}  # fmt: skip
"""On demand, clairvoyant, then `PUBLISHED`, from day 14 on."""


@cache
def philly() -> Mapping[str, np.ndarray]:
    return {one.name: one.counts for one in philly_series(philly_jobs(DATA / "philly_2017_jobs.csv.gz"))}


@cache
def openb() -> Mapping[str, np.ndarray]:
    return {one.name: one.counts for one in openb_series(openb_pods(DATA / "openb_2023_pods.csv.gz"), OPENB_START)}


@needs_data
@pytest.mark.parametrize(("name", "term", "ratio"), GOLDEN)
def test_the_published_costs_come_out_to_the_cent(name: str, term: int, ratio: float) -> None:
    chosen = {policy: ALL[policy] for policy in PUBLISHED}
    results = backtest(chosen, name, philly()[name], Deal(term, ratio), 14)
    told = (results[0].on_demand, results[0].clairvoyant, *(one.cost for one in results[:-1]))
    assert told == pytest.approx(GOLDEN[name, term, ratio], abs=0.005)


def own_ratios(series: Mapping[str, np.ndarray], terms: tuple[int, ...]) -> dict[str, list[tuple[float, bool]]]:
    found: dict[str, list[tuple[float, bool]]] = {}
    for (name, counts), term, ratio in itertools.product(series.items(), terms, RATIOS):
        start = first_day(len(counts) // 24)
        own, _ = backtest({"rackrate": ALL["rackrate"]}, name, counts, Deal(term, ratio), start)
        found.setdefault(name, []).append((own.ratio or 0, own.dearer))
    return found


@needs_data
def test_our_rule_costs_little_more_than_the_optimum_on_philly_and_openb_and_is_seldom_dearer_than_on_demand() -> None:
    long, short = own_ratios(philly(), (28,)), own_ratios(openb(), (14,))
    clusters = [one for name, found in long.items() if name != "ALL" for one in found]
    pooled = [*long["ALL"], *(one for found in short.values() for one in found)]
    assert np.mean([ratio for ratio, _ in clusters]) < 1.13
    assert np.mean([ratio for ratio, _ in pooled]) < 1.10
    assert np.mean([dearer for _, dearer in (*clusters, *pooled)]) <= 0.05


FROZEN = {
    "rackrate": 7382.0, "look-back-7d": 7626.2, "look-back-14d": 7709.0, "look-back-28d": 7631.8,
    "least-look-back": 7520.8, "spell": 7514.4, "spell-dp": 7514.4, "online": 8300.0, "online-random": 7940.57,
    "on-demand": 10702.0, "peak": 7948.8, "clairvoyant": 7026.2,
}  # fmt: skip


def test_a_made_up_series_costs_what_it_cost_before() -> None:
    results = backtest(ALL, "made up", plateaus(60), Deal(14, 0.6), 14)
    assert {one.policy: round(one.cost, 2) for one in results} == FROZEN
    assert all(one.cost >= one.clairvoyant - 1e-6 and one.on_demand == results[0].on_demand for one in results)
    assert [one.dearer for one in results if one.policy == "on-demand"] == [False]


@pytest.mark.parametrize("tail", ["truncate", "mature"])
@pytest.mark.parametrize("seed", range(3))
def test_the_clairvoyant_is_under_every_rule(seed: int, tail: str) -> None:
    for deal in (Deal(7, 0.7), Deal(14, 0.35), Deal(30, 0.5)):
        for one in backtest(ALL, "made up", plateaus(45, seed), deal, 14, tail):
            assert one.cost >= one.clairvoyant - 1e-6, (one.policy, deal)


def test_the_clairvoyant_equals_the_cheapest_of_all_purchases_there_are() -> None:
    for seed, term in itertools.product(range(4), (1, 2, 3)):
        counts, deal = plateaus(4, seed, most=2), Deal(term, 0.55)
        every = itertools.product(range(3), repeat=4)
        best = min(cost(counts, np.array(bought), deal, 0) for bought in every)
        found = clairvoyant(counts, deal)
        assert found.cost == pytest.approx(best) == cost(counts, found.purchases, deal, 0)


def test_no_rule_sees_an_hour_before_it_has_passed() -> None:
    counts, deal = plateaus(50), Deal(14, 0.6)
    for day in (20, 33):
        scrambled = counts.copy()
        np.random.default_rng(day).shuffle(scrambled[day * 24 :])
        scrambled[day * 24 + 5] = 400
        for name, (rule, *_) in ALL.items():
            before, after = (purchases(rule, one, deal, 14)[: day + 1] for one in (counts, scrambled))
            assert (before == after).all(), name


def test_purchases_end_where_a_term_would_not_be_paid_in_full() -> None:
    for rule, *_ in ALL.values():
        assert not purchases(rule, plateaus(40), Deal(14, 0.6), 7, "mature")[27:].any()
    last = purchases(ALL["peak"][0], plateaus(40), Deal(14, 0.6), 7, "mature")
    assert last[:27].any()


@pytest.mark.parametrize("ratio", [1.0, 1.2])
def test_our_rule_never_buys_at_or_above_the_price_of_an_hour_without(ratio: float) -> None:
    for counts in (plateaus(40), np.full(960, 9.0)):
        assert not purchases(ALL["rackrate"][0], counts, Deal(14, ratio), 7).any()
        assert not clairvoyant(counts, Deal(14, ratio)).purchases.any()


@settings(max_examples=examples(60), deadline=None)
@given(
    hours=st.lists(st.integers(0, 9), min_size=24, max_size=24 * 3),
    days=st.integers(1, 3),
    ratio=st.sampled_from([0.25, 0.35, 0.5, 0.63, 0.75, 0.9]),
)
def test_the_look_back_rule_is_what_an_exhaustive_search_over_all_candidates_finds(
    hours: list[int], days: int, ratio: float
) -> None:
    counts = np.array(hours[: len(hours) // 24 * 24], float)
    window = counts[-24 * days :]
    costs = [ratio * count * len(window) + np.maximum(0, window - count).sum() for count in range(11)]
    searched = min(count for count, paid in enumerate(costs) if paid <= min(costs) + 1e-9)
    rule = rules(f"look-back-{days}d")[0].begin(Deal(1, ratio))
    assert rule.buy(History.of(counts), np.zeros(1, int)) == searched
    assert rule.buy(History.of(counts), np.array([2])) == max(0, searched - 2)


def test_a_rule_of_no_name_is_refused_with_those_there_are() -> None:
    assert rules("LOOK_BACK_30D")[0].name == "look-back-30d"
    for name in ("magic", "look-back-0d", "look-back-d", ""):
        with pytest.raises(UnknownPolicy, match="There is no policy '.*rackrate, look-back-7d"):
            rules(name)


def test_the_first_day_and_the_errors_of_means() -> None:
    assert [first_day(days) for days in (41, 40, 8)] == [14, 7, 7]
    assert mean_and_error([2.0]) == (2.0, None)
    assert mean_and_error([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1 / 3**0.5))


def test_a_pool_of_thousands_is_decided_in_coarser_steps() -> None:
    counts = plateaus(30) * 1000
    big, small = (History.of(counts / divisor) for divisor in (1, 4))
    assert big.unit > 1 == small.unit
    deal = Deal(14, 0.5)
    one, other = (ALL["rackrate"][0].begin(deal).buy(history, np.zeros(14, int)) for history in (big, small))
    assert abs(one / 4 - other) <= big.unit
