"""Hourly demand: read from a CSV file (hour_utc, count, name), or made from the published traces of clusters.

Invariant: a series has one whole count for every hour from its first to its last; what a file leaves open (a missing hour, half
a node) is refused with its place unless the caller says how to fill it.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pricing.calendar import EPOCH
from pricing.errors import SeriesError
from pricing.traces import Job
from pricing.usage import WHOLE_SHARE

HOUR_MS = 3_600_000
_HOUR = timedelta(hours=1)
_MOST = 10_000_000
"""Nodes; more is a mistake of units."""


class Series(NamedTuple):
    """`counts`: float (hours,), whole numbers of nodes. `first_hour`: UTC hours since 1970."""

    name: str
    first_hour: int
    counts: np.ndarray

    def whole_days(self) -> Series:
        """From its first to its last midnight (UTC)."""
        skip = -self.first_hour % 24
        days = max(0, len(self.counts) - skip) // 24
        return Series(self.name, self.first_hour + skip, self.counts[skip : skip + days * 24])


class Fill(NamedTuple):
    """What to make of an hour without a row (`gaps`: nothing ran) and of a part of a node (`fractions`: to the nearest)."""

    gaps: bool = False
    fractions: bool = False


def hour_name(hour: int) -> str:
    """`2017-10-02T00:00Z`."""
    return (EPOCH + hour * _HOUR).strftime("%Y-%m-%dT%H:%MZ")


def read_series(path: Path, fill: Fill = Fill()) -> list[Series]:  # noqa: B008
    """The series of one file (also a compressed one), in the order of their first rows; rows may stand in any order.

    A file without names is one series, named after the file. SeriesError: a sentence with file, line and column.
    """
    found: dict[str, dict[int, tuple[float, int]]] = {}
    zoned: tuple[bool, int] | None = None
    for line, row in _rows(path):
        hour, has_zone = _hour(path, line, row.get("hour_utc") or "")
        if zoned is None:
            zoned = has_zone, line
        elif zoned[0] != has_zone:
            raise SeriesError(
                f"{path}, line {line}, column hour_utc: mixed time zones: '{_cut(row['hour_utc'])}' has "
                f"{'a' if has_zone else 'no'} zone, line {zoned[1]} has {'one' if zoned[0] else 'none'}; write all in UTC."
            )
        count = _count(path, line, row.get("count") or "", fill)
        hours = found.setdefault((row.get("name") or "").strip() or path.name.removesuffix(".gz").removesuffix(".csv"), {})
        if hour in hours:
            raise SeriesError(
                f"{path}, line {line}, column hour_utc: {hour_name(hour)} is there twice (also in line {hours[hour][1]})."
            )
        hours[hour] = count, line
    if not found:
        raise SeriesError(f"{path}: no rows; it needs hour_utc,count[,name] and one row for each hour.")
    return [_series(path, name, hours, fill) for name, hours in found.items()]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", restval="", strict=True)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            for column in ("hour_utc", "count"):
                if column not in reader.fieldnames:
                    raise SeriesError(f"{path}: there is no column '{column}' in its first line; it needs hour_utc,count[,name].")
            for row in reader:
                yield reader.line_num, row
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise SeriesError(f"{path}: cannot be read as CSV ({error}).") from error


def _hour(path: Path, line: int, text: str) -> tuple[int, bool]:
    """UTC hours since 1970, and whether the text told its zone."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) <= 7:
        return int(text), True
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SeriesError(
            f"{path}, line {line}, column hour_utc: '{_cut(text)}' is no hour; write it like 2026-03-01T07:00Z."
        ) from None
    if moment.utcoffset():
        raise SeriesError(f"{path}, line {line}, column hour_utc: '{_cut(text)}' is not in UTC.")
    hour, rest = divmod(moment.replace(tzinfo=UTC) - EPOCH, _HOUR)
    if rest:
        raise SeriesError(f"{path}, line {line}, column hour_utc: '{_cut(text)}' is not the start of an hour.")
    return hour, moment.tzinfo is not None


def _count(path: Path, line: int, text: str, fill: Fill) -> float:
    place = f"{path}, line {line}, column count: '{_cut(text)}'"
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        raise SeriesError(f"{place} is not a number of nodes.") from None
    if not value.is_finite() or not 0 <= value <= _MOST:
        raise SeriesError(f"{place} is not a number of nodes (0 to {_MOST:,}).")
    if value != int(value) and not fill.fractions:
        raise SeriesError(f"{place} is not a whole number of nodes; --round takes the nearest.")
    return float(round(value))


def _series(path: Path, name: str, hours: dict[int, tuple[float, int]], fill: Fill) -> Series:
    first, last = min(hours), max(hours)
    if len(hours) <= last - first and not fill.gaps:
        missing = next(hour for hour in range(first, last) if hour not in hours)
        raise SeriesError(
            f"{path}: '{_cut(name)}' has no row for {hour_name(missing)} ({last - first + 1 - len(hours):,} hours are missing in "
            "all); add them, or use --gaps zero where nothing ran."
        )
    if last - first >= 24 * 366 * 100:
        raise SeriesError(f"{path}: '{_cut(name)}' goes from {hour_name(first)} to {hour_name(last)}: more than 100 years.")
    counts = np.zeros(last - first + 1)
    for hour, (count, _) in hours.items():
        counts[hour - first] = count
    return Series(name, first, counts)


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def hourly(name: str, jobs: Iterable[Job], start: datetime, days: int) -> Series:
    """GPUs held by the jobs in each of the days' hours: the exact mean over the hour, rounded to the nearest whole."""
    base, hours = (start - EPOCH) // _HOUR, days * 24
    rows = [(job.starts_ms, job.ends_ms, job.gpus * job.share) for job in jobs]
    begin, end, held = np.array(rows, np.int64).reshape(-1, 3).T
    begin, end = (np.clip(edge - base * HOUR_MS, 0, hours * HOUR_MS) for edge in (begin, end))
    held_ms = np.diff(_integral(end, held, hours) - _integral(begin, held, hours))
    return Series(name, base, np.rint(-held_ms / (HOUR_MS * WHOLE_SHARE)))


def _integral(edges: np.ndarray, held: np.ndarray, hours: int) -> np.ndarray:
    """int64 (hours + 1,): at the end of each hour, how much of `held` x time since its edge has passed (integers: exact)."""
    rate, rest = np.zeros(hours + 2, np.int64), np.zeros(hours + 2, np.int64)
    hour, within = np.divmod(edges, HOUR_MS)
    np.add.at(rate, hour + 1, held)
    np.add.at(rest, hour + 1, held * within)
    return np.cumsum(np.cumsum(rate) * HOUR_MS - rest)[:-1] if hours else np.zeros(1, np.int64)


def kept(series: Series) -> bool:
    """Whether there is enough to judge a rule on: 4 nodes on average, and a quarter of the hours not empty."""
    return bool(series.counts.mean() >= 4 and (series.counts > 0).mean() >= 0.25)


PHILLY_START = datetime(2017, 10, 2, tzinfo=UTC)
"""Before it the trace fills up: its jobs of September are those that were still to end."""


def philly_series(jobs: Iterable[Job]) -> list[Series]:
    """The clusters of the Philly trace that are `kept`, 81 days each, by name; and their sum, `ALL`, last."""
    clusters: dict[str, list[Job]] = {}
    for job in jobs:
        clusters.setdefault(job.cluster or "", []).append(job)
    made = [series for name in sorted(clusters) if kept(series := hourly(name, clusters[name], PHILLY_START, 81))]
    return [*made, Series("ALL", made[0].first_hour, np.sum([one.counts for one in made], axis=0))] if made else []


def openb_series(jobs: Iterable[Job], start: datetime) -> list[Series]:
    """Days 116 to 149 of openb: all pods, the latency-sensitive ones (`LS`), and those of no class but best effort (`other`)."""
    jobs = list(jobs)
    chosen = {
        "total": jobs,
        "LS": [job for job in jobs if job.user == "LS"],
        "other": [job for job in jobs if job.user not in ("LS", "BE")],
    }
    return [hourly(name, of_class, start + timedelta(days=116), 33) for name, of_class in chosen.items()]
