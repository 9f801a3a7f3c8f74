"""Recorded availability for judging spot policies: files of traces -> starts, the same for every policy.

Invariant: which number means available is told (by the caller or by a source that is known), never guessed. A trace that is
long enough is cut at random starts, with its own past as history; a window is run from its first tick, without history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pricing.errors import HistoryError, SpotJobError
from pricing.market_read import documents
from pricing.market_traces import Trace, is_trace, read_trace, stitched_ticks
from pricing.market_traps import Trap, trap
from pricing.spot import UNKNOWN, Array, Job
from pricing.spot_backtest import Worlds

KNOWN_SOURCES = (re.compile(r"data/real/ping_based/"), re.compile(r"data/real/availability/"))
"""Where published traces say that they were cut from; in all of these 0 is available (1: pre-empted)."""
CHANGEOVER_IN_NAME = re.compile(r"(?:overhead|changeover)=([0-9]+(?:\.[0-9]+)?)")
HISTORY_HOURS = 168.0
"""Of a trace's own past, shown to policies before a start."""
MOST_CELLS = 500_000_000


@dataclass(slots=True)
class TraceSet:
    """What was read."""

    traces: list[Trace] = field(default_factory=list)
    traps: list[Trap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def polarity(document: dict[str, Any]) -> int | None:
    """The number that means available, where the document tells for certain; None where it does not.

    It tells by `metadata.available`, by data of true and false (true: available), or by a published source.
    """
    metadata = document["metadata"] if isinstance(document["metadata"], dict) else {}
    told = metadata.get("available")
    if isinstance(told, int) and told in (0, 1):
        return int(told)
    data = document["data"]
    if isinstance(data, list) and data and all(isinstance(one, bool) for one in data):
        return 1
    origins = (document.get("original_trace"), metadata.get("source_file"))
    if any(isinstance(one, str) and known.search(one) for one in origins for known in KNOWN_SOURCES):
        return 0
    return None


def read_traces(
    paths: Sequence[Path | str],
    *,
    available: int | None = None,
    changeover_hours: float | None = None,
    on_progress: Callable[[int, str], None] | None = None,
) -> TraceSet:
    """Reads files, folders and archives. HistoryError where there is no trace; SpotJobError where 0 and 1 are not told.

    Where names tell a changeover (`overhead=0.20`), only those of `changeover_hours` are taken.
    """
    found, others, seen = TraceSet(), set[str](), set[tuple[object, ...]]()

    def wanted(name: str) -> bool:
        told = CHANGEOVER_IN_NAME.search(name)
        if told is None or changeover_hours is None or abs(float(told[1]) - changeover_hours) < 1e-6:
            return True
        others.add(told[1])
        return False

    files = 0
    for path in map(Path, paths):
        if not path.exists():
            raise HistoryError(f"{path}: no such file or folder.")
        for name, document in documents(path, found.traps, wanted):
            files += 1
            _take(found, seen, name, document, available, (path if path.is_dir() else path.resolve().parent).name)
            if on_progress is not None:
                on_progress(files, name)
    if not found.traces:
        raise HistoryError(_nothing(paths, found, others, changeover_hours))
    return found


def _take(
    found: TraceSet, seen: set[tuple[object, ...]], name: str, document: Any, available: int | None, folder: str
) -> None:  # fmt: skip
    """`folder`: what windows that are called by a number alone belong to."""
    if not is_trace(document):
        found.traps.append(trap("not_history", name, None, "is no availability trace (metadata and data); it is left out."))
        return
    told = polarity(document)
    if available is None and told is None:
        raise SpotJobError(
            f"{name}: does not tell whether 0 or 1 means that spot is available; sources differ. Add --available 1 where 1 "
            "means available, --available 0 where 1 means taken away."
        )
    if available is not None and told is not None and told != available and not found.notes:
        found.notes.append(f"{name}: its source uses {told} for available; it is read with {available}, as asked.")
    trace, traps = read_trace(document, name, available=available if available is not None else told or 0)
    found.traps += (one for one in traps if one.kind != "local_time")
    if trace is None:
        return
    if trace.place.isdecimal():
        trace = replace(trace, place=folder)
    key = (trace.place, trace.first_tick, trace.start_ms, name.rsplit("/", 1)[-1], trace.states)
    if key not in seen or "/" not in name:
        seen.add(key)
        found.traces.append(trace)


def _nothing(paths: Sequence[Path | str], found: TraceSet, others: set[str], changeover_hours: float | None) -> str:
    where = ", ".join(map(str, paths))
    if others:
        return (
            f"{where}: holds no traces for a changeover of {changeover_hours:g} h, only for "
            f"{', '.join(sorted(others, key=float))} h; choose one of these with --changeover."
        )
    why = f" {found.traps[0].sentence}" if found.traps else ""
    return f"{where}: holds no availability trace.{why}"


def tick_of(traces: Sequence[Trace]) -> int:
    """Their tick in milliseconds; SpotJobError where they differ, or where it is no whole one."""
    first = traces[0]
    for one in traces:
        if one.gap_seconds != first.gap_seconds:
            raise SpotJobError(
                f"{one.file}: has ticks of {float(one.gap_seconds):g} s, {first.file} of {float(first.gap_seconds):g} s; "
                "judge them one by one."
            )
    tick = first.gap_seconds * 1000
    if tick.denominator != 1:
        raise SpotJobError(f"{first.file}: gap_seconds {float(first.gap_seconds):g} is no whole number of milliseconds.")
    return int(tick)


def starts_of(
    traces: Sequence[Trace],
    job: Job,
    *,
    starts: int | None = None,
    seed: int = 0,
    history_hours: float = HISTORY_HOURS,
) -> tuple[Worlds, list[str]]:
    """(the starts, sentences about what was left out). SpotJobError where no trace is as long as the deadline.

    `starts`: of each trace; without it a trace twice as long as the deadline has 300, a shorter one (a window) is run from
    its first tick.
    """
    ticks, notes = job.deadline_ms // job.tick_ms, list[str]()
    long_enough = [one for one in traces if len(one.states) >= ticks]
    short = [one for one in traces if len(one.states) < ticks]
    if short:
        worst = min(short, key=lambda one: len(one.states))
        hours = float(len(worst.states) * worst.gap_seconds / 3600)
        what = f"{worst.file}: tells {hours:.2f} h, and the deadline is {job.deadline_ms / 3_600_000:.2f} h"
        if not long_enough:
            raise SpotJobError(f"{what}; use longer traces, or a shorter deadline.")
        notes.append(f"{what}; {len(short):,} of {len(traces):,} traces are too short and left out.")
    if len(long_enough) * (starts or 1) * ticks > MOST_CELLS:
        raise SpotJobError(f"{starts or 1:,} starts of {ticks:,} ticks in {len(long_enough):,} traces are too many at once.")
    zones = {place: number for number, place in enumerate(sorted({one.place for one in long_enough}))}
    rng, past = np.random.default_rng(seed), int(history_hours * 3_600_000 // job.tick_ms)
    cuts = [(one, first) for one in long_enough for first in _firsts(one, ticks, starts, rng)]
    history = max((min(first, past) for _, first in cuts), default=0)
    if len(cuts) * (ticks + history) > MOST_CELLS:
        raise SpotJobError(f"{len(cuts):,} starts of {ticks:,} ticks are too many at once; ask for fewer with --starts.")
    return _cut(cuts, ticks, history, zones), notes


def _firsts(trace: Trace, ticks: int, starts: int | None, rng: np.random.Generator) -> list[int]:
    room = len(trace.states) - ticks
    if room == 0 or (starts is None and len(trace.states) < 2 * ticks):
        return [0]
    return sorted(int(one) for one in rng.integers(0, room + 1, size=starts or 300))


def _cut(cuts: list[tuple[Trace, int]], ticks: int, history: int, zones: dict[str, int]) -> Worlds:
    states = np.empty((len(cuts), ticks), np.uint8)
    before = np.full((len(cuts), history), UNKNOWN, np.uint8)
    for row, (trace, first) in enumerate(cuts):
        whole = np.frombuffer(trace.states, np.uint8)
        states[row] = whole[first : first + ticks]
        known = min(first, history)
        if known:
            before[row, history - known :] = whole[first - known : first]
    moments = [_moment(trace, first) // ticks for trace, first in cuts]
    return Worlds(states, before, np.array([zones[one.place] for one, _ in cuts]), tuple(zones), np.array(moments))


def _moment(trace: Trace, first: int) -> int:
    """In ticks since something that windows of one place share."""
    if trace.start_ms is None:
        return trace.first_tick + first
    return int(trace.start_ms // (trace.gap_seconds * 1000)) + first


def states_of(traces: Sequence[Trace]) -> list[tuple[Array, float]]:
    """(states, hours of a tick) for fitting: windows that tell their place in a trace come together, the others stand alone."""
    firsts: dict[str, set[int]] = {}
    for one in traces:
        firsts.setdefault(one.place, set()).add(one.first_tick)
    alone = [one for one in traces if len(firsts[one.place]) == 1]
    whole, _ = stitched_ticks([one for one in traces if len(firsts[one.place]) > 1])
    return [(np.frombuffer(one.states, np.uint8), float(one.gap_seconds / 3600)) for one in (*alone, *whole)]
