"""Another type, region or cloud for the same work: with its data, from known prices only."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pricing import advice_move
from pricing.items import Item
from pricing.terms import Terms
from tests.pricing.test_advice_commit import flat, owned
from tests.support.buying import G5, P4D, F, case, demand, on_demand, spot

OHIO = P4D._replace(region="us-east-2")
WEST, FRANKFURT = P4D._replace(region="us-west-2"), P4D._replace(region="eu-central-1")
P5 = P4D._replace(instance_type="p5.48xlarge")
GCP = P4D._replace(cloud="gcp", region="us-central1", instance_type="a2-highgpu-8g")
USED = demand({P4D: flat(4)})


def test_the_same_type_in_a_cheaper_region_with_its_data_counted() -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand(20)], FRANKFURT: [on_demand(27)]}
    (action,) = advice_move.actions(case(USED, rates, options={"stored_gb": 5000, "transfer_gb_per_month": 300}))
    assert action.what == "run the work of 4 p4d.24xlarge in us-east-1 on 4 p4d.24xlarge in us-west-2"
    once, monthly = 5000 * F("0.043"), 300 * F("0.02")
    assert action.saving_per_month == 4 * 730 * 2 - monthly - once / 12
    assert action.evidence["move_once_usd"] == "215.00" and action.evidence["transfer_usd_per_month"] == "6.00"
    assert not action.partial and action.claims == {P4D: F(2920)} and action.group
    assert action.break_even is not None and action.break_even["transfer_gb_per_month"] == round((4 * 730 * 2 - 215 / 12) / 0.02)


def test_data_of_unknown_size_is_not_free() -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand("21.999")]}
    one = demand({P4D: flat(1)})
    assert advice_move.actions(case(one, rates)) == [], "73 cents a month do not pay for moving a terabyte"
    (action,) = advice_move.actions(case(USED, {**rates, WEST: [on_demand(20)]}))
    assert action.partial and any("How much data" in risk for risk in action.risks)


def test_the_bill_for_storage_and_egress_tells_how_much_data_there_is() -> None:
    terms = Terms(
        items=(
            Item("storage", "sets", F(230), region="us-east-1"),
            Item("egress", "out", F(20)),
            Item("storage", "far", F(999), region="eu-west-1"),
        )
    )
    data = advice_move.data_of(case(USED, {P4D: [on_demand(22)]}, terms), P4D)
    assert (data.stored, data.monthly, data.assumed) == (F(10_000), F(1000), False)


def test_a_smaller_host_or_less_memory_is_not_the_same_machine() -> None:
    small, big = G5, G5._replace(instance_type="g5.8xlarge")
    rates = {big: [on_demand("2.448")], small: [on_demand("1.006")]}
    assert advice_move.actions(case(demand({big: flat(2)}), rates)) == [], "4 of 32 vCPUs"
    (up,) = advice_move.actions(case(demand({small: flat(2)}), {small: [on_demand(3)], big: [on_demand("2.448")]}))
    assert up.evidence["speed_ratio"] == 1 and up.break_even is None and not up.partial


def test_another_gpu_counts_by_its_peak_figures_and_is_partial() -> None:
    rates = {P4D: [on_demand(22)], P5: [on_demand(30)]}
    (action,) = advice_move.actions(case(USED, rates))
    assert action.partial and 1.5 < action.evidence["speed_ratio"] < 3.2  # type: ignore[operator]
    assert "peak figures" in str(action.evidence["speed_source"]) and action.saving_range[0] < action.saving_per_month
    assert advice_move.actions(case(USED, {P4D: [on_demand(22)], P5: [on_demand(70)]})) == []
    less = P4D._replace(instance_type="g5.48xlarge")
    assert advice_move.actions(case(USED, {P4D: [on_demand(22)], less: [on_demand(1)]})) == [], "24 GB a GPU hold not what 40 do"


def test_another_cloud_is_dearer_to_reach_than_another_region() -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand(20)], GCP: [on_demand(20)]}
    actions = advice_move.actions(case(USED, rates))
    assert [("of gcp" in action.what) for action in actions] == [False, True]
    assert actions[0].saving_per_month > actions[1].saving_per_month
    assert any("The host is smaller: 96 vCPUs and 680 GiB" in risk for risk in actions[1].risks)
    assert actions[0].group == actions[1].group, "only one of them can be done"


def test_unknown_prices_and_dearer_places_change_nothing() -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand(20)]}
    plain = advice_move.actions(case(USED, rates))
    assert advice_move.actions(case(USED, {**rates, FRANKFURT: [], GCP: [on_demand(99)]})) == plain
    assert advice_move.actions(case(USED, {WEST: [on_demand(20)]})) == [], "what it costs now is not known"
    estimated = {**rates, WEST: [on_demand(20)._replace(estimated=True)]}
    assert advice_move.actions(case(USED, estimated)) == []


def test_what_commitments_pay_for_does_not_move() -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand(20)]}
    assert advice_move.actions(case(USED, rates, Terms(commitments=(owned("ri", 4),)))) == []
    (action,) = advice_move.actions(case(USED, rates, Terms(commitments=(owned("ri", 3),))))
    assert action.claims == {P4D: F(730)}


@given(st.fractions(1, 40), st.fractions(1, 40))
def test_one_more_place_never_makes_the_best_move_dearer(west: Fraction, far: Fraction) -> None:
    rates = {P4D: [on_demand(22)], WEST: [on_demand(west)]}
    less = advice_move.actions(case(USED, rates))
    more = advice_move.actions(case(USED, {**rates, FRANKFURT: [on_demand(far)]}))
    best = [max((action.saving_per_month for action in found), default=F(0)) for found in (less, more)]
    assert best[1] >= best[0] >= 0
    assert all(action.saving_range[0] <= action.saving_per_month <= action.saving_range[1] for action in more)


def test_only_part_of_the_hours_moves_where_only_part_ran() -> None:
    hours = np.zeros(24 * 60)
    hours[:360] = 4
    (action,) = advice_move.actions(case(demand({P4D: hours}), {P4D: [on_demand(22)], WEST: [on_demand(20)]}))
    assert action.claims == {P4D: F(730)}


def test_spot_is_ranked_apart_from_on_demand() -> None:
    rates = {
        P4D: [on_demand(22), spot(9)],
        OHIO: [on_demand(23), spot(6, "use2-az1")],
        WEST: [on_demand(23), spot(6, "usw2-az1")],
        FRANKFURT: [on_demand(20), spot(20, None)],
    }
    used = demand({P4D: flat(4)}, bought={P4D: {"spot": flat(3)}})
    found = {action.group: action for action in advice_move.actions(case(used, rates, options={"stored_gb": 100}))}
    on_spot = found[f"move spot aws {P4D}"]
    assert on_spot.what == "run the 3 spot p4d.24xlarge in us-east-1 on spot p4d.24xlarge in us-east-2", (
        "us-west-2 is interrupted more often"
    )
    assert on_spot.claims == {P4D.as_spot(): F(2190)}
    assert "eu-central-1" in found[f"move aws {P4D}"].what and found[f"move aws {P4D}"].claims == {P4D: F(730)}


def test_another_gpu_takes_whole_nodes_in_each_hour() -> None:
    rates = {P4D: [on_demand(22)], P5: [on_demand(30)]}
    one = demand({P4D: flat(1)})
    assert advice_move.actions(case(one, rates)) == [], "half a p5 cannot be bought, and a whole one is dearer"
    (action,) = advice_move.actions(case(demand({P4D: flat(7)}), rates))
    speed = action.evidence["speed_ratio"]
    assert isinstance(speed, float) and action.saving_per_month == 730 * (7 * 22 - -(-7 // speed) * 30)


def test_where_interruptions_are_not_known_that_speaks_for_no_move() -> None:
    """us-west-2 is in AWS's open bucket, Ohio in one of 5 to 10 %: only the price counts."""
    rates = {WEST: [on_demand(22), spot(9, "usw2-az1")], OHIO: [on_demand(22), spot("8.9", "use2-az1")]}
    used = demand({WEST: flat(4)}, bought={WEST: {"spot": flat(4)}})
    (action,) = advice_move.actions(case(used, rates, options={"stored_gb": 1, "transfer_gb_per_month": 0}))
    assert action.saving_per_month < 4 * 730 * F("0.1") * F("1.01")
    dearer = {**rates, OHIO: [on_demand(22), spot("9.1", "use2-az1")]}
    assert advice_move.actions(case(used, dearer)) == []
