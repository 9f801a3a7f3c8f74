"""Controlled rounding: cells, rows and columns all within one unit of what is exact."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.money import largest_remainder
from pricing.reports.rounding import controlled

AMOUNTS = st.fractions(min_value=0, max_value=1000, max_denominator=997)


@settings(deadline=None)
@given(st.lists(AMOUNTS, min_size=1))
def test_largest_remainder_sums_to_the_rounded_sum(parts: list[Fraction]) -> None:
    goal = round(sum(parts))
    units = largest_remainder(parts, goal)
    assert sum(units) == goal
    assert all(abs(unit - part) < 1 for unit, part in zip(units, parts, strict=True))


@settings(deadline=None)
@given(st.integers(1, 30).flatmap(lambda rows: st.lists(st.lists(AMOUNTS, min_size=rows, max_size=rows), min_size=4, max_size=4)))
def test_columns_reach_their_goals_and_rows_stay_within_a_unit(columns: list[list[Fraction]]) -> None:
    totals = [sum(column, Fraction(0)) for column in columns]
    goals = largest_remainder(totals, round(sum(totals)))
    units = controlled(columns, goals)
    assert [sum(column) for column in units] == goals
    for column, exact in zip(units, columns, strict=True):
        assert all(abs(unit - part) < 1 for unit, part in zip(column, exact, strict=True))
    for row in range(len(columns[0])):
        shown = sum(column[row] for column in units)
        assert abs(shown - sum(column[row] for column in columns)) < 1


def test_a_row_of_two_cells_is_not_off_by_both() -> None:
    columns = [[Fraction(26, 10), Fraction(1, 10), Fraction(3, 10)], [Fraction(26, 10), Fraction(3, 10), Fraction(1, 10)]]
    units = controlled(columns, [3, 3])
    assert [a + b for a, b in zip(*units, strict=True)] in ([5, 1, 0], [5, 0, 1], [6, 0, 0])
    assert [sum(column) for column in units] == [3, 3]
