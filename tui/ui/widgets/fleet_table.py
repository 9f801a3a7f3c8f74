"""The table of all nodes: what the filter lets through, in the order and the groups asked for, with the columns that fit.

Invariant: a node's row is formatted again only when its values, its state or the time that a notice leaves it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from tui.columns import NODE_COLUMNS, Column, fleet_columns
from tui.fleet import Fleet, NodeState, NodeView
from tui.gpu_strip import Look, strip
from tui.groups import Group, free_text
from tui.groups import text as group_text
from tui.ui.lines import Line, cropped, fitted, width
from tui.ui.widgets.arranged_table import indent
from tui.ui.widgets.grouped_table import GroupedTable

GPU_CELLS = (8, 16)
"""Of the strip, on a narrow screen and on a wide one: nodes with more GPUs show several in a cell."""
WIDE_ROOM = 110
_STATE_STYLES: dict[str, str] = {"live": "dim", "stale": "idle", "lost": "lost", "connecting": "dim", "draining": "idle"}
_GPU_STYLES: dict[Look, str] = {"lost": "lost", "idle": "idle", "held": "accent", "unknown": "accent"}
_QUIET = frozenset({"instance_type", "purchase", "region", "age"})


class FleetTable(GroupedTable):
    """Rows are node names. Jobs have a column as soon as there is one."""

    MARKABLE = True

    def __init__(self, fleet: Fleet, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(fleet, NODE_COLUMNS, "node", clock, id=id)
        self._most_gpus = 0

    def rows(self) -> Iterable[NodeView]:
        return self._fleet

    def key_of(self, row: NodeView) -> str:
        return row.name

    def update(self, now: float) -> None:
        least, most = GPU_CELLS
        cells = min(max(self._most_gpus, least), most) if self.room >= WIDE_ROOM else least
        self.set_columns(fleet_columns(bool(self._fleet.jobs_version), cells))
        super().update(now)

    def order_rows(self, now: float) -> None:
        self._most_gpus = max((len(view.gpus) for view in self._fleet), default=0)
        super().order_rows(now)

    def look_of(self, row: Any, now: float) -> Hashable:
        """The values of a live node change only with its version; the others also with time, and those of groups with any."""
        if isinstance(row, Group):
            return None
        state = row.state(now)
        return (row.version, state) if state == "live" and row.notice is None else None

    def cell(self, row: Any, column: Column, cells: int, now: float) -> Line:
        if isinstance(row, Group):
            return self._group_cell(row, column, cells)
        state = row.state(now)
        if column.id == "gpus" and row.uses:
            return _gpu_cells(row, cells, state)
        text = column.text(row, now)
        shown = fitted(indent(column) + text, cells, right=column.align == "right")
        return ((shown, _style(row, column, text, state)),)

    def _group_cell(self, group: Group, column: Column, cells: int) -> Line:
        match column.id:
            case "state":
                return ((fitted(f"{'▸' if self.folded(group.key) else '▾'} {len(group.views)}", cells), "title"),)
            case "node":
                told = any(shown.id == "instance_type" for shown, _ in self.shown_columns)
                return _padded((("title", group.title), *(() if told else _wrong(group))), cells)
            case "instance_type":
                return _padded(tuple((_STATE_STYLES[word], f"{count} {word}") for word, count in group.states), cells)
            case "region":
                free = free_text(group.totals.free)
                return ((fitted(f" {free} free" if free else "", cells), "dim"),)
        text = group_text(group, column.id, cells - len(indent(column)))
        shown = fitted(indent(column) + text, cells, right=column.align == "right")
        return ((shown, _group_style(group, column, text)),)


def _wrong(group: Group) -> list[tuple[str, str]]:
    """How many of its nodes are not simply live; nothing where the name of the group says it."""
    if group.by == "state":
        return []
    return [(_STATE_STYLES[word], f"{count} {word}") for word, count in group.states if word != "live"]


def _padded(parts: tuple[tuple[str, str], ...], cells: int) -> Line:
    """(style, text) with blanks between them, in exactly so many cells; what does not fit is left out, the first is cut."""
    line: Line = ()
    for place, (style, text) in enumerate(parts):
        more = (*line, (f"{' ' * bool(place)}{text}", style))
        if place and width(more) > cells - 2 * (place + 1 < len(parts)):
            line = (*line, (" …", "dim"))
            break
        line = more
    line = cropped(line, cells)
    return (*line, (" " * (cells - width(line)), "text"))


def _group_style(group: Group, column: Column, text: str) -> str:
    if text in ("–", "0"):
        return "dim"
    if column.id == "idle_usd_per_hour":
        return "idle" if group.totals.idle_usd_per_hour else "dim"
    if column.id == "gpus" and group.totals.gpus_lost:
        return "lost"
    return "strong" if column.id in ("usd_per_hour", "gpus") else "text"


def _style(view: NodeView, column: Column, text: str, state: NodeState) -> str:
    if column.id == "state":
        if view.notice is not None and state == "live":
            return "lost" if view.notice.hard else "idle"
        return _STATE_STYLES["draining" if view.draining and state == "live" else state]
    if state != "live" or text == "–" or column.id in _QUIET:
        return "dim"
    if column.id == "idle_usd_per_hour":
        return "idle" if view.idle_usd_per_hour else "dim"
    return "strong" if column.id == "node" else "dim" if text == "0" else "text"


def _gpu_cells(view: NodeView, cells: int, state: NodeState) -> Line:
    """Lost GPUs red, idle ones amber, neighbours of one style joined; of a node that is not live only the lost ones stand out."""
    spans: list[tuple[str, str]] = []
    found = strip(view.uses, cells)
    for character, look in found:
        style = "dim" if state != "live" and look != "lost" else _GPU_STYLES[look]
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + character, style)
        else:
            spans.append((character, style))
    return (*spans, (" " * (cells - len(found)), "text"))
