"""Forecasts: never below what is spent, always inside their interval, and measured on real days."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.forecast import LEAST_DAYS, month_end
from tests.support.examples import examples

ONE = Fraction(1)
PHILLY = Path(__file__).resolve().parents[3] / "shared" / "data" / "usage" / "philly_2017_jobs.csv.gz"


def days(*amounts: int | float) -> list[Fraction]:
    return [Fraction(amount) for amount in amounts]


@given(
    st.fractions(0, 10**6),
    st.lists(st.fractions(-100, 10**6), max_size=120),
    st.lists(st.fractions(0, 1), max_size=31),
)
@settings(max_examples=examples(60), deadline=None)
def test_low_expected_and_high_are_in_order_and_never_below_what_is_spent(
    spent: Fraction, history: list[Fraction], left: list[Fraction]
) -> None:
    found = month_end(spent, history, left)
    assert found == month_end(spent, list(history), tuple(left)), "the same days give the same forecast"
    if found.expected is None:
        assert found.low is None and found.high is None and found.reason
        assert found.history_days < LEAST_DAYS
        return
    assert found.low is not None and found.high is not None and found.reason is None
    assert spent <= found.low <= found.expected <= found.high
    assert found.expected == spent + sum(found.daily) and len(found.daily) == len(left)


def test_a_short_history_has_no_forecast_but_a_reason() -> None:
    assert month_end(ONE, [], [ONE]).reason == "there are only 0 whole days with cost; a forecast needs 7."
    assert month_end(ONE, days(0, 0, 0, 0, 0, 0, 0, 0, 5), [ONE]).reason == (
        "there is only 1 whole day with cost; a forecast needs 7."
    ), "days before the first cost are no history"
    assert month_end(ONE, days(*[5] * 7), [ONE]).expected is not None


def test_a_month_that_is_over_is_known() -> None:
    found = month_end(Fraction(7, 3), days(*[1] * 30), [Fraction(0)])
    assert (found.low, found.expected, found.high) == (Fraction(7, 3),) * 3
    assert month_end(ONE, [], []).expected == 1


def test_an_even_cost_goes_on() -> None:
    found = month_end(Fraction(100), days(*[10] * 40), [Fraction(1, 2), *[ONE] * 9])
    assert found.expected == 195 and found.daily[0] == 5
    assert found.low is not None and found.high is not None and found.low > 180 and found.high < 215


def test_weekdays_are_known() -> None:
    week = [100, 100, 100, 100, 100, 10, 10]
    found = month_end(Fraction(0), days(*week * 8), [ONE] * 7)
    expected = [float(day) for day in found.daily]
    assert max(expected[5:]) < 50 < min(expected[:5])
    shifted = month_end(Fraction(0), days(*(week * 9)[3:-4]), [ONE] * 7)
    assert [day < 50 for day in shifted.daily] == [False, False, True, True, False, False, False]


def test_growth_is_followed_but_fades_out() -> None:
    rising = month_end(Fraction(0), days(*range(10, 66)), [ONE] * 20)
    assert float(rising.daily[3]) > 62 and float(rising.daily[-1]) < 80
    assert float(rising.daily[-1]) - float(rising.daily[10]) < 1
    falling = month_end(Fraction(0), days(*range(66, 10, -1)), [ONE] * 20)
    assert all(day >= 0 for day in falling.daily) and falling.daily[5] < 15


def test_restless_days_have_a_wider_interval_than_even_ones() -> None:
    rng = Random(5)
    even = month_end(Fraction(0), days(*[100 + rng.randrange(-3, 4) for _ in range(60)]), [ONE] * 10)
    restless = month_end(Fraction(0), days(*[100 + rng.randrange(-90, 91) for _ in range(60)]), [ONE] * 10)
    assert even.high and even.low and restless.high and restless.low
    assert (restless.high - restless.low) > 2 * (even.high - even.low)


def test_nothing_for_a_month_is_expected_to_stay_nothing_but_may_come_back() -> None:
    found = month_end(Fraction(3), days(*[50] * 20, *[0] * 40), [ONE] * 5)
    assert found.expected is not None and found.high is not None
    assert found.expected < Fraction(31, 10) and found.high > 3 + 2 * (found.expected - 3)


def philly_days() -> dict[str, list[float]]:
    """GPU-hours a day of the cluster and its tenants, without the weeks in which the trace fills and ends."""
    found: dict[str, defaultdict[date, float]] = defaultdict(lambda: defaultdict(float))
    with gzip.open(PHILLY, "rt") as file:
        for row in csv.DictReader(file):
            at, left = datetime.fromisoformat(row["timestamp"]), float(row["duration"])
            while left > 0:
                midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time())
                part = min(left, (midnight - at).total_seconds())
                for name in ("all", row["cluster"]):
                    found[name][at.date()] += part * float(row["num_gpus"]) / 3600
                at, left = midnight, left - part
    first, last = date(2017, 10, 1), date(2017, 12, 15)
    return {
        name: [amounts[first + timedelta(days=place)] for place in range((last - first).days)]
        for name, amounts in found.items()
    }


@pytest.mark.skipif(not PHILLY.exists(), reason="no ../shared/data/usage beside the project")
def test_the_interval_holds_what_it_promises_on_real_gpu_hours() -> None:
    inside = cases = 0
    error = usual = 0.0
    tenants = philly_days()
    for name in ("all", "6214e9", "ee9e8c", "b436b2", "103959"):
        amounts = [Fraction(amount) for amount in tenants[name]]
        for place in range(LEAST_DAYS, len(amounts), 3):
            for ahead in (3, 7, 14, 24):
                if place + ahead > len(amounts):
                    continue
                found = month_end(Fraction(0), amounts[:place], [ONE] * ahead)
                if found.expected is None or found.low is None or found.high is None:
                    continue
                came = sum(amounts[place : place + ahead])
                inside += found.low <= came <= found.high
                cases += 1
                if name == "all":
                    error += abs(float(found.expected - came)) / ahead
                    usual += float(came) / ahead
    assert cases > 350
    assert 0.78 <= inside / cases <= 0.95, f"{inside} of {cases} lay inside"
    assert error / usual < 0.25, f"the cluster as a whole was off by {error / usual:.0%}"
