"""One ring of past readings at one step: a time and four numbers a name, in arrays that grow up to a capacity and then wrap.

Invariant: times grow from row to row, memory is bounded, and a name that is not seen for a whole ring is forgotten.
A clock that jumps back a little replaces what came after it; one that jumps back far must insist before the past is dropped.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

UNKNOWN = math.nan
TYPECODES = ("f", "d", "f", "f")
FIELDS = len(TYPECODES)
ROW_BYTES = 20
"""Of one name; the time of a row takes eight more for all names together."""
INSIST = 10
"""So many rows in the past are left out before they are believed."""

Values = tuple[float, float, float, float]
ABSENT: Values = (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
Row = tuple[float, Mapping[str, Values]]
"""Seconds since the epoch, and the readings of each name."""


class Kept(msgspec.Struct, frozen=True):
    """A level as bytes, oldest row first: what a file holds. Little-endian arrays as in `TYPECODES`."""

    step_seconds: float
    times: bytes
    columns: dict[str, tuple[bytes, bytes, bytes, bytes]]


class LevelSpec(NamedTuple):
    """`rows` points `step_seconds` apart."""

    step_seconds: int
    rows: int

    @property
    def reach_seconds(self) -> int:
        return self.step_seconds * self.rows


class Level:
    """The newest `spec.rows` rows."""

    def __init__(self, spec: LevelSpec) -> None:
        self.spec = spec
        self.capacity = spec.rows
        self._clear()

    def _clear(self) -> None:
        self._times = array("d")
        self._columns: dict[str, tuple[array[float], ...]] = {}
        self._seen: dict[str, float] = {}
        self._first = self._count = self._insisting = 0

    def __len__(self) -> int:
        return self._count

    @property
    def newest(self) -> float | None:
        """Seconds since the epoch of the newest row."""
        return self._times[self._slot(self._count - 1)] if self._count else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def _slot(self, position: int) -> int:
        return (self._first + position) % self.capacity

    def append(self, at: float, row: Mapping[str, Values]) -> None:
        """A row that lies far before the newest one is left out until ten of them in a row say that the clock was set."""
        newest = self.newest
        if newest is not None and self._is_far_back(at, newest):
            self._insisting += 1
            if self._insisting <= INSIST:
                return
        self._insisting = 0
        while self._count and self._times[self._slot(self._count - 1)] >= at:
            self._count -= 1
        if self._count == self.capacity:
            self._forget(self._times[self._first])
            self._first = self._slot(1)
            self._count -= 1
        self._store(self._slot(self._count), at, row)
        self._count += 1

    def _is_far_back(self, at: float, newest: float) -> bool:
        return self.spec.step_seconds > 1 and at < newest - 5 * self.spec.step_seconds

    def _store(self, slot: int, at: float, row: Mapping[str, Values]) -> None:
        _put(self._times, slot, at)
        for name in row:
            if name not in self._columns:
                self._columns[name] = tuple(array(code, [UNKNOWN] * slot) for code in TYPECODES)
            self._seen[name] = at
        for name, columns in self._columns.items():
            for column, value in zip(columns, row.get(name, ABSENT), strict=True):
                _put(column, slot, value)

    def _forget(self, oldest: float) -> None:
        for name in [name for name, at in self._seen.items() if at <= oldest]:
            del self._columns[name], self._seen[name]

    def since(self, at: float) -> list[Row]:
        """The rows after `at`, oldest first."""
        slots = [self._slot(position) for position in range(self._count)]
        return [(self._times[slot], self._row(slot)) for slot in slots if self._times[slot] > at]

    def _row(self, slot: int) -> dict[str, Values]:
        return {
            name: (columns[0][slot], columns[1][slot], columns[2][slot], columns[3][slot])
            for name, columns in self._columns.items()
        }

    def window(self, after: float) -> tuple[list[float], dict[str, tuple[list[float], ...]]]:
        """Times after `after`, oldest first, and the four columns of each name beside them."""
        slots = [slot for position in range(self._count) if self._times[slot := self._slot(position)] > after]
        times = [self._times[slot] for slot in slots]
        return times, {
            name: tuple([column[slot] for slot in slots] for column in columns) for name, columns in self._columns.items()
        }

    def refill(self, rows: list[Row]) -> None:
        """These rows, and after them those that are here already and newer."""
        rows = rows + (self.since(rows[-1][0]) if rows else self.since(-math.inf))
        self._clear()
        for at, row in rows[-self.capacity :]:
            self.append(at, row)

    def kept(self) -> Kept:
        """A copy as bytes."""
        order = [self._slot(position) for position in range(self._count)]

        def ordered(column: array[float]) -> bytes:
            if self._first == 0:
                return column[: self._count].tobytes()
            return array(column.typecode, [column[slot] for slot in order]).tobytes()

        columns = {}
        for name, (first, second, third, fourth) in self._columns.items():
            columns[name] = (ordered(first), ordered(second), ordered(third), ordered(fourth))
        return Kept(self.spec.step_seconds, ordered(self._times), columns)

    def restore(self, kept: Kept) -> None:
        """Rows of before, as far as they fit; ValueError where the bytes are none of ours."""
        times = _array("d", kept.times)
        columns = {name: [_array(code, raw) for code, raw in zip(TYPECODES, four)] for name, four in kept.columns.items()}
        if any(len(column) != len(times) for four in columns.values() for column in four):
            raise ValueError("columns of different lengths")
        if any(later <= earlier for earlier, later in zip(times, times[1:])):
            raise ValueError("times that do not grow")
        self._clear()
        self._times = times[-self.capacity :]
        self._count = len(self._times)
        for name, four in columns.items():
            kept_four = tuple(column[-self.capacity :] for column in four)
            last = next((place for place in reversed(range(self._count)) if any(c[place] == c[place] for c in kept_four)), None)
            if last is not None:
                self._columns[name], self._seen[name] = kept_four, self._times[last]


class Mean:
    """Sums of one step, per name and field, over the readings that are known."""

    def __init__(self) -> None:
        self.start: float | None = None
        self._sums: dict[str, list[float]] = {}
        self._counts: dict[str, list[int]] = {}

    def add(self, start: float, row: Mapping[str, Values]) -> None:
        self.start = start
        for name, values in row.items():
            sums = self._sums.setdefault(name, [0.0] * FIELDS)
            counts = self._counts.setdefault(name, [0] * FIELDS)
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


def _array(code: str, raw: bytes) -> array[float]:
    found: array[float] = array(code)
    found.frombytes(raw)
    return found
