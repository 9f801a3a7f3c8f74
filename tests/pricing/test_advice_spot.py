"""What may run on spot, where, and what it costs once interruptions are counted: never at or above on demand."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing import advice_spot
from pricing.advice_spot import SpotJob, changeover_of, cost_of_work
from pricing.advice_spot_risk import ASSUMED_PER_HOUR, Risk, buckets
from pricing.calendar import milliseconds
from pricing.market import Fetch, Market, SeriesKey
from pricing.market_steps import StepFunction
from pricing.terms import Terms
from tests.pricing.test_advice_commit import flat, owned
from tests.support.buying import G5, P4D, F, case, demand, on_demand, spot

RATES = {P4D: [on_demand("21.957642"), spot("8.2", "use1-az1"), spot("9.0", "use1-az2"), spot("21.957642", "use1-az6")]}
JOB = SpotJob("train", P4D, 1460.0, True, True, 0.3)


def test_without_a_word_on_the_work_it_is_an_if_and_partial() -> None:
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES))
    assert action.what == "if interruptible: run 4 p4d.24xlarge in us-east-1 on spot in use1-az1"
    assert action.partial and action.saving_range[0] == 0 < action.saving_per_month
    assert "not known" in action.risks[0]
    assert "use1-az6" not in action.evidence["zones"], "spot at the on-demand price"  # type: ignore[operator]


def test_known_work_moves_with_its_measured_changeover() -> None:
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"jobs": (JOB,)}))
    assert action.claims == {P4D: Fraction(1460)} and not action.partial
    assert action.evidence["jobs"] == ["train"] and action.evidence["lost_hours_per_interruption"] == 0.55
    assert "measured" in str(action.evidence["lost_hours_source"])
    low, high = action.saving_range
    assert 0 < low < action.saving_per_month < high


@pytest.mark.parametrize("wrong", [{"interruptible": False}, {"checkpoints": False}])
def test_jobs_that_cannot_move_are_not_advised_to(wrong: dict[str, object]) -> None:
    job = JOB._replace(**wrong)
    given_case = case(demand({P4D: flat(4)}), RATES, options={"jobs": (job,)})
    assert advice_spot.actions(given_case) == []
    assert any("none of its jobs is marked" in note for note in advice_spot.notes(given_case))


def test_records_of_little_of_the_work_say_nothing_of_the_rest() -> None:
    job = JOB._replace(interruptible=False, node_hours_per_month=100.0)
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"jobs": (job,)}))
    assert action.partial and action.what.startswith("if interruptible")


def test_jobs_of_which_nobody_says_that_they_write_checkpoints_are_partial() -> None:
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"jobs": (JOB._replace(checkpoints=None),)}))
    assert action.partial and any("write checkpoints" in risk for risk in action.risks)


def test_work_that_must_not_be_interrupted_stays() -> None:
    assert advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"interruptible": 0.0})) == []


def test_spot_at_on_demand_or_dearer_with_its_interruptions_is_never_advised() -> None:
    at_ceiling = {P4D: [on_demand(10), spot(10)]}
    assert advice_spot.actions(case(demand({P4D: flat(4)}), at_ceiling)) == []
    near = {G5: [on_demand("1.006"), spot("0.95", None)]}
    assert advice_spot.actions(case(demand({G5: flat(4)}), near)) == [], "0.3 interruptions an hour cost more than the 6 %"
    unknown = {P4D: [spot(1)]}
    assert advice_spot.actions(case(demand({P4D: flat(4)}), unknown)) == []


@given(st.floats(0.01, 2.0), st.floats(0.0, 3.0), st.floats(0.05, 1.0), st.floats(0.0, 2.0))
def test_more_interruptions_never_make_work_cheaper(spot_price: float, hazard: float, there: float, lost: float) -> None:
    price = Fraction(spot_price)
    one = cost_of_work(price, F(1), Risk(hazard, there, "", False), lost)
    assert one <= cost_of_work(price, F(1), Risk(hazard * 2 + 0.1, there, "", False), lost)
    if one < 1:
        assert price < 1, "below on-demand only where the bare price is"


def test_the_low_end_bears_a_price_half_as_high_again_where_no_history_tells_more() -> None:
    used, told = demand({P4D: flat(4)}), {"interruptible": 1.0}
    (action,) = advice_spot.actions(case(used, {P4D: [on_demand(10), spot(4)]}, options=told))
    assert 0 < action.saving_range[0] < 4 * 730 * (10 - Fraction(6)) < action.saving_per_month
    (near,) = advice_spot.actions(case(used, {P4D: [on_demand(10), spot(8)]}, options=told))
    assert near.saving_range[0] == 0, "dearer than on demand it is left again: nothing is saved"


def test_what_commitments_pay_for_saves_nothing_on_spot() -> None:
    terms = Terms(commitments=(owned("ri-1", 3),))
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, terms))
    assert action.claims == {P4D: Fraction(730)}
    assert advice_spot.actions(case(demand({P4D: flat(4)}), RATES, Terms(commitments=(owned("ri-1", 4),)))) == []


def test_a_price_history_counts_before_the_price_of_one_moment() -> None:
    used = demand({P4D: flat(4)})
    end = milliseconds(used.end)
    steps = StepFunction([(end - 40 * 86_400_000, Decimal("12")), (end - 15 * 86_400_000, Decimal("6"))], end)
    market = Market([Fetch(SeriesKey("use1-az2", "p4d.24xlarge", "Linux/UNIX"), "test", steps, 2)])
    (action,) = advice_spot.actions(case(used, RATES, options={"spot_history": market}))
    assert "use1-az2" in action.what and action.evidence["spot_usd_per_hour"] == "9.0000"
    assert action.evidence["history_ratio"] == 1.0


def test_an_observed_hazard_counts_before_the_bucket_of_aws() -> None:
    used = demand({P4D: flat(4)})
    hour = 3_600_000
    steps = StepFunction([(hour * n, int(n % 10 < 8)) for n in range(1000)], hour * 1000)
    (action,) = advice_spot.actions(case(used, RATES, options={"availability": {"use1-az1": steps}}))
    assert action.evidence["interruptions_per_hour"] == 0.125 and action.evidence["availability_ratio"] == 0.8
    assert "100 interruptions" in str(action.evidence["hazard_source"])
    (plain,) = advice_spot.actions(case(used, RATES))
    assert plain.evidence["interrupted_percent"] == "10 to 15 % (2025-06-28)"
    assert action.saving_per_month < plain.saving_per_month
    (other,) = advice_spot.actions(case(used, RATES, options={"availability": {"use1-az2": steps}}))
    assert "as in the worst observed zone" in str(other.evidence["hazard_source"]), "not seen is not better than seen"


def test_the_buckets_are_read_by_their_labels_and_the_open_one_is_no_figure() -> None:
    found = buckets()
    assert (found["us-east-1", "p4d.24xlarge"].since, found["us-east-1", "p4d.24xlarge"].to) == (10, 15), "not its max of 16"
    assert found["us-east-1", "p4de.24xlarge"].to == 5 and found["us-east-1", "p3.2xlarge"].to is None, "not its max of 100"
    assert {(one.since, one.to) for one in found.values()} == {(0, 5), (5, 10), (10, 15), (15, 20), (20, None)}
    (action,) = advice_spot.actions(case(demand({G5: flat(4)}), {G5: [on_demand("1.006"), spot("0.43", None)]}))
    assert (
        action.evidence["interruptions_per_hour"] == ASSUMED_PER_HOUR
        and action.evidence["interrupted_percent"] == "above 20 % (2025-06-28)"
    )
    assert any("not observed" in risk for risk in action.risks)


def test_a_changeover_is_measured_from_a_spot_end_to_the_next_start() -> None:
    assert changeover_of([(0, 3600, "spot_reclaim"), (4320, 9000, "exit:1"), (9900, None, None)]) == 0.2
    assert changeover_of([(0, 3600, "exit:1"), (4320, None, None)]) is None


def test_a_deadline_brings_the_expected_time_and_the_chance_to_be_late() -> None:
    pytest.importorskip("pricing.spot_hazard")
    job = JOB._replace(work_hours=10.0, deadline_hours=14.0)
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"jobs": (job,)}))
    told = action.evidence["deadline"]
    if isinstance(told, dict):
        assert told["late_chance"] == 0.0 and 10 <= told["finish_hours"] <= 14
        assert Decimal(told["cost"]) < Decimal(told["on_demand_cost"])
    late = JOB._replace(work_hours=10.0, deadline_hours=9.0)
    (impossible,) = advice_spot.actions(case(demand({P4D: flat(4)}), RATES, options={"jobs": (late,)}))
    assert isinstance(impossible.evidence["deadline"], str)


def test_scaling_all_prices_scales_the_saving() -> None:
    twice = {P4D: [on_demand("43.915284"), spot("16.4", "use1-az1"), spot("18.0", "use1-az2")]}
    once = {P4D: RATES[P4D][:3]}
    a, b = (advice_spot.actions(case(demand({P4D: flat(4)}), rates))[0] for rates in (once, twice))
    assert b.saving_per_month == 2 * a.saving_per_month


def test_only_the_hours_that_ran_are_moved() -> None:
    hours = np.zeros(24 * 60)
    hours[:720] = 2.0
    (action,) = advice_spot.actions(case(demand({P4D: hours}), RATES))
    assert action.claims == {P4D: Fraction(730)}


def test_a_local_zone_is_another_place() -> None:
    rates = {P4D: [on_demand(22), spot(2, "use1-atl2-az1"), spot(9, "use1-az2")]}
    (action,) = advice_spot.actions(case(demand({P4D: flat(4)}), rates))
    assert action.evidence["zones"] == {"use1-az2": action.evidence["effective_usd_per_hour"]}


def test_less_than_a_week_of_evidence_is_partial() -> None:
    (action,) = advice_spot.actions(case(demand({P4D: flat(4, days=2)}), RATES, options={"jobs": (JOB,)}))
    assert action.partial and any("2.0 days, too short" in risk for risk in action.risks)
