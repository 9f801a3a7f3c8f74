"""A usage file: hour_utc, instance_type, region, count, and if told cloud and purchase.

Invariant: every row is counted once or the file is refused; what no row tells is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pricing.advice_files import Row, moment, rows
from pricing.demand import Demand, DemandKey, gap_notes, hour_of, hour_text
from pricing.errors import AdviceFileError
from pricing.lookup import did_you_mean, region_key
from pricing.offers import PURCHASES

NEEDED = ("hour_utc", "instance_type", "region", "count")
OPTIONAL = ("cloud", "purchase")
LONGEST_HOURS = 20 * 8784
"""More is a mistyped year."""
MOST_OFFSETS = 4
MOST_NODES = 1_000_000
"""Of one type in one hour; more is a mistyped count."""


class _Cell(NamedTuple):
    hour: int
    key: DemandKey
    purchase: str | None


def read_usage(path: Path) -> Demand:
    """Reads hour_utc, instance_type, region, count (and cloud, purchase). AdviceFileError names file, row and column.

    Times without an offset are UTC; with one they are turned into UTC, if they fall on full hours there. Counts are
    decimals of at least 0. Two rows of one hour and type are an error. An empty count makes its hour unknown.
    """
    header, found = rows(path, NEEDED, OPTIONAL)
    reader = _UsageReader(path.name)
    for row in found:
        reader.take(row)
    return reader.demand(header.notes)


class _UsageReader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._cells: dict[_Cell, tuple[float, int]] = {}
        self._hours: dict[str, int] = {}
        self._counts: dict[str, float | None] = {}
        self._keys: dict[tuple[str, ...], DemandKey] = {}
        self._spelt: dict[tuple[str | None, ...], DemandKey] = {}
        self._style: tuple[bool, int] | None = None
        self._blank: dict[int, int] = {}
        self._offsets: dict[timedelta, int] = {}
        self._fractions = 0

    def take(self, row: Row) -> None:
        text = row.text("hour_utc")
        hour = self._hours.get(text)
        if hour is None:
            hour = self._hours[text] = self._hour(row)
        cell = _Cell(hour, self._key(row), _purchase(row))
        count = self._count(row)
        if count is None:
            self._blank.setdefault(hour, row.line)
            return
        before = self._cells.get(cell)
        if before is not None:
            of = f"{cell.key}" + (f" ({cell.purchase})" if cell.purchase else "")
            raise row.fault("hour_utc", f"{hour_text(hour)} of {of} stands in row {before[1]} already: keep one of the two")
        self._fractions += count != int(count)
        self._cells[cell] = (count, row.line)

    def _count(self, row: Row) -> float | None:
        text = row.text("count")
        if text not in self._counts:
            count = row.number("count", "count")
            if count is not None and count > MOST_NODES:
                raise row.fault("count", f"{text} nodes of one type are more than {MOST_NODES:,}, which looks mistyped")
            self._counts[text] = None if count is None else float(count)
        return self._counts[text]

    def _hour(self, row: Row) -> int:
        found, aware = moment(row, "hour_utc")
        if self._style is not None and self._style[0] != aware:
            told = "has an offset" if aware else "has none"
            other = f"row {self._style[1]} has none" if aware else f"row {self._style[1]} has one"
            raise row.fault("hour_utc", f"{row.text('hour_utc')!r} {told}, and {other}: write all times in UTC")
        self._style = self._style or (aware, row.line)
        offset = found.utcoffset() or timedelta(0)
        if offset % timedelta(hours=1):
            what = f"its offset of {_offset_text(offset)} is not of whole hours, so that its hours are none of UTC"
            raise row.fault("hour_utc", f"{row.text('hour_utc')!r}: {what}; write UTC")
        if found.minute or found.second or found.microsecond:
            raise row.fault("hour_utc", f"{row.text('hour_utc')!r} is not a full hour: one row tells of one whole hour")
        self._offsets.setdefault(offset, row.line)
        try:
            return hour_of((found if aware else found.replace(tzinfo=UTC)).astimezone(UTC))
        except OverflowError:
            raise row.fault("hour_utc", f"{row.text('hour_utc')!r} is outside the calendar") from None

    def _key(self, row: Row) -> DemandKey:
        told = (row.text("cloud"), row.text("region"), row.text("instance_type"))
        key = self._keys.get(told)
        if key is None:
            key = DemandKey(told[0].lower() or None, region_key(row.filled("region")), row.filled("instance_type"))
            lower = (*key[:2], key.instance_type.lower())
            key = self._keys[told] = self._spelt.setdefault(lower, key)
        return key

    def demand(self, notes: tuple[str, ...]) -> Demand:
        told = [cell.hour for cell in self._cells]
        if not told:
            blank = f"; row {min(self._blank.values())} has none" if self._blank else ""
            raise AdviceFileError(f"{self._file} has no count below its header ({', '.join(NEEDED)}){blank}.")
        first, last = min(told), max(told)
        if last - first >= LONGEST_HOURS:
            early, late = (self._line_of(hour) for hour in (first, last))
            raise AdviceFileError(
                f"{self._file}: row {early} is of {hour_text(first)} and row {late} of {hour_text(last)}, "
                f"{round((last - first) / 8766)} years apart: is a year mistyped?"
            )
        return self._built(first, last - first + 1, notes)

    def _line_of(self, hour: int) -> int:
        return min(line for cell, (_, line) in self._cells.items() if cell.hour == hour)

    def _built(self, first: int, hours: int, notes: tuple[str, ...]) -> Demand:
        known = np.zeros(hours, dtype=bool)
        counts: dict[DemandKey, np.ndarray] = {}
        bought: dict[DemandKey, dict[str, np.ndarray]] = {}
        for cell, (count, _) in self._cells.items():
            at = cell.hour - first
            known[at] = True
            counts.setdefault(cell.key, np.zeros(hours))[at] += count
            if cell.purchase is not None:
                bought.setdefault(cell.key, {}).setdefault(cell.purchase, np.zeros(hours))[at] += count
        for hour in self._blank:
            if 0 <= hour - first < hours:
                known[hour - first] = False
        for counted in (*counts.values(), *(part for parts in bought.values() for part in parts.values())):
            counted[~known] = 0.0
        if not known.any():
            raise AdviceFileError(f"{self._file}: no hour is told wholly; every one has an empty count.")
        gaps = (*self._blank_notes(), *gap_notes(self._file, first, known))
        ordered = dict(sorted(counts.items(), key=lambda item: tuple(part or "" for part in item[0])))
        return Demand(first, known, ordered, bought, (*notes, *self._notes(), *gaps), bool(gaps) or len(self._offsets) > 1)

    def _notes(self) -> Iterator[str]:
        if any(self._offsets):
            told = ", ".join(f"{_offset_text(offset)} in row {line}" for offset, line in list(self._offsets.items())[:MOST_OFFSETS])
            mixed = "; their time zones are mixed: check that each hour is meant so" if len(self._offsets) > 1 else ""
            yield f"{self._file}: times with an offset ({told}) were turned into UTC{mixed}."
        if self._fractions:
            yield f"{self._file}: {self._fractions:,} counts are fractions; they are taken as nodes running on average."

    def _blank_notes(self) -> Iterator[str]:
        if self._blank:
            line = min(self._blank.values())
            hours = f"{len(self._blank):,} hours have an empty count (first in row {line})"
            yield f"{self._file}: {hours}: they are taken as unknown."


def _purchase(row: Row) -> str | None:
    word = row.text("purchase").lower()
    if word and word not in PURCHASES:
        raise row.fault(
            "purchase", f"{word[:40]!r} is no purchase option{did_you_mean(word, PURCHASES)}: {', '.join(PURCHASES)}"
        )
    return word or None


def _offset_text(offset: timedelta) -> str:
    return str(timezone(offset))
