"""The chart of a price: it fits, tells exact figures, and a gap is never a line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.support.examples import examples
from tui.history_chart import LEAST_HEIGHT, LEAST_WIDTH, draw

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
STEPS = [
    (START - DAY, Decimal("1.00")),
    (START + 2 * DAY, Decimal("2.00")),
    (START + 5 * DAY, None),
    (START + 6 * DAY, Decimal("1.50")),
]

ASCII = """\
min $1.000  mean $1.556  max $2.000  ? 10.0% not known
$3.000 |========================================================
       |
$2.333 |
       |           *****************
$1.667 |           *                     ***********************
       |           *
$1.000 |************                ?????
       ++---------------------+-----??????----------+-----------
        2026-03-01            Mar 05     Mar 07     Mar 09   UTC"""

BRAILLE = """\
min $1.000  mean $1.556  max $2.000  ░ 10.0% not known
$2.000 ┤           ⡏⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉
       ┤           ⡇
$1.667 ┤           ⡇
       ┤           ⡇                     ⠠⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤
$1.333 ┤           ⡇
       ┤           ⡇
$1.000 ┤⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⡇                ░░░░░
       └┴─────────────────────┴─────░░░░░░──────────┴───────────
        2026-03-01            Mar 05     Mar 07     Mar 09   UTC"""


def test_a_chart_in_ascii_has_dollars_times_the_gap_and_the_on_demand_line() -> None:
    lines = draw(STEPS, START, START + 10 * DAY, 64, 10, unicode=False, on_demand=Decimal(3))
    assert "\n".join(lines) == ASCII and ASCII.isascii()


def test_a_chart_in_braille_draws_steps_upright_and_leaves_the_gap_empty() -> None:
    assert "\n".join(draw(STEPS, START, START + 10 * DAY, 64, 10)) == BRAILLE


def test_a_gap_shorter_than_a_cell_is_still_marked_on_the_axis() -> None:
    hole = [(START, Decimal(1)), (START + 5 * DAY, None), (START + 5 * DAY + timedelta(minutes=1), Decimal(1))]
    lines = draw(hole, START, START + 10 * DAY, 60, 9)
    assert lines[-2].count("░") == 1 and "0.1% not known" in lines[0]


def test_nothing_known_and_no_room_are_said_in_words() -> None:
    assert draw([], START, START + DAY, 60, 9) == ["no price is known in this time"]
    assert draw([(START, None)], START, START + DAY, 60, 9) == ["no price is known in this time"]
    small = draw([(START, Decimal(1))], START, START + DAY, LEAST_WIDTH - 1, 20)
    assert small == ["min $1.000  mean $1.000"]
    assert len(draw([(START, Decimal(1))], START, START + DAY, 60, LEAST_HEIGHT - 1)) == 1
    with pytest.raises(ValueError, match="after its start"):
        draw([], START, START, 60, 9)


def test_currency_zone_and_short_times_are_shown() -> None:
    lines = draw([(START, Decimal("26.46"))], START, START + DAY, 60, 9, currency="CNY", tz=ZoneInfo("Asia/Shanghai"))
    assert "min CNY 26.46" in lines[0] and "2026-03-01 08:00" in lines[-1] and lines[-1].endswith("CST")


def test_times_stand_where_their_prices_do_also_after_a_clock_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    start, noon = datetime(2026, 3, 29, tzinfo=zone), datetime(2026, 3, 29, 12, tzinfo=zone)
    end = (start.astimezone(UTC) + DAY).astimezone(zone)
    steps = [(start, Decimal(1)), (noon, Decimal(2))]
    lines = draw(steps, start, end, 121, 12, unicode=False, tz=zone)
    rise = next(line.index("*") for line in lines if line.startswith("$2.000"))
    assert lines[-1].index("12:00") == rise


@given(
    st.dictionaries(st.integers(-100, 5000), st.none() | st.decimals("0.0001", "200", places=4), max_size=12),
    st.integers(1, 5000),
    st.integers(LEAST_WIDTH, 130),
    st.integers(LEAST_HEIGHT, 40),
    st.booleans(),
    st.none() | st.decimals("0.01", "300", places=2),
)
@settings(max_examples=examples(120), deadline=None)
def test_any_prices_fit_into_any_size(
    points: dict[int, Decimal | None], hours: int, width: int, height: int, unicode: bool, on_demand: Decimal | None
) -> None:
    steps = [(START + timedelta(hours=at), price) for at, price in sorted(points.items())]
    lines = draw(steps, START, START + timedelta(hours=hours), width, height, unicode=unicode, on_demand=on_demand)
    assert len(lines) in (1, height)
    assert all(cell_len(line) <= width and line.isprintable() for line in lines)
    assert unicode or all(line.isascii() for line in lines)
