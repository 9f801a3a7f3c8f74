"""A pane of lines in which some can be chosen: a cursor goes from one to the next, and scrolls where there is none.

Invariant: the cursor stays with what it was put on, wherever that stands after the next reading; when it is gone, the cursor
goes to what stands in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from tui.ui.lines import Line, cropped, to_strip
from tui.ui.theme import ANSI, STYLES
from tui.ui.widgets.lines_view import LinesView

REACH = 3
"""Lines beyond the edge to which the cursor still goes at once; farther, the page scrolls first."""
CURSOR_KEYS: list[BindingType] = [
    Binding("up", "cursor(-1)", show=False),
    Binding("down", "cursor(1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
    Binding("home,ctrl+home", "edge(-1)", show=False),
    Binding("end,ctrl+end", "edge(1)", show=False),
]
"""In whatever has a cursor."""
_LOUD = frozenset(("strong", "title", "key", "idle", "lost"))


class CursorLines(LinesView):
    """`show_page` gives lines, and which of them (by index) stand for what; several lines may stand for one thing."""

    BINDINGS: ClassVar[list[BindingType]] = CURSOR_KEYS

    class Opened(Message):
        """What was chosen was clicked twice."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._targets: dict[int, str] = {}
        self.cursor_key: str | None = None

    @property
    def keys(self) -> list[str]:
        """What can be chosen, from the top."""
        return list(dict.fromkeys(self._targets[index] for index in sorted(self._targets)))

    def show_page(self, lines: Sequence[Line], targets: Mapping[int, str]) -> None:
        """Replaces the page; repaints the lines that differ."""
        before, places = self._chosen(), self.keys
        self._targets = dict(targets)
        keys = self.keys
        if self.cursor_key not in keys:
            place = places.index(self.cursor_key) if self.cursor_key in places else 0
            self.cursor_key = keys[min(place, len(keys) - 1)] if keys else None
        for index in before ^ self._chosen():
            self._repaint(index)
        self.show(lines)

    def _chosen(self) -> set[int]:
        return {index for index, key in self._targets.items() if key == self.cursor_key}

    def _repaint(self, index: int) -> None:
        self._strips.pop(index, None)
        line = index - round(self.scroll_y)
        if 0 <= line < self.size.height:
            self.refresh(Region(0, line, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y)
        if self._targets.get(index) != self.cursor_key or self.cursor_key is None or index >= len(self.lines):
            return super().render_line(y)
        painted = (self.size.width, self.app.theme)
        if painted != self._painted:
            self._painted = painted
            self._strips.clear()
        strip = self._strips.get(index)
        if strip is None:
            theme = self.app.theme if self.app.theme in STYLES else ANSI
            line = _marked(self.lines[index])
            if theme == ANSI:
                line = tuple((text, "strong" if style in _LOUD else "text") for text, style in line)
            strip = self._strips[index] = to_strip(cropped(line, self.size.width), STYLES[theme], self.size.width, "cursor")
        return strip

    def move_to(self, key: str) -> None:
        """Puts the cursor there and scrolls it into view."""
        old = self._chosen()
        self.cursor_key = key
        for index in old | self._chosen():
            self._repaint(index)
        lines = sorted(self._chosen())
        if lines:
            self._keep_in_view(lines[0], lines[-1])

    def _keep_in_view(self, first: int, last: int) -> None:
        top, rows = round(self.scroll_y), max(1, self.size.height)
        if first < top:
            self.scroll_to(y=first - (1 if first > 0 else 0), animate=False)
        elif last >= top + rows:
            self.scroll_to(y=last - rows + 1, animate=False)

    def action_cursor(self, step: int) -> None:
        """To the next thing; where it is far, or there is none, a line further."""
        keys = self.keys
        place = keys.index(self.cursor_key) + step if self.cursor_key in keys else 0
        if 0 <= place < len(keys):
            lines = [index for index, key in self._targets.items() if key == keys[place]]
            top, bottom = round(self.scroll_y), round(self.scroll_y) + self.size.height
            if min(lines) >= top - REACH and max(lines) < bottom + REACH:
                self.move_to(keys[place])
                return
        self.scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        top = round(self.scroll_y) + step * max(1, self.size.height - 1)
        top = max(0, min(top, round(self.max_scroll_y)))
        self.scroll_to(y=top, animate=False)
        shown = [index for index in sorted(self._targets) if top <= index < top + self.size.height]
        if shown:
            self.move_to(self._targets[shown[0] if step < 0 else shown[-1]])
            self.scroll_to(y=top, animate=False)

    def action_edge(self, side: int) -> None:
        keys = self.keys
        if keys:
            self.move_to(keys[0 if side < 0 else -1])
        self.scroll_to(y=0 if side < 0 else self.max_scroll_y, animate=False)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        key = self._targets.get(event.y + round(self.scroll_y))
        if key is not None:
            self.move_to(key)
            if event.chain >= 2:
                self.post_message(self.Opened(key))


def _marked(line: Line) -> Line:
    """With the cursor's sign in its first cell, which is blank."""
    if not line or not line[0][0].startswith(" "):
        return (("▌", "mark"), *line)
    (text, style), *rest = line
    return (("▌", "mark"), (text[1:], style), *rest)
