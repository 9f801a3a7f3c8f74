"""A table that filters and sorts its rows and shows the columns that fit: what the fleet and the jobs have in common.

Invariant: while somebody moves the cursor the order holds still and only values change; what is not visible is not formatted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import ceil
from typing import Any, ClassVar

from textual import events

from tui.columns import Column, column_sets, fit, sort_rows
from tui.ui.lines import Line
from tui.ui.widgets.line_table import Cells, LineTable

ARRANGE_SECONDS = 2.0
"""Rows are filtered and sorted again at most this often."""
HOLD_SECONDS = 3.0
"""The order holds still for so long after the cursor moved."""
GUTTER_FROM_CELLS = 60
Test = Callable[[Any, float], bool]


class ArrangedTable(LineTable):
    """Subclasses say what the rows are, how a cell looks and when a row may look different."""

    MARKABLE: ClassVar[bool] = False
    """Rows can be marked: their marks have a cell of their own where there is room."""

    def __init__(
        self, columns: tuple[Column, ...], sorted_by: str, clock: Callable[[], float], *, id: str | None = None
    ) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._wanted: Test | None = None
        self._columns = columns
        self._column = next(column for column in columns if column.id == sorted_by)
        self._descending = False
        self._sets: list[list[tuple[Column, int]]] = [[]]
        self._set = 0
        self._arranged_at = -1e9
        self._moved_at = -1e9
        self._seen: dict[str, Hashable] = {}
        self.marks: set[str] = set()
        """Keys of rows, whether the filter lets them through or not."""
        self.passing: list[str] = []
        """Keys of the rows that the filter lets through, in their order."""
        self._marked_last: str | None = None
        self.following = False
        """The view goes with the row under the cursor when the order changes."""

    def rows(self) -> Iterable[Any]:
        """All rows, in any order."""
        raise NotImplementedError

    def key_of(self, row: Any) -> str:
        """Its key, which also breaks ties."""
        raise NotImplementedError

    def row_of(self, key: str) -> Any:
        """The row of a key that is in the table."""
        raise NotImplementedError

    def cell(self, row: Any, column: Column, cells: int, now: float) -> Line:
        """One cell, exactly `cells` wide."""
        raise NotImplementedError

    def look_of(self, row: Any, now: float) -> Hashable:
        """Equal as long as the row looks the same; None: it may look different each time."""
        raise NotImplementedError

    def changed(self) -> bool:
        """Whether rows came, went or may have another place since they were arranged."""
        return True

    @property
    def pace(self) -> float:
        """Seconds between two arrangements."""
        return ARRANGE_SECONDS

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._columns

    @property
    def sortable(self) -> tuple[Column, ...]:
        return tuple(column for column in self._columns if column.sort_key)

    @property
    def hidden_columns(self) -> int:
        return len(self._columns) - len(self._sets[self._set])

    @property
    def sort_column(self) -> Column:
        return self._column

    @property
    def shown_columns(self) -> list[tuple[Column, int]]:
        """Those on the screen, with their widths."""
        return self._sets[self._set]

    def shows(self, column: Column) -> bool:
        """Whether the column is on the screen."""
        return any(shown is column for shown, _ in self.shown_columns)

    def held_seconds(self, now: float) -> int:
        """Whole seconds for which the order still holds still; 0 when it does not."""
        return max(0, ceil(HOLD_SECONDS - (now - self._moved_at)))

    def set_columns(self, columns: tuple[Column, ...]) -> None:
        """Other columns; nothing happens when they are the same."""
        if columns is not self._columns:
            self._columns = columns
            self._layout()

    def on_resize(self, event: events.Resize) -> None:
        self._layout()
        self.keep_in_view()

    def _layout(self) -> None:
        self.gap = 2 if not fit(self._columns, self.room, 2)[1] else 1
        self._sets = column_sets(self._columns, self.room, self.gap)
        self._set = min(self._set, len(self._sets) - 1)
        self.forget()
        self._show_titles()

    def _show_titles(self) -> None:
        self.set_titles(
            [(c.id, indent(c) + c.title, cells, c.align == "right") for c, cells in self._sets[self._set]],
            (self._column.id, self._descending),
        )

    def next_columns(self) -> bool:
        """Shows the next set of columns; False when all are shown already."""
        self._set = (self._set + 1) % len(self._sets)
        self.forget()
        self._show_titles()
        return len(self._sets) > 1

    def select(self, wanted: Test | None) -> None:
        """Shows only rows that `wanted` holds for."""
        self._wanted = wanted
        self.order_rows(self._clock())

    def sort_by(self, column: Column) -> None:
        """By another column, or the other way round when it is the same."""
        self._descending = not self._descending if column is self._column else column.descending
        self._column = column
        self._rearranged()

    def sort_step(self, step: int) -> None:
        """By the next column that can be sorted by."""
        place = self.sortable.index(self._column) if self._column in self.sortable else -1
        self.sort_by(self.sortable[(place + step) % len(self.sortable)])

    def reverse(self) -> None:
        self._descending = not self._descending
        self._rearranged()

    def _rearranged(self) -> None:
        self._show_titles()
        self.order_rows(self._clock())
        self.keep_in_view()

    @property
    def gutter_cells(self) -> int:
        return 3 if self.MARKABLE and self.size.width >= GUTTER_FROM_CELLS else 2

    def gutter_of(self, key: str) -> str:
        return "●" if key in self.marks else " "

    def keys_under(self, key: str | None) -> list[str]:
        """The rows that the line of that key stands for."""
        return [key] if key is not None and self.position(key) >= 0 else []

    def keys_in_range(self, key: str) -> list[str]:
        """The rows that are marked when that line is within a range."""
        return [key]

    @property
    def marked(self) -> list[str]:
        """The marked rows that are shown, in their order."""
        return [key for key in self.passing if key in self.marks] if self.marks else []

    @property
    def marks_hidden(self) -> int:
        """Marked rows that the filter hides."""
        return len(self.marks) - len(self.marked)

    def targets(self) -> list[str]:
        """What an action is for: the marked rows that are shown, else the row under the cursor, else nothing."""
        return self.marked or self.keys_under(self.cursor_key)

    def toggle_mark(self) -> None:
        """Marks the row under the cursor, or takes its mark away, and moves on."""
        self._toggle()
        self.move_to(self.position(self.cursor_key) + 1)

    def _toggle(self) -> None:
        keys = set(self.keys_under(self.cursor_key))
        if keys:
            self._marked_last = None if keys <= self.marks else self.cursor_key
            self._set_marks(self.marks - keys if keys <= self.marks else self.marks | keys)

    def gutter_clicked(self, key: str) -> None:
        if self.MARKABLE:
            self._toggle()

    def mark_range(self) -> None:
        """Marks the rows from the one that was marked last to the cursor; without one, the row under the cursor."""
        here, from_ = self.position(self.cursor_key), self.position(self._marked_last)
        if here < 0:
            return
        first, last = sorted((here, from_ if from_ >= 0 else here))
        self._set_marks(self.marks.union(*(self.keys_in_range(key) for key in self.keys[first : last + 1])))
        self._marked_last = self.cursor_key
        self.note_moved()

    def clear_marks(self) -> None:
        self._marked_last = None
        self._set_marks(set())

    def _set_marks(self, marks: set[str]) -> None:
        self.marks = marks
        self.repaint_rows()

    def note_moved(self) -> None:
        """Somebody moves the cursor: the order holds still from now."""
        self._moved_at = self._clock()

    def update(self, now: float) -> None:
        """Takes what changed: new order if it may, new values where they are visible."""
        if now - self._arranged_at >= self.pace and not self.held_seconds(now) and self.changed():
            self.order_rows(now)
        self.refresh_rows({key for index in self.in_view if self._differs(key := self.keys[index], now)})

    def _differs(self, key: str, now: float) -> bool:
        look = self.look_of(self.row_of(key), now)
        if look is not None and look == self._seen.get(key):
            return False
        self._seen[key] = look
        return True

    def order_rows(self, now: float) -> None:
        """Filters and sorts all rows."""
        self._arranged_at = now
        wanted = self._wanted
        every = list(self.rows())
        rows = every if wanted is None else [row for row in every if wanted(row, now)]
        rows = sort_rows(rows, self._column, now, descending=self._descending, tie=self.key_of)
        if self.marks:
            self.marks &= {self.key_of(row) for row in every}
        self.set_keys(self.lines_of(rows, now))
        if self.following:
            self.keep_in_view()
        self._forget_unseen()

    def lines_of(self, rows: list[Any], now: float) -> list[str]:
        """Keys of the lines in which these rows are shown; sets `passing`."""
        self.passing = [self.key_of(row) for row in rows]
        return self.passing

    def _forget_unseen(self) -> None:
        """Rows off the screen are formatted when they are scrolled to, with the values of that moment."""
        visible = {self.keys[index] for index in self.in_view}
        self.drop_rows(set(self._cells) - visible)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._forget_unseen()

    def cells_of(self, key: str) -> Cells:
        row, now = self.row_of(key), self._clock()
        self._seen[key] = self.look_of(row, now)
        return tuple(self.cell(row, column, cells, now) for column, cells in self._sets[self._set])


def indent(column: Column) -> str:
    """Text that stands after a column of numbers: a blank keeps them apart."""
    return " " if column.id in ("users", "region", "cause", "why") else ""
