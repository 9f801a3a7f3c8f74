"""Availability traces: one byte a tick, what was measured and nothing else; runs, and how often spot is taken away.

Invariant: a tick is available, unavailable or unknown; an unknown tick ends a run and is never an interruption. A run that
the trace's start, end or a gap cuts is counted as censored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from pricing.calendar import milliseconds
from pricing.market_rows import price_of
from pricing.market_steps import StepFunction
from pricing.market_traps import Trap, trap

UNAVAILABLE, AVAILABLE, UNKNOWN = 0, 1, 2
LONGEST_GAP_SECONDS = 366 * 86_400
MOST_TICKS = 50_000_000
"""Of windows that are put together: 950 years of ten minutes; beyond, a start is wrong."""
MOST_TICK_TRAPS = 5
"""Of one file: a file of another kind has thousands."""


class Run(NamedTuple):
    """Ticks in a row of the same state."""

    tick: int
    ticks: int
    state: int
    censored: bool
    """It began before, or went on after, what the trace tells."""


class Hazard(NamedTuple):
    """Interruptions of what was available: how many were seen, in how many hours."""

    interruptions: int
    available_hours: Fraction
    censored_runs: int

    @property
    def per_hour(self) -> Fraction | None:
        """None where nothing was ever available."""
        return Fraction(self.interruptions) / self.available_hours if self.available_hours else None


@dataclass(frozen=True, slots=True)
class Trace:
    """Availability (and price, where told) at even ticks."""

    place: str
    """What the source calls it: `us-west-2a_v100_1`."""
    file: str
    gap_seconds: Fraction
    states: bytes
    """One of UNAVAILABLE, AVAILABLE, UNKNOWN a tick; `numpy.frombuffer` reads it as it is."""
    first_tick: int = 0
    """Its place in the trace that it was cut from."""
    start_ms: int | None = None
    """UTC; None where the source tells no date."""
    prices: tuple[Decimal | None, ...] | None = None

    def runs(self) -> list[Run]:
        """Runs that tile the trace."""
        found: list[Run] = []
        tick = 0
        for state, group in groupby(self.states):
            length = sum(1 for _ in group)
            found.append(Run(tick, length, state, censored=False))
            tick += length
        last = len(found) - 1
        cut = [
            run.state != UNKNOWN
            and (place in (0, last) or UNKNOWN in (found[place - 1].state, found[place + 1].state))
            for place, run in enumerate(found)
        ]  # fmt: skip
        return [run._replace(censored=censored) for run, censored in zip(found, cut, strict=True)]

    def hazard(self) -> Hazard:
        return hazard([self])

    @property
    def availability(self) -> Fraction | None:
        """The share of the known ticks; None where none is known."""
        known = len(self.states) - self.states.count(UNKNOWN)
        return Fraction(self.states.count(AVAILABLE), known) if known else None

    def availability_steps(self) -> StepFunction:
        """1 and 0 over time; nothing for a trace without a date."""
        return self._steps([None if state == UNKNOWN else state for state in self.states])

    def price_steps(self) -> StepFunction:
        """The price over time; nothing for a trace without a date or prices."""
        return self._steps(self.prices or ())

    def _steps(self, values: Sequence[Decimal | int | None]) -> StepFunction:
        if self.start_ms is None:
            return StepFunction((), 0)
        gap_ms, ticks = self.gap_seconds * 1000, len(values)
        if gap_ms.denominator == 1:
            moments = range(self.start_ms, self.start_ms + ticks * int(gap_ms), int(gap_ms))
        else:
            moments = [self.start_ms + round(tick * gap_ms) for tick in range(ticks)]
        return StepFunction(zip(moments, values, strict=True), self.start_ms + round(ticks * gap_ms))


def hazard(traces: Iterable[Trace]) -> Hazard:
    """Of several traces together; traces that overlap count twice: stitch them first."""
    interruptions, censored, hours = 0, 0, Fraction(0)
    for trace in traces:
        hours += trace.states.count(AVAILABLE) * trace.gap_seconds / 3600
        interruptions += trace.states.count(bytes((AVAILABLE, UNAVAILABLE)))
        censored += sum(run.censored for run in trace.runs() if run.state == AVAILABLE)
    return Hazard(interruptions, hours, censored)


def steps_hazard(steps: StepFunction) -> Hazard:
    """Of availability over time (1 and 0): `Trace.availability_steps`, or several of them stitched."""
    interruptions, censored, hours, before = 0, 0, 0, None
    pieces = [*steps.pieces(steps.start_ms, steps.end_ms), None]
    for piece, after in pairwise(pieces):
        if piece is not None and piece.value == AVAILABLE:
            hours += piece.ends_ms - piece.starts_ms
            ended = after is not None and after.value == UNAVAILABLE
            interruptions += ended
            censored += before is None or not ended
        before = piece.value if piece is not None else None
    return Hazard(interruptions, Fraction(hours, 3_600_000), censored)


def stitched_ticks(traces: Iterable[Trace]) -> tuple[list[Trace], list[Trap]]:
    """Windows without dates, cut from the same trace, as one trace each, by their ticks; contradictions become unknown.

    Traces with a date are returned as they are: their clocks do not share ticks (stitch their steps instead).
    """
    groups: dict[tuple[str, Fraction], list[Trace]] = {}
    whole: list[Trace] = []
    for trace in traces:
        if trace.start_ms is None:
            groups.setdefault((trace.place, trace.gap_seconds), []).append(trace)
        else:
            whole.append(trace)
    traps: list[Trap] = []
    for windows in groups.values():
        ticks = max(one.first_tick + len(one.states) for one in windows) - min(one.first_tick for one in windows)
        if ticks > MOST_TICKS:
            what = f"its windows of {windows[0].place} lie {ticks:,} ticks apart, so a start is wrong; they stay as they are."
            traps.append(trap("bad_time", windows[0].file, None, what))
            whole += windows
            continue
        whole.append(_joined(sorted(windows, key=lambda one: (one.first_tick, one.file)), traps))
    return whole, traps


def _joined(windows: list[Trace], traps: list[Trap]) -> Trace:
    first = windows[0].first_tick
    states = bytearray([UNKNOWN]) * (max(one.first_tick + len(one.states) for one in windows) - first)
    contradicted: set[int] = set()
    for one in windows:
        begin = one.first_tick - first
        there = states[begin : begin + len(one.states)]
        if there != one.states:
            for tick, (old, new) in enumerate(zip(there, one.states, strict=True), begin):
                if old == UNKNOWN:
                    states[tick] = new
                elif new not in (UNKNOWN, old):
                    contradicted.add(tick)
    for tick in contradicted:
        states[tick] = UNKNOWN
    if contradicted:
        text = (
            f"{len(contradicted):,} ticks of {windows[0].place} are told differently by other windows; they count as unknown."
        )
        traps.append(trap("conflict", windows[0].file, None, text))
    return replace(windows[0], states=bytes(states), prices=None)


def is_trace(document: Any) -> bool:  # noqa: ANN401 - JSON of others
    return isinstance(document, dict) and "data" in document and "metadata" in document


def read_trace(
    document: dict[str, Any],
    file: str,
    *,
    available: int,
    tz: tzinfo | None = None,
) -> tuple[Trace | None, list[Trap]]:
    """`available`: the number that means available in this source; sources differ, so nothing is guessed."""
    traps: list[Trap] = []
    metadata, data = document["metadata"], document["data"]
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(gap, bool) or not isinstance(gap, int | Decimal) or not 0 < gap <= LONGEST_GAP_SECONDS:
        return None, [
            trap("not_history", file, None, "its metadata has no gap_seconds above 0 (up to a year); it is left out.")
        ]
    if not isinstance(data, list) or not data:
        return None, [trap("empty_list", file, None, "has no ticks.")]
    first_tick, start_ms = _start(metadata.get("start_time"), file, tz, traps)
    trace = Trace(
        place=_place(document, file),
        file=file,
        gap_seconds=Fraction(gap),
        states=_states(data, file, available, traps),
        first_tick=first_tick,
        start_ms=start_ms,
        prices=_prices(document.get("prices"), len(data), file, traps),
    )
    return trace, traps


def _states(data: list[Any], file: str, available: int, traps: list[Trap]) -> bytes:
    meanings = {0: UNAVAILABLE, 1: UNAVAILABLE, available: AVAILABLE}
    try:
        return bytes(map(meanings.__getitem__, data))
    except (KeyError, TypeError):
        pass
    states, wrong = bytearray(), 0
    for number, tick in enumerate(data, 1):
        good = isinstance(tick, int) and tick in (0, 1)
        states.append(meanings[tick] if good else UNKNOWN)
        wrong += not good
        if not good and wrong <= MOST_TICK_TRAPS:
            traps.append(trap("bad_tick", file, number, f"{tick!r:.40} is neither 0 nor 1; the tick counts as unknown."))
    if wrong > MOST_TICK_TRAPS:
        traps.append(trap("bad_tick", file, None, f"{wrong:,} ticks in all are neither 0 nor 1."))
    return bytes(states)


def _prices(prices: Any, ticks: int, file: str, traps: list[Trap]) -> tuple[Decimal | None, ...] | None:  # noqa: ANN401
    if prices is None:
        return None
    if not isinstance(prices, list) or len(prices) != ticks:
        count = len(prices) if isinstance(prices, list) else 0
        traps.append(trap("lengths_differ", file, None, f"{count:,} prices for {ticks:,} ticks; the prices are left out."))
        return None
    known: dict[Any, Decimal | None] = {}
    found: list[Decimal | None] = []
    for number, price in enumerate(prices, 1):
        key = price if isinstance(price, str | int | Decimal) else None
        if key not in known:
            known[key] = price_of("" if price is None else price, file, number, traps)
        found.append(known[key])
    return tuple(found)


def _start(value: Any, file: str, tz: tzinfo | None, traps: list[Trap]) -> tuple[int, int | None]:  # noqa: ANN401
    """(first tick, UTC milliseconds): a number is a tick, a text a moment."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value, None
    if not isinstance(value, str):
        return 0, None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        traps.append(trap("bad_time", file, None, f"start_time '{value[:40]}' is no time; the trace has no date."))
        return 0, None
    if found.tzinfo is None:
        read_as = "UTC" if tz is None else str(tz)
        traps.append(trap("local_time", file, None, f"start_time '{value[:40]}' has no time zone; it is read as {read_as}."))
        found = found.replace(tzinfo=tz or UTC)
    return 0, milliseconds(found)


def _place(document: dict[str, Any], file: str) -> str:
    """The name of the trace it was cut from, else of its folder."""
    origin = document.get("original_trace") or document["metadata"].get("source_file")
    if isinstance(origin, str) and origin:
        return origin.replace("\\", "/").split("/")[-1].removesuffix(".json").removesuffix(".csv")
    parts = file.split("/")
    return parts[-2] if len(parts) > 1 else parts[-1].removesuffix(".gz").removesuffix(".json")
