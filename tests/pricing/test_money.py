"""Money is exact, has one currency, and says clearly what is none."""

from __future__ import annotations

import math
import operator
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.errors import BadMoney, CurrencyMismatch, PricingError
from pricing.money import Money, PerHour, Rate, parse_decimal, round_largest_remainder, to_decimal

amounts = st.decimals(min_value=-(10**9), max_value=10**9, places=10)
fractions = st.fractions(min_value=-1000, max_value=10**6, max_denominator=10**6)


@pytest.mark.parametrize("value", [3.06, math.nan, math.inf, True, 0.0])
@pytest.mark.parametrize("kind", [Money, PerHour])
def test_a_float_never_becomes_money(kind: type[Money] | type[PerHour], value: float) -> None:
    with pytest.raises(BadMoney, match="not exact"):
        kind(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("   ", "is empty"),
        ("nan", "not a number"),
        ("-sNaN", "not a number"),
        ("inf", "infinite"),
        ("-Infinity", "infinite"),
        ("3,06", "decimal comma: write a point, like '3.06'"),
        ("1,234.50", "thousands separators"),
        ("1,234", "thousands separators"),
        ("1_000", "thousands separators"),
        ("1 000.5", "thousands separators"),
        ("$3.06", "currency sign"),
        ("3.06 USD", "currency sign"),
        ("€3", "currency sign"),
        ("three", "not a decimal number"),
        ("0x10", "not a decimal number"),
        ("３", "not a decimal number"),
        ("3.06/h", "not a decimal number"),
        ("--3", "not a decimal number"),
        ("1e16", "too large"),
        ("1e999", "too large"),
        ("1e-31", "more than 30 decimal places"),
    ],
)
def test_what_is_no_amount_is_said_why(text: str, says: str) -> None:
    with pytest.raises(BadMoney) as caught:
        parse_decimal(text, "usd_per_hour")
    assert says in str(caught.value)
    assert str(caught.value).startswith("The usd_per_hour")


def test_the_error_of_a_long_text_stays_short() -> None:
    with pytest.raises(BadMoney) as caught:
        parse_decimal("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [None, b"3", [], Decimal("NaN"), Decimal("-Infinity"), Decimal("sNaN")])
def test_what_is_not_a_number_at_all_is_refused(value: object) -> None:
    with pytest.raises(BadMoney):
        parse_decimal(value)


PLAIN = [("3.06", "3.06"), (" 3 ", "3"), ("+.5", "0.5"), ("-2.", "-2"), ("1e3", "1000")]


@pytest.mark.parametrize(("text", "amount"), PLAIN)
def test_plain_decimal_texts_are_read(text: str, amount: str) -> None:
    assert parse_decimal(text) == Decimal(amount)


@pytest.mark.parametrize("currency", ["usd", "US", "USDT", "", "$", None, 840])
def test_a_currency_is_three_capital_letters(currency: object) -> None:
    with pytest.raises(BadMoney, match="currency"):
        PerHour(Decimal(1), currency)  # type: ignore[arg-type]


def test_money_is_frozen_and_hashable_and_equal_by_value() -> None:
    price = PerHour(Decimal("3.0"))
    with pytest.raises(AttributeError):
        price.amount = Decimal(4)  # type: ignore[misc]
    assert {price, PerHour(Decimal("3.00")), PerHour(3)} == {price}
    assert price != PerHour(Decimal("3.0"), "CNY")


def test_an_amount_and_an_amount_per_hour_are_different_things() -> None:
    assert Money(Decimal(3)) != PerHour(Decimal(3))
    with pytest.raises(TypeError):
        Money(Decimal(3)) + PerHour(Decimal(3))
    with pytest.raises(TypeError):
        _ = Money(Decimal(3)) < PerHour(Decimal(3))
    with pytest.raises(TypeError):
        Money(Decimal(3)) + 3  # type: ignore[operator]


def test_different_currencies_do_not_add_or_compare() -> None:
    dollars, yuan = PerHour(Decimal(3)), PerHour(Decimal(26), "CNY")
    for operation in (operator.add, operator.sub, operator.lt, operator.ge, max):
        with pytest.raises(CurrencyMismatch, match="convert one with a dated rate"):
            operation(dollars, yuan)
    assert issubclass(CurrencyMismatch, PricingError)


def test_only_a_dated_rate_converts() -> None:
    rate = Rate("CNY", "USD", Decimal("0.137"), date(2024, 12, 31))
    assert rate.convert(PerHour(Decimal("26.46"), "CNY")) == PerHour(Decimal("3.62502"))
    assert rate.convert(Money(Decimal(100), "CNY")) == Money(Decimal("13.7"))
    with pytest.raises(CurrencyMismatch, match="cannot convert USD"):
        rate.convert(Money(Decimal(1)))


@pytest.mark.parametrize("value", [Decimal(0), Decimal(-1), 0.137, "abc"])
def test_a_rate_is_a_positive_exact_number(value: object) -> None:
    with pytest.raises(BadMoney):
        Rate("CNY", "USD", value, date(2024, 12, 31))  # type: ignore[arg-type]


@given(amounts, amounts)
def test_sums_and_differences_are_exact_and_ordered(a: Decimal, b: Decimal) -> None:
    first, second = Money(a), Money(b)
    assert (first + second).fraction == Fraction(a) + Fraction(b)
    assert (first - second) + second == first
    assert (first < second) == (a < b)
    assert (first >= second) == (a >= b)
    assert -first + first == Money(0)


def test_sums_do_not_lose_digits_to_the_usual_28() -> None:
    large, small = Money(Decimal(10) ** 15), Money(Decimal("1e-30"))
    assert (large + small) - large == small


@given(amounts, st.fractions(min_value=0, max_value=10**4, max_denominator=3600))
def test_cost_of_hours_is_exact_for_every_fraction(price: Decimal, hours: Fraction) -> None:
    assert PerHour(price).cost(hours) == Fraction(price) * hours


def test_what_has_no_exact_decimal_is_an_error_not_a_rounding() -> None:
    assert PerHour(Decimal("3.06")) * Fraction(1, 3) == PerHour(Decimal("1.02"))
    with pytest.raises(BadMoney, match="no exact decimal"):
        PerHour(Decimal("1")) * Fraction(1, 3)
    with pytest.raises(BadMoney):
        PerHour(Decimal("1")) * 0.5  # type: ignore[operator]
    with pytest.raises(BadMoney):
        PerHour(Decimal("1")).cost(Decimal("NaN"))
    assert 2 * PerHour(Decimal("1.5")) == PerHour(3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (PerHour(Decimal("3.06")), "$3.06/h"),
        (PerHour(Decimal("21.957642")), "$21.957642/h"),
        (PerHour(Decimal("26.46"), "CNY"), "CNY 26.46/h"),
        (Money(Decimal("1234567.5")), "$1,234,567.50"),
        (Money(Decimal("26.46"), "CNY"), "CNY 26.46"),
        (Money(Decimal("-3.06")), "-$3.06"),
        (Money(Decimal("1E+3")), "$1,000.00"),
        (Money(Decimal("-0.00")), "$0.00"),
        (Money(Decimal("0.0000001")), "$0.0000001"),
    ],
)
def test_money_is_written_the_way_people_write_it(value: Money | PerHour, text: str) -> None:
    assert str(value) == text


def test_asked_for_places_round_half_to_even() -> None:
    assert PerHour(Decimal("2.345")).text(2) == "$2.34/h"
    assert Money(Decimal("1234.5")).text(0) == "$1,234"
    assert Money(Decimal("2.355")).rounded(2) == Money(Decimal("2.36"))
    assert Money(Decimal("-0.001")).text(2) == "$0.00"


@given(st.fractions(max_denominator=10**9, min_value=-(10**9), max_value=10**9), st.integers(0, 10))
def test_rounding_is_at_most_half_a_unit(value: Fraction, places: int) -> None:
    assert abs(Fraction(to_decimal(value, places)) - value) * 10**places <= Fraction(1, 2)


@given(st.lists(fractions, max_size=30), st.integers(0, 8))
def test_rounded_parts_sum_to_the_rounded_total(parts: list[Fraction], places: int) -> None:
    rounded = round_largest_remainder(parts, places)
    assert sum(map(Fraction, rounded)) == Fraction(to_decimal(sum(parts, Fraction(0)), places))


@given(st.lists(fractions, max_size=30), st.integers(0, 8))
def test_each_rounded_part_is_less_than_a_unit_away(parts: list[Fraction], places: int) -> None:
    for part, value in zip(parts, round_largest_remainder(parts, places), strict=True):
        assert abs(Fraction(value) - part) * 10**places < 1
        if (part * 10**places).denominator == 1:
            assert Fraction(value) == part
        assert value.as_tuple().exponent == -places


def test_equal_remainders_are_served_in_order() -> None:
    third = Fraction(1, 3)
    assert round_largest_remainder([third] * 3, 2) == [Decimal("0.34"), Decimal("0.33"), Decimal("0.33")]
    assert round_largest_remainder([Decimal("0.5"), Decimal("0.5")], 0) == [Decimal(1), Decimal(0)]
    assert round_largest_remainder([], 2) == []


@given(st.integers(1, 64))
def test_shares_of_equal_holders_sum_to_one(holders: int) -> None:
    assert sum(round_largest_remainder([Fraction(1, holders)] * holders, 6)) == 1


def test_parts_that_are_floats_are_refused() -> None:
    with pytest.raises(BadMoney):
        round_largest_remainder([0.5], 2)  # type: ignore[list-item]
