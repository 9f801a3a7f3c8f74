"""The way to the screen on top: `fleet › gpu-07 › GPU 3`; a click goes back to one of them.

Invariant: the end is always there; what does not fit is left out at the beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from tui.ui.lines import Line, fitted, width
from tui.ui.widgets.lines_view import RaisedLines

BETWEEN = " › "


def crumbs_line(names: Sequence[str], cells: int) -> tuple[Line, int]:
    """The line, and how many names were left out at its beginning."""
    left_out = 0
    while left_out < len(names) - 1 and width(_line(names[left_out:], left_out)) > cells:
        left_out += 1
    shown = list(names[left_out:])
    if len(shown) == 1:
        shown = [fitted(shown[0], min(max(1, cells - 6), width(((shown[0], ""),))))]
    return _line(shown, left_out), left_out


def _line(names: Sequence[str], left_out: int) -> Line:
    spans: list[tuple[str, str]] = [(" " if not left_out else " … › ", "dim")]
    for place, name in enumerate(names):
        last = place == len(names) - 1
        spans.append((name, "strong" if last else "text"))
        if not last:
            spans.append((BETWEEN, "dim"))
    return tuple(spans)


class Crumbs(RaisedLines):
    """One line."""

    def __init__(self) -> None:
        super().__init__(id="crumbs")
        self._left_out = 0

    def show_names(self, names: Sequence[str]) -> None:
        """From the fleet to here."""
        line, self._left_out = crumbs_line(names, self.app.size.width - 1)
        self.show([line])

    def on_click(self, event: events.Click) -> None:
        """Goes back to the screen whose name was clicked."""
        at, place = 0, self._left_out
        for text, style in self.lines[0] if self.lines else ():
            at += width(((text, style),))
            if event.x < at:
                if text != BETWEEN and style != "dim":
                    self.app.go_up_to(place)  # type: ignore[attr-defined]
                return
            place += text == BETWEEN
