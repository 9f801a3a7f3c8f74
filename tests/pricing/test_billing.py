"""Billed seconds as the providers document them, monthly items, and the worth of a node's parts."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.billing import RULES, Rule, billed, rule_for
from pricing.calendar import milliseconds
from pricing.items import Item
from pricing.weights import GIB, Weights, worth

CASES = [
    # cloud, purchase, ran for seconds, taken back by the cloud, billed seconds
    ("aws", "on_demand", "0", False, 0),
    ("aws", "on_demand", "1", False, 60),
    ("aws", "on_demand", "59.999", False, 60),
    ("aws", "on_demand", "60", False, 60),
    ("aws", "on_demand", "60.001", False, 61),
    ("aws", "on_demand", "3599", False, 3599),
    ("aws", None, "10", False, 60),
    ("aws", "spot", "3599.999", True, 0),  # interrupted by AWS in the first hour: free
    ("aws", "spot", "3600", True, 3600),  # later: by the second
    ("aws", "spot", "3700.5", True, 3701),
    ("aws", "spot", "1800", False, 1800),  # ended by its user: by the second
    ("aws", "spot", "10", False, 60),
    ("aws", "on_demand", "1800", True, 1800),
    ("gcp", "on_demand", "10", False, 60),
    ("gcp", "spot", "10", True, 60),
    ("azure", "on_demand", "10.2", False, 11),
    ("hetzner", "on_demand", "1", False, 3600),
    ("hetzner", "on_demand", "3601", False, 7200),
    ("elsewhere", "on_demand", "0.1", False, 1),
]


@pytest.mark.parametrize(("cloud", "purchase", "ran", "interrupted", "expected"), CASES)
def test_a_machine_is_billed_as_its_provider_documents(
    cloud: str, purchase: str | None, ran: str, interrupted: bool, expected: int
) -> None:
    assert billed(Fraction(ran), rule_for(cloud, purchase), interrupted=interrupted) == expected


def test_the_users_own_rule_comes_before_the_documented_one() -> None:
    own = (Rule("aws", "on_demand", granularity_seconds=3600), Rule(None, "spot", minimum_seconds=600))
    assert billed(Fraction(61), rule_for("aws", "on_demand", own)) == 3600
    assert billed(Fraction(61), rule_for("gcp", "spot", own)) == 600
    assert billed(Fraction(61), rule_for("aws", "reserved_1y", own)) == 61


@given(st.fractions(0, 10**6), st.sampled_from(RULES), st.booleans())
def test_what_is_billed_covers_what_ran_and_is_whole(ran: Fraction, rule: Rule, interrupted: bool) -> None:
    amount = billed(ran, rule, interrupted=interrupted)
    assert amount % rule.granularity_seconds == 0
    assert (amount == 0 and (ran == 0 or interrupted)) or ran <= amount < max(
        ran, rule.minimum_seconds
    ) + rule.granularity_seconds


def ms(*day: int) -> int:
    return milliseconds(datetime(*day, tzinfo=UTC))  # type: ignore[misc, arg-type]


def test_a_monthly_item_is_spread_over_the_hours_of_each_month() -> None:
    item = Item("storage", "data", Fraction(310))
    pieces = list(item.pieces(ms(2026, 2, 28), ms(2026, 4, 2)))
    assert [cost for *_, cost in pieces] == [Fraction(310, 28), 310, Fraction(310, 30)]
    assert pieces[0][:2] == (ms(2026, 2, 28), ms(2026, 3, 1))
    until = Item("storage", "data", Fraction(310), starts_ms=ms(2026, 3, 31), ends_ms=ms(2026, 4, 1))
    assert [cost for *_, cost in until.pieces(ms(2025, 1, 1), ms(2027, 1, 1))] == [10]
    assert list(until.pieces(ms(2026, 4, 1), ms(2027, 1, 1))) == []


@given(st.lists(st.integers(ms(2026, 1, 1), ms(2027, 6, 1)), min_size=2, max_size=6))
def test_parts_of_a_range_pay_the_item_exactly_once(cuts: list[int]) -> None:
    item = Item("egress", "out", Fraction(100), starts_ms=ms(2026, 2, 3), ends_ms=ms(2027, 1, 31))
    cuts.sort()
    cost = [sum(cost for *_, cost in item.pieces(one, two)) for one, two in zip(cuts, cuts[1:], strict=False)]
    assert sum(cost) == sum(cost for *_, cost in item.pieces(cuts[0], cuts[-1]))


def test_a_nodes_price_divides_by_the_documented_weights() -> None:
    found = worth(8, 96, 1152 * GIB, Weights())
    assert found is not None and 8 * found.gpu + 96 * found.vcpu + 1152 * found.memory_gib == 1
    assert [round(float(part), 3) for part in (8 * found.gpu, 96 * found.vcpu, 1152 * found.memory_gib)] == [0.49, 0.196, 0.315]
    assert worth(8, None, 1152 * GIB, Weights()) is None is worth(8, 96, None, Weights())
    assert worth(8, 96, 1152 * GIB, Weights(Fraction(1), Fraction(0), Fraction(0))) == (Fraction(1, 8), 0, 0)
    assert worth(0, 96, 1152 * GIB, Weights(Fraction(1), Fraction(0), Fraction(0))) is None


@given(st.integers(0, 16), st.integers(0, 256), st.integers(0, 4096), st.tuples(*[st.fractions(0, 2)] * 3))
def test_what_a_node_has_is_worth_its_price_whatever_the_weights(
    gpus: int, vcpus: int, gib: int, weights: tuple[Fraction, Fraction, Fraction]
) -> None:
    found = worth(gpus, vcpus, gib * GIB, Weights(*weights))
    assert found is None or (gpus * found.gpu + vcpus * found.vcpu + gib * found.memory_gib == 1 and min(found) >= 0)
