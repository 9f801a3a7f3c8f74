"""A question that is answered with a line of text: a file's name, a reason.

Invariant: Esc answers nothing, and an empty line is no answer unless it was asked for as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from tui.ui.in_turn import LineInput
from tui.ui.lines import Line, wrapped
from tui.ui.screens.confirm import CELLS, DIALOG_CSS
from tui.ui.screens.dialog import Dialog
from tui.ui.widgets.lines_view import RaisedLines


class AskText(Dialog[str | None]):
    """`question`, the line (`value` is in it at first), and a hint below.

    `check` says why a text cannot be taken (None: it can); `empty`: an empty line is an answer too.
    """

    CSS = (
        DIALOG_CSS.format(name="AskText")
        + """
    AskText Input { height: 1; border: none; padding: 0; background: $rr-raised; }
    AskText Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]
    TAKES_EARLY = True

    def __init__(
        self, question: str, hint: str, value: str = "", example: str = "", *,
        check: Callable[[str], str | None] = lambda text: None, empty: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._asked = (("asked", question, "strong"), ("hint", hint, "dim"))
        self._check = check
        self._empty = empty
        self._value = value
        self._example = example

    def compose(self) -> ComposeResult:
        with Vertical():
            yield RaisedLines(id="asked")
            yield LineInput(self._value, placeholder=self._example, select_on_focus=False)
            yield RaisedLines(id="hint")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    def on_resize(self) -> None:
        cells = max(8, min(CELLS, self.app.size.width - 6))
        for ident, text, style in self._asked:
            lines: list[Line] = wrapped(text, style, cells) if self.app.size.height >= 8 or ident == "asked" else []
            pane = self.query_one(f"#{ident}", RaisedLines)
            pane.styles.height = len(lines)
            pane.show(lines)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if not text and not self._empty:
            return
        if (wrong := self._check(text)) is None:
            self.dismiss(text)
        else:
            self._asked = (self._asked[0], ("hint", wrong, "lost"))
            self.on_resize()
