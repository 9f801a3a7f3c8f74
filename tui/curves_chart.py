"""Curves over steps as cells: one as a braille line, several over each other with a mark of their own each.

Invariant: what is no number is a gap, never a line across it; there are exactly as many rows and columns as were asked for, and
curves differ by their mark, not by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MARKS = "ox+*#@%&$="
LEAST_WIDTH, LEAST_HEIGHT = 24, 5
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_LABEL_GAP = 2
_LARGEST = 1.7e308


class Trace(NamedTuple):
    """`values`: None is no number."""

    steps: Sequence[int]
    values: Sequence[float | None]
    mean: bool = False
    """Of each column its mean is drawn: a speed, of which each step's noise says nothing."""


class Cell(NamedTuple):
    text: str
    which: int | None = None
    """The trace that it is of."""


class Chart(NamedTuple):
    """Rows of a label, the axis and cells; then the axis below and its labels."""

    labels: list[str]
    cells: list[list[Cell]]
    axis: str
    steps: str
    tick: str

    def lines(self) -> list[str]:
        """As text."""
        rows = [f"{label} {self.tick}{''.join(cell.text for cell in row)}".rstrip() for label, row in zip(self.labels, self.cells, strict=True)]
        return [*rows, self.axis, self.steps]


class Scale(NamedTuple):
    bottom: float
    top: float
    log: bool = False

    @classmethod
    def of(cls, values: Sequence[float], log: bool) -> Scale:
        log = log and min(values) > 0
        low, high = (math.log10(edge) if log else edge for edge in (min(values), max(values)))
        if not log and 0 < low < high / 3:
            low = 0.0
        if high - low <= max(abs(high), abs(low)) * 1e-12:
            pad = abs(high) * 0.1 or 1.0
            low, high = max(low - pad, -_LARGEST), min(high + pad, _LARGEST)
        return cls(low, high, log)

    def dot(self, value: float, dots: int) -> int:
        """The row of dots, from the top."""
        at = math.log10(value) if self.log else value
        span = self.top / 2 - self.bottom / 2
        part = (at / 2 - self.bottom / 2) / span if span else 0.5
        return min(dots - 1, max(0, round((1 - part) * (dots - 1))))

    def value(self, row: int, rows: int) -> float:
        part = 1 - row / max(1, rows - 1)
        at = self.bottom * (1 - part) + self.top * part
        return 10 ** min(at, 308.0) if self.log else at


def figure(value: float | None) -> str:
    """Four digits that matter: `0.4312`, `1,234`, `1.2e-05`."""
    if value is None:
        return "–"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def draw(traces: Sequence[Trace], width: int, height: int, *, unicode: bool = True, log: bool = False) -> Chart | None:
    """In `width` x `height` cells; None where there is nothing to draw, or no room."""
    known = [value for trace in traces for value in trace.values if value is not None]
    if not known or width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return None
    scale, rows = Scale.of(known, log), height - 2
    labels = _labels(scale, rows)
    margin = max(map(len, labels))
    columns = width - margin - 2
    first = min(trace.steps[0] for trace in traces if trace.steps)
    final = max(trace.steps[-1] for trace in traces if trace.steps)
    if len(traces) == 1:
        cells = _line(traces[0], (first, final), columns, rows, scale, unicode)
    else:
        cells = _marked(traces, (first, final), columns, rows, scale)
    tick, corner, rule, notch = ("┤", "└", "─", "┴") if unicode else ("|", "+", "-", "+")
    axis, steps = _axis(first, final, columns, rule, notch)
    return Chart(
        [label.rjust(margin) for label in labels], cells, f"{'':{margin}} {corner}{axis}", f"{'':{margin + 2}}{steps}".rstrip(), tick
    )


def columns_of(trace: Trace, span: tuple[int, int], columns: int) -> list[list[float] | None]:
    """The values of each column of steps; between two values a line, and None where there is none."""
    first, length = span[0], span[1] - span[0]
    found: list[list[float] | None] = [None] * columns

    def column(step: int) -> int:
        return (step - first) * (columns - 1) // length if length else 0

    before: tuple[int, float] | None = None
    for step, value in zip(trace.steps, trace.values, strict=False):
        if value is None:
            before = None
            continue
        at = column(step)
        if before is not None and at > before[0] + 1:
            for between in range(before[0] + 1, at):
                part = (between - before[0]) / (at - before[0])
                found[between] = [value if value == before[1] else before[1] * (1 - part) + value * part]
        kept = found[at]
        if kept is None:
            found[at] = [value]
        else:
            kept.append(value)
        before = at, value
    return found


def _line(trace: Trace, span: tuple[int, int], columns: int, rows: int, scale: Scale, unicode: bool) -> list[list[Cell]]:
    across, down = (2, 4) if unicode else (1, 1)
    dots = rows * down
    masks: dict[tuple[int, int], int] = {}
    before: int | None = None
    for place, values in enumerate(columns_of(trace, span, columns * across)):
        if values is None:
            before = None
            continue
        found = [scale.dot(value, dots) for value in ([_mean(values)] if trace.mean else values)]
        reach = found if before is None else [*found, before]
        for dot in range(min(reach), max(reach) + 1):
            cell = dot // down, place // across
            masks[cell] = masks.get(cell, 0) | (_BRAILLE[place % 2][dot % 4] if unicode else 1)
        before = found[-1]
    blank = Cell(" ")
    cells = [[blank] * columns for _ in range(rows)]
    for (row, column), mask in masks.items():
        cells[row][column] = Cell(chr(0x2800 + mask) if unicode else "*", 0)
    return cells


def _marked(traces: Sequence[Trace], span: tuple[int, int], columns: int, rows: int, scale: Scale) -> list[list[Cell]]:
    """The mean of each column; where curves meet their marks take turns."""
    wanted: dict[tuple[int, int], list[int]] = {}
    for which, trace in enumerate(traces):
        for column, values in enumerate(columns_of(trace, span, columns)):
            if values is not None:
                wanted.setdefault((scale.dot(_mean(values), rows), column), []).append(which)
    blank = Cell(" ")
    cells = [[blank] * columns for _ in range(rows)]
    for (row, column), those in wanted.items():
        which = those[column % len(those)]
        cells[row][column] = Cell(MARKS[which % len(MARKS)], which)
    return cells


def _mean(values: Sequence[float]) -> float:
    return math.fsum(value / len(values) for value in values)


def _labels(scale: Scale, rows: int) -> list[str]:
    every = max(1, (rows - 1) // max(1, min(4, (rows - 1) // 2)))
    labels = [""] * rows
    for row in [*range(0, rows - every, every), rows - 1]:
        labels[row] = figure(scale.value(row, rows))
    return labels


def _axis(first: int, final: int, columns: int, rule: str, notch: str) -> tuple[str, str]:
    """The line below with its notches, and the steps under them."""
    axis, text = [rule] * columns, [" "] * columns
    end = f"{final:,}"
    axis[-1] = notch
    text[max(0, columns - len(end)) :] = end[-columns:]
    free, until = 0, columns - len(end) - _LABEL_GAP
    count = max(1, columns // 18)
    for part in range(count):
        step = first + (final - first) * part // count
        column, label = ((step - first) * (columns - 1) // (final - first) if final > first else 0), f"{step:,}"
        if column >= free and column + len(label) <= until and (part == 0 or step > first):
            axis[column] = notch
            text[column : column + len(label)] = label
            free = column + len(label) + _LABEL_GAP
    return "".join(axis), "".join(text)
