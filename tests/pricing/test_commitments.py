"""What is recommended for one pool: on what it rests, that it never costs more on its evidence, and that prices only scale it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.commitments import Held, Recommendation, recommend
from pricing.commitments_evidence import Evidence, bootstrap
from pricing.commitments_model import Deal, History
from pricing.commitments_own import ON, expected_coverage, target
from pricing.errors import PricingError
from tests.support.demand import plateaus

RATE, LIST = Fraction(63, 100), Fraction(1)


def told(history: np.ndarray, **options: Any) -> Recommendation:  # noqa: ANN401
    return recommend(history, options.pop("rate", RATE), options.pop("on_demand", LIST), **{"term_days": 365, **options})


def test_a_steady_pool_is_covered_on_top_of_what_is_owned() -> None:
    one = told(np.full(24 * 90, 10.0), held=[Held(3, 20), Held(1, None), Held(5, 0)])
    assert (one.count, one.target, one.owned, one.expiring) == (6, 10, 4, 3)
    assert one.saving_per_month == 6 * (LIST - RATE) * 730 == one.saving_range[0] == one.saving_range[1]
    assert (one.break_even_utilisation, one.break_even_hours_per_month) == (RATE, Fraction("459.9"))
    assert one.utilisation == 1 and one.known_hours == 24 * 90 and one.look_backs == {7: 10, 30: 10, 60: 10}
    assert "63 %" in one.reasons[0] and any("4 times as long as the 90 days" in risk for risk in one.risks)
    assert any("3 of the 4 owned end within the term" in risk for risk in one.risks)
    assert told(np.full(24 * 90, 10.0), held=[Held(12, None)]).reasons == ("The 12 owned cover what pays off.",)
    ending = told(np.full(24 * 90, 10.0), held=[Held(6, 20), Held(6, 200)])
    assert ending.reasons == ("The 12 owned cover what pays off; 6 of them end within 31 days: look again then.",)


def test_the_clouds_rule_is_there_to_compare_with() -> None:
    history = np.concatenate([np.full(24 * 20, 2.0), np.full(24 * 15, 20.0)])
    clouds, one = told(history, policy="look-back-7d", rate=Fraction(2, 5)), told(history, rate=Fraction(2, 5))
    assert clouds.count == 20 > one.count >= 2, "it takes a week for a year"
    later = told(np.concatenate([np.full(24 * 60, 2.0), np.full(24 * 8, 20.0)]))
    assert later.look_backs == {7: 20, 30: 2, 60: 2} and later.count == 2
    assert any("disagree with 2 (last 7 days 20, 30 days 2, 60 days 2)" in risk for risk in later.risks)


def test_the_real_alternative_decides_and_not_the_list_price() -> None:
    history = np.full(24 * 90, 10.0)
    on_spot = told(history, alternative=Fraction(3, 5))
    assert on_spot.count == 0 and on_spot.reasons == ("The commitment costs as much as an hour without it, or more.",)
    half = told(history, alternative=Fraction(4, 5))
    assert half.count == 10 and half.saving_per_month == 10 * (Fraction(4, 5) - RATE) * 730
    assert half.break_even_utilisation == RATE / Fraction(4, 5)
    assert told(history, alternative=Fraction(2)).alternative == LIST, "nobody pays more than on demand"


@pytest.mark.parametrize("rate", [LIST, LIST * 2])
def test_nothing_is_bought_at_or_above_on_demand(rate: Fraction) -> None:
    one = told(np.full(24 * 90, 10.0), rate=rate)
    assert (one.count, one.saving_per_month, one.saving_range) == (0, 0, (0, 0))


def test_too_short_a_history_and_a_pool_at_rest_are_told_as_such() -> None:
    short = told(np.full(24 * 6 + 23, 10.0))
    assert short.count == 0 and short.reasons == ("Only 6 days are known; a commitment needs 7 or more to rest on.",)
    assert told(np.zeros(0)).reasons[0].startswith("Only 0 days") and told(np.zeros(0)).utilisation is None
    assert told(np.zeros(24 * 30)).reasons[0].startswith("No further node is expected to run for more than 63 %")
    over = told(np.concatenate([np.full(24 * 80, 10.0), np.zeros(24 * 10)]))
    assert over.count == 0, "what ended is not bought, however long it ran"


def test_unknown_hours_are_left_out_and_not_taken_for_idle() -> None:
    history, known = np.full(24 * 120, 10.0), np.ones(24 * 120, bool)
    known[24 * 20 : 24 * 50] = False
    known[::9] = False
    history[~known] = np.nan
    one = told(history, known=known)
    assert one.count == 10 and one.known_hours == known.sum() and one.saving_per_month == 10 * (LIST - RATE) * 730
    assert any("33 % of the hours are not known" in risk for risk in one.risks)
    idle = told(np.where(known, history, 0.0))
    assert idle.saving_per_month < one.saving_per_month


def test_a_pool_that_has_grown_is_judged_by_its_last_two_months_but_never_at_a_loss_over_all() -> None:
    history = np.concatenate([np.full(24 * 120, 4.0), np.full(24 * 70, 10.0)])
    one = told(history)
    assert 4 < one.count <= 10 and one.saving_per_month > 0
    assert any("it had 37 % (100 % in the last 60 days)" in risk for risk in one.risks)
    risen = told(np.concatenate([np.zeros(24 * 300), np.full(24 * 62, 10.0)]), term_days=28)
    assert risen.count == 0 and risen.reasons[0].startswith("What is needed now was not needed for long enough")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rate": Fraction(0)}, "A commitment at 0 against 1 an hour: both must be more than 0"),
        ({"on_demand": Fraction(-1)}, "both must be more than 0"),
        ({"term_days": 0}, "A term of 0 days"),
        ({"known": np.ones(3, bool)}, "as many flags"),
        ({"policy": "magic"}, "There is no policy 'magic'"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PricingError, match=sentence):
        told(np.full(24 * 30, 2.0), **options)
    for wrong in (np.full(48, np.nan), np.full(48, -1.0), np.full(48, np.inf), np.zeros((2, 24))):
        with pytest.raises(PricingError, match="The history of a pool"):
            told(wrong)


pools = st.builds(
    lambda seed, days, most: plateaus(days, seed, most), st.integers(0, 500), st.integers(8, 60), st.sampled_from([4, 12, 40])
)


@settings(max_examples=40, deadline=None)
@given(
    history=pools, rate=st.sampled_from([20, 35, 55, 63, 70, 95]), term=st.sampled_from([7, 28, 365, 1095]),
    owned=st.integers(0, 5), factor=st.sampled_from([Fraction(1, 7), Fraction(3), Fraction(1000)]),
)  # fmt: skip
def test_advice_never_costs_more_on_its_evidence_and_scales_with_the_prices(
    history: np.ndarray, rate: int, term: int, owned: int, factor: Fraction
) -> None:
    price = Fraction(rate, 100)
    one = told(history, rate=price, term_days=term, held=[Held(owned, 30)])
    used = Fraction(sum(min(max(0, Fraction(hour) - owned), one.count) for hour in history))
    assert one.saving_per_month == (used / len(history) - price * one.count) * 730 >= 0
    assert (one.saving_per_month > 0) == (one.count > 0)
    assert one.saving_range[0] <= one.saving_per_month <= one.saving_range[1]
    other = told(history, rate=price * factor, on_demand=factor, term_days=term, held=[Held(owned, 30)])
    assert (other.count, other.saving_per_month) == (one.count, one.saving_per_month * factor)
    assert other.saving_range == tuple(bound * factor for bound in one.saving_range)


@settings(max_examples=40, deadline=None)
@given(history=pools, term=st.sampled_from([7, 28, 365]))
def test_a_cheaper_commitment_is_never_wanted_less_down_to_half_the_price_and_coverage_is_a_share(
    history: np.ndarray, term: int
) -> None:
    past = History.of(history)
    ratios = (ON, 0.6, 0.7, 0.8, 0.99, 1.0)  # below, what counts as a day that a level is on depends on the ratio
    wanted = [target(past, Deal(term, ratio)) for ratio in ratios]
    assert wanted == sorted(wanted, reverse=True) and wanted[-1] == 0
    expected = expected_coverage(past, Deal(term, 0.63))
    assert ((expected >= 0) & (expected <= 1)).all()


def test_a_level_deep_under_the_demand_is_trusted_more_than_one_at_its_surface() -> None:
    rng = np.random.default_rng(3)
    history = np.repeat(40 + rng.integers(-8, 9, 40), 24).astype(float)
    expected = expected_coverage(History.of(history), Deal(14, 0.63))
    assert expected[5] > expected[25] > expected[int(history[-1]) - 1] > 0


def test_a_weekend_is_no_end_of_a_level_for_a_term_of_a_year() -> None:
    week = np.repeat([20.0] * 5 + [4.0] * 2, 24)
    friday, sunday = (told(np.tile(week, 30)[: 24 * (7 * 29 + day)]).count for day in (5, 7))
    assert friday == sunday == 20, "five days of seven are more than 63 %"


def test_the_interval_is_of_whole_weeks_where_there_are_eight_and_the_same_each_time() -> None:
    week = np.repeat([20.0] * 5 + [4.0] * 2, 24)
    assert bootstrap(np.tile(week, 8)) == (week.mean(), week.mean())
    low, high = bootstrap(np.tile(week, 7))
    assert low < week.mean() < high and bootstrap(np.tile(week, 7)) == (low, high)
    assert bootstrap(week[:47]) == ()
    assert Evidence(np.zeros(0), 0, RATE, LIST).paying(0) == 0
