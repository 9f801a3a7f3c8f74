"""Owned commitments over one hour: what they cover and leave unused costs what they cost, in the documented order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.ledger_merge import HOUR_MS
from pricing.owned import Commitment, Demand, HourCovered, Place, cover
from tests.support.examples import examples

EAST = Place("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand")


def reservation(id: str, cost: str, count: int = 1, **changes: object) -> Commitment:
    whole = Commitment(
        id,
        "reservation",
        "aws",
        0,
        1000 * HOUR_MS,
        Fraction(cost),
        region="us-east-1",
        instance_type="p4d.24xlarge",
        count=count,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def plan(id: str, per_hour: str, percent: str | None = None, **changes: object) -> Commitment:
    share = None if percent is None else Fraction(percent)
    return replace(Commitment(id, "savings_plan", "aws", 0, 1000 * HOUR_MS, Fraction(per_hour), percent=share), **changes)  # type: ignore[arg-type]


def demand(hours: str, price: str = "10", place: Place = EAST, plans: Sequence[Commitment] = ()) -> Demand:
    rates = {
        one.id: one.rate_of(place.instance_type) or Fraction(price) * (1 - (one.percent or 0) / 100)
        for one in plans
        if one.matches(place)
    }
    return Demand(place, Fraction(hours), Fraction(price), rates)


def cost(result: HourCovered) -> Fraction:
    return sum((one.cost for one in result.covered.values()), Fraction(0)) + sum(result.unused.values(), Fraction(0))


def test_a_reservation_covers_node_hours_and_the_rest_of_it_is_unused() -> None:
    result = cover([reservation("a", "6", count=3)], {"x": demand("2.5")}, 5)
    assert result.covered == {"x": (Fraction("2.5"), 15)} and result.unused == {"a": 3}


def test_what_several_alike_nodes_share_is_split_in_proportion() -> None:
    result = cover([reservation("a", "6")], {"x": demand("1"), "y": demand("3")}, 5)
    assert result.covered == {"x": (Fraction(1, 4), Fraction(3, 2)), "y": (Fraction(3, 4), Fraction(9, 2))}
    assert result.unused == {"a": 0}


def test_a_reservation_of_a_zone_comes_before_one_of_the_region_and_both_before_a_plan() -> None:
    plans = [plan("sp", "7", "30")]
    owned = [reservation("b", "6"), reservation("z", "5", zone="use1-az1"), *plans]
    result = cover(owned, {"x": demand("1", plans=plans)}, 5)
    assert result.covered == {"x": (1, 5)} and result.unused == {"b": 6, "z": 0, "sp": 7}
    result = cover(owned, {"x": demand("4", plans=plans)}, 5)  # one hour each of z and b at 5 and 6, one of the plan at 7
    assert result.covered == {"x": (3, 18)} and result.unused == {"b": 0, "z": 0, "sp": 0}


def test_a_plan_goes_to_the_highest_discount_first() -> None:
    sp = plan("sp", "5", rates={"p4d.24xlarge": Fraction(5), "p5.48xlarge": Fraction(40), "g5.xlarge": Fraction(2)})
    demands = {
        "p5": demand("1", "50", EAST._replace(instance_type="p5.48xlarge"), [sp]),  # 20 %
        "p4d": demand("0.5", "10", EAST, [sp]),  # 50 %: takes 2.50 of 5
        "g5": demand("1", "3", EAST._replace(instance_type="g5.xlarge"), [sp]),  # 33 %: takes 2.00
    }
    result = cover([sp], demands, 5)
    assert result.covered == {"p4d": (Fraction(1, 2), Fraction(5, 2)), "g5": (1, 2), "p5": (Fraction("0.0125"), Fraction(1, 2))}
    assert result.unused == {"sp": 0}


def test_of_equal_discounts_the_narrower_plan_is_spent_first() -> None:
    plans = [plan("a-compute", "7", "30"), plan("z-family", "7", "30", family="p4d", region="us-east-1")]
    result = cover(plans, {"x": demand("1", plans=plans)}, 5)
    assert result.unused == {"a-compute": 7, "z-family": 0}


def test_a_plan_that_makes_nothing_cheaper_is_not_spent() -> None:
    sp = plan("sp", "5", rates={"p4d.24xlarge": Fraction(10)})
    assert cover([sp], {"x": demand("1", plans=[sp])}, 5)[:2] == ({}, {"sp": 5})


@pytest.mark.parametrize("place", [
    EAST._replace(purchase="spot"), EAST._replace(purchase="capacity_block"), EAST._replace(cloud="gcp"), EAST._replace(cloud=None),
    EAST._replace(region="us-west-2"), EAST._replace(instance_type="p4de.24xlarge"), EAST._replace(zone="use1-az2"),
])  # fmt: skip
def test_what_does_not_match_is_not_covered(place: Place) -> None:
    owned = [reservation("a", "6", zone="use1-az1"), plan("sp", "5", "50", family="p4d", region="us-east-1")]
    result = cover(owned, {"x": demand("1", place=place, plans=owned[1:])}, 5)
    assert "a" in result.unused and result.unused["a"] == 6
    assert (result.covered == {}) == (place.zone != "use1-az2")


@pytest.mark.parametrize("purchase", [None, "on_demand", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y"])
def test_all_that_runs_on_demand_is_covered_whatever_it_says_it_was_bought_as(purchase: str | None) -> None:
    assert cover([reservation("a", "6")], {"x": demand("1", place=EAST._replace(purchase=purchase))}, 5).unused == {"a": 0}


def test_a_term_that_begins_or_ends_within_the_hour_covers_its_part() -> None:
    half = reservation("a", "6", starts_ms=5 * HOUR_MS + HOUR_MS // 2)
    assert cover([half], {"x": demand("1")}, 5)[:2] == ({"x": (Fraction(1, 2), 3)}, {"a": 0})
    assert cover([half], {"x": demand("1")}, 4)[:2] == ({}, {})
    assert cover([half], {"x": demand("0")}, 5)[:2] == ({}, {"a": 3})
    quarter = plan("sp", "4", "50", ends_ms=5 * HOUR_MS + HOUR_MS // 4)
    assert cover([quarter], {}, 5)[:2] == ({}, {"sp": 1}) and cover([quarter], {}, 6)[:2] == ({}, {})


def random_hour(seed: int) -> tuple[list[Commitment], dict[str, Demand]]:
    rng = Random(seed)
    owned: list[Commitment] = []
    for number in range(rng.randrange(1, 6)):
        span = {"starts_ms": rng.choice((0, 5 * HOUR_MS + 600_000)), "ends_ms": rng.choice((6, 9)) * HOUR_MS}
        if rng.random() < 0.5:
            zone = rng.choice((None, "use1-az1"))
            owned.append(reservation(f"r{number}", str(rng.randrange(1, 12)), rng.randrange(1, 4), zone=zone, **span))
        else:
            family = rng.choice((None, "p4d"))
            owned.append(
                plan(f"s{number}", str(rng.randrange(1, 30)), str(rng.choice((20, 30, 30, 45))), family=family, **span)
            )
    demands = {}
    for number in range(rng.randrange(5)):
        place = EAST._replace(
            zone=rng.choice(("use1-az1", "use1-az2")), instance_type=rng.choice(("p4d.24xlarge", "p5.48xlarge"))
        )
        plans = [one for one in owned if one.kind == "savings_plan"]
        demands[f"d{number}"] = demand(str(rng.randrange(0, 40) / 8), str(rng.choice((10, 10, 17))), place, plans)
    return owned, demands


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_covered_and_what_is_unused_cost_what_the_commitments_cost_whatever_their_order(seed: int) -> None:
    owned, demands = random_hour(seed)
    result = cover(owned, demands, 5)
    assert cost(result) == sum((one.whole_cost * one.part_of_hour(5) for one in owned), Fraction(0))
    assert all(amount >= 0 for amount in result.unused.values())
    for key, covered in result.covered.items():
        assert 0 < covered.hours <= demands[key].node_hours and covered.cost >= 0
    mixed = list(owned)
    Random(seed).shuffle(mixed)
    assert cover(mixed, dict(reversed(demands.items())), 5) == result
    assert {key: tuple(map(sum, zip(*payers.values(), strict=True))) for key, payers in result.paid.items()} == result.covered


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_a_reservation_is_left_unused_only_where_all_that_matches_is_covered(seed: int) -> None:
    owned, demands = random_hour(seed)
    result = cover(owned, demands, 5)
    for one in owned:
        if one.kind == "reservation" and result.unused.get(one.id):
            for key, wanted in demands.items():
                if one.matches(wanted.place) and wanted.node_hours:
                    assert result.covered[key].hours == wanted.node_hours
