"""All jobs of the fleet: what runs, what waits and why, what ended and how.

Invariant: what is not visible is not formatted, so that tens of thousands of jobs cost what a screenful costs.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tui.fleet_jobs import JobView
from tui.format import clean
from tui.job_rows import JOB_WORDS
from tui.ui import actions
from tui.ui.job_actions import JobActions
from tui.ui.lines import BLANK, Line
from tui.ui.panes.job import job_sums, why_lines
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.header import Header
from tui.ui.widgets.jobs_table import JobsTable
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

WHY_FROM_ROWS = 14
TWO_FROM_ROWS = 20
EXAMPLE = "state:running user:me cause:oom node:gpu-01 cost>5 !done"
_SUBMIT: tuple[Line, ...] = (
    (("  n", "key"), ("                          submits one from here", "dim")),
    (("  rackrate run -- COMMAND", "key"), ("    does the same in a shell", "dim")),
)
_SIMULATED: tuple[Line, ...] = (
    (("  Simulated nodes run no jobs: those in their process lists are made up.", "strong"),),
    BLANK,
    (("  rackrate add URL", "key"), ("    adds a node that runs jobs; they are listed here with log, limits and cost", "dim")),
)


class JobsScreen(TableScreen, JobActions):
    """Enter opens the job. `query`: the filter that it begins with."""

    SCOPE = "jobs"
    ROWS = "Jobs"
    BINDINGS: ClassVar = actions.bindings("jobs")

    def __init__(self, query: str = "") -> None:
        super().__init__()
        self._query = query
        self._summed: tuple[object, tuple[Line, ...]] = ((), ())

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield JobsTable(app.fleet, app.clock, id="jobs")
        yield RaisedLines(id="why")
        yield FilterBar(JOB_WORDS, EXAMPLE)
        yield StatusLine(app.clock)
        yield Footer("jobs")

    def on_mount(self) -> None:
        self.table.focus()
        if self._query:
            self.query_one(FilterBar).put(self._query)
        self.rackrate.asking.job_lists(view.name for view in self.rackrate.fleet)

    @property
    def table(self) -> JobsTable:
        return self.query_one(JobsTable)

    def job_here(self) -> JobView | None:
        return self.table.chosen

    def jobs_here(self) -> list[JobView]:
        return [self.table.row_of(key) for key in self.targets()]

    def draw(self) -> None:
        self.show_header()
        self.table.empty = self._nothing()
        self.table.update(self.rackrate.clock())
        self.show_status()
        self._show_why()

    def _nothing(self) -> tuple[Line, ...]:
        """Why no job is shown, and what would change that."""
        fleet = self.rackrate.fleet
        if any(len(view.jobs) for view in fleet):
            return ((("  No job matches this filter. Esc clears it.", "dim"),),)
        known = [view for view in fleet if view.info is not None]
        if known and all(view.info.simulated for view in known if view.info):
            return _SIMULATED
        problems = tuple(
            ((f"  {clean(view.name)}: ", "dim"), (clean(view.jobs.problem), "idle")) for view in known if view.jobs.problem
        )
        return ((("  No jobs yet.", "strong"),), BLANK, *_SUBMIT, *((BLANK, *problems[:5]) if problems else ()))

    def sums(self) -> tuple[Line, ...]:
        return job_sums(self.table.views(self.summed()), self.rackrate.clock())

    def _show_why(self) -> None:
        """Why the job under the cursor waits or ended, in full, where there is a line for it."""
        view, pane = self.table.chosen, self.query_one("#why", LinesView)
        pane.display = self.app.size.height >= WHY_FROM_ROWS and view is not None
        if view is None:
            return
        rows = 2 if self.app.size.height >= TWO_FROM_ROWS else 1
        pane.styles.height = rows
        pane.show(why_lines(view, self.rackrate.clock(), self.app.size.width, rows))

    def action_open(self) -> None:
        view = self.table.chosen
        if view is not None:
            self.rackrate.open_job(view.node.name, view.job.id)

    def action_submit(self) -> None:
        view = self.table.chosen
        self.rackrate.action_submit(view.node.name if view is not None and self._query.startswith("node:") else "")

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.table.select_timed(event.wanted, event.timed)
        self.redraw()
