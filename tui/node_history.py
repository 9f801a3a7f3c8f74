"""The past of one node's GPUs over a span, as plots want it: what the agent answered, and after it what its stream brings.

Invariant: times grow; a stretch of which nothing is known stays a gap, and is never bridged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal, NamedTuple

from agent import wire
from tui.past import POINTS, Past

Field = Literal["utilization", "memory", "power", "temperature"]
FIELDS: tuple[Field, ...] = ("utilization", "memory", "power", "temperature")
Values = list[float | None]


class Span(NamedTuple):
    """How far back a plot reaches."""

    name: str
    seconds: int
    step_seconds: int
    """Of an agent's points at this span, as it keeps them."""

    @property
    def again_seconds(self) -> float:
        """A node is asked again after so long: what has one point a second comes by the stream meanwhile."""
        return 60.0 if self.step_seconds == 1 else float(max(10, min(60, self.step_seconds)))


SPANS = (
    Span("1 min", 60, 1), Span("5 min", 300, 1), Span("15 min", 900, 1), Span("1 h", 3600, 10), Span("6 h", 21_600, 60),
    Span("24 h", 86_400, 60), Span("7 days", 604_800, 600),
)  # fmt: skip
MOST_CURVES = 100
FIRST = 2
"""15 minutes: the longest that moves with each second."""


class Track:
    """Points of all GPUs of a node at the same moments (seconds since the epoch), each good for `step_seconds` from there."""

    def __init__(self, step_seconds: float = 1.0) -> None:
        self.step_seconds = step_seconds
        self.times: list[float] = []
        self._version = 0
        self._sums: dict[tuple[tuple[str, ...], Field], Values] = {}
        self._curves: dict[tuple[tuple[str, ...], Field, int], _Drawn] = {}
        self._gpus: dict[str, tuple[Values, Values, Values, Values]] = {}

    @classmethod
    def of(cls, history: wire.History) -> Track:
        """What an agent answered."""
        track = cls(history.step_seconds)
        for points in history.gpus.values():
            if len(points) > len(track.times):
                track.times = [point.taken_at.timestamp() for point in points]
        for uuid, points in history.gpus.items():
            blank: Values = [None] * (len(track.times) - len(points))
            track._gpus[uuid] = (
                [*blank, *(point.utilization_ratio for point in points)], [*blank, *(point.memory_used_bytes for point in points)],
                [*blank, *(point.power_watts for point in points)], [*blank, *(point.temperature_celsius for point in points)],
            )  # fmt: skip
        return track

    @classmethod
    def heard(cls, past: Past, sample: wire.Sample) -> Track:
        """What the app heard itself of the last minutes: the utilisation, before the agent was asked for more."""
        track, newest = cls(), sample.taken_at.timestamp()
        columns = {gpu.uuid: past.values(gpu.uuid, POINTS) for gpu in sample.gpus}
        longest = max(map(len, columns.values()), default=0)
        track.times = [newest - back for back in range(longest - 1, -1, -1)]
        for uuid, values in columns.items():
            blank: Values = [None] * longest
            track._gpus[uuid] = ([*blank[: longest - len(values)], *values], blank[:], blank[:], blank[:])
        if longest:
            track._drop_last()
        track.add(sample)
        return track

    def _drop_last(self) -> None:
        self.times.pop()
        for columns in self._gpus.values():
            for column in columns:
                column.pop()

    @property
    def newest(self) -> float | None:
        return self.times[-1] if self.times else None

    def add(self, sample: wire.Sample) -> bool:
        """A newer sample of the stream; True if it is newer. One that jumped back in time begins anew from there."""
        at = sample.taken_at.timestamp()
        if self.times and at == self.times[-1]:
            return False
        self._version += 1
        self._cut(bisect_left(self.times, at))
        count = len(self.times)
        self.times.append(at)
        for gpu in sample.gpus:
            if gpu.uuid not in self._gpus:
                self._gpus[gpu.uuid] = ([None] * count, [None] * count, [None] * count, [None] * count)
        readings = {gpu.uuid: gpu for gpu in sample.gpus}
        for uuid, columns in self._gpus.items():
            for column, value in zip(columns, _readings(readings.get(uuid)), strict=True):
                column.extend([None] * (count - len(column)))
                column.append(value)
        return True

    def _cut(self, count: int) -> None:
        if count < len(self.times):
            self._sums.clear()
        del self.times[count:]
        for columns in self._gpus.values():
            for column in columns:
                del column[count:]

    def trim(self, seconds: float) -> None:
        """Forgets what is older than that before the newest."""
        if self.times and self.times[0] < self.times[-1] - 2 * seconds:
            first = bisect_left(self.times, self.times[-1] - seconds - 2 * self.step_seconds)
            del self.times[:first]
            self._sums.clear()
            for columns in self._gpus.values():
                for column in columns:
                    del column[:first]

    def values(self, uuid: str, field: Field) -> Values:
        """One GPU's points beside `times`; empty where it is not known."""
        columns = self._gpus.get(uuid)
        return columns[FIELDS.index(field)] if columns else []

    def together(self, uuids: tuple[str, ...], field: Field) -> Values:
        """Several GPUs as one: memory and power in sum, the mean of the utilisation, the highest temperature.

        A moment at which any of them is not known has no sum. What was worked out before is kept.
        """
        if len(uuids) == 1:
            return self.values(uuids[0], field)
        found = self._sums.setdefault((uuids, field), [])
        if len(found) < len(self.times):
            columns = [values for uuid in uuids if (values := self.values(uuid, field))]
            found += [_together([column[n] for column in columns], field) for n in range(len(found), len(self.times))]
        return found

    def curve(self, uuids: tuple[str, ...], field: Field, start: float, end: float, count: int) -> Curve:
        """As `curve` draws it. Worked out anew when the stretch moves, or a quarter of a column has come."""
        key, newest = (uuids, field, count), self.times[-1] if self.times else 0.0
        drawn = self._curves.get(key)
        if drawn is not None and drawn.start == start:
            if drawn.version == self._version or 0 <= newest - drawn.newest < (end - start) / count / 4:
                return drawn.curve
        found = curve(self.times, self.together(uuids, field), self.step_seconds, start, end, count)
        if len(self._curves) > MOST_CURVES:
            self._curves.clear()
        self._curves[key] = _Drawn(self._version, start, newest, found)
        return found


def _together(values: list[float | None], field: Field) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if field == "temperature":
        return max(known)
    if field == "utilization":
        return sum(known) / len(known)
    return sum(known) if len(known) == len(values) else None


def _readings(gpu: wire.Gpu | None) -> tuple[float | None, float | None, float | None, float | None]:
    if gpu is None:
        return None, None, None, None
    return gpu.utilization_ratio, gpu.memory_used_bytes, gpu.power_watts, gpu.temperature_celsius


class Curve(NamedTuple):
    """One plot's worth: a value a column (None: a gap), and what the points of the span add up to."""

    columns: list[float | None]
    mean: float | None
    highest: float | None
    known_ratio: float
    """Part of the span that is known."""


class _Drawn(NamedTuple):
    """A curve as it was worked out, with what it was worked out of."""

    version: int
    start: float
    newest: float
    curve: Curve


def curve(times: Sequence[float], values: Sequence[float | None], step: float, start: float, end: float, count: int) -> Curve:
    """The mean of each of `count` columns from `start` to `end`. A point holds for its step, or until the next one."""
    width = (end - start) / count
    sums, weights = [0.0] * count, [0.0] * count
    total = weight = 0.0
    highest: float | None = None
    hold = step + min(step, 1.0)  # samples are late by part of a second
    for place in range(max(0, bisect_left(times, start - hold) - 1), min(len(times), len(values))):
        value = values[place]
        if value is None:
            continue
        since = max(start, times[place])
        until = min(end, times[place] + hold, times[place + 1] if place + 1 < len(times) else end)
        if until <= since:
            continue
        total, weight = total + value * (until - since), weight + until - since
        highest = value if highest is None else max(highest, value)
        _spread(sums, weights, value, (since - start) / width, (until - start) / width)
    columns = [sums[n] / weights[n] if weights[n] > 0.05 else None for n in range(count)]
    return Curve(columns, total / weight if weight else None, highest, min(1.0, weight / (end - start)))


def _spread(sums: list[float], weights: list[float], value: float, since: float, until: float) -> None:
    """Adds a value to the columns from `since` to `until`, each by the part that it covers."""
    first, last = int(since), min(len(sums) - 1, int(until))
    for column in range(first, last + 1):
        part = min(until, column + 1) - max(since, column)
        if part > 0:
            sums[column] += value * part
            weights[column] += part


def window(newest: float, span: Span, columns: int) -> tuple[float, float]:
    """From when to when a plot shows: to whole columns, so that it moves only when there is a new one."""
    width = span.seconds / columns
    end = (newest // width + 1) * width
    return end - span.seconds, end
