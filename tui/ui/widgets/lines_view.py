"""A pane of lines, scrollable when it must be.

Invariant: showing the same lines again writes nothing to the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from tui.ui.lines import BLANK, Line, cropped, to_strip
from tui.ui.theme import ANSI, STYLES


class LinesView(ScrollView):
    """Shows lines by the line API; strips are kept until their line, the width or the theme changes."""

    DEFAULT_CSS = """
    LinesView { height: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; overflow-x: hidden; }
    """
    UNDER: ClassVar[str] = "page"
    """The style that it is painted on."""

    def __init__(self, lines: Sequence[Line] = (), *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = list(lines)
        self._strips: dict[int, Strip] = {}
        self._painted = (0, "")

    @property
    def lines(self) -> Sequence[Line]:
        return self._lines

    @property
    def plain(self) -> str:
        """What it shows, without styles."""
        return "\n".join("".join(text for text, _ in line).rstrip() for line in self._lines)

    def on_mount(self) -> None:
        super().on_mount()
        self.virtual_size = Size(0, len(self._lines))

    def show(self, lines: Sequence[Line]) -> None:
        """Replaces the lines; repaints those that differ."""
        old, self._lines = self._lines, list(lines)
        if len(old) != len(self._lines):
            self.virtual_size = Size(0, len(self._lines))
        top, height = round(self.scroll_y), self.size.height
        for index in range(max(len(old), len(self._lines))):
            if self._at(old, index) != self._at(self._lines, index):
                self._strips.pop(index, None)
                if top <= index < top + height:
                    self.refresh(Region(0, index - top, self.size.width, 1))

    @staticmethod
    def _at(lines: Sequence[Line], index: int) -> Line | None:
        return lines[index] if index < len(lines) else None

    def render_line(self, y: int) -> Strip:
        painted = (self.size.width, self.app.theme)
        if painted != self._painted:
            self._painted = painted
            self._strips.clear()
        index = y + round(self.scroll_y)
        strip = self._strips.get(index)
        if strip is None:
            line = self._lines[index] if index < len(self._lines) else BLANK
            styles = STYLES.get(self.app.theme, STYLES[ANSI])
            strip = self._strips[index] = to_strip(cropped(line, self.size.width), styles, self.size.width, self.UNDER)
        return strip


class RaisedLines(LinesView, can_focus=False):
    """Lines of the frame around the content: they take no focus and do not scroll."""

    DEFAULT_CSS = "RaisedLines { height: 1; overflow: hidden hidden; }"
    UNDER = "raised"
