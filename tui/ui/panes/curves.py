"""Curves of one or several jobs as lines: the plot, what it comes to in money, and what differs between the jobs.

Invariant: pure functions; it fits any width, and where there is no room for a plot the figures still stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from agent import wire
from tui import format as fmt
from tui.curves import Outlook, Run, last, loss_of, named
from tui.curves_chart import Chart, figure
from tui.curves_text import (
    chart,
    compare_rows,
    curve_line,
    empty_sentence,
    head_line,
    money,
    money_rows,
    notes,
    run_names,
)
from tui.ui.lines import BLANK, Line, cropped, fitted, wrapped
from tui.ui.panes.node import rule

STYLES = ("accent", "idle", "text", "strong", "dim")
"""Of curves over each other; their marks tell them apart without colours."""
LEAST_PLOT, WITH_TABLE, MOST_PLOT = 6, 10, 24
TWO_FROM_ROWS = 26
LABEL_CELLS = 13
NARROW = 50
WIDEST_COLUMN = 30


class Look(NamedTuple):
    """Which figure is drawn, in how many cells, and how."""

    figure: str
    cells: int
    rows: int
    unicode: bool = True
    log: bool = False
    second: str | None = None
    """A figure below it, where there is room."""


def title(runs: Sequence[Run], keys: Sequence[tuple[str, str]], cells: int) -> Line:
    if len(keys) == 1 and runs:
        return cropped(((f" {head_line(runs[0])}", "strong"),), cells)
    what = f"job {fmt.clean(keys[0][1])} on {fmt.clean(keys[0][0])}" if len(keys) == 1 else f"{len(keys)} jobs compared"
    return cropped(((f" Curves of {what}", "strong"),), cells)


def page(runs: Sequence[Run], seen: Sequence[Outlook], look: Look, errors: Mapping[str, str]) -> list[Line]:
    """All of it."""
    told = [run for run in runs if run.curves.curves]
    lines = [line for text in errors.values() for line in wrapped(fmt.clean(text), "lost", look.cells, "  ")]
    if not runs:
        return lines or [(("  asking the node ...", "dim"),)]
    for run in runs:
        if not run.curves.curves:
            who = f"{run.job.id}: " if len(runs) > 1 else ""
            lines += wrapped(f"{who}{empty_sentence(run.curves, run.job)}.", "idle", look.cells, "  ")
    if len(runs) == 1:
        lines += _one(runs[0], seen[0], look) if told else []
    elif told:
        lines += _several(runs, seen, look)
    return [cropped(line, look.cells) for line in lines]


def _one(run: Run, seen: Outlook, look: Look) -> list[Line]:
    below = _money(run, seen, look.cells)
    both = [name for name in (look.figure, look.second) if name]
    two = len(both) == 2 and look.rows >= TWO_FROM_ROWS
    room = look.rows - len(below) - 1
    lines: list[Line] = []
    for name in both if two else both[:1]:
        curve = named(run.curves, name)
        if curve is not None:
            lines += _plotted([curve], look, (room - 2) // 2 - 1 if two else room - 1)
    return [*lines, *((BLANK,) if lines else ()), *below]


def _plotted(curves: Sequence[wire.Curve], look: Look, rows: int) -> list[Line]:
    """The figures in a line, and the plot under it where it fits."""
    newest = last(curves[0])
    short = f" {fmt.clean(curves[0].name)} {figure(newest.value if newest else None)}"
    head: Line = ((f" {curve_line(curves[0])}" if look.cells >= NARROW else short, "text"),)
    if rows < LEAST_PLOT:
        return [head]
    return [head, *plot_lines(tuple(curves), look.cells, min(MOST_PLOT, rows), look.unicode, look.log)]


@lru_cache(maxsize=8)
def plot_lines(curves: tuple[wire.Curve, ...], cells: int, rows: int, unicode: bool, log: bool) -> list[Line]:
    """Drawn anew only when there is something new: screens ask each second."""
    drawn = chart(curves, cells, rows, unicode=unicode, log=log)
    return chart_lines(drawn) if drawn is not None else []


def chart_lines(drawn: Chart) -> list[Line]:
    lines: list[Line] = []
    for label, row in zip(drawn.labels, drawn.cells, strict=True):
        spans = [(label, "dim"), (f" {drawn.tick}", "rule")]
        for cell in row:
            style = "text" if cell.which is None else STYLES[cell.which % len(STYLES)]
            if spans[-1][1] == style:
                spans[-1] = spans[-1][0] + cell.text, style
            else:
                spans.append((cell.text, style))
        lines.append(tuple(spans))
    return [*lines, ((drawn.axis, "rule"),), ((drawn.steps, "dim"),)]


def _money(run: Run, seen: Outlook, cells: int) -> list[Line]:
    lines: list[Line] = []
    narrow = cells < NARROW
    for name, text in money_rows(run, seen):
        if narrow:
            lines += [((f"{name} ", "dim"), (text, "text"))]
        else:
            rest = wrapped(text, "text", cells - LABEL_CELLS - 1)
            lines += [((f" {name:<{LABEL_CELLS}}" if not at else " " * (LABEL_CELLS + 1), "dim"), *line) for at, line in enumerate(rest)]
    said = "; ".join(map(fmt.clean, run.curves.sources))
    lines.append(((f" {'read':<{LABEL_CELLS}}", "dim"), (said, "dim")))
    return lines + [((f" {text}", "idle"),) for text in notes(run.curves)]


def _several(runs: Sequence[Run], seen: Sequence[Outlook], look: Look) -> list[Line]:
    table = _table(runs, seen, look.cells)
    curves = [named(run.curves, look.figure) or _blank(look.figure) for run in runs]
    beside = look.rows - len(table) - 3
    rows = max(LEAST_PLOT, min(MOST_PLOT, beside if beside >= WITH_TABLE else look.rows * 3 // 5, look.rows - 4))
    legend: list[tuple[str, str]] = [(f" {fmt.clean(look.figure)}: ", "dim")]
    for place, name in enumerate(run_names(runs)):
        legend.append((f"{name}  ", STYLES[place % len(STYLES)]))
    shown = plot_lines(tuple(curves), look.cells, rows, look.unicode, look.log) if look.rows > LEAST_PLOT else []
    return [tuple(legend), *shown, BLANK, *table]


def _blank(name: str) -> wire.Curve:
    return wire.Curve(name=name, steps=(), values=(), count=0, source="log")


def _table(runs: Sequence[Run], seen: Sequence[Outlook], cells: int) -> list[Line]:
    """A column a job; where not all fit, as many as do."""
    rows = [("id", [run.job.id for run in runs]), ("node", [fmt.clean(run.node) for run in runs]), *compare_rows(runs, seen)]
    names = run_names(runs)
    first = min(20, max(len(name) for name, _ in rows)) + 1
    widths = [
        min(WIDEST_COLUMN, max(len(names[place]), *(len(values[place]) for _, values in rows))) + 2 for place in range(len(runs))
    ]
    shown, used = 0, first
    while shown < len(runs) and (shown == 0 or used + widths[shown] <= cells):
        used += widths[shown]
        shown += 1
    note = f"{len(runs) - shown} more do not fit" if shown < len(runs) else ""
    head = ((" " * (first + 1), "dim"), *((fitted(names[place], widths[place]), STYLES[place % len(STYLES)]) for place in range(shown)))
    lines: list[Line] = [rule(" Compared", cells, note), head]
    for name, values in rows:
        lines.append(((f" {fitted(name, first)}", "dim"), *((fitted(values[place], widths[place]), "text") for place in range(shown))))
    return lines


def standing(runs: Sequence[Run], seen: Sequence[Outlook], look: Look) -> Line:
    """The status line: of one job the newest loss and the money, in a word."""
    if len(runs) != 1 or not seen:
        return ((f" {fmt.clean(look.figure)}", "dim"),) if look.figure else ()
    newest, one = last(loss_of(runs[0].curves)), seen[0]
    parts = [
        f"loss {newest.value:.4g}" if newest is not None else "",
        f"{money(one.per_epoch)} an epoch" if one.per_epoch is not None else "",
        f"{money(one.to_end)} to the end" if one.to_end is not None and one.steps_left else "",
    ]
    return ((" " + "  ".join(part for part in parts if part), "text"),)
