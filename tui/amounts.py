"""Sizes, lengths of time, money, indexes and moments as people write them: `20G`, `8h`, `40usd`, `1-10%2`, `+6h`.

Invariant: what can be read in two ways is refused with how to write it; nothing is guessed. Every function raises
`ValueError` with the end of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

_BINARY = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}
_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
LARGEST_ARRAY = 10_000


def size(text: str) -> int:
    """Bytes: `512M`, `20G`, `1.5GiB` (binary), `20GB` (decimal), or a plain number of bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?", text.strip(), re.ASCII | re.IGNORECASE)
    if not match:
        raise ValueError("is no size; write it as 512M or 20G")
    unit, suffix = match[2].lower(), (match[3] or "").lower()
    if suffix == "ib" and not unit:
        raise ValueError("is no size; write it as 512M or 20G")
    scale = 1000 ** "kmgtp".index(unit) * 1000 if suffix == "b" and unit else _BINARY[unit]
    found = int(Decimal(match[1]) * scale)
    if found < 1:
        raise ValueError("has to be more than nothing")
    return found


def duration(text: str) -> float:
    """Seconds: `45s`, `90m`, `8h`, `1h30m`, `2d`, or a plain number of seconds."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return _some(float(text))
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([dhms])", text, re.ASCII)
    if not parts or not re.fullmatch(r"(\d+(\.\d+)?\s*[dhms]\s*)+", text, re.ASCII):
        raise ValueError("is no length of time; write it as 45s, 90m, 8h, 1h30m or 2d")
    return _some(float(sum(Decimal(number) * _SECONDS[unit] for number, unit in parts)))


def _some(seconds: float) -> float:
    if not seconds > 0:
        raise ValueError("has to be more than nothing")
    return seconds


def dollars(text: str) -> Decimal:
    """US dollars: `40usd`, `40 USD`, `$40`, `40`."""
    match = re.fullmatch(r"\$?\s*(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip(), re.ASCII | re.IGNORECASE)
    if not match:
        raise ValueError("is no amount of money; write it as 40usd")
    if match[2].lower() not in ("", "usd"):
        raise ValueError(f"is in {match[2].upper()}; amounts are in US dollars, written as 40usd")
    amount = Decimal(match[1])
    if amount <= 0:
        raise ValueError("has to be more than nothing")
    return amount


def number(text: str) -> Decimal:
    """A decimal number above 0."""
    try:
        found = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError("is no number") from None
    if not found.is_finite() or found <= 0:
        raise ValueError("has to be a number above 0")
    return found


def whole(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers within a range."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text.strip(), re.ASCII):
            raise ValueError("is no whole number")
        found = int(text)
        if not least <= found <= most:
            raise ValueError(f"has to be from {least} to {most}")
        return found

    return parse


def array(text: str) -> tuple[tuple[int, ...], int | None]:
    """Indexes, and how many at once: `10` is 1 to 10, `0-9`, `1-10%2`, `1,3,7-9`, `0-100:10` (each tenth)."""
    ranges, percent, at_once = text.strip().partition("%")
    if percent and (not re.fullmatch(r"\d{1,6}", at_once, re.ASCII) or int(at_once) < 1):
        raise ValueError("has no number of tasks at once after the %; write it as 1-10%2")
    indexes: set[int] = set()
    parts = ranges.split(",")
    for part in parts:
        indexes.update(_range(part.strip(), alone=len(parts) == 1))
        if len(indexes) > LARGEST_ARRAY:
            raise ValueError(f"has more than {LARGEST_ARRAY} tasks")
    return tuple(sorted(indexes)), int(at_once) if percent else None


def _range(part: str, *, alone: bool) -> range:
    match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?", part, re.ASCII)
    if not match:
        raise ValueError("is no list of indexes; write it as 10, 1-10, 1-10%2 or 1,3,7-9")
    first, last, step = int(match[1]), match[2], int(match[3] or 1)
    if last is None and alone:
        if first < 1:
            raise ValueError("is an array without a task")
        return range(1, first + 1)
    end = first if last is None else int(last)
    if end < first or step < 1:
        raise ValueError(f"has the range {part}, which is empty")
    if (end - first) // step >= LARGEST_ARRAY:
        raise ValueError(f"has more than {LARGEST_ARRAY} tasks")
    return range(first, end + 1, step)


def moment(text: str, now: datetime) -> datetime:
    """UTC: `+6h` from now, `18:00` (the next one here), or a date and time in ISO 8601 (of this zone if it says none).

    `now` carries the zone of clock times; one that carries none is of this machine's, whose clock changes then count too.
    """
    try:
        return _moment(text.strip(), now)
    except OverflowError:
        raise ValueError("is outside the calendar") from None


def _moment(text: str, now: datetime) -> datetime:
    if text.startswith("+"):
        return now.astimezone(UTC) + timedelta(seconds=duration(text[1:]))
    if match := re.fullmatch(r"(\d{1,2}):(\d{2})", text, re.ASCII):
        return _next_clock(int(match[1]), int(match[2]), now)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no moment; write it as +6h, 18:00 or 2026-01-31T18:00") from None
    if len(text) <= 10:
        raise ValueError("has no time of day; write it as 2026-01-31T18:00")
    return (found if found.tzinfo else found.replace(tzinfo=now.tzinfo)).astimezone(UTC)


def _next_clock(hour: int, minute: int, now: datetime) -> datetime:
    if hour > 23 or minute > 59:
        raise ValueError("is no time of day; write it as 18:00")
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (today if today > now else today + timedelta(days=1)).astimezone(UTC)
