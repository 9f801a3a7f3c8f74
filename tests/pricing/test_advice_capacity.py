"""Capacity blocks for needs with dates: paid as a whole, ending at 11:30 UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from pricing import advice_capacity
from pricing.advice import Need
from pricing.advice_capacity import block_for
from pricing.rate_card import Rate
from pricing.terms import Terms
from tests.pricing.test_advice_commit import flat, owned
from tests.support.buying import P4D, F, case, demand, moment, on_demand

USED = demand({P4D: flat(1)})
NOW = USED.end
RATES = {P4D: [on_demand(22), Rate("capacity_block", F(12), F(12), source="aws capacity blocks")]}


def need(days_from_now: float, days: float, nodes: int = 4) -> Need:
    start = NOW + timedelta(days=days_from_now)
    return Need(P4D, nodes, start, start + timedelta(days=days), "final run")


def test_a_block_has_whole_days_and_ends_at_half_past_eleven() -> None:
    block = block_for(moment("2026-12-01T12:00"), moment("2026-12-04T09:00"))
    assert block is not None and (f"{block.starts_at:%d %H:%M}", block.days, f"{block.ends_at:%d %H:%M}") == (
        "01 11:30",
        3,
        "04 11:30",
    )
    early = block_for(moment("2026-12-01T09:00"), moment("2026-12-01T12:00"))
    assert early is not None and (f"{early.starts_at:%m-%d %H:%M}", early.days) == ("11-30 11:30", 2)


@given(st.integers(0, 60 * 24 * 30), st.integers(1, 60 * 24 * 200))
def test_a_block_holds_the_need_in_steps_that_are_sold(start: int, minutes: int) -> None:
    begins = datetime(2026, 1, 1, tzinfo=NOW.tzinfo) + timedelta(minutes=start)
    block = block_for(begins, begins + timedelta(minutes=minutes))
    if block is None:
        assert minutes > 60 * 24 * 174
        return
    assert block.starts_at <= begins and block.ends_at >= begins + timedelta(minutes=minutes)
    assert (block.ends_at.hour, block.ends_at.minute) == (11, 30)
    assert 1 <= block.days <= 14 or (block.days % 7 == 0 and block.days <= 182)


def test_a_block_is_advised_where_all_of_it_costs_less_than_the_hours_on_demand() -> None:
    given_case = case(USED, RATES, needs=(need(7, 5),))
    (action,) = advice_capacity.actions(given_case)
    hours = action.evidence["block_hours"]
    assert isinstance(hours, int)
    assert action.saving_per_month == 4 * (120 * 22 - hours * 12)
    assert action.kind == "capacity_block" and "4 p4d.24xlarge" in action.what
    assert any("not refunded" in risk for risk in action.risks)
    assert "describe-capacity-block-offerings" in action.how[0] and f"--capacity-duration-hours {hours}" in action.how[0]


def test_a_need_of_hours_does_not_pay_a_whole_day() -> None:
    assert advice_capacity.actions(case(USED, RATES, needs=(need(7, 0.4),))) == []


def test_a_long_need_is_told_by_the_month() -> None:
    (action,) = advice_capacity.actions(case(USED, RATES, needs=(need(7, 61),)))
    months = F(61 * 24, 730)
    assert action.evidence["block_hours"] == 63 * 24
    assert action.saving_per_month == 4 * (61 * 24 * 22 - 63 * 24 * 12) / months


def test_free_reservations_come_first() -> None:
    terms = Terms(commitments=(owned("ri", 4),))
    (action,) = advice_capacity.actions(case(USED, RATES, terms, needs=(need(7, 5),)))
    assert action.evidence["nodes"] == 1, "one of four is in use"


def test_what_is_not_known_is_told_and_not_advised() -> None:
    long, past = need(1, 200), need(-9, 5)
    for rates, one, words in (
        ({P4D: [on_demand(22)]}, need(7, 5), "no capacity block price"),
        ({P4D: RATES[P4D][1:]}, need(7, 5), "no known on-demand rate"),
        (RATES, long, "longer than the longest"),
        (RATES, past, "is past"),
    ):
        given_case = case(USED, rates, needs=(one,))
        assert advice_capacity.actions(given_case) == []
        assert any(words in note for note in advice_capacity.notes(given_case))


def test_large_and_far_needs_are_told_the_limits_of_blocks() -> None:
    (action,) = advice_capacity.actions(case(USED, RATES, needs=(need(100, 10, nodes=100),)))
    told = " ".join(action.risks)
    assert "it takes 2 blocks" in told and "weeks ahead" in told
