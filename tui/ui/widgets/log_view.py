"""A job's log on the screen: only visible lines are looked at, each in the colours that the job gave it.

Invariant: who reads the end stays at the end, who reads further up stays on the line that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.job_log import LogBuffer
from tui.job_search import Wanted, plain_of
from tui.job_wrap import Rows
from tui.sgr import PLAIN, Colour, Look, looks
from tui.ui.lines import Line, to_strip
from tui.ui.theme import ANSI, STYLES

SIDE_CELLS = 16
FOUND = Style(reverse=True, bold=True, underline=True)
OLDER_FROM = 2
"""Lines from the top of the window at which older ones are asked for."""


class LogView(ScrollView, can_focus=True):
    """Shows a `LogBuffer`. Posts `WantsOlder` near its top, `AtEnd` when its end is reached, `Moved` beside."""

    DEFAULT_CSS = """
    LogView { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; overflow-y: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "lines(-1)", show=False),
        Binding("down", "lines(1)", show=False),
        Binding("pageup", "pages(-1)", show=False),
        Binding("pagedown", "pages(1)", show=False),
        Binding("home,ctrl+home", "top", show=False),
        Binding("end,ctrl+end", "bottom", show=False),
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
    ]

    class WantsOlder(Message):
        """The top of the window is near; `all`: the very first line is wanted."""

        def __init__(self, *, all: bool = False) -> None:
            super().__init__()
            self.all = all

    class WantsNewer(Message):
        """The end of a window is near that newer lines were let go from."""

    class AtEnd(Message):
        """The end is wanted (again)."""

    class Moved(Message):
        """Another part is to be seen."""

    def __init__(self, buffer: LogBuffer, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.buffer = buffer
        self.empty: Line = ()
        self.at_end = True
        """The newest line is to be seen, and stays so."""
        self.held = False
        """It stands still, whatever comes."""
        self.side = 0
        """Cells that are scrolled away at the left."""
        self.wraps = False
        self.pattern: Wanted | None = None
        """What is marked."""
        self.current: int | None = None
        """The byte at which the line begins that was gone to."""
        self._rows = Rows()
        self._strips: dict[tuple[int, int], tuple[str, Look, Strip]] = {}
        self._painted: tuple[object, ...] = ()

    @property
    def plain(self) -> str:
        """All lines of the window without looks."""
        return "\n".join(map(plain_of, self.buffer.lines.texts))

    @property
    def count(self) -> int:
        """Lines to show: an empty one after the last line end is none."""
        texts = self.buffer.lines.texts
        return len(texts) - (bool(texts) and not texts[-1])

    @property
    def rows(self) -> int:
        """Rows of the screen that they take."""
        return len(self._rows) if self.wraps else self.count

    @property
    def _cells(self) -> int:
        """Beside the mark of the line that was gone to."""
        return max(1, self.size.width - (self.pattern is not None))

    def show(self, shift: int = 0) -> None:
        """The buffer changed; `shift` lines came at its front."""
        line, row = self._line_at(self._top)
        self._measure()
        if self.at_end and not self.held:
            self.scroll_to(y=max(0, self.rows - self.size.height), animate=False, force=True)
        elif shift:
            self._scroll_to_line(line + shift, row)
        self.refresh()

    def _measure(self) -> None:
        if self.wraps:
            self._rows.update(self.buffer, self.count, self._cells)
        self.virtual_size = Size(0, self.rows)

    def _line_at(self, row: int) -> tuple[int, int]:
        return self._rows.line_at(row) if self.wraps else (row, 0)

    def _scroll_to_line(self, line: int, row: int = 0) -> None:
        at = (self._rows.row_of(line) if self.wraps else line) + row
        self.scroll_to(y=max(0, min(at, self.rows - self.size.height)), animate=False, force=True)

    def top_line(self) -> int:
        """Index of the first line that is to be seen."""
        return self._line_at(self._top)[0]

    def go_to(self, line: int) -> None:
        """Shows a line, with some before it."""
        self.at_end = False
        self._measure()
        first, last = self.top_line(), self._line_at(self._top + max(0, self.size.height - 1))[0]
        if not first <= line <= last:
            self._scroll_to_line(line, -(self.size.height // 3))
        self.at_end = self._top >= self.rows - self.size.height and not self.buffer.detached
        self.refresh()
        self.post_message(self.Moved())

    def look_for(self, pattern: Wanted | None, current: int | None = None) -> None:
        """Marks what is looked for, and the line that was gone to."""
        line, row = self._line_at(self._top)
        widths_change = (pattern is None) != (self.pattern is None)
        self.pattern, self.current = pattern, current
        if widths_change and self.wraps:
            self._measure()
            self._scroll_to_line(line, row)
        self.refresh()

    def wrap(self, wraps: bool) -> None:
        """Long lines over several rows, or cut; the line at the top stays there."""
        line, _ = self._line_at(self._top)
        self.wraps, self.side = wraps, 0
        at_end = self.at_end
        self._measure()
        self._scroll_to_line(self.count if at_end else line)
        self.refresh()

    def on_resize(self) -> None:
        line, row = self._line_at(self._top)
        if self.wraps:
            self._measure()
            self._scroll_to_line(line, row)
        if self.at_end and not self.held:
            self.call_after_refresh(self.show)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        low = round(new_value) >= self.rows - self.size.height
        before, self.at_end = self.at_end, low and not self.buffer.detached
        if before != self.at_end:
            self.post_message(self.Moved())
        if low and self.buffer.detached:
            self.post_message(self.WantsNewer())
        elif self.at_end:
            self.post_message(self.AtEnd())
        elif new_value <= OLDER_FROM and new_value < old_value:
            self.post_message(self.WantsOlder())

    def action_lines(self, step: int) -> None:
        self._move(round(self.scroll_y) + step)

    def action_pages(self, step: int) -> None:
        self._move(round(self.scroll_y) + step * max(1, self.size.height - 1))

    def action_top(self) -> None:
        """The first line of the log, also where the window begins later."""
        self.scroll_to(y=0, animate=False)
        self.post_message(self.WantsOlder(all=True))

    def action_bottom(self) -> None:
        """The end of the log, also where the window ends earlier."""
        if not self.buffer.detached:
            self._move(self.rows)
        self.at_end = True
        self.post_message(self.AtEnd())

    def _move(self, row: int) -> None:
        if row <= OLDER_FROM:
            self.post_message(self.WantsOlder())
        if self.buffer.detached and row + self.size.height >= self.rows:
            self.post_message(self.WantsNewer())
        self.scroll_to(y=max(0, min(row, self.rows - self.size.height)), animate=False)

    def action_sideways(self, step: int) -> None:
        if self.wraps:
            return
        widest = max((len(text) for text in self.buffer.lines.texts[self._top : self._top + self.size.height]), default=0)
        last = max(0, widest - self._cells + 1)
        self.side = max(0, self.side + step * SIDE_CELLS) if step < 0 else max(self.side, min(self.side + SIDE_CELLS, last))
        self.refresh()
        self.post_message(self.Moved())

    @property
    def _top(self) -> int:
        return round(self.scroll_y)

    def render_line(self, y: int) -> Strip:
        painted = (self.size.width, self.side, self.app.theme, self.wraps, self.pattern, self.current, self.buffer.generation)
        if painted != self._painted or len(self._strips) > 4 * max(1, self.size.height):
            self._painted = painted
            self._strips.clear()
        row = self._top + y
        if row >= self.rows:
            return to_strip(self.empty if y == 1 and not self.count else (), self._styles, self.size.width)
        index, part = self._line_at(row)
        if index >= self.count:
            return to_strip((), self._styles, self.size.width)
        return self._strip(index, part)

    @property
    def _styles(self) -> Mapping[str, Style]:
        return STYLES.get(self.app.theme, STYLES[ANSI])

    def _strip(self, index: int, part: int) -> Strip:
        """One row of a line; it is kept as long as the line says the same."""
        text, look = self.buffer.lines.texts[index], self.buffer.lines.looks[index]
        cached = self._strips.get((index, part))
        if cached is None or cached[0] is not text or cached[1] != look:
            side = part * self._cells if self.wraps else self.side
            cached = self._strips[index, part] = (text, look, self._marked(index, self._made(text, look), side, first=not part))
        return cached[2]

    def _marked(self, index: int, whole: Strip, side: int, *, first: bool) -> Strip:
        """What of the line is in this row, behind the mark of the one that was gone to."""
        page = self._styles["page"]
        shown = whole.crop_extend(side, side + self._cells, page).adjust_cell_length(self._cells, page)
        if self.pattern is None:
            return shown
        here = first and self.current is not None and self.buffer.lines.starts[index] == self.current
        return Strip.join([Strip([Segment("▸" if here else " ", page + self._styles["key"])]), shown])

    def _made(self, text: str, look: Look) -> Strip:
        page = self._styles["page"]
        pieces = [(part, page + style_of(its)) for part, its in looks(text, look)[0]]
        if self.pattern is not None:
            spans = self.pattern.spans("".join(part for part, _ in pieces))
            pieces = list(_with_spans(pieces, spans)) if spans else pieces
        return Strip([Segment(part, style) for part, style in pieces])


def _with_spans(pieces: list[tuple[str, Style]], spans: list[tuple[int, int]]) -> Iterator[tuple[str, Style]]:
    """What is looked for in reverse and underlined: seen without colours too."""
    ends = sorted({end for span in spans for end in span})
    inside = {start for start, _ in spans}
    at, place, marked = 0, 0, False
    for text, style in pieces:
        done = 0
        while done < len(text):
            while place < len(ends) and ends[place] <= at:
                marked = ends[place] in inside
                place += 1
            upto = min(len(text), done + (ends[place] - at if place < len(ends) else len(text)))
            yield text[done:upto], style + FOUND if marked else style
            at, done = at + upto - done, upto


@lru_cache(maxsize=1024)
def style_of(look: Look) -> Style:
    """Rich's style of a look."""
    if look == PLAIN:
        return Style()
    return Style(
        bold=look.bold or None, dim=look.dim or None, italic=look.italic or None, underline=look.underline or None,
        reverse=look.reverse or None, strike=look.strike or None,
        color=_colour(look.foreground), bgcolor=_colour(look.background),
    )  # fmt: skip


def _colour(colour: Colour) -> Color | None:
    if colour is None:
        return None
    return Color.from_rgb(*colour) if isinstance(colour, tuple) else Color.from_ansi(colour)
