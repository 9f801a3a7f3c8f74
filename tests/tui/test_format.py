"""Values as short text: fixed precision, never an invented digit."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from tui import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (Fraction(0), "$0.00"), (Fraction(1, 3), "$0.33"), (Fraction(2, 3), "$0.67"), (Decimal("1234.5"), "$1,234.50"),
        (Fraction("0.005"), "$0.00"), (Fraction("0.015"), "$0.02"), (Decimal("-2.5"), "-$2.50"), (Fraction(10**9), "$1,000,000,000.00"),
    ],
)  # fmt: skip
def test_usd_rounds_half_even_to_the_cent(value: Fraction | Decimal | None, text: str) -> None:
    assert fmt.usd(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0s"), (119.9, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_799, "47h"), (172_800, "2d")],
)
def test_ages_are_whole_units_rounded_down(seconds: float | None, text: str) -> None:
    assert fmt.age(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0W"), (999.4, "999W"), (3200, "3.2kW"), (1_400_000, "1.40MW")])
def test_watts(value: float | None, text: str) -> None:
    assert fmt.watts(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0B"), (1023, "1023B"), (1024, "1.0K"), (85_899_345_920, "80.0G"), (2**50 * 3000, "3000P")],
)
def test_sizes_are_binary(value: float | None, text: str) -> None:
    assert fmt.size(value) == text


@pytest.mark.parametrize(("ratio", "cell"), [(None, "·"), (0.0, "▁"), (0.01, "▁"), (0.5, "▄"), (1.0, "█"), (1.3, "█")])
def test_a_bar_of_one_cell_tells_zero_from_not_known(ratio: float | None, cell: str) -> None:
    assert fmt.bar_cell(ratio) == cell


@pytest.mark.parametrize("evil", ["\x1b[31m", "\x07", "a\nb", "\x9b2J", "\u202e", "\x7f", "\x00"])
def test_control_characters_never_reach_the_terminal(evil: str) -> None:
    assert fmt.clean(f"x{evil}y").isprintable()


def test_ordinary_text_is_left_alone() -> None:
    assert fmt.clean("Jürgen 東京 ok") == "Jürgen 東京 ok"


@pytest.mark.parametrize(
    ("value", "cells", "text"),
    [
        (Fraction(1419321, 100), 10, "$14,193.21"), (Fraction(1419321, 100), 9, "$14,193"), (Fraction(1419321, 100), 6, "$14.2k"),
        (Fraction(141932100), 9, "$141.9M"), (Fraction(-1419321, 100), 8, "-$14,193"), (Fraction(99999), 6, "$0.1M"), (None, 3, "–"),
    ],
)  # fmt: skip
def test_money_is_rounded_to_the_cells_there_are_and_never_cut(value: Fraction | None, cells: int, text: str) -> None:
    assert fmt.usd_in(value, cells) == text
    assert fmt.usd_in(Fraction(5), 6, "~") == "~$5.00"
