"""Discounts and exchange rates: dated, never stacked, never made up."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest

from pricing.contracts import Discount, factors, type_matches
from pricing.currency import Exchange
from pricing.price_steps import constant, made, value_at

HALF = Fraction(1, 2)


def test_of_several_discounts_the_largest_of_each_moment_counts_in_whatever_order_they_stand() -> None:
    held = [
        Discount("aws", Fraction(10), starts_ms=0, ends_ms=100),
        Discount("aws", Fraction(25), "p4d.*", starts_ms=50, ends_ms=60),
        Discount("aws", Fraction(5)),
        Discount("aws", Fraction(90), "p5.*"),
        Discount("gcp", Fraction(90)),
        Discount("aws", Fraction(90), purchase="spot"),
        Discount("aws", Fraction(90), region="eu-west-1"),
    ]
    for order in permutations(held[:3]):
        found = factors([*order, *held[3:]], "AWS", "us-east-1", "p4d.24xlarge", "on_demand")
        expected = [(-5, 95), (0, 90), (49, 90), (50, 75), (59, 75), (60, 90), (100, 95), (10**9, 95)]
        assert [value_at(found, at) for at, _ in expected] == [Fraction(percent, 100) for _, percent in expected]
    assert factors(held, "on_premises", None, None, None) == constant(Fraction(1))


@pytest.mark.parametrize(("cloud", "pattern", "name", "matches"), [
    ("aws", "p4d.*", "p4d.24xlarge", True), ("aws", "P4D.*", "p4d.24xlarge", True), ("aws", "p4d", "p4d.24xlarge", False),
    ("azure", "NC6s_v3", "Standard_NC6s_v3", True), ("azure", "standard_nc*", "Standard_NC6s_v3", True),
    ("alibaba", "gn7*", "ecs.gn7-c12g1.3xlarge", True), ("aws", "*", "anything", True),
])  # fmt: skip
def test_types_match_however_they_are_spelt(cloud: str, pattern: str, name: str, matches: bool) -> None:
    assert type_matches(cloud, pattern, name) is matches


def test_an_exchange_rate_holds_from_its_day_on_and_there_is_none_before() -> None:
    exchange = Exchange({"CNY": made([(100, Fraction("0.14")), (200, Fraction("0.15"))]), "EUR": constant(Fraction("1.2"))})
    to_usd = exchange.steps("CNY", "USD")
    assert to_usd is not None
    assert [value_at(to_usd, at) for at in (99, 100, 199, 200)] == [None, Fraction("0.14"), Fraction("0.14"), Fraction("0.15")]
    to_eur = exchange.steps("CNY", "EUR")
    assert to_eur is not None and value_at(to_eur, 100) == Fraction("0.14") / Fraction("1.2")
    assert exchange.steps("USD", "USD") == exchange.steps("GBP", "GBP") == constant(Fraction(1))
    assert exchange.steps("GBP", "USD") is None and exchange.steps("USD", "GBP") is None
    assert exchange.why_not("GBP", "USD") == "Its price is in GBP, the report in USD, and no exchange rate is given"
    assert exchange.why_not("CNY", "USD").endswith("no exchange rate is given for before 1970-01-01")
    assert exchange.used("CNY", "USD").startswith("Prices in CNY are told in USD at 1 CNY = 0.14 USD from 1970-01-01; 1 CNY")
