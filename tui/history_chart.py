"""A price over time as lines of text: braille or ASCII, with dollars on the left and times below.

Invariant: what is not known is drawn as not known, never as a line across; every line fits the width, and there are
exactly `height` of them (fewer only where the space is too small for a chart, then one line says it in words).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from pricing.calendar import milliseconds
from pricing.market_steps import StepFunction
from pricing.money import SYMBOLS, to_decimal

Points = Sequence[tuple[datetime, Decimal | None]]
"""(from, price) in order of time; the one in force at the start may lie before it. None: not known from there on."""
LEAST_WIDTH, LEAST_HEIGHT = 30, 7
_STEPS_HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 336, 24 * 30, 24 * 91)
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class _Style(NamedTuple):
    across: int
    """Dots of a cell, sideways."""
    down: int
    tick: str
    corner: str
    line: str
    gap: str
    on_demand: str
    mark: str


_UNICODE = _Style(2, 4, "┤", "└", "─", "░", "╌", "┴")
_ASCII = _Style(1, 1, "|", "+", "-", "?", "=", "+")


def draw(
    steps: Points | StepFunction,
    start: datetime,
    end: datetime,
    width: int,
    height: int,
    *,
    unicode: bool = True,
    on_demand: Decimal | None = None,
    currency: str = "USD",
    tz: tzinfo = UTC,
) -> list[str]:
    """The price from `start` to `end` in `width` x `height` cells; min, mean and max are exact, over what is known."""
    starts_ms, ends_ms = milliseconds(start), milliseconds(end)
    if ends_ms <= starts_ms:
        raise ValueError("the end of a chart comes after its start")
    if not isinstance(steps, StepFunction):
        steps = StepFunction(((milliseconds(at), price) for at, price in steps), ends_ms)
    style = _UNICODE if unicode else _ASCII
    words = _fitting(_summary(steps, starts_ms, ends_ms, on_demand, currency, style), width)
    if steps.mean(starts_ms, ends_ms).value is None or width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return [words]
    scale = _Scale.of(steps, starts_ms, ends_ms, on_demand)
    rows = height - 3
    labels = _labels(scale, rows, currency)
    margin = max(map(len, labels)) + 1
    columns = width - margin - 1
    cells = _plot(steps, starts_ms, ends_ms, columns, rows, scale, style, on_demand)
    lines = [f"{label:>{margin - 1}} {style.tick}{''.join(row).rstrip()}" for label, row in zip(labels, cells, strict=True)]
    axis, times = _times(start.astimezone(tz), end.astimezone(tz), columns, style)
    axis = _with_gaps(axis, steps, starts_ms, ends_ms, style)
    return [words, *lines, f"{'':{margin}}{style.corner}{axis}", f"{'':{margin + 1}}{times}".rstrip()]


class _Scale(NamedTuple):
    """Prices from the bottom to the top of the plot."""

    bottom: Fraction
    top: Fraction

    @classmethod
    def of(cls, steps: StepFunction, starts_ms: int, ends_ms: int, on_demand: Decimal | None) -> _Scale:
        least, most = (Fraction(value or 0) for value in steps.extremes(starts_ms, ends_ms))
        if on_demand is not None:
            least, most = min(least, Fraction(on_demand)), max(most, Fraction(on_demand))
        if most == least:
            return cls(least * Fraction(9, 10), most * Fraction(11, 10))
        return cls(Fraction(0) if least * 3 < most else least, most)

    def dot(self, value: Fraction, dots: int) -> int:
        """The row of dots, from the top."""
        ratio = (value - self.bottom) / (self.top - self.bottom)
        return min(dots - 1, max(0, round((1 - ratio) * (dots - 1))))


def _plot(
    steps: StepFunction, starts_ms: int, ends_ms: int, columns: int, rows: int, scale: _Scale, style: _Style,
    on_demand: Decimal | None,
) -> list[list[str]]:  # fmt: skip
    dots, across = rows * style.down, columns * style.across
    cells = [[" "] * columns for _ in range(rows)]
    if on_demand is not None:
        row = scale.dot(Fraction(on_demand), dots) // style.down
        cells[row] = [style.on_demand] * columns
    masks: dict[tuple[int, int], int] = {}
    unknown = [0] * columns
    before: int | None = None
    for column in range(across):
        cell = column // style.across
        spans, before = _column(steps, starts_ms, ends_ms, column, across, scale, dots, before)
        unknown[cell] += not spans
        for least, most in spans:
            for dot in range(least, most + 1):
                place = dot // style.down, cell
                bit = _BRAILLE[column % 2][dot % 4] if style is _UNICODE else 1
                masks[place] = masks.get(place, 0) | bit
    for (row, cell), mask in masks.items():
        cells[row][cell] = chr(0x2800 + mask) if style is _UNICODE else "*"
    for cell, count in enumerate(unknown):
        if count == style.across:
            cells[-1][cell] = style.gap
    return cells


def _with_gaps(axis: str, steps: StepFunction, starts_ms: int, ends_ms: int, style: _Style) -> str:
    """The line below the plot, with each cell marked that holds a gap, however short."""
    marks = list(axis)
    for piece in steps.gaps(starts_ms, ends_ms):
        first = (piece.starts_ms - starts_ms) * len(axis) // (ends_ms - starts_ms)
        last = (piece.ends_ms - starts_ms - 1) * len(axis) // (ends_ms - starts_ms)
        marks[first : last + 1] = style.gap * (last + 1 - first)
    return "".join(marks)


def _column(
    steps: StepFunction, starts_ms: int, ends_ms: int, column: int, across: int, scale: _Scale, dots: int, before: int | None
) -> tuple[list[tuple[int, int]], int | None]:
    """The spans of dots of one column, and where its line ends (None: in a gap)."""
    length = ends_ms - starts_ms
    begin, until = (starts_ms + length * place // across for place in (column, column + 1))
    spans: list[tuple[int, int]] = []
    for piece in steps.pieces(begin, max(until, begin + 1)):
        if piece.value is None:
            before = None
            continue
        dot = scale.dot(Fraction(piece.value), dots)
        spans.append((dot, dot) if before is None else (min(dot, before), max(dot, before)))
        before = dot
    return spans, before


def _labels(scale: _Scale, rows: int, currency: str) -> list[str]:
    """A price at the top, the bottom and every few rows between."""
    every = max(1, (rows - 1) // max(1, min(4, (rows - 1) // 2)))
    labels = [""] * rows
    for row in [*range(0, rows - every + 1, every), rows - 1]:
        value = scale.top - (scale.top - scale.bottom) * row / (rows - 1)
        labels[row] = _money(value, scale.top, currency)
    return labels


def _money(value: Fraction | Decimal, size: Fraction, currency: str) -> str:
    """With as many decimals as prices of that size need."""
    places = 2 if size >= 10 else 3 if size >= 1 else 4
    return f"{SYMBOLS.get(currency, f'{currency} ')}{to_decimal(value, places):,f}"


def _summary(steps: StepFunction, starts_ms: int, ends_ms: int, on_demand: Decimal | None, currency: str, style: _Style) -> str:
    mean = steps.mean(starts_ms, ends_ms)
    if mean.value is None:
        return ["no price is known in this time"]
    least, most = (Fraction(value or 0) for value in steps.extremes(starts_ms, ends_ms))
    shown = [f"{name} {_money(value, most, currency)}" for name, value in (("min", least), ("mean", mean.value), ("max", most))]
    if mean.known_ratio < 1:
        percent = max(0.1, min(99.9, float(100 - mean.known_ratio * 100)))
        shown.append(f"{style.gap} {percent:.1f}% not known")
    if on_demand is not None:
        shown.append(f"{style.on_demand} on demand {_money(on_demand, Fraction(on_demand), currency)}")
    return shown


def _fitting(parts: list[str], width: int) -> str:
    """As many of the parts as there is room for."""
    while len(parts) > 1 and len("  ".join(parts)) > width:
        parts = parts[:-1]
    return "  ".join(parts)[:width]


def _round_times(start: datetime, end: datetime, columns: int) -> list[datetime]:
    """Moments that people name: whole hours, midnights, every few days."""
    hours = next((step for step in _STEPS_HOURS if columns * step * 3600 >= 9 * (end - start).total_seconds()), 24 * 365)
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    count = int((end - midnight).total_seconds() / 3600 / hours)
    moments = [midnight + timedelta(hours=hours * place) for place in range(1, count + 1)]
    return [moment for moment in moments if start < moment < end]


def _times(start: datetime, end: datetime, columns: int, style: _Style) -> tuple[str, str]:
    """The line below the plot with its marks, and the times under them; the zone stands last."""
    span = end - start
    first, rest = ("%Y-%m-%d", "%b %d") if span > timedelta(days=2) else ("%Y-%m-%d %H:%M", "%H:%M")
    if span > timedelta(days=400):
        rest = "%b %Y"
    zone = start.tzname() or ""
    axis, text = [style.line] * columns, [" "] * columns
    free, begin = 0, start.timestamp()
    length = end.timestamp() - begin  # by which prices are drawn; two moments of one zone tell the clocks' difference
    for moment in (start, *_round_times(start, end, columns)):
        column = int((moment.timestamp() - begin) / length * columns)
        label = moment.strftime(first if moment == start else rest)
        if column >= free and column + len(label) <= columns - (len(zone) + 1):
            text[column : column + len(label)] = label
            axis[column] = style.mark
            free = column + len(label) + 2
    if len(zone) < columns:
        text[columns - len(zone) :] = zone
    return "".join(axis), "".join(text)
