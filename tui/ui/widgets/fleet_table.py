"""The table of all nodes: what the filter lets through, in the order asked for, with the columns that fit.

Invariant: a node's row is formatted again only when its values, its state or the time that a notice leaves it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from tui.columns import FLEET_COLUMNS, NODE_COLUMNS, Column, gpu_cell
from tui.fleet import Fleet, NodeState, NodeView
from tui.ui.lines import Line, fitted
from tui.ui.widgets.arranged_table import ArrangedTable, indent

_STATE_STYLES: dict[NodeState, str] = {"live": "dim", "stale": "idle", "lost": "lost", "connecting": "dim"}
_QUIET = frozenset({"instance_type", "purchase", "region", "age"})


class FleetTable(ArrangedTable):
    """Rows are node names. Jobs have a column as soon as there is one."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(NODE_COLUMNS, "node", clock, id=id)
        self._fleet = fleet

    def rows(self) -> Iterable[NodeView]:
        return self._fleet

    def key_of(self, row: NodeView) -> str:
        return row.name

    def row_of(self, key: str) -> NodeView:
        return self._fleet[key]

    def update(self, now: float) -> None:
        self.set_columns(FLEET_COLUMNS if self._fleet.jobs_version else NODE_COLUMNS)
        super().update(now)

    def look_of(self, row: NodeView, now: float) -> Hashable:
        """The values of a live node change only with its version; the others also with time."""
        state = row.state(now)
        return (row.version, state) if state == "live" and row.notice is None else None

    def cell(self, row: NodeView, column: Column, cells: int, now: float) -> Line:
        state = row.state(now)
        if column.id == "gpus" and row.uses:
            return _gpu_cells(row, cells, state)
        text = column.text(row, now)
        shown = fitted(indent(column) + text, cells, right=column.align == "right")
        return ((shown, _style(row, column, text, state)),)


def _style(view: NodeView, column: Column, text: str, state: NodeState) -> str:
    if column.id == "state":
        if view.notice is not None and state == "live":
            return "lost" if view.notice.hard else "idle"
        return _STATE_STYLES[state]
    if state != "live" or text == "–" or column.id in _QUIET:
        return "dim"
    if column.id == "idle_usd_per_hour":
        return "idle" if view.idle_usd_per_hour else "dim"
    return "strong" if column.id == "node" else "dim" if text == "0" else "text"


def _gpu_cells(view: NodeView, cells: int, state: NodeState) -> Line:
    """A character a GPU: lost ones red, idle ones amber, neighbours of one style joined."""
    spans: list[tuple[str, str]] = []
    for use in view.uses[:cells]:
        style = "lost" if use.gpu.state != "ok" else "dim" if state != "live" else "idle" if use.held is False else "accent"
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + gpu_cell(use), style)
        else:
            spans.append((gpu_cell(use), style))
    return (*spans, (" " * (cells - min(cells, len(view.uses))), "text"))
