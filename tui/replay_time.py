"""Moments of a recording: how a person writes them.

Invariant: a moment that is returned lies within the recording; a text that says none is a sentence.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

from tui.errors import WrongUsage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Spanned(Protocol):
    """The first and the last moment, UTC milliseconds."""

    @property
    def starts_ms(self) -> int: ...
    @property
    def ends_ms(self) -> int: ...


def moment(at_ms: int) -> datetime:
    """UTC."""
    return _EPOCH + timedelta(milliseconds=at_ms)


def milliseconds(at: datetime) -> int:
    """Since 1970, UTC."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def when(text: str | None, recording: Spanned, zone: tzinfo) -> int:
    """Milliseconds: of a text like `14:05`, `-2h` or an ISO time, within the recording; None: its end. WrongUsage."""
    if text is None:
        return recording.ends_ms
    try:
        at_ms = milliseconds(moment_of(text, moment(recording.ends_ms), moment(recording.starts_ms), zone))
    except ValueError as error:
        raise WrongUsage(f"{text!r} {error}") from None
    if not recording.starts_ms - 1000 <= at_ms <= recording.ends_ms + 1000:
        first, last = (moment(one).astimezone(zone) for one in (recording.starts_ms, recording.ends_ms))
        raise WrongUsage(
            f"{text}: the recording goes from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} ({first:%z})."
        )
    return max(recording.starts_ms, min(at_ms, recording.ends_ms))


def moment_of(text: str, newest: datetime, oldest: datetime, zone: tzinfo) -> datetime:
    """`-2h` before the newest, `+5m` after the oldest, `14:05[:10]` of the last day, or an ISO time. ValueError."""
    try:
        return _moment_of(text.strip().removeprefix("@"), newest, oldest, zone)
    except OverflowError:
        raise ValueError("is outside the calendar") from None


def _moment_of(text: str, newest: datetime, oldest: datetime, zone: tzinfo) -> datetime:
    from tui.amounts import duration

    if text[:1] in ("-", "+"):
        seconds = timedelta(seconds=duration(text[1:]))
        return newest - seconds if text[0] == "-" else oldest + seconds
    parts = text.split(":")
    if len(parts) in (2, 3) and all(part.isdecimal() and len(part) <= 2 for part in parts):
        hour, minute, second = (*map(int, parts), 0)[:3]
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError("is no time of day; write it as 14:05 or 14:05:10")
        found = newest.astimezone(zone).replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (found if found <= newest.astimezone(zone) else found - timedelta(days=1)).astimezone(UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no time; write it as -2h, 14:05, 14:05:10 or 2026-11-30T14:05:10") from None
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
