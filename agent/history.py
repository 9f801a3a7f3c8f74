"""The last readings of each GPU and of the host's CPU, for plots: fine for 15 minutes, coarser for a day.

Invariant: memory is bounded: rings of numbers in arrays, and a GPU that is not seen for a whole ring is forgotten.
An unknown reading is kept as unknown; a coarse point is the mean of the known readings of its step.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from datetime import datetime, timezone

from agent import wire

UNKNOWN = math.nan
FIELDS = ("utilization_ratio", "memory_used_bytes", "power_watts", "temperature_celsius")
_TYPECODES = ("f", "d", "f", "f")
_CPU = ""

Values = tuple[float, float, float, float]
_ABSENT: Values = (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)


class HistoryRing:
    """A node's past, filled by `add` once a second.

    `fine_seconds` points at one a second, then `coarse_hours` of points `coarse_step_seconds` apart (0 hours: none).
    About 47 kB a GPU when full, 18 kB without the coarse part.
    """

    def __init__(
        self,
        node: str | None = None,
        *,
        fine_seconds: int = 900,
        coarse_step_seconds: int = 60,
        coarse_hours: float = 24,
    ) -> None:
        self._node = node
        self._fine = _Level(fine_seconds)
        self._coarse = _Level(max(1, int(coarse_hours * 3600 / coarse_step_seconds))) if coarse_hours else None
        self._step = coarse_step_seconds
        self._mean = _Mean()

    def add(self, sample: wire.Sample) -> None:
        """Takes one sample. One that is not newer than the last (the clock stepped back) replaces what came after it."""
        self._node = sample.node
        at = sample.taken_at.timestamp()
        row = {gpu.uuid: _values(gpu) for gpu in sample.gpus}
        cpu = sample.host.cpu_utilization_ratio if sample.host else None
        row[_CPU] = (UNKNOWN if cpu is None else cpu, UNKNOWN, UNKNOWN, UNKNOWN)
        self._fine.append(at, row)
        self._add_coarse(at, row)

    def _add_coarse(self, at: float, row: Mapping[str, Values]) -> None:
        if self._coarse is None:
            return
        start = at - at % self._step
        if self._mean.start is not None and self._mean.start != start:
            self._coarse.append(self._mean.start, self._mean.row())
            self._mean = _Mean()
        self._mean.add(start, row)

    def history(self, seconds: float) -> wire.History:
        """The last `seconds` before the newest sample: at one second a point as far as that reaches, else coarse."""
        if seconds <= self._fine.capacity or self._coarse is None:
            return self._render(self._fine, seconds - 0.5, 1.0, self._fine.newest)  # half a point of tolerance for jitter
        newest = self._fine.newest
        unfinished = None if self._mean.start is None else (self._mean.start, self._mean.row())
        return self._render(self._coarse, seconds, float(self._step), newest, unfinished)

    def _render(
        self,
        level: _Level,
        seconds: float,
        step: float,
        newest: float | None,
        unfinished: tuple[float, Mapping[str, Values]] | None = None,
    ) -> wire.History:
        if newest is None:
            return wire.History(node=self._node or "", step_seconds=step)
        rows = level.since(newest - seconds)
        if unfinished is not None:
            rows.append(unfinished)
        stamped = [(datetime.fromtimestamp(at, timezone.utc), row) for at, row in rows]
        names = dict.fromkeys(name for _, row in stamped for name in row if name != _CPU)
        return wire.History(
            node=self._node or "",
            step_seconds=step,
            gpus={name: tuple(_point(at, row.get(name, _ABSENT)) for at, row in stamped) for name in names},
            cpu=tuple((at, _known(row.get(_CPU, _ABSENT)[0], 4)) for at, row in stamped),
        )


class _Level:
    """A ring of rows: one time and four numbers a name, in arrays that grow up to `capacity` and then wrap."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._times = array("d")
        self._columns: dict[str, tuple[array[float], ...]] = {}
        self._seen: dict[str, float] = {}
        self._first = 0
        self._count = 0

    @property
    def newest(self) -> float | None:
        return self._times[self._slot(self._count - 1)] if self._count else None

    def _slot(self, position: int) -> int:
        return (self._first + position) % self.capacity

    def append(self, at: float, row: Mapping[str, Values]) -> None:
        while self._count and self._times[self._slot(self._count - 1)] >= at:
            self._count -= 1
        if self._count == self.capacity:
            self._forget(self._times[self._first])
            self._first = self._slot(1)
            self._count -= 1
        slot = self._slot(self._count)
        self._store(slot, at, row)
        self._count += 1

    def _store(self, slot: int, at: float, row: Mapping[str, Values]) -> None:
        _put(self._times, slot, at)
        for name in row:
            if name not in self._columns:
                self._columns[name] = tuple(array(code, [UNKNOWN] * slot) for code in _TYPECODES)
            self._seen[name] = at
        for name, columns in self._columns.items():
            for column, value in zip(columns, row.get(name, _ABSENT), strict=True):
                _put(column, slot, value)

    def _forget(self, oldest: float) -> None:
        for name in [name for name, at in self._seen.items() if at <= oldest]:
            del self._columns[name], self._seen[name]

    def since(self, at: float) -> list[tuple[float, Mapping[str, Values]]]:
        slots = [self._slot(position) for position in range(self._count)]
        return [(self._times[slot], self._row(slot)) for slot in slots if self._times[slot] > at]

    def _row(self, slot: int) -> dict[str, Values]:
        return {
            name: (columns[0][slot], columns[1][slot], columns[2][slot], columns[3][slot])
            for name, columns in self._columns.items()
        }


class _Mean:
    """Sums of one coarse step, per name and field, over the readings that are known."""

    def __init__(self) -> None:
        self.start: float | None = None
        self._sums: dict[str, list[float]] = {}
        self._counts: dict[str, list[int]] = {}

    def add(self, start: float, row: Mapping[str, Values]) -> None:
        self.start = start
        for name, values in row.items():
            sums = self._sums.setdefault(name, [0.0] * 4)
            counts = self._counts.setdefault(name, [0] * 4)
            for place, value in enumerate(values):
                if value == value:
                    sums[place] += value
                    counts[place] += 1

    def row(self) -> dict[str, Values]:
        return {name: self._means(name) for name in self._sums}

    def _means(self, name: str) -> Values:
        pairs = zip(self._sums[name], self._counts[name], strict=True)
        first, second, third, fourth = (total / count if count else UNKNOWN for total, count in pairs)
        return first, second, third, fourth


def _put(column: array[float], slot: int, value: float) -> None:
    if slot < len(column):
        column[slot] = value
    else:
        column.extend([UNKNOWN] * (slot - len(column)))
        column.append(value)


def _values(gpu: wire.Gpu) -> Values:
    first, second, third, fourth = (
        UNKNOWN if value is None else float(value)
        for value in (gpu.utilization_ratio, gpu.memory_used_bytes, gpu.power_watts, gpu.temperature_celsius)
    )
    return first, second, third, fourth


def _known(value: float, digits: int) -> float | None:
    return None if value != value else round(value, digits)


def _point(at: datetime, values: Values) -> wire.HistoryPoint:
    memory = _known(values[1], 0)
    return wire.HistoryPoint(
        taken_at=at,
        utilization_ratio=_known(values[0], 4),
        memory_used_bytes=None if memory is None else int(memory),
        power_watts=_known(values[2], 3),
        temperature_celsius=_known(values[3], 3),
    )
