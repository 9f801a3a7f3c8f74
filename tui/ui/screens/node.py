"""One node: its GPUs with their past drawn, its processes as a tree, its host, its price, and what is wrong.

Invariant: the newest values stay when the node falls silent, dimmed and with their age; an action names what is under the cursor.
"""

from __future__ import annotations

import shlex
from typing import ClassVar

from textual.app import ComposeResult

from tui.format import clean
from tui.gpu_today import NodeToday, read_today
from tui.ui import actions
from tui.ui.lines import Line, joined
from tui.ui.panes.gpu_facts import today_parts
from tui.ui.panes.node import Seen, page, title_line
from tui.ui.panes.plots import Look
from tui.ui.reading import Reading
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.cursor_lines import CursorLines
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine


class NodeScreen(RackrateScreen):
    """The cursor goes over GPUs and processes; Enter opens the GPU, or the process's job."""

    SCOPE = "node"
    BINDINGS: ClassVar = actions.bindings("node")

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node
        self._today: Reading[NodeToday] = Reading(self)

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield CursorLines(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("node")

    def on_mount(self) -> None:
        self.pane.focus()

    @property
    def pane(self) -> CursorLines:
        return self.query_one("#page", CursorLines)

    @property
    def gpu(self) -> str | None:
        """UUID of the GPU under the cursor, or of that of the process there."""
        words = (self.pane.cursor_key or "").split(" ")
        return words[1] if len(words) > 1 else None

    def draw(self) -> None:
        app = self.rackrate
        view, now, width = app.fleet[self.node], app.clock(), app.size.width
        self.query_one("#title", LinesView).show([title_line(view, now, width)])
        self._read_today()
        plots = app.asking.plots
        span = plots.span
        look = Look(plots.track(self.node, span), span, app.zone, view.state(now) != "live")
        today = self.today
        seen = Seen(look, today and today.whole, today.gpus if today else {}, plots.note(self.node, span))
        made = page(view, seen, now, app.now(), max(10, width - 1), self.pane.size.height or app.size.height)
        self.pane.show_page(made.lines, made.targets)
        trouble: Line = ((f" {clean(view.error)}", "lost"),) if view.error else self._place(width)
        self.query_one(StatusLine).show_line(trouble)

    @property
    def today(self) -> NodeToday | None:
        """What the ledger tells of this node's day; None: not read yet, or it knows nothing."""
        found = self._today.value
        return found if found is not None and found.gpus and self._today_of == self.node else None

    _today_of = ""

    def _read_today(self) -> None:
        app = self.rackrate
        files, now, info = app.files, app.now(), app.fleet[self.node].info
        if info is not None and files.has_ledger:
            name = info.node
            self._today.want(name, app.ledger_version, lambda: read_today(files, name, now))

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        info = self.rackrate.fleet[self.node].info
        self._today_of = self.node if info is not None and event.key == info.node else ""
        self.redraw()

    def _place(self, width: int) -> Line:
        app = self.rackrate
        names = app.node_order()
        place = names.index(self.node) + 1 if self.node in names else 0
        parts: list[Line] = [((f" node {place} of {len(names)}", "dim"),)] if place else [((" ", "dim"),)]
        if self.today is not None:
            parts += [(("today", "dim"),), *today_parts(self.today.whole, app.now())]
        return joined(parts, "  ", width)

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_jobs(self) -> None:
        self.rackrate.action_jobs(f"node:{shlex.quote(self.node)}")

    def action_submit(self) -> None:
        self.rackrate.action_submit(self.node)

    def action_open(self) -> None:
        """The GPU under the cursor, or the job of the process there."""
        self._open(self.pane.cursor_key)

    def on_cursor_lines_opened(self, event: CursorLines.Opened) -> None:
        self._open(event.key)

    def _open(self, key: str | None) -> None:
        kind, _, rest = (key or "").partition(" ")
        uuid, _, pid = rest.partition(" ")
        job = self._job_of(uuid, pid) if kind == "process" else None
        if job is not None:
            self.rackrate.open_job(self.node, job)
        elif uuid:
            self.rackrate.open_gpu(self.node, uuid)
        else:
            self.note("There is no GPU here to look at.", "dim")

    def _job_of(self, uuid: str, pid: str) -> str | None:
        """The job of a process, where its agent tells of it."""
        view = self.rackrate.fleet[self.node]
        for use in view.uses:
            for process in use.gpu.processes or ():
                if use.gpu.uuid == uuid and str(process.pid) == pid and process.job and view.jobs.get(process.job):
                    return process.job
        return None

    def action_span(self, step: int) -> None:
        """A longer or a shorter past."""
        self.rackrate.asking.plots.step_span(step)
        self.redraw()

    def action_step_node(self, step: int) -> None:
        """The next node in the order of the table."""
        names = self.rackrate.node_order()
        if names:
            place = names.index(self.node) if self.node in names else 0
            self.node = names[(place + step) % len(names)]
            self.pane.scroll_to(y=0, animate=False)
            self.pane.cursor_key = None
            self.redraw()
