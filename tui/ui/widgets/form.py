"""A form of one-line fields: a label, what is typed, and below it what is wrong with it.

Invariant: what was typed stays, whatever is said about it.
"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.strip import Strip
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input

from tui.ui.in_turn import LineInput, act_now
from tui.ui.job_form import Field
from tui.ui.lines import Line, to_strip, wrapped
from tui.ui.theme import ANSI, STYLES
from tui.ui.widgets.lines_view import LinesView

LABEL_CELLS = 15


class Label(LinesView, can_focus=False):
    DEFAULT_CSS = f"Label {{ width: {LABEL_CELLS}; height: 1; overflow: hidden hidden; }}"


class Said(LinesView, can_focus=False):
    DEFAULT_CSS = "Said { height: 0; display: none; overflow: hidden hidden; }"


WALK: list[BindingType] = [
    Binding("up,shift+tab", "app.focus_previous", show=False),
    Binding("down,tab", "app.focus_next", show=False),
]


class FormInput(LineInput):
    """Up and down go to the fields beside it."""

    BINDINGS: ClassVar[list[BindingType]] = WALK


class Switch(Widget, can_focus=True):
    """Yes or no: Space or a click turns it."""

    DEFAULT_CSS = "Switch { height: 1; width: 1fr; }"
    IN_TURN: ClassVar = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "turn", show=False),
        Binding("enter", "submit", show=False),
        *WALK,
    ]

    class Turned(Message):
        """It says something else now."""

    class Submitted(Message):
        """Enter was pressed on it."""

    def __init__(self, hint: str, on: bool) -> None:
        super().__init__()
        self.hint = hint
        self.on = on

    def render_line(self, y: int) -> Strip:
        styles = STYLES.get(self.app.theme, STYLES[ANSI])
        box: Line = ((" [x] " if self.on else " [ ] ", "key" if self.on or self.has_focus else "text"), (self.hint, "dim"))
        return to_strip(box, styles, self.size.width, "cursor" if self.has_focus else "page")

    async def _on_key(self, event: events.Key) -> None:
        await act_now(self, event)

    def action_turn(self) -> None:
        self.on = not self.on
        self.refresh()
        self.post_message(self.Turned())

    def action_submit(self) -> None:
        self.post_message(self.Submitted())

    def on_click(self) -> None:
        self.action_turn()


class FormField(Vertical):
    """One field of the form."""

    DEFAULT_CSS = """
    FormField { height: auto; width: 1fr; }
    FormField Horizontal { height: 1; }
    FormField Input { height: 1; width: 1fr; border: none; padding: 0 1; background: $rr-raised; color: $foreground; }
    FormField Input:focus { border: none; background: $rr-cursor; background-tint: $foreground 0%; }
    """

    def __init__(self, field: Field, value: str, choices: tuple[str, ...] = ()) -> None:
        super().__init__(id=f"field-{field.key}")
        self.field = field
        self._first = value
        self._choices = choices

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label([((f" {self.field.label}", "dim"),)])
            if self.field.switch:
                yield Switch(self.field.hint, bool(self._first))
            else:
                suggester = SuggestFromList(self._choices, case_sensitive=False) if self._choices else None
                yield FormInput(self._first, placeholder=self.field.hint, select_on_focus=False, suggester=suggester)
        yield Said()

    def on_mount(self) -> None:
        for field in self.query(Input):
            field.cursor_blink = False

    @property
    def value(self) -> str:
        """What is typed; of a switch `yes` or nothing."""
        if self.field.switch:
            return "yes" if self.query_one(Switch).on else ""
        return self.query_one(Input).value

    def say(self, sentence: str) -> None:
        """What is wrong with it; empty: nothing is."""
        said = self.query_one(Said)
        lines = wrapped(sentence, "lost", max(12, self.size.width - 3), "  ") if sentence else []
        said.styles.height = len(lines)
        said.display = bool(lines)
        said.show(lines)
        said.set_class(bool(lines), "-wrong")
