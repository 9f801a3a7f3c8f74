"""One figure over the steps, held in bounded memory however long the training is.

Invariant: first, last, lowest and highest value are kept exactly; steps rise; what a resume did again counts once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

MOST_KEPT = 1024
_BUCKETS = 128
"""After thinning: at most four points of each."""


class Point(NamedTuple):
    """`value` NaN: no number. `count` and `total`: of all values since the point before, up to this one."""

    step: int
    value: float
    seconds: float | None = None
    count: int = 1
    total: float = 0.0
    numbers: int = 0


class Series:
    """Points by rising step."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def add(self, step: int, value: float, seconds: float | None = None) -> None:
        """A step that is not beyond the newest one takes it and all after it back."""
        points = self.points
        if points and step <= points[-1].step:
            self.cut(step)
        finite = math.isfinite(value)
        points.append(Point(step, value if finite else math.nan, seconds, 1, value if finite else 0.0, int(finite)))
        if len(points) > MOST_KEPT:
            self.points = thinned(points, _BUCKETS)

    def cut(self, step: int) -> None:
        """Forgets `step` and all after it."""
        del self.points[bisect_left(self.points, step, key=lambda point: point.step) :]

    @property
    def count(self) -> int:
        return sum(point.count for point in self.points)

    @property
    def mean(self) -> float | None:
        numbers = sum(point.numbers for point in self.points)
        total = sum(point.total for point in self.points)
        return total / numbers if numbers and math.isfinite(total) else None


def thinned(points: Sequence[Point], buckets: int) -> list[Point]:
    """First, last, lowest and highest of each of so many equal stretches of steps; counts and sums go to the next point."""
    if len(points) <= 4 * buckets:
        return list(points)
    first, span = points[0].step, points[-1].step - points[0].step + 1
    kept: list[Point] = []
    begin = 0
    while begin < len(points):
        bucket = (points[begin].step - first) * buckets // span
        end = begin + 1
        while end < len(points) and (points[end].step - first) * buckets // span == bucket:
            end += 1
        kept += _merged(points[begin:end])
        begin = end
    return kept


def _merged(bucket: Sequence[Point]) -> list[Point]:
    numbers = [place for place, point in enumerate(bucket) if not math.isnan(point.value)]
    wanted = {0, len(bucket) - 1}
    if numbers:
        wanted |= {min(numbers, key=lambda place: bucket[place].value), max(numbers, key=lambda place: bucket[place].value)}
    kept, count, total, known = [], 0, 0.0, 0
    for place, point in enumerate(bucket):
        count, total, known = count + point.count, total + point.total, known + point.numbers
        if place in wanted:
            kept.append(point._replace(count=count, total=total, numbers=known))
            count, total, known = 0, 0.0, 0
    return kept
