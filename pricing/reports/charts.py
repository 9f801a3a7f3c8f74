"""Charts as inline SVG: stacked bars per day, a line, a split bar, ranked bars, a budget's burn. No script, no library.

Invariant: a chart draws the numbers it is given and changes none; each has a `<title>` and a `<desc>` that a screen
reader speaks, and every mark has a `<title>` of its own. Colours are classes, so the page decides on light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape

from pricing.reports.text import clean

WIDTH, HEIGHT = 960, 280
LEFT, RIGHT, TOP, BOTTOM = 72, 12, 14, 30
Shown = Callable[[Decimal], str]


@dataclass(frozen=True, slots=True)
class Series:
    """One value per label; `css` is the class of its marks."""

    name: str
    values: tuple[Decimal, ...]
    css: str


def safe(text: str) -> str:
    """Text from outside, for HTML and its attributes."""
    return escape(clean(text), quote=True)


def stacked_bars(name: str, title: str, labels: Sequence[str], series: Sequence[Series], shown: Shown) -> str:
    """A bar per label, the series on top of each other; what is negative hangs below the line."""
    tops = [sum(max(one.values[place], Decimal(0)) for one in series) for place in range(len(labels))]
    lows = [sum(min(one.values[place], Decimal(0)) for one in series) for place in range(len(labels))]
    axis = _Axis(float(min(lows, default=0)), float(max(tops, default=0)))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    wide = min(step * 0.78, 56)
    marks = []
    for place, label in enumerate(labels):
        up, down = Decimal(0), Decimal(0)
        for one in series:
            value = one.values[place]
            if not value:
                continue
            base = up if value > 0 else down
            y0, y1 = axis.y(float(base)), axis.y(float(base + value))
            up, down = (up + value, down) if value > 0 else (up, down + value)
            x = LEFT + step * place + (step - wide) / 2
            marks.append(
                f'<rect class="{one.css}" x="{x:.1f}" y="{min(y0, y1):.1f}" width="{wide:.1f}" '
                f'height="{max(abs(y0 - y1), 0.5):.1f}"><title>{safe(f"{label} · {one.name}: {shown(value)}")}</title></rect>'
            )
    description = f"{len(labels)} bars of {', '.join(one.name for one in series)}."
    return _svg(name, title, description, HEIGHT, [*axis.lines(shown), *marks, *_labels(labels, step), axis.zero()])


def line(name: str, title: str, labels: Sequence[str], values: Sequence[float | None], ceiling: float = 1.0) -> str:
    """A line with points over the labels, of ratios; there is a gap where nothing is known."""
    axis = _Axis(0.0, ceiling)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    points = [None if value is None else (LEFT + step * (place + 0.5), axis.y(value)) for place, value in enumerate(values)]
    marks = []
    for part in _stretches(points):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in part)
        floor = axis.y(0)
        marks.append(f'<polygon class="area" points="{part[0][0]:.1f},{floor:.1f} {path} {part[-1][0]:.1f},{floor:.1f}"/>')
        marks.append(f'<polyline class="line" points="{path}"/>')
    for label, value, point in zip(labels, values, points, strict=True):
        if value is not None and point is not None:
            marks.append(
                f'<circle class="dot" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3"><title>{safe(label)}: '
                f"{value * 100:.1f} %</title></circle>"
            )
    known = [value for value in values if value is not None]
    description = f"Between {min(known) * 100:.0f} % and {max(known) * 100:.0f} %." if known else "Not known."
    percent = axis.lines(lambda value: f"{value * 100:.0f} %")
    return _svg(name, title, description, HEIGHT, [*percent, *marks, *_labels(labels, step), axis.zero()])


def ranked_bars(name: str, title: str, rows: Sequence[tuple[str, Decimal, str]], shown: Shown) -> str:
    """Horizontal bars of (name, value, class), as they come; the value stands behind each."""
    high = max((float(value) for _, value, _ in rows), default=0.0) or 1.0
    left, pitch, right = 240, 27, 130
    marks = []
    for place, (label, value, css) in enumerate(rows):
        y, wide = place * pitch + 4, max(0.0, float(value)) / high * (WIDTH - left - right)
        cut = clean(label) if len(label) <= 34 else clean(label)[:33] + "…"
        marks.append(f'<text class="name" x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(cut)}</text>')
        marks.append(
            f'<rect class="{css}" x="{left}" y="{y}" width="{max(wide, 1):.1f}" height="19" rx="2">'
            f"<title>{safe(label)}: {safe(shown(value))}</title></rect>"
        )
        marks.append(f'<text class="value" x="{left + max(wide, 1) + 8:.1f}" y="{y + 14}">{safe(shown(value))}</text>')
    first = f"{rows[0][0]} is largest." if rows else "Nothing."
    return _svg(name, title, f"{len(rows)} bars. {first}", len(rows) * pitch + 8, marks)


def split_bar(name: str, title: str, parts: Sequence[tuple[str, Decimal, str]], shown: Shown) -> str:
    """One bar cut into (name, value, class); parts of 0 are left out."""
    total = sum((float(value) for _, value, _ in parts if value > 0), 0.0) or 1.0
    marks, x = [], 0.0
    for label, value, css in parts:
        wide = max(0.0, float(value)) / total * WIDTH
        if not wide:
            continue
        marks.append(
            f'<rect class="{css}" x="{x:.1f}" y="4" width="{max(wide - 2, 1):.1f}" height="44" rx="3">'
            f"<title>{safe(label)}: {safe(shown(value))}</title></rect>"
        )
        x += wide
    description = ", ".join(f"{label} {shown(value)}" for label, value, _ in parts) + "."
    return _svg(name, title, description, 52, marks)


@dataclass(frozen=True, slots=True)
class Burn:
    """A budget's month: what was spent by the end of each day (None: not yet), its limit, and the forecast's range."""

    name: str
    limit: Decimal
    labels: tuple[str, ...]
    spent: tuple[Decimal | None, ...]
    forecast: tuple[Decimal, Decimal, Decimal] | None = None
    """Low, likely, high at the end of the month."""


def burn(name: str, title: str, budget: Burn, shown: Shown) -> str:
    """Spent so far as an area, the limit as a line across, the forecast as a dashed line with its range."""
    known = [value for value in budget.spent if value is not None]
    high = [float(budget.limit), *map(float, known), *(map(float, budget.forecast) if budget.forecast else ())]
    axis = _Axis(0.0, max(high))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(budget.labels))
    points = [(LEFT + step * (place + 1), axis.y(float(value))) for place, value in enumerate(known)]
    start, floor = (LEFT, axis.y(0)), axis.y(0)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (start, *points))
    last = points[-1] if points else start
    marks = [
        f'<polygon class="area" points="{path} {last[0]:.1f},{floor:.1f}"/>',
        f'<polyline class="line" points="{path}"/>',
    ]
    if budget.forecast and len(known) < len(budget.labels):
        low, likely, top = (axis.y(float(value)) for value in budget.forecast)
        end = WIDTH - RIGHT
        marks.append(f'<polygon class="range" points="{last[0]:.1f},{last[1]:.1f} {end},{top:.1f} {end},{low:.1f}"/>')
        marks.append(f'<line class="forecast" x1="{last[0]:.1f}" y1="{last[1]:.1f}" x2="{end}" y2="{likely:.1f}"/>')
    limit = axis.y(float(budget.limit))
    marks.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{limit:.1f}" y2="{limit:.1f}"/>')
    marks.append(f'<text class="limit-name" x="{LEFT + 6}" y="{limit - 6:.1f}">limit {safe(shown(budget.limit))}</text>')
    spent = shown(known[-1]) if known else "nothing"
    description = f"{spent} of {shown(budget.limit)} spent."
    return _svg(name, title, description, HEIGHT, [*axis.lines(shown), *marks, *_labels(budget.labels, step), axis.zero()])


class _Axis:
    """A vertical scale from `low` to `high` (0 is always on it) with round steps."""

    def __init__(self, low: float, high: float) -> None:
        span = (max(high, 0.0) - min(low, 0.0)) or 1.0
        size = 10 ** math.floor(math.log10(span / 4))
        self._step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= 5)
        self._low = math.floor(min(low, 0.0) / self._step) * self._step
        self._high = max(math.ceil(max(high, 0.0) / self._step - 1e-9) * self._step, self._low + self._step)

    def y(self, value: float) -> float:
        return TOP + (self._high - value) / (self._high - self._low) * (HEIGHT - TOP - BOTTOM)

    def lines(self, shown: Shown) -> list[str]:
        """Grid lines with their values."""
        marks, count = [], round((self._high - self._low) / self._step)
        for place in range(count + 1):
            value = self._low + place * self._step
            y = self.y(value)
            exact = Decimal(repr(round(value, 9)))
            marks.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            text = safe(shown(exact)).removesuffix(".00")
            marks.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
        return marks

    def zero(self) -> str:
        return f'<line class="zero" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(0):.1f}" y2="{self.y(0):.1f}"/>'


def _labels(labels: Sequence[str], step: float) -> list[str]:
    """As many labels below as fit, at even distances."""
    every = max(1, math.ceil(58 / step))
    return [
        f'<text class="tick" x="{LEFT + step * (place + 0.5):.1f}" y="{HEIGHT - 9}" text-anchor="middle">{safe(label)}</text>'
        for place, label in enumerate(labels)
        if place % every == 0
    ]


def _stretches(points: Sequence[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            parts.append([])
        else:
            parts[-1].append(point)
    return [part for part in parts if part]


def _svg(name: str, title: str, description: str, height: float, marks: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{safe(title)}</title><desc id="{name}-d">{safe(description)}</desc>{"".join(marks)}</svg>'
    )
