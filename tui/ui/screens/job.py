"""One job: what it is, what holds it, what it used and cost, why it ended, and its log as it is written.

Invariant: the log is read only while the screen is there, and never more of it than a window is held.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Container

from agent import wire
from tui import format as fmt
from tui.fleet_jobs import JobView, whole_cost
from tui.job_log import LogBuffer
from tui.sweep_follow import SweepFollower, is_sweep
from tui.ui import actions
from tui.ui.job_actions import JobActions
from tui.ui.lines import Line, joined
from tui.ui.log_actions import LogActions
from tui.ui.log_follow import LogFollower
from tui.ui.log_search import LogSearch
from tui.ui.panes.job import facts, title_line
from tui.ui.panes.sweep import sweep_lines
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.log_view import LogView
from tui.ui.widgets.search_bar import SearchBar
from tui.ui.widgets.status import Footer, StatusLine

if TYPE_CHECKING:
    from agent.client import AgentClient

BESIDE_FROM = 150
"""Columns from which facts and log stand side by side."""
BOTH_FROM_ROWS = 12
"""On a lower screen one of them is shown at a time."""
FACTS_PART = 0.45


class JobScreen(LogActions, JobActions):
    """Facts above (or beside) the log; Tab goes from one to the other."""

    SCOPE = "job"
    BINDINGS: ClassVar = actions.bindings("job")
    CSS = """
    JobScreen #body { height: 1fr; layout: vertical; }
    JobScreen #body.-beside { layout: horizontal; }
    JobScreen #facts { height: auto; }
    JobScreen #body.-beside #facts { width: 2fr; height: 1fr; }
    JobScreen #logpane { height: 1fr; layout: vertical; }
    JobScreen #body.-beside #logpane { width: 3fr; margin-left: 1; }
    JobScreen #logtitle { height: 1; }
    """

    def __init__(self, node: str, ident: str) -> None:
        super().__init__()
        self.node = node
        self.ident = ident
        self._view: JobView | None = None
        self._buffer = LogBuffer()
        self._client: AgentClient | None = None
        self._follower = LogFollower(
            self._buffer, self._ask, self._log_bytes, self._log_changed, reads_end=self._reads_end,
            gather=lambda usual: self.rackrate.governor.wait_seconds(usual),
        )  # fmt: skip
        self._search = LogSearch(self._buffer, self._ask, self._found_more)
        self._following: asyncio.Task[None] | None = None
        self._sweep: SweepFollower | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._whole = False
        self._attempt = 0
        self._followed: int | None = None
        self._error: str | None = None

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        with Container(id="body"):
            yield LinesView(id="facts")
            with Container(id="logpane"):
                yield LinesView(id="logtitle")
                yield LogView(self._buffer, id="log")
                yield SearchBar()
        yield StatusLine(self.rackrate.clock)
        yield Footer("job")

    def on_mount(self) -> None:
        self.query_one("#logtitle").can_focus = False
        self._log.focus()
        self._following = self.rackrate.asking.start(self._follow())

    async def on_unmount(self) -> None:
        if self._following is not None:
            self._following.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._search.close()

    def job_here(self) -> JobView | None:
        """As the fleet knows it, or as it was last known."""
        self._view = self.rackrate.fleet.job(self.node, self.ident) or self._view
        return self._view

    # -- the log ---------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            self._client = self.rackrate.asking.client(self.node)
        except (ClientError, RackrateError) as error:
            self._follower.error = str(error)
            self._log_changed(0)
            return
        try:
            await self._follower.run()
        finally:
            await self._client.aclose()

    async def _ask(self, offset: int, limit: int, wait: float, attempt: int | None) -> wire.LogPage:
        assert self._client is not None
        return await self._client.log(self.ident, offset, limit=limit, wait=wait, attempt=attempt or None)  # 0: none has begun

    async def _log_bytes(self) -> int | None:
        """Asks for the whole job, which the fleet may not have (it ended before the app was started)."""
        assert self._client is not None
        job = await self._client.job(self.ident)
        self._attempt = self._attempt or job.attempt
        app = self.rackrate
        app.fleet.apply(self.node, wire.JobEvent(job=job), app.clock())
        self.redraw()
        return job.log_bytes if self._followed in (None, job.attempt) else None

    def action_step_attempt(self, step: int) -> None:
        """The log of another attempt; past the last one the newest is followed."""
        view = self.job_here()
        newest = view.job.attempt if view else 0
        now = self._buffer.attempt or newest
        wanted = max(1, min(newest, now + step))
        if wanted == now:
            self.note(f"There is no {'later' if step > 0 else 'earlier'} attempt.", "dim")
            return
        self._followed = None if wanted == newest else wanted
        self._log.at_end, self._log.held = True, False
        self._follower.follow_attempt(self._followed)

    # -- what is shown -----------------------------------------------------------------------------------------

    def draw(self) -> None:
        app, view = self.rackrate, self.job_here()
        self._arrange()
        title, pane = self.query_one("#title", LinesView), self.query_one("#facts", LinesView)
        if view is None:
            title.show([((f" job {self.ident} on {fmt.clean(self.node)}", "strong"),)])
            pane.show([(("  asking the node ...", "dim"),)])
            return
        if self._followed is None and self._attempt and view.job.attempt > self._attempt:
            self._follower.follow_attempt(None)  # it runs again: a new log
        self._attempt = max(self._attempt, view.job.attempt)
        width = pane.size.width or app.size.width
        title.show([title_line(view, app.clock(), app.size.width)])
        pane.show([*self._trials(view, max(20, width - 1)), *facts(view, app.clock(), app.time_text, max(20, width - 1))])
        self._fit_facts()
        self._show_log_title()
        self.query_one(StatusLine).show_line(self._standing(view))

    def _trials(self, view: JobView, cells: int) -> list[Line]:
        """Of a sweep: what its log tells of them, above all else."""
        if not is_sweep(view.job):
            return []
        if self._sweep is None and self._client is not None:
            self._sweep = SweepFollower(self._ask, self.redraw)
            self._sweeping = self.rackrate.asking.start(self._sweep.run())
        swept = self._sweep.swept if self._sweep else None
        if swept is None:
            return []
        cost = whole_cost(self.rackrate.fleet.parts(view), self.rackrate.clock())
        return [*sweep_lines(swept, cost, cells), ()]

    def _standing(self, view: JobView) -> Line:
        if view.node.error:
            return ((f" {fmt.clean(view.node.error)}", "lost"),)
        if view.node.notice is not None:
            return ((f" {fmt.clean(view.node.notice.sentence(view.node.utc(self.rackrate.clock())))}", "lost"),)
        if self.rackrate.fleet.job(self.node, self.ident) is None:
            return ((" The node no longer tells of this job; this is what was last heard.", "idle"),)
        return ()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self.redraw)  # once more, when the panes have their new widths

    def _arrange(self) -> None:
        """Side by side, one above the other, or one at a time."""
        columns, rows = self.app.size
        beside = columns >= BESIDE_FROM and rows >= BOTH_FROM_ROWS
        one = self._whole or (rows < BOTH_FROM_ROWS and not beside)
        on_facts = self.focused is not None and self.focused.id == "facts"
        self.query_one("#body").set_class(beside and not self._whole, "-beside")
        self.query_one("#facts").display = not self._whole and (not one or on_facts)
        self.query_one("#logpane").display = self._whole or not one or not on_facts
        self.query_one("#logtitle").display = rows >= 7

    def _fit_facts(self) -> None:
        """As high as they are, but the log keeps more than half."""
        pane, body = self.query_one("#facts", LinesView), self.query_one("#body")
        if body.has_class("-beside") or self.app.size.height < BOTH_FROM_ROWS:
            pane.styles.height = "1fr"
        else:
            pane.styles.height = max(3, min(len(pane.lines), int(body.size.height * FACTS_PART)))

    def _show_log_title(self) -> None:
        cells = self.query_one("#logpane").size.width or self.app.size.width
        parts = self._log_parts()
        right = joined(parts, " · ", max(0, cells - 10))
        used = sum(len(text) for text, _ in right)
        name = "Log"
        if (self._buffer.attempt or 1) > 1 or self._followed:
            name = f"Log of attempt {self._buffer.attempt or self._followed}"
        fill = max(0, cells - len(name) - used - 4)
        title = self.query_one("#logtitle", LinesView)
        title.show([((f" {name} ", "title"), ("─" * fill, "rule"), (" ", "rule"), *right, (" ", "rule"))])
        self._log.empty = ((f"  {self._empty_log()}", "dim"),)

    def _empty_log(self) -> str:
        view = self._view
        if self._follower.error:
            return ""
        if view is not None and view.job.state == "queued" and not view.job.attempt:
            return "it has not started: there is no log yet"
        return "nothing written" if self._buffer.ended else "nothing written yet"

    # -- keys --------------------------------------------------------------------------------------------------

    def action_switch_pane(self) -> None:
        facts_pane = self.query_one("#facts", LinesView)
        to_facts = self.focused is not facts_pane and not self._whole
        facts_pane.display = facts_pane.display or to_facts
        self.query_one("#logpane").display = True
        self.set_focus(facts_pane if to_facts else self._log)
        self.redraw()

    def action_whole_log(self) -> None:
        """The log alone, or with the facts again."""
        self._whole = not self._whole
        for pane in self.query("#logpane"):  # none where it was left before it was put together
            pane.display = True
            self.set_focus(self._log)
        self.redraw()
