"""A reading over time as lines of text: title with mean and highest, scale at the left, braille area, gaps marked below.

Invariant: what is not known is drawn as not known: blank, and marked on the line below; all lines are exactly as wide as said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from tui import format as fmt
from tui.node_history import Curve

LABEL_CELLS = 5
GAP, LINE, TICK = "░", "─", "┴"
_STEPS_SECONDS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800)
_LABEL_ROOM = 9


class Scale(NamedTuple):
    """What the top of a plot stands for, and how values are written."""

    name: str
    top: float
    text: Callable[[float | None], str]
    short: str = ""
    """The name where there is little room."""


def title(scale: Scale, now: float | None, curve: Curve, cells: int) -> tuple[str, str, str]:
    """(name, value now, mean and highest), together in `cells` cells; the last parts go first where there is no room."""
    value = scale.text(now)
    for name in (scale.name, scale.short or scale.name):
        for tail in _tails(scale, curve):
            if len(name) + len(value) + len(tail) + 3 <= cells:
                return name, value, tail
    return (scale.short or scale.name)[: max(0, cells - len(value) - 1)], value, ""


def _tails(scale: Scale, curve: Curve) -> tuple[str, ...]:
    if curve.mean is None:
        return "nothing known", ""
    mean, highest = scale.text(curve.mean), scale.text(curve.highest)
    unknown = 1 - curve.known_ratio
    gap = f"  {GAP} {max(1, round(unknown * 100))}% not known" if unknown > 0.02 else ""
    return f"mean {mean}  max {highest}{gap}", f"mean {mean}  max {highest}", f"mean {mean} max {highest}", f"max {highest}", ""


def labels(scale: Scale, rows: int) -> list[str]:
    """The scale: top, bottom, and the middle where there is room."""
    found = [""] * rows
    found[0] = scale.text(scale.top)
    if rows >= 5:
        found[rows // 2] = scale.text(scale.top * (rows - rows // 2) / rows) if rows % 2 == 0 else ""
    if rows > 1:
        found[-1] = "0"
    return [fmt_cut(text) for text in found]


def fmt_cut(text: str) -> str:
    """Right-aligned in the cells of the scale."""
    return text[:LABEL_CELLS].rjust(LABEL_CELLS)


def axis(curve: Curve, cells: int, ticks: list[tuple[int, str]]) -> str:
    """The line below a plot of two columns a cell: marks of time, and of what is not known."""
    marks = [LINE] * cells
    for cell, _ in ticks:
        marks[cell] = TICK
    for cell in range(cells):
        pair = curve.columns[2 * cell : 2 * cell + 2]
        if pair and all(value is None for value in pair):
            marks[cell] = GAP
    return "".join(marks)


def ticks(start: float, end: float, cells: int, zone: tzinfo) -> list[tuple[int, str]]:
    """(cell, label) of moments that people name: whole minutes, hours, midnights in the reader's time zone."""
    seconds = end - start
    step = next((each for each in _STEPS_SECONDS if cells * each >= _LABEL_ROOM * seconds), 7 * 86_400)
    found: list[tuple[int, str]] = []
    for moment in _round_moments(start, step, int(seconds // step) + 3, zone):
        cell = int((moment.timestamp() - start) / seconds * cells)
        if 0 <= cell < cells and moment.timestamp() >= start:
            found.append((cell, _moment(moment, step)))
    return found


def _round_moments(start: float, step: int, count: int, zone: tzinfo) -> Iterator[datetime]:
    """`count` of them, each later than the one before; the hour that a clock change skips or repeats is as the clocks tell it."""
    first = datetime.fromtimestamp(start, zone)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    passed = (first - midnight).total_seconds()  # by the clock on the wall
    before = -math.inf
    for place in range(count):
        if step < 3600:
            at = round(start + -passed % step) + step * place
        else:
            at = (midnight + timedelta(seconds=step * (passed // step + place))).timestamp()
        if at > before:
            yield datetime.fromtimestamp(at, zone)
        before = at


def _moment(moment: datetime, step: int) -> str:
    if step < 60:
        return f"{moment:%H:%M:%S}"
    if step >= 86_400 or (moment.hour == moment.minute == 0 and step >= 3600):
        return f"{moment:%a %d}"
    return f"{moment:%H:%M}"


def times_line(found: list[tuple[int, str]], cells: int) -> str:
    """The labels under their marks, as many as stand apart."""
    text, free = [" "] * cells, 0
    for cell, label in found:
        at = min(cell, cells - len(label))
        if at >= free and at >= 0:
            text[at : at + len(label)] = label
            free = at + len(label) + 1
    return "".join(text)


def scales(memory_top: float | None, power_top: float | None) -> dict[str, Scale]:
    """Of the four readings; a top that is not known is taken from what was read."""
    return {
        "utilization": Scale("utilisation", 1.0, fmt.percent, "util"),
        "memory": Scale("memory", memory_top or 0.0, _size, "mem"),
        "power": Scale("power", power_top or 0.0, fmt.watts, "power"),
        "temperature": Scale("temperature", 100.0, fmt.celsius, "temp"),
    }


def _size(value: float | None) -> str:
    return "0" if value == 0 else fmt.size(value)


def fitting(scale: Scale, curve: Curve) -> Scale:
    """A top that holds all that is drawn."""
    highest = max((value for value in (curve.highest, scale.top) if value is not None), default=0.0)
    return scale._replace(top=highest or 1.0)
