"""The palette: every action of the screen below by name, for those who do not know its key or cannot type it.

Invariant: it lists what the registry lists, and runs it on the screen from which it was opened.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.ui.actions import Action, Scope, palette
from tui.ui.lines import Line, fitted
from tui.ui.widgets.lines_view import RaisedLines

WIDTH = 52


class PaletteScreen(ModalScreen[Action | None]):
    """Type to narrow, arrows to choose, Enter to run, Esc to leave."""

    CSS = """
    PaletteScreen { align: center top; background: $background 0%; }
    PaletteScreen Vertical { width: 56; max-width: 100%; height: auto; margin-top: 2; padding: 0 1; background: $rr-raised;
                             border: round $rr-rule; }
    PaletteScreen Input { height: 1; border: none; padding: 0; background: $rr-raised; }
    PaletteScreen Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    PaletteScreen RaisedLines { height: auto; max-height: 14; overflow-y: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down", "step(1)", show=False, priority=True),
        Binding("up", "step(-1)", show=False, priority=True),
    ]

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._all = palette(scope)
        self._found = self._all
        self._place = 0

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Input(placeholder="what to do", select_on_focus=False)
            yield RaisedLines()

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self._show()

    def on_input_changed(self, event: Input.Changed) -> None:
        words = event.value.casefold().split()
        self._found = [action for action in self._all if all(word in action.title.casefold() for word in words)]
        self._place = 0
        self._show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(self._found[self._place] if self._found else None)

    def action_step(self, step: int) -> None:
        if self._found:
            self._place = (self._place + step) % len(self._found)
            self._show()

    def on_click(self, event: events.Click) -> None:
        pane = self.query_one(RaisedLines)
        if event.widget is pane and 0 <= event.y < len(self._found):
            self.dismiss(self._found[event.y + round(pane.scroll_y)])

    def _show(self) -> None:
        pane = self.query_one(RaisedLines)
        pane.styles.height = max(1, len(self._found))
        pane.show([self._line(i, action) for i, action in enumerate(self._found)] or [(("nothing of that name", "dim"),)])
        pane.scroll_to(y=max(0, self._place - 12), animate=False)

    def _line(self, place: int, action: Action) -> Line:
        chosen = place == self._place
        mark, style = ("▌ ", "strong") if chosen else ("  ", "text")
        return ((mark, "mark"), (fitted(action.title, WIDTH - 12), style), (fitted(action.shown, 8, right=True), "key"))
