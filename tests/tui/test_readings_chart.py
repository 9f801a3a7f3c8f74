"""A reading drawn over time: widths, scale, times, and what is not known."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.node_history import SPANS, Curve, curve
from tui.readings_chart import Scale, axis, fitting, labels, scales, ticks, times_line, title

AT = datetime(2026, 11, 30, 14, 3, tzinfo=UTC).timestamp()
UTILISATION = scales(None, None)["utilization"]


DAYS = (datetime(2026, 11, 30, 14, 3), datetime(2026, 3, 29), datetime(2026, 10, 25), datetime(2026, 10, 4), datetime(2026, 4, 5))
"""An ordinary moment; the days on which clocks change in Europe, and on Lord Howe Island by half an hour."""
ZONES = ("UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns", "Australia/Lord_Howe")


@given(st.sampled_from(SPANS), st.integers(5, 200), st.sampled_from(ZONES), st.sampled_from(DAYS), st.floats(-90_000, 180_000))
def test_times_stand_in_order_under_their_marks_on_every_day(
    span: object, cells: int, zone: str, day: datetime, seconds: float
) -> None:
    end = day.replace(tzinfo=UTC).timestamp() + seconds
    start = end - span.seconds  # type: ignore[attr-defined]
    found = ticks(start, end, cells, ZoneInfo(zone))
    assert [cell for cell, _ in found] == sorted({cell for cell, _ in found}) and all(0 <= cell < cells for cell, _ in found)
    assert len(times_line(found, cells)) == cells
    assert cells < 40 or len(found) >= 2


def test_times_are_those_that_people_name_in_the_readers_zone() -> None:
    hours = [label for _, label in ticks(AT - 86_400, AT, 80, UTC)]
    assert hours == ["15:00", "18:00", "21:00", "Mon 30", "03:00", "06:00", "09:00", "12:00"]
    week = [label for _, label in ticks(AT - 604_800, AT, 80, ZoneInfo("Europe/Berlin"))]
    assert week == ["Tue 24", "Wed 25", "Thu 26", "Fri 27", "Sat 28", "Sun 29", "Mon 30"]
    assert [label for _, label in ticks(AT - 60, AT, 60, UTC)][:2] == ["14:02:00", "14:02:10"]


def test_a_day_of_twenty_five_hours_keeps_its_midnights() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    end = datetime(2026, 10, 27, 12, tzinfo=berlin).timestamp()
    assert [label for _, label in ticks(end - 604_800, end, 100, berlin)][-3:] == ["Sun 25", "Mon 26", "Tue 27"]


@pytest.mark.parametrize(
    ("end", "span", "times"),
    [
        ("2026-10-25 14:05:20+01:00", 60, ["14:04:20", "14:04:30", "14:04:40", "14:04:50", "14:05:00", "14:05:10"]),
        ("2027-03-28 14:05:20+02:00", 60, ["14:04:20", "14:04:30", "14:04:40", "14:04:50", "14:05:00", "14:05:10"]),
        ("2027-03-28 03:20:00+02:00", 3600, ["01:20", "01:30", "01:40", "01:50", "03:00", "03:10"]),
        ("2026-10-25 02:20:00+01:00", 3600, ["02:20", "02:30", "02:40", "02:50", "02:00", "02:10"]),
        ("2027-03-28 06:30:00+02:00", 18_000, ["01:00", "03:00", "04:00", "05:00", "06:00"]),
    ],
)
def test_a_clock_change_leaves_the_times_of_its_day_where_they_are(end: str, span: float, times: list[str]) -> None:
    at = datetime.fromisoformat(end).timestamp()
    assert [label for _, label in ticks(at - span, at, 60, ZoneInfo("Europe/Berlin"))] == times


def test_what_is_not_known_is_marked_on_the_axis_and_said_in_the_title() -> None:
    found = curve([0.0, 1.0], [0.5, 0.5], 1.0, 0.0, 10.0, 20)
    assert axis(found, 10, []) == "───░░░░░░░"
    name, value, tail = title(UTILISATION, 0.5, found, 80)
    assert (name, value) == ("utilisation", "50%") and "mean 50%  max 50%" in tail and "70% not known" in tail
    assert title(UTILISATION, None, Curve([None] * 4, None, None, 0.0), 40) == ("utilisation", "–", "nothing known")


@pytest.mark.parametrize("cells", [0, 3, 8, 12, 20, 30, 60])
def test_a_title_never_is_wider_than_its_place(cells: int) -> None:
    found = curve([0.0], [0.5], 1.0, 0.0, 10.0, 20)
    name, value, tail = title(UTILISATION, 0.5, found, cells)
    assert len(name) + len(value) + len(tail) <= max(cells, len(value))


def test_the_scale_holds_all_that_is_drawn_and_its_labels_are_of_one_width() -> None:
    power = scales(None, 400.0)["power"]
    assert fitting(power, Curve([], 300.0, 450.0, 1.0)).top == 450 and fitting(power, Curve([], None, None, 0.0)).top == 400
    unknown = scales(None, None)["memory"]
    assert fitting(unknown, Curve([], None, None, 0.0)).top == 1.0
    assert labels(power, 6) == [" 400W", "     ", "     ", " 200W", "     ", "    0"]
    assert labels(Scale("x", 1.0, lambda value: "123456789"), 1) == ["12345"]
