"""A job's log on the screen: only visible lines are looked at, each in the colours that the job gave it.

Invariant: who reads the end stays at the end, who reads further up stays on the line that is read.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from tui.job_log import LogBuffer, LogLine
from tui.sgr import PLAIN, Colour, Look, looks
from tui.ui.lines import Line, to_strip
from tui.ui.theme import ANSI, STYLES

SIDE_CELLS = 16
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
        """The top of the window is near."""

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
        self.side = 0
        """Cells that are scrolled away at the left."""
        self._strips: dict[int, tuple[LogLine, Strip]] = {}
        self._painted: tuple[int, int, str] = (0, 0, "")

    @property
    def plain(self) -> str:
        """All lines of the window without looks."""
        return "\n".join("".join(text for text, _ in looks(line.text)[0]) for line in self.buffer.lines)

    @property
    def count(self) -> int:
        """Lines to show: an empty one after the last line end is none."""
        lines = self.buffer.lines
        return len(lines) - (bool(lines) and not lines[-1].text)

    def show(self, shift: int = 0) -> None:
        """The buffer changed; `shift` lines came at its front."""
        self.virtual_size = Size(0, self.count)
        if self.at_end:
            self.scroll_to(y=max(0, self.count - self.size.height), animate=False, force=True)
        elif shift:
            self.scroll_to(y=max(0, round(self.scroll_y) + shift), animate=False, force=True)
        self.refresh()

    def on_resize(self) -> None:
        if self.at_end:
            self.call_after_refresh(self.show)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        before, self.at_end = self.at_end, round(new_value) >= self.count - self.size.height
        if before != self.at_end:
            self.post_message(self.Moved())
        if self.at_end:
            self.post_message(self.AtEnd())
        elif new_value <= OLDER_FROM and new_value < old_value:
            self.post_message(self.WantsOlder())

    def action_lines(self, step: int) -> None:
        self._move(round(self.scroll_y) + step)

    def action_pages(self, step: int) -> None:
        self._move(round(self.scroll_y) + step * max(1, self.size.height - 1))

    def action_top(self) -> None:
        self._move(0)

    def action_bottom(self) -> None:
        """The end of the log, also where the window ends earlier."""
        self.at_end = True
        self._move(self.count)
        self.post_message(self.AtEnd())

    def _move(self, line: int) -> None:
        if line <= OLDER_FROM:
            self.post_message(self.WantsOlder())
        self.scroll_to(y=max(0, min(line, self.count - self.size.height)), animate=False)

    def action_sideways(self, step: int) -> None:
        widest = max((len(line.text) for line in self.buffer.lines[self._top : self._top + self.size.height]), default=0)
        last = max(0, widest - self.size.width + 1)
        self.side = max(0, self.side + step * SIDE_CELLS) if step < 0 else max(self.side, min(self.side + SIDE_CELLS, last))
        self.refresh()
        self.post_message(self.Moved())

    @property
    def _top(self) -> int:
        return round(self.scroll_y)

    def render_line(self, y: int) -> Strip:
        painted = (self.size.width, self.side, self.app.theme)
        if painted != self._painted or len(self._strips) > 4 * max(1, self.size.height):
            self._painted = painted
            self._strips.clear()
        index, lines = self._top + y, self.buffer.lines
        if index >= self.count:
            return to_strip(self.empty if y == 1 and not self.count else (), self._styles, self.size.width)
        cached = self._strips.get(index)
        if cached is None or cached[0] is not lines[index]:
            cached = self._strips[index] = (lines[index], self._strip(lines[index]))
        return cached[1]

    @property
    def _styles(self) -> Mapping[str, Style]:
        return STYLES.get(self.app.theme, STYLES[ANSI])

    def _strip(self, line: LogLine) -> Strip:
        page = self._styles["page"]
        pieces = [Segment(text, page + style_of(look)) for text, look in looks(line.text, line.look)[0]]
        width = self.size.width
        strip = Strip(pieces).crop_extend(self.side, self.side + width, page)
        return strip.adjust_cell_length(width, page)


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
