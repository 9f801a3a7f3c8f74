"""The fleet: all nodes as a table, and the node under the cursor below it where there is room.

Invariant: at 80x24 nothing but the table, the sums and the keys; the detail never takes rows that the table needs more.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tui.format import clean
from tui.groups import groupings, is_group
from tui.selection import Selected, selected
from tui.ui import actions
from tui.ui.lines import Line
from tui.ui.panes.first_run import NO_NODES, first_run_lines
from tui.ui.panes.group import group_detail
from tui.ui.panes.header import node_sums, unpriced
from tui.ui.panes.node import detail
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.fleet_table import FleetTable
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

DETAIL_FROM = (100, 30)
"""Columns and rows from which the node under the cursor is shown below the table."""
DETAIL_LEAST_ROWS = 6
FRAME_ROWS = 4


class FleetScreen(TableScreen):
    """The first screen."""

    SCOPE = "fleet"
    ROWS = "Nodes"
    BINDINGS: ClassVar = actions.bindings("fleet")
    CSS = "FleetScreen #detail { height: auto; }"
    _summed: Selected | None = None
    """What the status line shows."""

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

    def draw(self) -> None:
        self.show_header()
        self._explain_empty()
        self.table.update(self.rackrate.clock())
        self.show_status()
        self._show_detail()

    def _explain_empty(self) -> None:
        app = self.rackrate
        self.table.stand_below(first_run_lines(app.fleet, app.size.width - 1) if app.first_run else ())
        if not len(self.rackrate.fleet):
            self.table.empty = NO_NODES
        else:
            self.table.empty = ((("  No node matches this filter. Esc clears it.", "dim"),),)

    def sums(self) -> tuple[Line, ...]:
        self._summed = self.selected()
        return node_sums(self._summed)

    def aside(self) -> Line:
        return unpriced(self._summed.totals) if self._summed is not None else ()

    def selected(self) -> Selected:
        """What the marked nodes cost, or all that are shown."""
        app, names = self.rackrate, self.summed()
        if len(names) == len(app.fleet):
            return selected(app.fleet, None, app.clock(), app.costs.by_node, app.totals())
        return selected(app.fleet, names, app.clock(), app.costs.by_node)

    def trouble(self) -> Line:
        """Why the node under the cursor does not answer, or what the cloud will do to it."""
        app, key = self.rackrate, self.table.cursor_key
        view = app.fleet[key] if key is not None and key in app.fleet else None
        if view is None:
            return ()
        if view.error:
            return ((f"{clean(view.name)}: {clean(view.error)}", "lost"),)
        if view.notice is None:
            return ()
        return (
            (
                f"{clean(view.name)}: {clean(view.notice.sentence(view.utc(app.clock())))}",
                "lost" if view.notice.hard else "idle",
            ),
        )

    def _show_detail(self) -> None:
        app, pane, table = self.rackrate, self.query_one("#detail", LinesView), self.table
        key = table.cursor_key
        height = self.detail_height()
        pane.display = bool(height and key)
        if not height or key is None:
            return
        pane.styles.height = height
        if is_group(key):
            pane.show(group_detail(table.group(key), app.size.width, height))
            return
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
        self._open(self.table.cursor_key)

    def _open(self, key: str | None) -> None:
        """A node; a group is folded or unfolded."""
        if key is not None and is_group(key):
            self.action_unfold() if self.table.folded(key) else self.action_fold()
        elif key is not None:
            self.rackrate.open_node(key)

    def grouped_by(self) -> str:
        return self.table.by.removeprefix("tag:")

    def action_grouping(self, step: int) -> None:
        """By the next of what there is to group by; not at all after the last."""
        ways = ("", *groupings(self.rackrate.fleet))
        place = ways.index(self.table.by) if self.table.by in ways else 0
        self.action_group_by(ways[(place + step) % len(ways)])

    def action_group_by(self, by: str) -> None:
        """`cloud`, `region`, `type`, `project`, `user`, `state`, `tag:team`; empty: no groups."""
        self.table.group_by(by)
        self.redraw()

    def action_fold(self) -> None:
        if not self.table.fold():
            self._no_fold("There is nothing to fold here")
        self.redraw()

    def action_unfold(self) -> None:
        if not self.table.unfold():
            self._no_fold("There is nothing to unfold here")
        self.redraw()

    def action_fold_all(self, folded: bool) -> None:
        self.table.fold_all(folded)
        self.redraw()

    def _no_fold(self, text: str) -> None:
        if not self.table.by:
            self.note(f"{text}: {actions.key_of('group_by')} puts the nodes into groups.", "dim")

    def nothing_above(self) -> None:
        self.note(f"This is the top: {actions.key_of('quit')} quits, {actions.key_of('open')} opens a node.", "dim")

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self._open(event.key)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.table.note_moved()
        self.show_status()
        self._show_detail()
