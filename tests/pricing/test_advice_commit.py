"""What to commit to: on top of what is owned, against what is really paid, and never dearer than before."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing import advice_commit
from pricing.advice import Action, Case
from pricing.advice_cost import cost_of
from pricing.calendar import milliseconds
from pricing.commitments import recommend
from pricing.owned import Commitment
from pricing.sources.aws_costs import Recommendation
from pricing.terms import Terms
from tests.support.buying import G4DN, G5, ON_DEMAND, P4D, F, case, committed, demand, on_demand, spot, usual, waves

YEAR_MS = 365 * 86_400_000


def flat(count: float, days: int = 60) -> np.ndarray:
    return np.full(days * 24, count)


def owned(id: str, count: int, share: str = "0.6", ends_in_days: int = 300) -> Commitment:
    now = milliseconds(demand({P4D: flat(1)}).end)
    return Commitment(
        id, "reservation", "aws", now - YEAR_MS, now + ends_in_days * 86_400_000, ON_DEMAND[P4D] * F(share),
        region="us-east-1", instance_type="p4d.24xlarge", count=count,
    )  # fmt: skip


def judged(given: Case, found: list[Action]) -> Fraction:
    """What the purchases save a month on the evidence, by the exact cost of every hour."""
    before = [*given.terms.commitments]
    bought = [replace(one, starts_ms=0, ends_ms=10**15) for action in found for one in action.buys]
    less = cost_of(given.demand, given.card, before).total - cost_of(given.demand, given.card, [*before, *bought]).total
    return less * 730 / given.demand.known_hours


def test_a_steady_fleet_is_reserved_wholly_and_told_with_its_break_even() -> None:
    given = case(demand({P4D: flat(4)}), usual(keys=[P4D]))
    (action,) = advice_commit.actions(given)
    assert action.what == "reserve 4 p4d.24xlarge in us-east-1 (1 y, no upfront)"
    assert action.saving_per_month == 4 * 730 * ON_DEMAND[P4D] * F("0.37")
    assert action.saving_range[0] <= action.saving_per_month <= action.saving_range[1]
    assert action.break_even is not None
    assert (action.break_even["utilization_ratio"], action.break_even["hours_per_month"]) == (0.63, 459.9)
    assert action.claims == {P4D: Fraction(2920)} and not action.partial
    assert action.evidence["hindsight_optimum"] == 4 and action.evidence["look_backs"] == {7: 4, 30: 4, 60: 4}
    assert any("purchase-reserved-instances-offering" in line and "--instance-count 4" in line for line in action.how)
    (bought,) = action.buys
    assert (bought.count, bought.ends_ms - bought.starts_ms) == (4, 8760 * 3_600_000)
    assert [call.operation for call in action.calls] == [
        "describe_reserved_instances_offerings",
        "purchase_reserved_instances_offering",
    ]


def test_the_savings_add_up_to_what_the_exact_cost_of_all_hours_says() -> None:
    rates = usual()
    for key in rates:
        rates[key].append(committed("savings_plan_1y", ON_DEMAND[key] * F("0.7")))
    rates[G5][1] = committed("reserved_1y", ON_DEMAND[G5] * F("0.95"))
    given = case(demand(waves(60)), rates)
    found = advice_commit.actions(given)
    kinds = {action.what.split()[0] for action in found}
    assert kinds == {"reserve", "savings"}, "reservations beside a plan for what they are too dear for"
    assert sum((action.saving_per_month for action in found), Fraction(0)) == judged(given, found)


@given(st.integers(0, 50), st.sampled_from(["0.4", "0.63", "0.9"]))
@settings(max_examples=7, deadline=None)
def test_advice_never_raises_the_cost_of_its_evidence(seed: int, share: str) -> None:
    rates = usual(share)
    for key in rates:
        rates[key].append(committed("savings_plan_1y", ON_DEMAND[key] * (F(share) + F("0.07")), source="aws, Compute"))
    series = {key: hours[: 24 * 14] * (np.arange(24 * 14) % (seed + 2) > 0) for key, hours in waves(14, seed).items()}
    given = case(demand(series), rates, Terms(commitments=(owned("ri", 3),)))
    found = advice_commit.actions(given)
    assert all(action.saving_per_month > 0 for action in found)
    assert judged(given, found) == sum((action.saving_per_month for action in found), Fraction(0)) >= 0


@given(st.integers(1, 500))
@settings(max_examples=8, deadline=None)
def test_scaling_all_prices_scales_the_answer(percent: int) -> None:
    used = demand(waves(21))
    once = advice_commit.actions(case(used, usual()))
    scaled = advice_commit.actions(case(used, usual(scale=F(percent, 100))))
    assert [action.what for action in scaled] == [action.what for action in once]
    assert [action.saving_per_month for action in scaled] == [action.saving_per_month * F(percent, 100) for action in once]


def test_one_more_offer_never_makes_the_plan_dearer_and_an_unknown_one_changes_nothing() -> None:
    used = demand(waves(60))
    rates = usual()
    fewer = advice_commit.actions(case(used, rates))
    more = {
        key: [
            *these,
            committed("reserved_3y", ON_DEMAND[key] * F("0.43")),
            committed("reserved_1y", ON_DEMAND[key] * F("0.6"), "all_upfront"),
        ]
        for key, these in rates.items()
    }
    better = advice_commit.actions(case(used, more))
    total = [sum(action.saving_per_month for action in found) for found in (fewer, better)]
    assert total[1] >= total[0] > 0
    unknown = {**rates, G4DN._replace(region="eu-west-1"): [on_demand(1)]}
    assert advice_commit.actions(case(used, unknown)) == fewer
    without = {key: these if key != G4DN else [on_demand(ON_DEMAND[G4DN])] for key, these in rates.items()}
    assert [one for one in fewer if G4DN not in one.claims] == advice_commit.actions(case(used, without))


def test_what_is_owned_counts_and_what_ends_is_told() -> None:
    used = demand({P4D: flat(4)})
    given = case(used, usual(keys=[P4D]), Terms(commitments=(owned("ri-1", 3, ends_in_days=90),)))
    (action,) = advice_commit.actions(given)
    assert action.what.startswith("reserve 1 p4d") and action.evidence["owned"] == ["ri-1"]
    assert any("ri-1 (3, ends" in note and "3 more would pay off" in note for note in advice_commit.notes(given))
    full = case(used, usual(keys=[P4D]), Terms(commitments=(owned("ri-1", 5),)))
    assert advice_commit.actions(full) == []
    other = replace(owned("ri-2", 4), instance_type="p5.48xlarge")
    assert advice_commit.actions(case(used, usual(keys=[P4D]), Terms(commitments=(other,))))[0].what.startswith("reserve 4")


def test_reservations_that_overlap_beyond_what_ever_ran_are_told() -> None:
    case_of_two = case(demand({P4D: flat(5)}), usual(keys=[P4D]), terms=Terms(commitments=(owned("a", 4), owned("b", 3))))
    assert advice_commit.actions(case_of_two) == []
    (told,) = [note for note in advice_commit.notes(case_of_two) if "never used" in note]
    assert told == (
        "p4d.24xlarge in us-east-1: 7 are reserved and at most 5 ran at once: 2 are paid and never used; a, b run at the same "
        "time: is one told twice?"
    )


def test_an_owned_savings_plan_is_used_before_more_is_bought() -> None:
    plan = replace(
        owned("sp-1", 1), kind="savings_plan", instance_type=None, region=None, percent=F(30),
        cost_per_hour=ON_DEMAND[P4D] * F("0.7") * 4,
    )  # fmt: skip
    assert advice_commit.actions(case(demand({P4D: flat(4)}), usual(keys=[P4D]), Terms(commitments=(plan,)))) == []


def test_work_that_may_run_on_spot_is_not_committed_where_spot_is_cheaper() -> None:
    rates = {P4D: [*usual(keys=[P4D])[P4D], spot("8.2")]}
    given = case(demand({P4D: flat(4)}), rates, options={"interruptible": 1.0})
    assert advice_commit.actions(given) == []
    assert any("may run on spot" in note for note in advice_commit.notes(given))
    told = advice_commit.actions(case(demand({P4D: flat(4)}), rates))
    assert any("bears interruptions" in risk for risk in told[0].risks), "not known: committed, and the other way is told"
    part = case(demand({P4D: flat(10)}), rates, options={"interruptible": {"p4d.24xlarge": 0.3}})
    assert advice_commit.actions(part)[0].what.startswith("reserve 7"), "the rest of it is committed to"
    dearer = {P4D: [*usual(keys=[P4D])[P4D], spot("16")]}
    beside = case(demand({P4D: flat(10)}), dearer, options={"interruptible": {"p4d.24xlarge": 0.3}})
    (action,) = advice_commit.actions(beside)
    assert action.what.startswith("reserve 10") and action.break_even is not None
    assert action.break_even["utilization_ratio"] > 0.63, "what it replaces costs less than on demand"  # type: ignore[operator]


def test_usage_on_spot_is_no_demand_for_commitments() -> None:
    used = demand({P4D: flat(4)}, bought={P4D: {"spot": flat(3)}})
    (action,) = advice_commit.actions(case(used, usual(keys=[P4D])))
    assert action.what.startswith("reserve 1 p4d") and action.evidence["share_on_spot_now"] == {str(P4D): 0.75}


def test_less_than_a_week_tells_nothing_and_less_than_a_month_is_partial() -> None:
    short = case(demand({P4D: flat(4, days=6)}), usual(keys=[P4D]))
    assert advice_commit.actions(short) == []
    assert any("too short to commit" in note for note in advice_commit.notes(short))
    assert all(action.partial for action in advice_commit.actions(case(demand({P4D: flat(4, days=8)}), usual(keys=[P4D]))))


def test_three_years_need_long_evidence_and_a_price_that_bears_falling_ones() -> None:
    rates = {P4D: [on_demand(10), committed("reserved_1y", "6.3"), committed("reserved_3y", "4.3")]}
    assert "(1 y" in advice_commit.actions(case(demand({P4D: flat(2)}), rates))[0].what
    assert "(3 y" in advice_commit.actions(case(demand({P4D: flat(2, days=200)}), rates))[0].what
    near = {P4D: [on_demand(10), committed("reserved_1y", "6.3"), committed("reserved_3y", "6.0")]}
    (one,) = advice_commit.actions(case(demand({P4D: flat(2, days=200)}), near))
    assert "(1 y" in one.what and one.evidence["alternatives"] == {"reserved_3y no_upfront": "6.0000"}
    bound = case(demand({P4D: flat(2, days=200)}), rates, options={"longest_term_months": 12})
    assert "(1 y" in advice_commit.actions(bound)[0].what
    alone = {P4D: [on_demand(10), committed("reserved_3y", "4.3")]}
    assert advice_commit.actions(case(demand({P4D: flat(2)}), alone)) == []
    assert any("--longest-term 3" in note for note in advice_commit.notes(case(demand({P4D: flat(2)}), alone)))
    (asked,) = advice_commit.actions(case(demand({P4D: flat(2)}), alone, options={"longest_term_months": 36}))
    assert "(3 y" in asked.what


def test_the_cheapest_way_to_pay_is_taken_unless_one_is_asked_for() -> None:
    rates = {P4D: [on_demand(10), committed("reserved_1y", "6.3"), committed("reserved_1y", "5.9", "all_upfront")]}
    (action,) = advice_commit.actions(case(demand({P4D: flat(2)}), rates))
    assert "all upfront" in action.what and action.evidence["upfront_usd"] == str(2 * F("5.9") * 8760) + ".00"
    (asked,) = advice_commit.actions(case(demand({P4D: flat(2)}), rates, options={"payment": "no_upfront"}))
    assert "no upfront" in asked.what


def test_a_plan_for_one_family_covers_its_sizes_only() -> None:
    big = G5._replace(instance_type="g5.12xlarge")
    rates = {
        key: [on_demand(price), committed("savings_plan_1y", F(price) * F("0.6"), source="aws savings plans api, EC2Instance")]
        for key, price in ((G5, "1.006"), (big, "5.672"), (P4D, "21.957642"))
    }
    used = demand({G5: flat(6), big: flat(2), P4D: flat(1)})
    found = advice_commit.actions(case(used, rates))
    whats = sorted(action.what for action in found)
    assert whats == [
        "savings plan of $10.428 an hour for g5 in us-east-1 (1 y, no upfront)",
        "savings plan of $13.174 an hour for p4d in us-east-1 (1 y, no upfront)",
    ]
    assert any("create-savings-plan" in line and "--commitment 10.428" in line for action in found for line in action.how)


def test_no_more_is_advised_than_the_rule_for_the_pool_holds() -> None:
    hours = np.concatenate([flat(8, days=50), flat(2, days=10)])
    given = case(demand({P4D: hours}), usual(keys=[P4D]))
    rule = recommend(hours, ON_DEMAND[P4D] * F("0.63"), ON_DEMAND[P4D], term_days=365)
    found = advice_commit.actions(given)
    assert sum(one.count for action in found for one in action.buys) == min(rule.count, 8)
    assert all(action.evidence["hindsight_optimum"] == 8 for action in found)


def test_what_aws_itself_recommends_stands_beside_it() -> None:
    other = Recommendation(
        "reservation", "SIXTY_DAYS", "ONE_YEAR", "NO_UPFRONT", "3 x", "us-east-1", "p4d.24xlarge", 3, None, 0, 0, "USD"
    )  # type: ignore[arg-type]
    (action,) = advice_commit.actions(case(demand({P4D: flat(4)}), usual(keys=[P4D]), options={"aws_recommendations": (other,)}))
    assert action.evidence["aws_recommends"] == {"sixty_days": "3"}


def test_gaps_in_the_evidence_are_no_idle_hours() -> None:
    used = demand({P4D: flat(4)})
    known = used.known.copy()
    known[200:500] = False
    counts = {P4D: np.where(known, 4.0, 0.0)}
    (action,) = advice_commit.actions(case(replace(used, known=known, counts=counts), usual(keys=[P4D])))
    assert action.saving_per_month == pytest.approx(4 * 730 * float(ON_DEMAND[P4D]) * 0.37, rel=1e-12)


def test_nodes_that_say_they_are_reserved_are_not_reserved_again() -> None:
    used = demand({P4D: flat(4)}, bought={P4D: {"reserved_1y": flat(3), "on_demand": flat(1)}})
    given = case(used, usual(keys=[P4D]))
    (action,) = advice_commit.actions(given)
    assert action.what.startswith("reserve 1 p4d")
    assert any("3.0 of its nodes say" in note for note in advice_commit.notes(given))
    known = case(used, usual(keys=[P4D]), Terms(commitments=(owned("ri", 2),)))
    assert advice_commit.actions(known)[0].what.startswith("reserve 2 p4d"), "what terms.toml tells counts"


@pytest.mark.parametrize("rates", [{}, {P4D: [committed("reserved_1y", 1)]}, {P4D: [on_demand(1), committed("reserved_1y", 2)]}])
def test_without_a_price_or_a_cheaper_one_there_is_nothing_to_commit_to(rates: dict) -> None:  # type: ignore[type-arg]
    assert advice_commit.actions(case(demand({P4D: flat(4)}), rates)) == []


def test_how_far_demand_may_fall_is_told() -> None:
    (action,) = advice_commit.actions(case(demand({P4D: flat(10)}), usual(keys=[P4D])))
    assert action.break_even is not None and action.break_even["demand_ratio"] == pytest.approx(0.63, abs=1e-3)
    assert "fell to 63% of what it was" in action.risks[0]
    rates = {P4D: [on_demand(10), committed("savings_plan_1y", "7.2")]}
    (plan,) = advice_commit.actions(case(demand({P4D: flat(10)}), rates))
    assert plan.break_even is not None and plan.break_even["demand_ratio"] == pytest.approx(0.72, abs=1e-3)
