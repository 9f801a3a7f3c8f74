"""The fleet: all nodes as a table, and the node under the cursor below it where there is room.

Invariant: at 80x24 nothing but the table, the sums and the keys; the detail never takes rows that the table needs more.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tui.fleet import Totals
from tui.format import clean
from tui.ui import actions
from tui.ui.lines import Line
from tui.ui.panes.header import Shown
from tui.ui.panes.node import detail
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.fleet_table import SORTABLE, FleetTable
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

DETAIL_FROM = (100, 30)
"""Columns and rows from which the node under the cursor is shown below the table."""
DETAIL_LEAST_ROWS = 6
FRAME_ROWS = 4
NO_NODES: tuple[Line, ...] = (
    (("  No nodes yet.", "strong"),),
    (),
    (("  rackrate add URL", "key"), ("        adds one that runs an agent", "dim")),
    (("  rackrate-agent init", "key"), ("     on the node prints that line for you", "dim")),
    (("  rackrate demo", "key"), ("           shows a simulated fleet", "dim")),
)


class FleetScreen(RackrateScreen):
    """The first screen."""

    SCOPE = "fleet"
    BINDINGS: ClassVar = actions.bindings("fleet")
    CSS = "FleetScreen #detail { height: auto; }"

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield FleetTable(app.fleet, app.clock, id="nodes")
        detail_pane = LinesView(id="detail")
        detail_pane.can_focus = False
        yield detail_pane
        yield FilterBar()
        yield StatusLine(app.clock)
        yield Footer("fleet")

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def table(self) -> FleetTable:
        return self.query_one(FleetTable)

    @property
    def filter_text(self) -> str:
        return self.query_one(FilterBar).applied

    def draw(self) -> None:
        app, table = self.rackrate, self.table
        self.show_header()
        self._explain_empty()
        table.update(app.clock())
        self._show_status()
        self._show_detail()

    def _explain_empty(self) -> None:
        if not len(self.rackrate.fleet):
            self.table.empty = NO_NODES
        else:
            self.table.empty = ((("  No node matches this filter. Esc clears it.", "dim"),),)

    def _show_status(self) -> None:
        app, table = self.rackrate, self.table
        shown = Shown(
            totals=self._sums(),
            filter_text=self.filter_text,
            hidden_columns=table.hidden_columns,
            frozen_seconds=table.held_seconds(app.clock()),
            sorted_by="" if table.shows(table.sort_column) else table.sort_column.title,
        )
        self.query_one(StatusLine).show_sums(shown, self._trouble())

    def _sums(self) -> Totals:
        """Of exactly the rows that are shown."""
        app, keys = self.rackrate, self.table.keys
        return app.totals() if len(keys) == len(app.fleet) else app.fleet.totals(app.clock(), keys)

    def _trouble(self) -> Line:
        """Why the node under the cursor does not answer."""
        key = self.table.cursor_key
        view = self.rackrate.fleet[key] if key is not None and key in self.rackrate.fleet else None
        return ((f"{clean(view.name)}: {clean(view.error)}", "lost"),) if view and view.error else ()

    def _show_detail(self) -> None:
        app, pane, table = self.rackrate, self.query_one("#detail", LinesView), self.table
        key = table.cursor_key
        height = self.detail_height()
        pane.display = bool(height and key)
        if not height or key is None:
            return
        pane.styles.height = height
        if not table.held_seconds(app.clock()):
            app.entered_node(key)
        pane.show(detail(app.fleet[key], app.clock(), app.now(), app.size.width, height))

    def detail_height(self) -> int:
        """Lines below the table: what it leaves free, and at least a third of the screen."""
        columns, rows = self.app.size
        if columns < DETAIL_FROM[0] or rows < DETAIL_FROM[1]:
            return 0
        room = rows - FRAME_ROWS - 2 * self.query_one(FilterBar).has_class("-open")
        free = room - len(self.table.keys) - 2
        return max(DETAIL_LEAST_ROWS, min(room // 3 + 1, 12), min(free, room - 8))

    def action_open(self) -> None:
        if self.table.cursor_key is not None:
            self.rackrate.open_node(self.table.cursor_key)

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()
        self._show_detail()

    def action_back(self) -> None:
        """Clears the filter; where there is none, says so."""
        if self.filter_text:
            self.query_one(FilterBar).clear()
        else:
            self.note("This is the top: q quits, Enter opens a node.", "dim")

    def action_sort_key(self, key: str) -> None:
        self.table.sort_by(next(column for column in SORTABLE if column.sort_key == key))
        self.redraw()

    def action_sort_next(self, step: int) -> None:
        self.table.sort_step(step)
        self.redraw()

    def action_reverse(self) -> None:
        self.table.reverse()
        self.redraw()

    def action_columns(self) -> None:
        if not self.table.next_columns():
            self.note("All columns are shown.", "dim")
        self.redraw()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.rackrate.open_node(event.key)

    def on_line_table_title_clicked(self, event: LineTable.TitleClicked) -> None:
        column = next((column for column in SORTABLE if column.id == event.column_id), None)
        if column is None:
            self.note("Nodes are not sorted by this column.", "dim")
        else:
            self.table.sort_by(column)
            self.redraw()

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.table.note_moved()
        self._show_status()
        self._show_detail()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.table.select(event.wanted)
        self.redraw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self.table.focus()
        self.redraw()
