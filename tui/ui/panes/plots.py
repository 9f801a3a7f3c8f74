"""Plots of readings side by side, as lines: as many in a row as there is room for, with one line of times below.

Invariant: all plots of a page share their stretch of time, so that what stands above each other happened at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import NamedTuple

from tui.node_history import Field, Span, Track, window
from tui.readings_chart import LABEL_CELLS, Scale, axis, fitting, labels, ticks, times_line, title
from tui.ui.lines import Line, fitted
from tui.ui.widgets.plot import area

GAP_CELLS = 2
LEAST_CELLS = 34
LEAST_ROWS, HIGH_ROWS, MOST_ROWS = 2, 6, 10
"""Of a plot, beside its title and axis."""
WIDEST = 110
"""A plot is not drawn wider: two values a cell are more than a week has points then."""


class Plot(NamedTuple):
    """One reading of some GPUs together: its scale, and its value now."""

    scale: Scale
    uuids: tuple[str, ...]
    field: Field
    now: float | None


class Look(NamedTuple):
    """What plots are drawn of and how: the track, the span, the reader's zone, and whether the values are old."""

    track: Track
    span: Span
    zone: tzinfo
    dim: bool = False


def shape(cells: int, room: int) -> tuple[int, int]:
    """(plots in a row, rows of each) for four plots: two above two where there is room, else side by side, else stacked."""
    fit = max(1, min(4, (cells + GAP_CELLS) // (LEAST_CELLS + GAP_CELLS)))
    across = fit if fit < 3 else 2 if room >= 2 * (HIGH_ROWS + 2) + 1 else 4 if fit == 4 else 2
    tiers = 4 // across
    return across, max(LEAST_ROWS, min(MOST_ROWS, (room - 1) // tiers - 2))


def grid(plots: Sequence[Plot], look: Look, cells: int, room: int) -> list[Line]:
    """All four plots in about `room` lines, never lower than can be read."""
    across, rows = shape(cells, room)
    width = min(WIDEST, (cells - GAP_CELLS * (across - 1)) // across)
    if width < 12 or look.track.newest is None:
        return []
    start, end = window(look.track.newest, look.span, 2 * (width - LABEL_CELLS - 2))
    marks = ticks(start, end, width - LABEL_CELLS - 2, look.zone)
    lines: list[Line] = []
    for first in range(0, len(plots), across):
        blocks = [_block(plot, look, width, rows, (start, end), marks) for plot in plots[first : first + across]]
        lines += [_beside(parts) for parts in zip(*blocks, strict=True)]
    times = f"{'':{LABEL_CELLS + 2}}{times_line(marks, width - LABEL_CELLS - 2)}"
    lines.append(_beside([((times, "dim"),)] * across))
    return lines


def _beside(parts: Sequence[Line]) -> Line:
    spans: list[tuple[str, str]] = []
    for place, part in enumerate(parts):
        spans += [*(((" " * GAP_CELLS, "dim"),) if place else ()), *part]
    return tuple(spans)


def _block(
    plot: Plot, look: Look, width: int, rows: int, stretch: tuple[float, float], marks: list[tuple[int, str]]
) -> list[Line]:
    cells = width - LABEL_CELLS - 2
    found = look.track.curve(plot.uuids, plot.field, *stretch, 2 * cells)
    scale = fitting(plot.scale, found)
    name, value, tail = title(scale, plot.now, found, width - 1)
    head = f" {name} {value} "
    lines: list[Line] = [
        ((f" {name} ", "dim"), (f"{value} ", "dim" if look.dim else "strong"), (fitted(tail, width - len(head), right=True), "dim"))
    ]
    drawn = area(found.columns, cells, rows, scale.top)
    for label, row in zip(labels(scale, rows), drawn, strict=True):
        lines.append(((label, "dim"), (" │", "rule"), (row, "dim" if look.dim else "accent")))
    lines.append(((" " * LABEL_CELLS + " └" + axis(found, cells, marks), "rule"),))
    return lines


def small(uuid: str, field: Field, look: Look, cells: int, rows: int, top: float) -> list[str]:
    """A plot of one GPU without scale and title, `rows` high: two values a cell."""
    if look.track.newest is None:
        return area([], cells, rows, top)
    stretch = window(look.track.newest, look.span, 2 * cells)
    return area(look.track.curve((uuid,), field, *stretch, 2 * cells).columns, cells, rows, top)


