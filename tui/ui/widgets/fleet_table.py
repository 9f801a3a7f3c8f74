"""The table of all nodes: what the filter lets through, in the order asked for, with the columns that fit.

Invariant: while somebody moves the cursor the order holds still and only values change; what is not visible is not formatted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from textual import events

from tui.columns import NODE_COLUMNS, Column, column_sets, fit, gpu_cell, sort_rows
from tui.fleet import Fleet, NodeState, NodeView
from tui.query import Predicate
from tui.ui.lines import Line, fitted
from tui.ui.widgets.line_table import Cells, LineTable

ARRANGE_SECONDS = 2.0
"""Rows are filtered and sorted again at most this often."""
HOLD_SECONDS = 3.0
"""The order holds still for so long after the cursor moved."""
_STATE_STYLES: dict[NodeState, str] = {"live": "dim", "stale": "idle", "lost": "lost", "connecting": "dim"}
_QUIET = frozenset({"instance_type", "purchase", "region", "age"})
_BY_ID = {column.id: column for column in NODE_COLUMNS}
SORTABLE = tuple(column for column in NODE_COLUMNS if column.sort_key)


class FleetTable(LineTable):
    """Rows are node names."""

    def __init__(self, fleet: Fleet, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fleet = fleet
        self._clock = clock
        self._wanted: Predicate | None = None
        self._column = _BY_ID["node"]
        self._descending = False
        self._sets: list[list[tuple[Column, int]]] = [[]]
        self._set = 0
        self._arranged_at = -1e9
        self._moved_at = -1e9
        self._seen: dict[str, tuple[int, NodeState]] = {}

    @property
    def hidden_columns(self) -> int:
        return len(NODE_COLUMNS) - len(self._sets[self._set])

    @property
    def sort_column(self) -> Column:
        return self._column

    def shows(self, column: Column) -> bool:
        """Whether the column is on the screen."""
        return any(shown is column for shown, _ in self._sets[self._set])

    def held_seconds(self, now: float) -> int:
        """Whole seconds for which the order still holds still; 0 when it does not."""
        return max(0, ceil(HOLD_SECONDS - (now - self._moved_at)))

    def on_resize(self, event: events.Resize) -> None:
        self._layout()
        self.keep_in_view()

    def _layout(self) -> None:
        self.gap = 2 if not fit(NODE_COLUMNS, self.room, 2)[1] else 1
        self._sets = column_sets(NODE_COLUMNS, self.room, self.gap)
        self._set = min(self._set, len(self._sets) - 1)
        self.forget()
        self._show_titles()

    def _show_titles(self) -> None:
        self.set_titles(
            [(c.id, _indent(c) + c.title, cells, c.align == "right") for c, cells in self._sets[self._set]],
            (self._column.id, self._descending),
        )

    def next_columns(self) -> bool:
        """Shows the next set of columns; False when all are shown already."""
        self._set = (self._set + 1) % len(self._sets)
        self.forget()
        self._show_titles()
        return len(self._sets) > 1

    def select(self, wanted: Predicate | None) -> None:
        """Shows only nodes that `wanted` holds for."""
        self._wanted = wanted
        self.order_rows(self._clock())

    def sort_by(self, column: Column) -> None:
        """By another column, or the other way round when it is the same."""
        self._descending = not self._descending if column is self._column else column.descending
        self._column = column
        self._rearranged()

    def sort_step(self, step: int) -> None:
        """By the next column that can be sorted by."""
        place = SORTABLE.index(self._column) if self._column in SORTABLE else -1
        self.sort_by(SORTABLE[(place + step) % len(SORTABLE)])

    def reverse(self) -> None:
        self._descending = not self._descending
        self._rearranged()

    def _rearranged(self) -> None:
        self._show_titles()
        self.order_rows(self._clock())
        self.keep_in_view()

    def note_moved(self) -> None:
        """Somebody moves the cursor: the order holds still from now."""
        self._moved_at = self._clock()

    def update(self, now: float) -> None:
        """Takes what changed in the fleet: new order if it may, new values where they are visible."""
        if now - self._arranged_at >= ARRANGE_SECONDS and not self.held_seconds(now):
            self.order_rows(now)
        self.refresh_rows({key for index in self.in_view if self._differs(key := self.keys[index], now)})

    def _differs(self, key: str, now: float) -> bool:
        """The values of a live node change only with its version; the others also with time."""
        view = self._fleet[key]
        mark = (view.version, view.state(now))
        if mark == self._seen.get(key) and mark[1] == "live":
            return False
        self._seen[key] = mark
        return True

    def order_rows(self, now: float) -> None:
        """Filters and sorts all nodes."""
        self._arranged_at = now
        wanted = self._wanted
        rows = [view for view in self._fleet if wanted is None or wanted(view, now)]
        rows = sort_rows(rows, self._column, now, descending=self._descending, tie=lambda view: view.name)
        self.set_keys([view.name for view in rows])
        self._forget_unseen()

    def _forget_unseen(self) -> None:
        """Rows off the screen are formatted when they are scrolled to, with the values of that moment."""
        visible = {self.keys[index] for index in self.in_view}
        self.drop_rows(set(self._cells) - visible)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._forget_unseen()

    def cells_of(self, key: str) -> Cells:
        view, now = self._fleet[key], self._clock()
        state = view.state(now)
        self._seen[key] = (view.version, state)
        return tuple(_cell(view, column, cells, now, state) for column, cells in self._sets[self._set])


def _indent(column: Column) -> str:
    """Text that stands after a column of numbers: a blank keeps them apart."""
    return " " if column.id in ("users", "region") else ""


def _cell(view: NodeView, column: Column, cells: int, now: float, state: NodeState) -> Line:
    if column.id == "gpus" and view.uses:
        return _gpu_cells(view, cells, state)
    text = column.text(view, now)
    return ((fitted(_indent(column) + text, cells, right=column.align == "right"), _style(view, column, text, state)),)


def _style(view: NodeView, column: Column, text: str, state: NodeState) -> str:
    if column.id == "state":
        return _STATE_STYLES[state]
    if state != "live" or text == "–" or column.id in _QUIET:
        return "dim"
    if column.id == "idle_usd_per_hour":
        return "idle" if view.idle_usd_per_hour else "dim"
    return "strong" if column.id == "node" else "text"


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
