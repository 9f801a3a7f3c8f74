"""The table of all jobs of the fleet.

Invariant: jobs are sorted again only when one came, went or changed; each second only the visible rows are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from tui.columns import Column
from tui.fleet import Fleet
from tui.fleet_jobs import RUNNING, JobView
from tui.format import UNKNOWN
from tui.job_rows import JOB_COLUMNS
from tui.ui.lines import Line, fitted
from tui.ui.panes.job import ROW_STYLES, cause_style
from tui.ui.widgets.arranged_table import ARRANGE_SECONDS, ArrangedTable, Test, indent

MANY = 1000


class JobsTable(ArrangedTable):
    """Rows are jobs, by node and id."""

    MARKABLE = True

    def __init__(self, fleet: Fleet, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(JOB_COLUMNS, "state", clock, id=id)
        self._fleet = fleet
        self._arranged = -1
        self._timed = False
        self._by_key: dict[str, JobView] = {}
        self.found: list[JobView] = []
        """The rows that are shown."""

    def views(self, keys: Iterable[str]) -> list[JobView]:
        """The jobs of those keys."""
        return [self._by_key[key] for key in keys]

    def select_timed(self, wanted: Test | None, timed: bool) -> None:
        """As `select`; a filter that compares numbers (run time, cost) lets through others as time goes on."""
        self._timed = timed
        self.select(wanted)

    def rows(self) -> Iterable[JobView]:
        return self._fleet.jobs()

    def key_of(self, row: JobView) -> str:
        return row.key

    def row_of(self, key: str) -> JobView:
        return self._by_key[key]

    @property
    def pace(self) -> float:
        """As few rows are quickly sorted, what came is shown at once."""
        return ARRANGE_SECONDS if len(self.keys) > MANY else 0.0

    def changed(self) -> bool:
        return self._timed or self._arranged != self._fleet.jobs_version

    def order_rows(self, now: float) -> None:
        self._arranged = self._fleet.jobs_version
        self._by_key = {job.key: job for job in self._fleet.jobs()}
        super().order_rows(now)
        self.found = [self._by_key[key] for key in self.keys]

    @property
    def chosen(self) -> JobView | None:
        """The job under the cursor."""
        return self._by_key.get(self.cursor_key) if self.cursor_key is not None else None

    def look_of(self, row: JobView, now: float) -> Hashable:
        """A job that runs grows older and dearer; others change with what is heard of them."""
        state = row.node.state(now)
        if row.job.state in RUNNING and state != "lost":
            return None
        return row.version, state, int(row.wait_seconds(now) or 0) // 60

    def cell(self, row: JobView, column: Column, cells: int, now: float) -> Line:
        text = column.text(row, now)
        shown = fitted(indent(column) + text, cells, right=column.align == "right")
        return ((shown, _style(row, column, text, now)),)


def _style(row: JobView, column: Column, text: str, now: float) -> str:
    job = row.job
    if row.node.state(now) == "lost":
        return "dim"
    if job.left_behind and column.id in ("state", "why"):
        return "lost"
    match column.id:
        case "state":
            return ROW_STYLES[job.state]
        case "cause":
            return cause_style(job, text)
        case "name":
            return "dim" if job.state == "ended" else "strong"
        case "id" | "age" | "project" | "why":
            return "dim"
        case "gpus":
            return "dim" if text == "0" or job.state == "ended" else "text"
    return "dim" if text == UNKNOWN or job.state == "ended" else "text"
