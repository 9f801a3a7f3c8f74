"""Prices over time: each hour has one exact rate, and nothing is lost between two moments."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from pricing.ledger_merge import HOUR_MS
from pricing.price_steps import (
    ALWAYS,
    Steps,
    changes,
    combined,
    constant,
    first_known,
    hour_rate,
    integral,
    made,
    value_at,
)

VALUES = st.one_of(st.none(), st.fractions(0, 100, max_denominator=1000))
POINTS = st.lists(st.tuples(st.integers(0, 10 * HOUR_MS), VALUES), max_size=6)


def steps(points: list[tuple[int, Fraction | None]]) -> Steps:
    return made(sorted(points, key=lambda point: point[0]), Fraction(1))


def plain_mean(found: Steps, hour: int) -> Fraction | None:
    """Cuts the hour at every step and weighs by hand."""
    edges = sorted(
        {hour * HOUR_MS, (hour + 1) * HOUR_MS, *(at for at, _ in found if hour * HOUR_MS < at < (hour + 1) * HOUR_MS)}
    )
    parts = [(until - since, value_at(found, since)) for since, until in zip(edges, edges[1:], strict=False)]
    if any(value is None for _, value in parts):
        return None
    return sum((length * value for length, value in parts if value is not None), Fraction(0)) / HOUR_MS


@given(POINTS, st.integers(0, 10))
def test_an_hours_rate_is_the_time_weighted_mean_and_unknown_as_soon_as_a_moment_of_it_is(
    points: list[tuple[int, Fraction | None]], hour: int
) -> None:
    assert hour_rate(steps(points), hour) == plain_mean(steps(points), hour)


@given(POINTS)
def test_rates_change_only_in_the_hours_that_are_said_to(points: list[tuple[int, Fraction | None]]) -> None:
    found = steps(points)
    for hour in range(1, 12):
        if hour not in changes(found):
            assert hour_rate(found, hour) == hour_rate(found, hour - 1)


@given(POINTS, st.lists(st.integers(0, 10 * HOUR_MS), min_size=2, max_size=5))
def test_the_integrals_of_parts_sum_to_that_of_the_whole(points: list[tuple[int, Fraction | None]], cuts: list[int]) -> None:
    cuts.sort()
    parts = [integral(steps(points), one, two) for one, two in zip(cuts, cuts[1:], strict=False)]
    assert sum(parts) == integral(steps(points), cuts[0], cuts[-1])


@given(POINTS, POINTS, st.integers(0, 10 * HOUR_MS))
def test_combined_steps_are_the_function_of_both_at_every_moment(
    one: list[tuple[int, Fraction | None]], other: list[tuple[int, Fraction | None]], at: int
) -> None:
    first, second = value_at(steps(one), at), value_at(steps(other), at)
    product = value_at(combined(lambda a, b: a * b, steps(one), steps(other)), at)
    assert product == (None if first is None or second is None else first * second)
    assert value_at(first_known(steps(one), steps(other)), at) == (second if first is None else first)


def test_a_price_that_changes_at_twenty_past_counts_a_third_of_that_hour() -> None:
    found = made([(HOUR_MS + HOUR_MS // 3, Fraction(6))], Fraction(3))
    assert [hour_rate(found, hour) for hour in range(4)] == [3, 5, 6, 6]
    assert changes(found) == {1, 2} and changes(made([(HOUR_MS, Fraction(6))], Fraction(3))) == {1}
    assert made([(5, None), (9, None)]) == constant(None) == ((ALWAYS, None),)
