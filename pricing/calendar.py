"""Ranges and calendar days: what `--from 2026-03-01` means in a time zone, as UTC instants.

Invariant: every range is half-open; the days of a range tile it, so a day with a daylight-saving change has 23 or 25
hours and the days' sums are the range's. Reads no clock: `now` is always given.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pricing.errors import BadRange

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Day(NamedTuple):
    """One calendar day, or the part of it that a range covers. `start` and `end` are UTC."""

    label: str
    """`2026-03-29`."""
    start: datetime
    end: datetime


def zone(name: str) -> ZoneInfo:
    """The IANA zone of that name, or BadRange."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadRange(f"'{name}' is no IANA time zone: write one like Europe/Berlin or UTC.") from None


def milliseconds(instant: datetime) -> int:
    """UTC milliseconds since 1970 of an aware time; parts of a millisecond are dropped."""
    return (instant - EPOCH) // _MILLISECOND


def instant(ms: int) -> datetime:
    """The UTC time of these milliseconds since 1970; the ends of the calendar for what lies outside it."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return (datetime.max if ms > 0 else datetime.min).replace(tzinfo=UTC)


def parse_instant(text: str, tz: str = "UTC") -> datetime:
    """A date (its midnight in `tz`) or an ISO time (in `tz` unless it has an offset), as UTC; else BadRange."""
    place = zone(tz)
    try:
        return midnight(date.fromisoformat(text.strip()), place)
    except ValueError as error:
        fault = str(error)
    except OverflowError:
        raise BadRange(_no_date(text, "it is outside the calendar")) from None
    try:
        found = datetime.fromisoformat(text.strip())
        return (found.replace(tzinfo=place) if found.tzinfo is None else found).astimezone(UTC)
    except ValueError as error:
        fault = fault if len(text.strip()) <= 10 else str(error)
    except OverflowError:
        fault = "it is outside the calendar"
    raise BadRange(_no_date(text, fault))


def _no_date(text: str, fault: str) -> str:
    reason = "" if "isoformat" in fault.lower() else f"{fault}; "
    return f"'{text[:40]}' is no date: {reason}write one like 2026-03-01 or 2026-03-01T13:30."


def parse_range(start: str | None, end: str | None, *, tz: str = "UTC", now: datetime) -> tuple[datetime, datetime]:
    """[start, end) in UTC. Without `start`: the first of this month in `tz`; without `end`: `now`.

    Without both never empty: a month that begins just now has its first millisecond.

    BadRange when either is no date, or the range is empty or ends before it starts.
    """
    begin = month_start(now, tz) if start is None else parse_instant(start, tz)
    until = now.astimezone(UTC) if end is None else parse_instant(end, tz)
    if start is None and end is None:
        until = max(until, begin + _MILLISECOND)
    if until <= begin:
        shown = "now" if end is None else f"'{end}'"
        first = "the start of this month" if start is None else f"'{start}'"
        raise BadRange(f"The range ends at {shown}, which is not after {first}: the end is exclusive, so give a later one.")
    return begin, until


def midnight(day: date, place: ZoneInfo) -> datetime:
    """The first instant of the day in that zone, as UTC (also where a clock change skips or repeats midnight)."""
    return datetime(day.year, day.month, day.day, tzinfo=place).astimezone(UTC)


def day_start(instant: datetime, tz: str) -> datetime:
    """The start of the calendar day that holds `instant`."""
    place = zone(tz)
    return midnight(instant.astimezone(place).date(), place)


def month_start(instant: datetime, tz: str) -> datetime:
    """The start of the calendar month that holds `instant`."""
    place = zone(tz)
    return midnight(instant.astimezone(place).date().replace(day=1), place)


def days(start: datetime, end: datetime, tz: str) -> Iterator[Day]:
    """The calendar days of [start, end) in `tz`, the first and last cut to the range. A day that never was is left out."""
    place = zone(tz)
    at, day = start.astimezone(UTC), start.astimezone(place).date()
    while at < end:
        following = day + timedelta(days=1)
        until = min(midnight(following, place), end.astimezone(UTC))
        if until > at:
            yield Day(day.isoformat(), at, until)
            at = until
        day = following
