"""The last readings of each GPU and of the host's CPU, for plots: each second for 15 minutes, then ever coarser, for 7 days.

Invariant: memory is bounded: rings of numbers in arrays, and a GPU that is not seen for a whole ring is forgotten.
An unknown reading is kept as unknown; a coarse point is the mean of the known readings of its step, stamped with its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from agent import wire
from agent.history_level import ABSENT, FIELDS, UNKNOWN, Kept, Level, LevelSpec, Mean, Row, Values

LEVELS = (LevelSpec(1, 900), LevelSpec(10, 360), LevelSpec(60, 1440), LevelSpec(600, 1008))
"""15 minutes, an hour, a day, a week. About 74 kB a GPU when full: 3,708 points of 20 bytes."""
FEW = (LevelSpec(1, 300),)
"""Five minutes, 6 kB a GPU: for simulated fleets of hundreds of nodes in one process."""
_CPU = ""


class HistoryRing:
    """A node's past, filled by `add` once a second. `levels` from fine to coarse."""

    def __init__(self, node: str | None = None, levels: Sequence[LevelSpec] = LEVELS) -> None:
        self._node = node
        self._levels = tuple(map(Level, levels))
        self._means = [Mean() for _ in levels]

    def add(self, sample: wire.Sample) -> None:
        """Takes one sample. One that is not newer than the last (the clock stepped back) replaces what came after it."""
        self._node = sample.node
        at, row = row_of(sample)
        self._levels[0].append(at, row)
        for place in range(1, len(self._levels)):
            self._add_mean(place, at, row)

    def _add_mean(self, place: int, at: float, row: Mapping[str, Values]) -> None:
        level, mean = self._levels[place], self._means[place]
        start = at - at % level.spec.step_seconds
        if mean.start is not None and mean.start != start:
            level.append(mean.start, mean.row())
            mean = self._means[place] = Mean()
        mean.add(start, row)

    def refill(self, step_seconds: int, rows: list[Row]) -> None:
        """Puts rows that are known better before what the level of this step has; nothing where there is none."""
        for level in self._levels:
            if level.spec.step_seconds == step_seconds:
                level.refill(rows)

    def history(self, seconds: float) -> wire.History:
        """The last `seconds` before the newest sample, at the finest step that reaches so far."""
        newest = self._levels[0].newest
        place = next((n for n, level in enumerate(self._levels) if level.spec.reach_seconds >= seconds), len(self._levels) - 1)
        level, mean = self._levels[place], self._means[place]
        if newest is None:
            return wire.History(node=self._node or "", step_seconds=float(level.spec.step_seconds))
        # half a point of tolerance for jitter of samples
        times, columns = level.window(newest - seconds + (0.5 if place == 0 else 0.0))
        if mean.start is not None and (not times or times[-1] < mean.start):
            _add_row(times, columns, mean.start, mean.row())
        stamps = [datetime.fromtimestamp(at, timezone.utc) for at in times]
        cpu = columns.pop(_CPU, ([UNKNOWN] * len(times),))[0]
        return wire.History(
            node=self._node or "",
            step_seconds=float(level.spec.step_seconds),
            gpus={name: tuple(map(_point, stamps, *four)) for name, four in columns.items()},
            cpu=tuple((at, _known(value, 4)) for at, value in zip(stamps, cpu, strict=True)),
        )

    def kept(self) -> list[Kept]:
        """All levels as bytes, for a file."""
        return [level.kept() for level in self._levels]

    def restore(self, kept: Sequence[Kept]) -> None:
        """What an agent of before kept, level by level. ValueError where the bytes are none of ours: nothing is taken then."""
        found = []
        for spec in (level.spec for level in self._levels):
            level = Level(spec)
            for one in kept:
                if one.step_seconds == spec.step_seconds:
                    level.restore(one)
            found.append(level)
        self._levels = tuple(found)


def row_of(sample: wire.Sample) -> Row:
    """When, and the readings of each GPU by uuid; the host's CPU under the empty name."""
    row = {gpu.uuid: _values(gpu) for gpu in sample.gpus}
    cpu = sample.host.cpu_utilization_ratio if sample.host else None
    row[_CPU] = (UNKNOWN if cpu is None else cpu, UNKNOWN, UNKNOWN, UNKNOWN)
    return sample.taken_at.timestamp(), row


def _add_row(times: list[float], columns: dict[str, tuple[list[float], ...]], at: float, row: Mapping[str, Values]) -> None:
    """The step that is not over yet."""
    for name in row:
        if name not in columns:
            columns[name] = tuple([UNKNOWN] * len(times) for _ in range(FIELDS))
    times.append(at)
    for name, four in columns.items():
        for column, value in zip(four, row.get(name, ABSENT), strict=True):
            column.append(value)


def _values(gpu: wire.Gpu) -> Values:
    first, second, third, fourth = (
        UNKNOWN if value is None else float(value)
        for value in (gpu.utilization_ratio, gpu.memory_used_bytes, gpu.power_watts, gpu.temperature_celsius)
    )
    return first, second, third, fourth


def _known(value: float, digits: int) -> float | None:
    return None if value != value else round(value, digits)


def _point(at: datetime, ratio: float, memory: float, watts: float, celsius: float) -> wire.HistoryPoint:
    return wire.HistoryPoint(
        taken_at=at,
        utilization_ratio=_known(ratio, 4),
        memory_used_bytes=None if memory != memory else round(memory),
        power_watts=_known(watts, 3),
        temperature_celsius=_known(celsius, 3),
    )
