"""The header: how many nodes are live, and what all of them cost.

Invariant: it shrinks to one line on a low screen and vanishes on a tiny one; it never pushes the rows out.
"""

from __future__ import annotations

from tui.fleet import Totals
from tui.fleet_jobs import JobCounts
from tui.ui.panes.header import Costs, header_lines
from tui.ui.widgets.lines_view import RaisedLines

PROGRAM = "RACKRATE"
LOW_ROWS, TINY_ROWS = 12, 5


def header_height(rows: int) -> int:
    """Lines that the header may take of a screen of `rows` lines."""
    return 2 if rows >= LOW_ROWS else 1 if rows > TINY_ROWS else 0


class Header(RaisedLines):
    """Two lines of totals."""

    def show_totals(self, totals: Totals, costs: Costs, clock: str, jobs: JobCounts | None = None, place: str = PROGRAM) -> None:
        """Repaints only what changed. `place`: the screen, where nothing else names it."""
        columns, rows = self.app.size
        self.show(header_lines(totals, costs, clock, columns, header_height(rows), jobs, place))
