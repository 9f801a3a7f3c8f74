"""A table of one-line rows by the line API, for a thousand rows that change each second.

Invariant: rows, cursor and caches go by key, never by position; only cells whose text changed are repainted.
Column widths are given, nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.ui.lines import BLANK, Line, cropped, fitted, hung, to_strip
from tui.ui.theme import ANSI, STYLES
from tui.ui.widgets.cursor_lines import CURSOR_KEYS

CELL_REGIONS_UP_TO = 0.6
"""Up to this part of the visible cells, changed cells are repainted one by one; above it, whole lines are cheaper."""

_LOUD = frozenset({"strong", "idle", "lost", "mark"})
"""What stays bold on the reversed cursor of the terminal's own colours, where colours could become unreadable."""

Cells = tuple[Line, ...]
Title = tuple[str, str, int, bool]
"""Column id, title, width, and whether it is right-aligned."""


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours in an ascending list."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class LineTable(ScrollView, can_focus=True):
    """Subclasses say what a row's cells are (`cells_of`), each exactly as wide as its column."""

    DEFAULT_CSS = """
    LineTable { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden;
                overflow-y: auto; scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *CURSOR_KEYS,
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
    ]

    class Opened(Message):
        """A row was clicked twice."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class Moved(Message):
        """The cursor stands on another row, or the view was scrolled, by hand."""

    class TitleClicked(Message):
        """A column's title was clicked."""

        def __init__(self, column_id: str) -> None:
            super().__init__()
            self.column_id = column_id

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.keys: list[str] = []
        self.cursor_key: str | None = None
        self.titles: list[Title] = []
        self.gap = 1
        """Cells between columns."""
        self.sorted_by: tuple[str, bool] = ("", False)
        self.empty: Sequence[Line] = ()
        self.below: Sequence[Line] = ()
        """What stands below the rows where there is room."""
        self._cells: dict[str, Cells] = {}
        self._strips: dict[tuple[str, bool], Strip] = {}
        self._theme = ""

    def cells_of(self, key: str) -> Cells:
        """The row's cells as they are now."""
        raise NotImplementedError

    @property
    def gutter_cells(self) -> int:
        """Cells before the first column: the cursor, and a blank, which is also for what a row is marked by."""
        return 2

    def gutter_of(self, key: str) -> str:
        """The one character between the cursor and the row."""
        return " "

    @property
    def room(self) -> int:
        """Cells for the columns."""
        return max(0, self.scrollable_content_region.width - self.gutter_cells - 1)

    @property
    def in_view(self) -> range:
        """Positions of the rows on the screen."""
        top = round(self.scroll_y)
        return range(top, min(len(self.keys), top + max(0, self.size.height - 1)))

    def position(self, key: str | None) -> int:
        """Where the row of that key stands; -1 if it does not."""
        try:
            return self.keys.index(key) if key is not None else -1
        except ValueError:
            return -1

    def set_titles(self, titles: list[Title], sorted_by: tuple[str, bool]) -> None:
        """Other columns, or another order: everything is painted anew when they differ."""
        if (titles, sorted_by) != (self.titles, self.sorted_by):
            if titles != self.titles:
                self.forget()
            self.titles, self.sorted_by = titles, sorted_by
            self.refresh(self.size.region)

    def explain(self, lines: Sequence[Line]) -> None:
        """What stands in the place of rows while there are none."""
        if lines != self.empty:
            self.empty = lines
            if not self.keys:
                self.refresh(self.size.region)

    def stand_below(self, lines: Sequence[Line]) -> None:
        """What stands below the rows where there is room."""
        if lines != self.below:
            self.below = lines
            self.refresh(self.size.region)

    def forget(self) -> None:
        """Drops all that was formatted."""
        self._cells.clear()
        self._strips.clear()

    def set_keys(self, keys: list[str]) -> None:
        """Another order or other rows. The cursor stays on its key; if that is gone, on the row that took its place."""
        old, place = self.keys, self.position(self.cursor_key)
        self.keys = keys
        if self.cursor_key is None or self.position(self.cursor_key) < 0:
            self.cursor_key = keys[max(0, min(place, len(keys) - 1))] if keys else None
        if len(old) != len(keys):
            self.virtual_size = Size(0, len(keys) + 1)
            self.refresh(self.size.region)
            return
        for index in self.in_view:
            if old[index] != keys[index]:
                self._refresh_line(index)

    def refresh_rows(self, keys: set[str] | None = None) -> None:
        """Formats the visible rows (of those named) again and repaints what differs."""
        changed: list[tuple[int, list[int]]] = []
        for index in self.in_view:
            key = self.keys[index]
            if keys is not None and key not in keys:
                continue
            if (old := self._cells.get(key)) is None:
                if keys is None:
                    self._refresh_line(index)  # what stands there is of before, and was forgotten
                continue
            new = self.cells_of(key)
            if columns := [i for i, cell in enumerate(new) if cell != old[i]]:
                self._cells[key] = new
                self._drop_strips(key)
                changed.append((index, columns))
        self._repaint(changed)

    def repaint_rows(self) -> None:
        """Paints the visible rows anew from the cells that are known: their gutters changed."""
        self._strips.clear()
        self._refresh_lines(list(self.in_view))

    def drop_rows(self, keys: set[str]) -> None:
        """Forgets what was formatted of rows that are not visible now, so that they are right when scrolled to."""
        visible = {self.keys[index] for index in self.in_view}
        for key in keys - visible:
            if self._cells.pop(key, None) is not None:
                self._drop_strips(key)

    def _drop_strips(self, key: str) -> None:
        self._strips.pop((key, False), None)
        self._strips.pop((key, True), None)

    def _repaint(self, changed: list[tuple[int, list[int]]]) -> None:
        """Changed cells, neighbours as one region; whole lines where most of them changed."""
        if not changed:
            return
        count = sum(len(columns) for _, columns in changed)
        if count > CELL_REGIONS_UP_TO * len(self.in_view) * len(self.titles):
            self._refresh_lines([index for index, _ in changed])
            return
        starts, top = self._starts(), round(self.scroll_y)
        regions = []
        for index, columns in changed:
            for first, last in _runs(columns):
                left, right = starts[first], starts[last] + self.titles[last][2]
                regions.append(Region(left, index - top + 1, right - left, 1))
        self.refresh(*regions)

    def _starts(self) -> list[int]:
        starts, at = [], self.gutter_cells
        for _, _, cells, _ in self.titles:
            starts.append(at)
            at += cells + self.gap
        return starts

    def _refresh_lines(self, indexes: list[int]) -> None:
        """One region for each run of neighbours."""
        top, width = round(self.scroll_y), self.size.width
        self.refresh(*(Region(0, first - top + 1, width, last - first + 1) for first, last in _runs(indexes)))

    def _refresh_line(self, index: int) -> None:
        self.refresh(Region(0, index - round(self.scroll_y) + 1, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        if self._theme != self.app.theme:
            self._theme = self.app.theme
            self._strips.clear()
        styles, cells = STYLES.get(self._theme, STYLES[ANSI]), self.size.width
        if y == 0:
            return to_strip(cropped(self._title_line(), cells), styles, cells)
        index = y - 1 + round(self.scroll_y)
        if index < len(self.keys):
            return self._row_strip(self.keys[index])
        under, place = (self.below, index - len(self.keys) - 1) if self.keys else (self.empty, y - 2)
        rows = [row for line in under for row in hung(line, cells)] if place >= 0 else ()
        line = rows[place] if 0 <= place < len(rows) else BLANK
        return to_strip(cropped(line, cells), styles, cells)

    def _title_line(self) -> Line:
        column, descending = self.sorted_by
        spans: list[tuple[str, str]] = [(" " * self.gutter_cells, "dim")]
        for ident, title, cells, right in self.titles:
            mark = ("▾" if descending else "▴") if ident == column else ""
            spans += [(fitted(f"{title}{mark}", cells, right=right), "title" if mark else "dim"), (" " * self.gap, "dim")]
        return tuple(spans)

    def _row_strip(self, key: str) -> Strip:
        selected = key == self.cursor_key
        strip = self._strips.get((key, selected))
        if strip is None:
            cells = self._cells.get(key)
            if cells is None:
                cells = self._cells[key] = self.cells_of(key)
            strip = self._strips[key, selected] = self._painted(cells, selected, self.gutter_of(key))
        return strip

    def _painted(self, cells: Cells, selected: bool, gutter: str) -> Strip:
        styles = STYLES.get(self._theme, STYLES[ANSI])
        spans: list[tuple[str, str]] = [(f"{'▌' if selected else ' '}{gutter}".ljust(self.gutter_cells), "mark")]
        for place, cell in enumerate(cells):
            spans += [*(((" " * self.gap, "text"),) if place else ()), *cell]
        if selected and self._theme == ANSI:
            spans = [(text, "strong" if style in _LOUD else "text") for text, style in spans]
        return to_strip(cropped(tuple(spans), self.size.width), styles, self.size.width, "cursor" if selected else "page")

    def move_to(self, index: int) -> None:
        """Puts the cursor on the row at `index` (clamped) and scrolls it into view."""
        if not self.keys:
            return
        index = max(0, min(index, len(self.keys) - 1))
        old = self.position(self.cursor_key)
        self.cursor_key = self.keys[index]
        for line in {old, index}:
            if line in self.in_view:
                self._refresh_line(line)
        self.keep_in_view()
        self.post_message(self.Moved())

    def keep_in_view(self) -> None:
        """Scrolls so that the cursor's row is visible."""
        index, rows, top = self.position(self.cursor_key), max(1, self.size.height - 1), round(self.scroll_y)
        if index < 0:
            return
        if index < top:
            self.scroll_to(y=index, animate=False)
        elif index >= top + rows:
            self.scroll_to(y=index - rows + 1, animate=False)

    def action_cursor(self, step: int) -> None:
        self.move_to(self.position(self.cursor_key) + step)

    def action_page(self, step: int) -> None:
        self.move_to(self.position(self.cursor_key) + step * max(1, self.size.height - 2))

    def action_edge(self, side: int) -> None:
        self.move_to(0 if side < 0 else len(self.keys) - 1)

    def action_sideways(self, step: int) -> None:
        """Left and right do nothing here: there is no sideways scrolling."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.post_message(self.Moved())

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.post_message(self.Moved())

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.y == 0:
            self._click_title(event.x)
            return
        index = event.y - 1 + round(self.scroll_y)
        if index >= len(self.keys):
            return
        key = self.keys[index]
        self.move_to(index)
        if event.x < self.gutter_cells:
            self.gutter_clicked(key)
        elif event.chain >= 2 or self.opens_at(key, event.x):
            self.post_message(self.Opened(key))

    def gutter_clicked(self, key: str) -> None:
        """The row was clicked before its first column."""

    def opens_at(self, key: str, x: int) -> bool:
        """Whether one click is enough there."""
        return False

    def _click_title(self, x: int) -> None:
        for (ident, _, cells, _), start in zip(self.titles, self._starts(), strict=True):
            if start <= x < start + cells:
                self.post_message(self.TitleClicked(ident))
