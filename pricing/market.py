"""Spot price and availability history: fetches of many sources stitched into one step function per zone, type and product.

Invariant: the order in which sources come changes nothing; what no source tells is a gap, reported and never interpolated;
where two sources contradict each other, the one that was fetched later stands and the contradiction is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from pricing.calendar import instant, milliseconds
from pricing.market_read import Reading, read_history
from pricing.market_rows import Fetch, SeriesKey, read_rows
from pricing.market_steps import NOTHING, Conflict, Mean, StepFunction, Value, conflict_hours, overlay
from pricing.market_traces import AVAILABLE, UNAVAILABLE, UNKNOWN, Hazard, Run, Trace, hazard, steps_hazard, stitched_ticks
from pricing.market_traps import Trap, summary, trap

__all__ = [
    "AVAILABLE", "EMPTY", "UNAVAILABLE", "UNKNOWN", "Conflict", "Fetch", "Gap", "Hazard", "History", "Market", "Mean", "Reading", "Run",
    "SeriesKey", "StepFunction", "Trace", "Trap", "availability_history", "hazard", "read_history", "read_rows", "steps_hazard", "stitched_ticks", "summary", "trace_prices",
]  # fmt: skip


class Gap(NamedTuple):
    """A stretch of which nothing is known, half-open, UTC."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class History:
    """One series as it is known. Moments are aware datetimes; prices per hour of one instance."""

    steps: StepFunction
    sources: tuple[str, ...] = ()
    currency: str = "USD"

    @property
    def start(self) -> datetime:
        return instant(self.steps.start_ms)

    @property
    def end(self) -> datetime:
        return instant(self.steps.end_ms)

    def price_at(self, moment: datetime) -> Decimal | None:
        """None where it is not known."""
        return _price(self.steps.at(milliseconds(moment)))

    def mean(self, start: datetime, end: datetime) -> Mean:
        """The exact time-weighted mean over what is known of [start, end), and the share that is known."""
        return self.steps.mean(milliseconds(start), milliseconds(end))

    def known_ratio(self, start: datetime, end: datetime) -> Fraction:
        return self.mean(start, end).known_ratio

    def gaps(self, start: datetime, end: datetime) -> list[Gap]:
        found = self.steps.gaps(milliseconds(start), milliseconds(end))
        return [Gap(instant(piece.starts_ms), instant(piece.ends_ms)) for piece in found]

    def points(self, start: datetime, end: datetime) -> list[tuple[datetime, Decimal | None]]:
        """(from, price) within [start, end), the price in force at `start` first; None opens a gap."""
        pieces = self.steps.pieces(milliseconds(start), milliseconds(end))
        return [(instant(piece.starts_ms), _price(piece.value)) for piece in pieces]


def _price(value: Value) -> Decimal | None:
    return Decimal(value) if isinstance(value, int) else value


class Market(Mapping[SeriesKey, History]):
    """Price histories by zone, type and product."""

    def __init__(self, fetches: Iterable[Fetch]) -> None:
        groups: dict[SeriesKey, list[Fetch]] = {}
        for fetch in fetches:
            groups.setdefault(fetch.key, []).append(fetch)
        traps: list[Trap] = []
        self._histories = {key: _stitched(groups[key], traps) for key in sorted(groups)}
        self.traps: tuple[Trap, ...] = tuple(traps)
        """Contradictions between sources."""

    def __getitem__(self, key: SeriesKey) -> History:
        return self._histories[key]

    def __iter__(self) -> Iterator[SeriesKey]:
        return iter(self._histories)

    def __len__(self) -> int:
        return len(self._histories)

    def gaps(self) -> list[tuple[SeriesKey, Gap]]:
        """Every gap between the first and the last moment that is known of a series."""
        return [(key, gap) for key, history in self.items() for gap in history.gaps(history.start, history.end)]

    def find(self, instance_type: str | None = None, zone: str | None = None, product: str | None = None) -> list[SeriesKey]:
        """The keys that match what is given."""
        wanted = (zone, instance_type, product)
        return [key for key in self if all(want in (None, have) for want, have in zip(wanted, key, strict=True))]


def _stitched(fetches: list[Fetch], traps: list[Trap]) -> History:
    """The fetch that reaches furthest first; of equals the one with more rows, then by content and name."""
    ordered = sorted(fetches, key=lambda one: (-one.prices.end_ms, -one.rows, _content(one.prices), one.source))
    steps, conflicts = overlay([fetch.prices for fetch in ordered])
    key = fetches[0].key
    if conflicts:
        traps.append(trap("conflict", ordered[0].source, None, _contradiction(key, conflicts)))
    currency = "CNY" if key.zone.startswith("cn") else "USD"
    return History(steps, tuple(sorted({fetch.source for fetch in fetches})), currency)


def _content(steps: StepFunction) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return steps.starts_ms, tuple(map(str, steps.values))


def _contradiction(key: SeriesKey, conflicts: list[Conflict]) -> str:
    hours = float(conflict_hours(conflicts))
    first = min(conflicts, key=lambda one: one.starts_ms)
    return (
        f"the price of {key.instance_type} in {key.zone} is told differently by other sources for {hours:,.1f} hours, first at "
        f"{instant(first.starts_ms).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} ({first.kept} and {first.other}); the later fetch stands."
    )


def availability_history(traces: Iterable[Trace]) -> tuple[dict[str, StepFunction], list[Trap]]:
    """Traces with dates, stitched per place: 1 and 0 over time. Where windows contradict each other, the later one stands."""
    return _dated(traces, Trace.availability_steps, "availability")


def trace_prices(traces: Iterable[Trace]) -> tuple[dict[str, History], list[Trap]]:
    """The prices that dated traces tell, stitched per place."""
    found, traps = _dated(traces, Trace.price_steps, "price")
    return {place: History(steps) for place, steps in found.items() if steps}, traps


def _dated(traces: Iterable[Trace], steps_of, what: str) -> tuple[dict[str, StepFunction], list[Trap]]:  # noqa: ANN001
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        if trace.start_ms is not None:
            groups.setdefault(trace.place, []).append(trace)
    traps: list[Trap] = []
    whole: dict[str, StepFunction] = {}
    for place, windows in sorted(groups.items()):
        windows.sort(key=lambda one: (-(one.start_ms or 0), one.file))
        whole[place], conflicts = overlay([steps_of(window) for window in windows])
        if conflicts:
            hours = float(conflict_hours(conflicts))
            text = f"the {what} of {place} is told differently by other windows for {hours:,.1f} hours; the later one stands."
            traps.append(trap("conflict", windows[0].file, None, text))
    return whole, traps


EMPTY = History(NOTHING)
