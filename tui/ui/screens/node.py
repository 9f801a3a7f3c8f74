"""One node: its GPUs with a minute drawn, its processes, its host, its price, and what is wrong.

Invariant: the newest values stay when the node falls silent, dimmed and with their age.
"""

from __future__ import annotations

import shlex
from typing import ClassVar

from textual.app import ComposeResult

from tui.format import clean
from tui.ui import actions
from tui.ui.lines import Line
from tui.ui.panes.node import page, title_line
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine


class NodeScreen(RackrateScreen):
    """Scrolls with the arrows."""

    SCOPE = "node"
    BINDINGS: ClassVar = actions.bindings("node")

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield LinesView(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("node")

    def on_mount(self) -> None:
        self.query_one("#page").focus()

    def draw(self) -> None:
        app = self.rackrate
        view, now, width = app.fleet[self.node], app.clock(), app.size.width
        self.query_one("#title", LinesView).show([title_line(view, now, width)])
        pane = self.query_one("#page", LinesView)
        pane.show(page(view, now, app.now(), max(10, width - 1)))
        trouble: Line = ((f" {clean(view.error)}", "lost"),) if view.error else self._place()
        self.query_one(StatusLine).show_line(trouble)

    def _place(self) -> Line:
        names = self.rackrate.node_order()
        place = names.index(self.node) + 1 if self.node in names else 0
        return ((f" node {place} of {len(names)}", "dim"),) if place else ()

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_jobs(self) -> None:
        self.rackrate.action_jobs(f"node:{shlex.quote(self.node)}")

    def action_submit(self) -> None:
        self.rackrate.action_submit(self.node)

    def action_step_node(self, step: int) -> None:
        """The next node in the order of the table."""
        names = self.rackrate.node_order()
        if names:
            place = names.index(self.node) if self.node in names else 0
            self.node = names[(place + step) % len(names)]
            self.query_one("#page", LinesView).scroll_to(y=0, animate=False)
            self.rackrate.entered_node(self.node)
            self.redraw()
