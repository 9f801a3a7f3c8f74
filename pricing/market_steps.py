"""A value over time as a step function that knows where it knows nothing.

Invariant: nothing is interpolated or rounded. Each value holds from its moment until the next; in a gap, before the first
step and from the end on, the value is None. Means are exact fractions over the time that is known, and say how much that is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

Value = Decimal | int | None
"""A price per hour, or availability as 0 and 1."""


class Mean(NamedTuple):
    """Time-weighted, over what is known of a range."""

    value: Fraction | None
    """None where nothing is known."""
    known_ratio: Fraction
    """The share of the range that is known, 0 to 1."""


class Piece(NamedTuple):
    """A stretch of one value, in UTC milliseconds, half-open."""

    starts_ms: int
    ends_ms: int
    value: Value


class Conflict(NamedTuple):
    """Two sources say different things of the same stretch; `kept` stands."""

    starts_ms: int
    ends_ms: int
    kept: Value
    other: Value


class StepFunction:
    """Steps in order of time, in UTC milliseconds; equal neighbours are one step."""

    __slots__ = ("starts_ms", "values", "end_ms", "_scale", "_areas", "_known")

    def __init__(self, points: Iterable[tuple[int, Value]], end_ms: int) -> None:
        """`points`: (from, value) in order of time; of equal times the last counts. Nothing is known from `end_ms` on."""
        starts: list[int] = []
        values: list[Value] = []
        for at, value in points:
            if at >= end_ms:
                break
            if starts and starts[-1] == at:
                starts.pop(), values.pop()
            elif starts and at < starts[-1]:
                raise ValueError(f"steps out of order: {at} after {starts[-1]}")
            if values[-1] != value if values else value is not None:
                starts.append(at)
                values.append(value)
        while values and values[-1] is None:
            end_ms = starts.pop()
            values.pop()
        self.starts_ms: tuple[int, ...] = tuple(starts)
        self.values: tuple[Value, ...] = tuple(values)
        self.end_ms = end_ms if starts else 0
        self._scale: int | None = None
        self._areas: list[int] = []
        self._known: list[int] = []

    def __len__(self) -> int:
        return len(self.starts_ms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepFunction):
            return NotImplemented
        return (self.starts_ms, self.values, self.end_ms) == (other.starts_ms, other.values, other.end_ms)

    __hash__ = None  # type: ignore[assignment]

    @property
    def start_ms(self) -> int:
        """Where the first value is known; 0 where none is."""
        return self.starts_ms[0] if self.starts_ms else 0

    def at(self, ms: int) -> Value:
        """The value at a moment; None where it is not known."""
        if ms >= self.end_ms:
            return None
        place = bisect_right(self.starts_ms, ms) - 1
        return None if place < 0 else self.values[place]

    def pieces(self, starts_ms: int, ends_ms: int) -> Iterator[Piece]:
        """Stretches that tile [starts_ms, ends_ms), unknown ones too."""
        at, place = starts_ms, bisect_right(self.starts_ms, starts_ms)
        while at < ends_ms:
            until = self.starts_ms[place] if place < len(self.starts_ms) else self.end_ms if at < self.end_ms else ends_ms
            value = self.values[place - 1] if place and at < self.end_ms else None
            until = min(until, ends_ms)
            if until > at:
                yield Piece(at, until, value)
            at, place = until, place + 1

    def gaps(self, starts_ms: int, ends_ms: int) -> list[Piece]:
        """The stretches of the range of which nothing is known."""
        return [piece for piece in self.pieces(starts_ms, ends_ms) if piece.value is None]

    def mean(self, starts_ms: int, ends_ms: int) -> Mean:
        """Exact, in O(log n): prefix sums of whole numbers."""
        if ends_ms <= starts_ms:
            raise ValueError("the end of a range comes after its start")
        (area, known), (area_before, known_before) = self._until(ends_ms), self._until(starts_ms)
        known -= known_before
        value = Fraction(area - area_before, known) / (self._scale or 1) if known else None
        return Mean(value, Fraction(known, ends_ms - starts_ms))

    def extremes(self, starts_ms: int, ends_ms: int) -> tuple[Value, Value]:
        """(least, most) of the range; None where nothing is known."""
        found = [piece.value for piece in self.pieces(starts_ms, ends_ms) if piece.value is not None]
        return (min(found), max(found)) if found else (None, None)

    def cut(self, starts_ms: int, ends_ms: int) -> StepFunction:
        """The same within a range, unknown outside it."""
        return StepFunction(((piece.starts_ms, piece.value) for piece in self.pieces(starts_ms, ends_ms)), ends_ms)

    def _until(self, ms: int) -> tuple[int, int]:
        """(scaled value x ms, known ms) from the first step to `ms`."""
        if self._scale is None:
            self._sum()
        ms = min(ms, self.end_ms)
        place = bisect_right(self.starts_ms, ms) - 1
        if place < 0:
            return 0, 0
        value, length = self.values[place], ms - self.starts_ms[place]
        if value is None:
            return self._areas[place], self._known[place]
        return self._areas[place] + _scaled(value, self._scale or 1) * length, self._known[place] + length

    def _sum(self) -> None:
        places = max((_places(value) for value in self.values), default=0)
        scale = self._scale = 10**places
        edges = (*self.starts_ms, self.end_ms)
        lengths = [end - start for start, end in pairwise(edges)]
        scaled = [0 if value is None else _scaled(value, scale) for value in self.values]
        self._areas = list(accumulate((v * n for v, n in zip(scaled, lengths, strict=True)), initial=0))
        known = (0 if value is None else length for value, length in zip(self.values, lengths, strict=True))
        self._known = list(accumulate(known, initial=0))


def _places(value: Value) -> int:
    """Decimal places."""
    return max(0, -int(value.as_tuple().exponent)) if isinstance(value, Decimal) else 0


def _scaled(value: Decimal | int, scale: int) -> int:
    """Exact: `scale` is a power of ten that has room for all decimals."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * scale // denominator


NOTHING = StepFunction((), 0)


def overlay(parts: Sequence[StepFunction]) -> tuple[StepFunction, list[Conflict]]:
    """At each moment the value of the first part that knows one, and where a later part says otherwise."""
    if len(parts) < 2:
        return (parts[0] if parts else NOTHING), []
    middle = len(parts) // 2  # halves: windows of a long history are cut together a few times, not all over and over
    top, above = overlay(parts[:middle])
    below, beneath = overlay(parts[middle:])
    whole, between = _laid_under(top, below)
    return whole, [*above, *beneath, *between]


def conflict_hours(conflicts: Sequence[Conflict]) -> Fraction:
    """How long something is contradicted, each moment once."""
    total, until = 0, None
    for one in sorted(conflicts):
        begin = one.starts_ms if until is None else max(one.starts_ms, until)
        total += max(0, one.ends_ms - begin)
        until = one.ends_ms if until is None else max(until, one.ends_ms)
    return Fraction(total, 3_600_000)


def _laid_under(top: StepFunction, below: StepFunction) -> tuple[StepFunction, list[Conflict]]:
    if not top:
        return below, []
    if not below:
        return top, []
    edges = sorted({*top.starts_ms, top.end_ms, *below.starts_ms, below.end_ms})
    points: list[tuple[int, Value]] = []
    conflicts: list[Conflict] = []
    for at, until in pairwise(edges):
        kept, other = top.at(at), below.at(at)
        points.append((at, other if kept is None else kept))
        if kept is not None and other is not None and kept != other:
            last = conflicts[-1] if conflicts else None
            if last and last.ends_ms == at and last[2:] == (kept, other):
                conflicts[-1] = last._replace(ends_ms=until)
            else:
                conflicts.append(Conflict(at, until, kept, other))
    return StepFunction(points, edges[-1]), conflicts
