"""One GPU of a node: readings, past, links, who has it, what it cost today.

Invariant: it stays with its GPU by UUID; one that is gone from the node says so and keeps its screen.
"""

from __future__ import annotations

import shlex
from typing import ClassVar

from textual.app import ComposeResult

from tui.fleet import GpuUse, NodeView
from tui.format import clean
from tui.gpu_today import NodeToday, Today, read_today
from tui.ui import actions
from tui.ui.lines import Line
from tui.ui.panes.gpu_page import Seen, gpu_page, gpu_title
from tui.ui.panes.node import alerts_of
from tui.ui.panes.plots import Look
from tui.ui.reading import Reading
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine


class GpuScreen(RackrateScreen):
    """Scrolls with the arrows; `[` and `]` go to the neighbours."""

    SCOPE = "gpu"
    BINDINGS: ClassVar = actions.bindings("gpu")

    def __init__(self, node: str, uuid: str) -> None:
        super().__init__()
        self.node = node
        self.uuid = uuid
        self._today: Reading[NodeToday] = Reading(self)

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield LinesView(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("gpu")

    def on_mount(self) -> None:
        self.query_one("#page").focus()

    def crumb(self) -> str:
        """`GPU 3`."""
        found = self._use(self.rackrate.fleet[self.node])
        return f"GPU {found.gpu.index}" if found else "GPU"

    def draw(self) -> None:
        app = self.rackrate
        view, now, width = app.fleet[self.node], app.clock(), app.size.width
        use, pane = self._use(view), self.query_one("#page", LinesView)
        if use is None:
            self.query_one("#title", LinesView).show([((f" GPU {clean(self.uuid)}", "strong"), ("  gone", "lost"))])
            pane.show([(("  The node does not tell of this GPU any more.", "text"),)])
            self.query_one(StatusLine).show_line(())
            return
        self._read_today(view)
        plots = app.asking.plots
        span = plots.span
        look = Look(plots.track(self.node, span), span, app.zone, view.state(now) != "live")
        seen = Seen(use, look, self._day(view), plots.note(self.node, span), alerts_of(view, now, app.now()))
        self.query_one("#title", LinesView).show([gpu_title(view, use, now, width)])
        pane.show(gpu_page(view, seen, now, app.now(), max(10, width - 1), pane.size.height or app.size.height))
        self.query_one(StatusLine).show_line(self._status(view))

    def _use(self, view: NodeView) -> GpuUse | None:
        return next((use for use in view.uses if use.gpu.uuid == self.uuid), None)

    def _status(self, view: NodeView) -> Line:
        if view.error:
            return ((f" {clean(view.error)}", "lost"),)
        uuids = [use.gpu.uuid for use in view.uses]
        return ((f" GPU {uuids.index(self.uuid) + 1} of {len(uuids)} of {clean(view.name)}", "dim"),)

    def _day(self, view: NodeView) -> Today | None:
        found = self._today.value
        return found.gpus.get(self.uuid) if found is not None else None

    def _read_today(self, view: NodeView) -> None:
        app = self.rackrate
        files, now, info = app.files, app.now(), view.info
        if info is not None and files.has_ledger:
            name = info.node
            self._today.want(name, app.ledger_version, lambda: read_today(files, name, now))

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        self.redraw()

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_jobs(self) -> None:
        self.rackrate.action_jobs(f"node:{shlex.quote(self.node)}")

    def action_span(self, step: int) -> None:
        """A longer or a shorter past."""
        self.rackrate.asking.plots.step_span(step)
        self.redraw()

    def action_step_gpu(self, step: int) -> None:
        """The next GPU of the node."""
        uuids = [use.gpu.uuid for use in self.rackrate.fleet[self.node].uses]
        if uuids:
            place = uuids.index(self.uuid) if self.uuid in uuids else 0
            self.uuid = uuids[(place + step) % len(uuids)]
            self.query_one("#page", LinesView).scroll_to(y=0, animate=False)
            self.redraw()
