"""What the screens of one arranged table have in common: filter, order, columns, and a status that sums what is shown.

Invariant: the same keys do the same on each of them.
"""

from __future__ import annotations

from typing import ClassVar

from tui.ui.lines import Line
from tui.ui.panes.header import Shown
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.arranged_table import ArrangedTable
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.status import FilterBar, StatusLine


class TableScreen(RackrateScreen):
    """Subclasses compose one `ArrangedTable`, a `FilterBar` and a `StatusLine`, and say what the rows add up to."""

    ROWS: ClassVar[str]
    """What the rows are called in a sentence."""

    @property
    def table(self) -> ArrangedTable:
        return self.query_one(ArrangedTable)

    @property
    def filter_text(self) -> str:
        return self.query_one(FilterBar).applied

    def targets(self) -> list[str]:
        """Keys of the rows that an action is for: the marked ones that are shown, else the one under the cursor."""
        return self.table.targets()

    def summed(self) -> list[str]:
        """Keys of the rows that the status sums over: the marked ones that are shown, else all that are."""
        return self.table.marked or self.table.passing

    def sums(self) -> tuple[Line, ...]:
        """Over exactly the rows of `summed`."""
        raise NotImplementedError

    def aside(self) -> Line:
        """What is said of these rows where there is room."""
        return ()

    def grouped_by(self) -> str:
        """What the rows are in groups by; empty: they are in none."""
        return ""

    def trouble(self) -> Line:
        """What must be said of the row under the cursor."""
        return ()

    def nothing_above(self) -> None:
        """Esc without a filter."""
        self.app.pop_screen()

    def show_status(self) -> None:
        app, table = self.rackrate, self.table
        shown = Shown(
            sums=self.sums(),
            aside=self.aside(),
            marked=len(table.marked),
            marks_hidden=table.marks_hidden,
            filter_text=self.filter_text,
            hidden_columns=table.hidden_columns,
            following=table.following,
            grouped_by=self.grouped_by(),
            frozen_seconds=table.held_seconds(app.clock()),
            sorted_by="" if table.shows(table.sort_column) else table.sort_column.title,
        )
        self.query_one(StatusLine).show_sums(shown, self.trouble())

    def action_filter(self) -> None:
        bar = self.query_one(FilterBar)
        bar.rows = self.table.rows
        bar.open()
        self.redraw()

    def action_mark(self) -> None:
        self.table.toggle_mark()
        self.redraw()

    def action_mark_range(self) -> None:
        self.table.mark_range()
        self.redraw()

    def action_follow(self) -> None:
        table = self.table
        table.following = not table.following
        if table.following:
            table.keep_in_view()
        self.redraw()

    def action_back(self) -> None:
        """Closes the filter that is typed; then clears the marks, then the filter; where there is nothing of these, leaves."""
        if self.query_one(FilterBar).is_open:
            self.query_one(FilterBar).clear()
        elif self.table.marks:
            self.table.clear_marks()
            self.redraw()
        elif self.filter_text:
            self.query_one(FilterBar).clear()
        else:
            self.nothing_above()

    def action_sort_key(self, key: str) -> None:
        column = next((column for column in self.table.sortable if column.sort_key == key), None)
        if column is None:
            self.note(f"No column has the number {key}.", "dim")
        else:
            self.table.sort_by(column)
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

    def on_line_table_title_clicked(self, event: LineTable.TitleClicked) -> None:
        column = next((column for column in self.table.sortable if column.id == event.column_id), None)
        if column is None:
            self.note(f"{self.ROWS} are not sorted by this column.", "dim")
        else:
            self.table.sort_by(column)
            self.redraw()

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.table.note_moved()
        self.redraw()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.table.select(event.wanted)
        self.redraw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self.table.focus()
        self.redraw()
