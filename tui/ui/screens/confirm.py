"""A question before something is changed: what will happen, and two answers, of which the harmless one is chosen.

Invariant: Enter, Esc and pasted text alone change nothing: the other answer must be chosen with an arrow, Tab or the mouse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.ui.lines import BLANK, Line, wrapped
from tui.ui.widgets.lines_view import RaisedLines

CELLS = 62
USUAL_SIGNALS = "USR1 USR2 HUP INT TERM CONT STOP QUIT"
DIALOG_CSS = """
    {name} {{ align: center middle; background: $background 0%; }}
    {name} Vertical {{ width: 68; max-width: 100%; height: auto; max-height: 100%; padding: 0 2; background: $rr-raised;
                       border: round $rr-rule; }}
    {name} RaisedLines {{ height: auto; max-height: 100%; }}
"""


class ConfirmScreen(ModalScreen[bool]):
    """`question`, `sentences` below it, and the two answers; gives True only for the second."""

    CSS = DIALOG_CSS.format(name="ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "answer(False)", show=False),
        Binding("enter", "choose", show=False),
        Binding("left,up", "mark(0)", show=False),
        Binding("right,down", "mark(1)", show=False),
        Binding("tab,shift+tab", "other", show=False, priority=True),
    ]

    def __init__(self, question: str, sentences: Sequence[tuple[str, str]], no: str, yes: str) -> None:
        super().__init__()
        self._question = question
        self._sentences = sentences
        self._answers = (no, yes)
        self.chosen = 0

    def compose(self) -> ComposeResult:
        with Vertical():
            yield RaisedLines()

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        cells = max(8, min(CELLS, self.app.size.width - 6))
        lines: list[Line] = wrapped(self._question, "strong", cells)
        if self.app.size.height >= 9:
            lines.append(BLANK)
        if self.app.size.height >= 7:
            for text, style in self._sentences:
                lines += wrapped(text, style, cells)
            lines.append(BLANK)
        lines.append(self._answer_line())
        pane = self.query_one(RaisedLines)
        pane.styles.height = len(lines)
        pane.show(lines)

    def _answer_line(self) -> Line:
        spans: list[tuple[str, str]] = []
        for place, answer in enumerate(self._answers):
            here = place == self.chosen
            style = ("lost" if place else "strong") if here else "dim"
            spans += [("▌ " if here else "  ", "mark"), (answer, style), ("    ", "dim")]
        return tuple(spans)

    def action_mark(self, place: int) -> None:
        self.chosen = place
        self._show()

    def action_other(self) -> None:
        self.action_mark(1 - self.chosen)

    def action_choose(self) -> None:
        self.dismiss(bool(self.chosen))

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def on_click(self, event: events.Click) -> None:
        pane = self.query_one(RaisedLines)
        if event.widget is pane and event.y == len(pane.lines) - 1:
            self.dismiss(event.x >= len(self._answers[0]) + 4)


class SignalScreen(ModalScreen[str | None]):
    """Which signal; Enter with an empty line sends nothing."""

    CSS = (
        DIALOG_CSS.format(name="SignalScreen")
        + """
    SignalScreen Input { height: 1; border: none; padding: 0; background: $rr-raised; }
    SignalScreen Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, job: str) -> None:
        super().__init__()
        self._job = job

    def compose(self) -> ComposeResult:
        with Vertical():
            yield RaisedLines(id="asked")
            yield Input(placeholder=f"signal: {USUAL_SIGNALS}", select_on_focus=False)
            yield RaisedLines(id="hint")

    def on_mount(self) -> None:
        cells = max(8, min(CELLS, self.app.size.width - 6))
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        for ident, text, style in (
            ("asked", f"A signal for {self._job}", "strong"),
            ("hint", "It goes once to the job's first process. Enter sends it, Esc sends nothing.", "dim"),
        ):
            pane, lines = self.query_one(f"#{ident}", RaisedLines), wrapped(text, style, cells)
            pane.styles.height = len(lines)
            pane.show(lines)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip().upper() or None)
