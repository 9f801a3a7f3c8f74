"""What a month cost: its days as stacked columns, the budgets, and a table by any grouping that can be drilled into.

Invariant: days, table and totals are of one month and one set of filters, named in the title; an old figure stays until
the new one is there, never beside it. The export writes the cells that are on the screen.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult

from tui import format as fmt
from tui.costs_view import Days, Filters, Grouping, Groups, groupings_left, month_of, read_days, read_groups, write_rows
from tui.errors import RackrateError
from tui.ui import actions
from tui.ui.lines import Line, cropped
from tui.ui.panes.costs import month_lines, title_line
from tui.ui.reading import Reading
from tui.ui.screens.ask_text import AskText
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.costs_table import COST_WORDS, CostsTable, GroupRow
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

EXAMPLE = "vision total>100 idle>0 !search"
MOST_BACK = 120
"""Months that can be looked back."""
_NOTHING_THEN: Sequence[Line] = ((("  Of this month nothing was in the ledger yet.", "strong"),),)
_NOTHING: tuple[Line, ...] = (
    (("  Nothing was recorded in this month.", "strong"),),
    (),
    (("  rackrate sync", "key"), ("    brings what the nodes used into the ledger; the app does so each minute", "dim")),
)
_READING: tuple[Line, ...] = ((("  Reading the ledger ...", "dim"),),)


class CostsScreen(TableScreen):
    """Enter narrows to a group and goes on to the next grouping, Esc widens again."""

    SCOPE = "costs"
    ROWS = "Costs"
    BINDINGS: ClassVar = actions.bindings("costs")
    CSS = "CostsScreen #month { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.back = 0
        self.filters: Filters = ()
        self.grouping = groupings_left(())[0]
        self._before: list[Grouping] = []
        """The groupings that were drilled from."""
        self._given = False
        """Another screen said what to narrow to: Esc goes back there, and this one forgets it."""
        self._groups: Reading[Groups] = Reading(self)
        self._days: Reading[Days] = Reading(self)

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield RaisedLines(id="title")
        pane = LinesView(id="month")
        pane.can_focus = False
        yield pane
        yield CostsTable(self.grouping, app.clock, id="groups")
        yield FilterBar(COST_WORDS, EXAMPLE)
        yield StatusLine(app.clock)
        yield Footer("costs")

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def table(self) -> CostsTable:
        return self.query_one(CostsTable)

    # -- what is read --------------------------------------------------------------------------------------

    def _want(self) -> None:
        app = self.rackrate
        files, now, version, filters, grouping = app.files, app.now(), app.ledger_version, self.filters, self.grouping
        month = month_of(now, files.timezone, self.back)
        known = app.costs.budgets.states if app.costs.budgets is not None and not self.back else None
        self._groups.want(
            (month.label, filters, grouping), version, lambda: read_groups(files, month, filters, grouping, now)
        )
        if not self._groups.busy or self._days.value is None:
            self._days.want((month.label, filters), version, lambda: read_days(files, month, filters, now, known))

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        if self._groups.value is not None and not self._groups.value.report.rows:
            self._groups.no_rest()
            self._days.no_rest()
        self.redraw()

    def action_again(self) -> None:
        self._groups.again()
        self._days.again()
        self.redraw()

    def action_break_off(self) -> None:
        if not (self._groups.busy or self._days.busy):
            self.note("Nothing is being read.", "dim")
        self._groups.break_off()
        self._days.break_off()
        self.redraw()

    # -- what is shown --------------------------------------------------------------------------------------

    def draw(self) -> None:
        self._want()
        self.show_header()
        columns, rows = self.app.size
        groups, table = self._groups.value, self.table
        doing = self._groups.doing("reading") or self._days.doing("reading the days")
        doing += f"  {actions.key_of('break_off')} breaks it off" if doing.endswith("s ...") else ""
        self.query_one("#title").display = rows >= 8
        self.query_one("#title", RaisedLines).show([title_line(groups, doing, columns)])
        table.explain(self._empty(groups))
        if groups is not None:
            table.show_groups(groups)
        self._show_month(columns, rows)
        table.update(self.rackrate.clock())
        self.show_status()

    def _show_month(self, columns: int, rows: int) -> None:
        pane, days, groups = self.query_one("#month", LinesView), self._days.value, self._groups.value
        same = days is not None and groups is not None and (days.month.label, days.filters) == (groups.month.label, groups.filters)
        lines = month_lines(days, columns - 1, rows) if days is not None and same else []
        if not same and pane.lines:
            return  # those of before stay until the new ones are there
        pane.display = bool(lines)
        pane.styles.height = len(lines)
        pane.show(lines)

    def _empty(self, groups: Groups | None) -> Sequence[Line]:
        if self._groups.error is not None:
            return ((("  " + fmt.clean(self._groups.error), "lost"),),)
        if groups is None:
            return _READING
        if groups.report.rows:
            return ((("  No group matches this filter. Esc clears it.", "dim"),),)
        return _NOTHING if self.rackrate.travel is None else _NOTHING_THEN

    def sums(self) -> tuple[Line, ...]:
        """Of the rows that are shown; of all rows they are the report's own totals."""
        shown = self.table.shown
        groups = self._groups.value
        if groups is None or not shown:
            return (((fmt.counted(len(shown), "group"), "text"),),)
        whole = len(shown) == len(groups.table.rows)
        cells = [groups.table.totals] if whole else [row.cells for row in shown]

        def total(name: str) -> str:
            known = [cell[name] for cell in cells if isinstance(cell[name], Decimal)]
            return fmt.usd(sum(known[1:], known[0])) if known else fmt.UNKNOWN

        parts: list[Line] = [
            ((fmt.counted(len(shown), "group"), "text"),),
            (("total ", "dim"), (total("total_cost"), "strong")),
            (("idle ", "dim"), (total("idle_cost"), "idle")),
            (("unused ", "dim"), (total("allocated_unused_cost"), "text")),
        ]
        if not groups.report.complete:
            parts.append((("* not all of it has a price", "idle"),))
        return tuple(parts)

    def trouble(self) -> Line:
        """A ledger that cannot be read while older figures are on the screen."""
        error = self._groups.error or self._days.error
        return cropped(((fmt.clean(error), "lost"),), 400) if error else ()

    def show_only(self, filters: Filters) -> None:
        """This month's costs of one project, user or tag, or of everything."""
        self.back, self.filters, self._before, self._given = 0, filters, [], bool(filters)
        self.grouping = groupings_left(filters)[0]
        self.redraw()

    # -- what can be done -------------------------------------------------------------------------------------

    def action_open(self) -> None:
        groups, row = self._groups.value, self.table.chosen
        if groups is None or row is None or self._groups.busy:
            return
        filters = (*groups.filters, *zip(groups.grouping.keys, row.labels, strict=True))
        left = groupings_left(filters)
        if not left:
            self.note("There is nothing left to group by; Esc goes back.", "dim")
            return
        self._before.append(groups.grouping)
        self.filters = filters
        self.grouping = _following(groups.grouping, left)
        self.redraw()

    def nothing_above(self) -> None:
        """Without a filter: one step out of what was drilled into, else back to the screen before."""
        if not self._before:
            if self._given:
                self._given, self.filters, self.grouping = False, (), groupings_left(())[0]
            self.app.pop_screen()
            return
        self.grouping = self._before.pop()
        self.filters = self.filters[: -len(self.grouping.keys)]
        self.redraw()

    def action_grouping(self, step: int) -> None:
        left = groupings_left(self.filters)
        place = left.index(self.grouping) if self.grouping in left else -1
        self.grouping = left[(place + step) % len(left)]
        self.redraw()

    def action_month(self, step: int) -> None:
        """`step` months later."""
        if self.back - step < 0:
            self.note("This is the newest month.", "dim")
        elif self.back - step <= MOST_BACK:
            self.back -= step
            self.redraw()

    def action_export(self) -> None:
        groups = self._groups.value
        if groups is None or not self.table.shown:
            self.note("There is nothing to write.", "dim")
            return
        name = f"costs-{groups.month.label}-{groups.grouping.title.replace('/', '-').replace(' ', '-').lower()}.csv"
        count = len(self.table.shown)
        rows = list(self.table.shown)
        if self.app.is_web:
            self.rackrate.asking.start(self._send(groups, rows, name))
            return
        question = f"Write the {fmt.counted(count, 'row')} on the screen as CSV to"
        hint = f"In {Path.cwd()} unless it begins with / or ~. Enter writes a new file, Esc writes nothing."

        def answered(text: str | None) -> None:
            if text:
                self.rackrate.asking.start(self._write(groups, rows, Path(text).expanduser()))

        self.app.push_screen(AskText(question, hint, name), answered)

    async def _write(self, groups: Groups, rows: Sequence[GroupRow], path: Path) -> bool:
        from pricing.errors import PricingError

        try:
            await asyncio.to_thread(write_rows, groups, [row.cells for row in rows], path)
        except (OSError, PricingError, RackrateError) as error:
            self.note(fmt.clean(str(error)), "lost")
            return False
        self.note(f"wrote {fmt.clean(str(path))}: {fmt.counted(len(rows), 'row')}", "accent")
        return True

    async def _send(self, groups: Groups, rows: Sequence[GroupRow], name: str) -> None:
        """To the browser, where the app is served."""
        with tempfile.TemporaryDirectory(prefix="rackrate-") as folder:
            if await self._write(groups, rows, Path(folder) / name):
                self.rackrate.hand_over(name, (Path(folder) / name).read_bytes())

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()


def _following(grouping: Grouping, left: Sequence[Grouping]) -> Grouping:
    """The first of those left that comes after `grouping`, else the first."""
    from tui.costs_view import GROUPINGS

    place = GROUPINGS.index(grouping)
    return next((one for one in left if GROUPINGS.index(one) > place), left[0])
