"""Plots as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.ui.widgets.plot import area, bar, halved

RATIOS = st.lists(st.one_of(st.none(), st.floats(0, 1.5)), max_size=200)


@given(RATIOS, st.integers(1, 40), st.integers(1, 4))
def test_an_area_has_exactly_its_size(values: list[float | None], width: int, height: int) -> None:
    rows = area(values, width, height)
    assert len(rows) == height and all(len(row) == width for row in rows)
    assert all(0x2800 <= ord(cell) <= 0x28FF for row in rows for cell in row)


def test_zero_is_drawn_and_not_known_is_a_gap() -> None:
    assert area([0.0, 0.0], 1) == ["⣀"]
    assert area([None, None], 1) == ["⠀"]
    assert area([1.0, None], 1) == ["⡇"]
    assert area([], 2) == ["⠀⠀"]


def test_full_fills_all_rows_and_half_the_lower_ones() -> None:
    assert area([1.0, 1.0], 1, 2) == ["⣿", "⣿"]
    assert area([0.5, 0.5], 1, 2) == ["⠀", "⣿"]


def test_the_newest_value_is_at_the_right() -> None:
    assert area([0.0, 0.0, 0.0, 1.0], 2) == ["⣀⣸"]
    assert area([1.0] * 10 + [0.0] * 4, 2) == ["⣀⣀"]


@given(st.one_of(st.none(), st.floats(-1, 3)), st.integers(0, 40))
def test_a_bar_has_exactly_its_width(ratio: float | None, width: int) -> None:
    filled, empty = bar(ratio, width)
    assert len(filled) + len(empty) == width


@pytest.mark.parametrize(
    ("ratio", "shown"), [(None, "────"), (0.0, "────"), (0.5, "━━──"), (0.6, "━━╸─"), (1.0, "━━━━"), (7.0, "━━━━")]
)
def test_a_bar_is_heavy_where_it_is_full(ratio: float | None, shown: str) -> None:
    assert "".join(bar(ratio, 4)) == shown


def test_halving_keeps_the_newest_pair_whole_and_ignores_what_is_not_known() -> None:
    assert halved([9.0, 1.0, 0.0, 0.5, None]) == [0.5, 0.5]
    assert halved([0.25, 0.75, None, None]) == [0.5, None]
