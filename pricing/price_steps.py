"""A price over time as a step function, and the one rate that each UTC hour has.

Invariant: nothing is rounded. The rate of an hour is the exact time-weighted mean of the steps within it, so that sums
per hour are enough to price what was used; an hour in which some moment has no value has no rate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Protocol

from pricing.ledger_merge import HOUR_MS
from pricing.money import PerHour

ALWAYS = -(2**62)
"""Before all time, in UTC milliseconds."""

Value = Fraction | None
Steps = tuple[tuple[int, Value], ...]
"""(from, value) in order of time, the first from `ALWAYS`; each holds until the next. None: not known."""


class PriceBook(Protocol):
    """What attribution asks of kept prices; without one, the catalog's price holds at all times."""

    def steps(
        self,
        cloud: str,
        region: str | None,
        zone: str | None,
        instance_type: str,
        purchase: str,
        start: datetime,
        end: datetime,
    ) -> Sequence[tuple[datetime, PerHour | None]]:
        """The price from each moment on, in order, with the one in force at `start` first as far as it is known."""
        ...


def constant(value: Value) -> Steps:
    return ((ALWAYS, value),)


def made(points: Iterable[tuple[int, Value]], before: Value = None) -> Steps:
    """Steps from points in order of time (of equal times the last counts), with `before` ahead of them."""
    values = {ALWAYS: before, **dict(points)}
    steps: list[tuple[int, Value]] = []
    for at, value in values.items():
        if not steps or steps[-1][1] != value:
            steps.append((at, value))
    return tuple(steps)


def combined(function: Callable[..., Value], *parts: Steps) -> Steps:
    """The function of the values at each moment; None where any of them is None."""
    points = sorted({at for steps in parts for at, _ in steps if at != ALWAYS})
    found = [(at, _applied(function, [value_at(steps, at) for steps in parts])) for at in (ALWAYS, *points)]
    return made(found[1:], found[0][1])


def _applied(function: Callable[..., Value], values: list[Value]) -> Value:
    return None if any(value is None for value in values) else function(*values)


def value_at(steps: Steps, ms: int) -> Value:
    return steps[bisect_right(steps, ms, key=lambda step: step[0]) - 1][1]


def hour_rate(steps: Steps, hour: int) -> Value:
    """The time-weighted mean of one UTC hour (counted from 1970)."""
    if len(steps) == 1:
        return steps[0][1]
    starts_ms, ends_ms = hour * HOUR_MS, (hour + 1) * HOUR_MS
    total = Fraction(0)
    for length, value in _pieces(steps, starts_ms, ends_ms):
        if value is None or length == HOUR_MS:
            return value
        total += length * value
    return total / HOUR_MS


def integral(steps: Steps, starts_ms: int, ends_ms: int) -> Fraction:
    """What steps per hour come to between two moments; where there is no value, nothing."""
    pieces = _pieces(steps, starts_ms, ends_ms)
    return sum((length * value for length, value in pieces if value), Fraction(0)) / HOUR_MS


def _pieces(steps: Steps, starts_ms: int, ends_ms: int) -> Iterable[tuple[int, Value]]:
    """(milliseconds, value) of each step within the two moments."""
    place = bisect_right(steps, starts_ms, key=lambda step: step[0]) - 1
    at = starts_ms
    while at < ends_ms:
        until = ends_ms if place + 1 == len(steps) else min(steps[place + 1][0], ends_ms)
        yield until - at, steps[place][1]
        at, place = until, place + 1


def changes(steps: Steps) -> set[int]:
    """The hours whose rate may differ from that of the hour before: that of each step, and the next if it is in midst."""
    return {hour for at, _ in steps[1:] for hour in (at // HOUR_MS, -(-at // HOUR_MS))}


def first_known(*parts: Steps) -> Steps:
    """At each moment the first of the parts that has a value."""
    points = [ALWAYS, *sorted({at for steps in parts for at, _ in steps if at != ALWAYS})]
    return made((at, next((value for steps in parts if (value := value_at(steps, at)) is not None), None)) for at in points)
