"""Ranges and days: half-open, in a time zone, across daylight-saving changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.calendar import day_start, days, month_start, parse_instant, parse_range
from pricing.errors import BadRange

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Apia", "Africa/Cairo", "Australia/Lord_Howe")
NOW = datetime(2026, 11, 30, 7, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "tz", "utc"),
    [
        ("2026-03-01", "UTC", "2026-03-01T00:00:00"),
        ("2026-03-01", "Europe/Berlin", "2026-02-28T23:00:00"),
        ("2026-07-01", "Europe/Berlin", "2026-06-30T22:00:00"),
        (" 2026-03-01T12:30 ", "America/New_York", "2026-03-01T17:30:00"),
        ("2026-03-01T12:30:00Z", "America/New_York", "2026-03-01T12:30:00"),
        ("2026-03-01T12:30:00+05:30", "UTC", "2026-03-01T07:00:00"),
    ],
)
def test_a_date_is_its_local_midnight_and_a_time_may_have_an_offset(text: str, tz: str, utc: str) -> None:
    assert parse_instant(text, tz) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["2026-02-30", "yesterday", "", "2026-13-01", "30.11.2026", "2026-03-01T25:00", "9999-99-99"])
def test_what_is_no_date_is_named_and_an_example_given(text: str) -> None:
    with pytest.raises(BadRange) as error:
        parse_instant(text)
    assert str(error.value).startswith(f"'{text}' is no date: ")
    assert "2026-03-01T13:30" in str(error.value)


@pytest.mark.parametrize(("text", "tz"), [("0001-01-01", "Asia/Kolkata"), ("9999-12-31T23:59", "America/New_York")])
def test_a_date_at_the_end_of_the_calendar_is_refused_in_a_sentence(text: str, tz: str) -> None:
    with pytest.raises(BadRange, match="outside the calendar"):
        parse_instant(text, tz)


@pytest.mark.parametrize("tz", ["Mars/Base", "", "../etc/passwd", "Europe"])
def test_an_unknown_zone_is_a_sentence(tz: str) -> None:
    with pytest.raises(BadRange, match="is no IANA time zone"):
        parse_instant("2026-03-01", tz)


def test_a_range_that_ends_where_it_starts_or_before_is_refused() -> None:
    for end in ("2026-03-01", "2026-02-01"):
        with pytest.raises(BadRange, match="the end is exclusive"):
            parse_range("2026-03-01", end, now=NOW)
    with pytest.raises(BadRange, match="ends at now"):
        parse_range("2027-01-01", None, now=NOW)


def test_without_dates_a_range_is_this_month_until_now() -> None:
    start, end = parse_range(None, None, tz="Europe/Berlin", now=NOW)
    assert (start, end) == (datetime(2026, 10, 31, 23, tzinfo=UTC), NOW)


def test_a_month_that_begins_just_now_is_no_empty_range() -> None:
    begin = datetime(2026, 12, 1, tzinfo=UTC)
    for later in (timedelta(0), timedelta(microseconds=3), timedelta(milliseconds=1)):
        assert parse_range(None, None, now=begin + later) == (begin, begin + timedelta(milliseconds=1))
    assert parse_range(None, None, now=begin + timedelta(seconds=5)) == (begin, begin + timedelta(seconds=5))


@pytest.mark.parametrize(
    ("day", "tz", "hours"),
    [
        ("2026-03-29", "Europe/Berlin", 23),
        ("2026-10-25", "Europe/Berlin", 25),
        ("2026-03-08", "America/New_York", 23),
        ("2026-11-01", "America/New_York", 25),
        ("2026-04-24", "Africa/Cairo", 23),  # the change skips midnight itself
        ("2026-10-04", "Australia/Lord_Howe", 23.5),
        ("2026-03-29", "UTC", 24),
    ],
)
def test_a_day_with_a_clock_change_has_the_hours_it_has(day: str, tz: str, hours: float) -> None:
    start = parse_instant(day, tz)
    first = next(days(start, start + timedelta(days=3), tz))
    assert (first.label, first.end - first.start) == (day, timedelta(hours=hours))


def test_a_day_that_a_country_left_out_is_left_out() -> None:
    labels = [day.label for day in days(*parse_range("2011-12-29", "2012-01-01", tz="Pacific/Apia", now=NOW), "Pacific/Apia")]
    assert labels == ["2011-12-29", "2011-12-31"]


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)), st.timedeltas(timedelta(seconds=1), timedelta(days=400)),
    st.sampled_from(ZONES),
)  # fmt: skip
def test_the_days_of_a_range_tile_it(start: datetime, length: timedelta, tz: str) -> None:
    begin, end = start.replace(tzinfo=UTC), start.replace(tzinfo=UTC) + length
    found = list(days(begin, end, tz))
    assert found[0].start == begin and found[-1].end == end
    assert all(one.end == two.start for one, two in zip(found, found[1:], strict=False))
    assert len({day.label for day in found}) == len(found)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)), st.sampled_from(ZONES))
def test_a_day_and_a_month_start_at_or_before_each_moment_in_them(moment: datetime, tz: str) -> None:
    instant = moment.replace(tzinfo=UTC)
    assert month_start(instant, tz) <= day_start(instant, tz) <= instant
