"""A question before something is changed: what will happen, and two answers, of which the harmless one is chosen.

Invariant: no text changes anything, typed or pasted, with whatever line feeds and tabs in it: the other answer is chosen with an
arrow or the mouse alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from tui.ui.in_turn import LineInput, act_now
from tui.ui.lines import BLANK, Line, cropped, fitted, wrapped
from tui.ui.screens.dialog import Dialog
from tui.ui.widgets.lines_view import RaisedLines

CELLS = 62
USUAL_SIGNALS = "USR1 USR2 HUP INT TERM CONT STOP QUIT"
DIALOG_CSS = """
    {name} {{ align: center middle; background: $background 0%; }}
    {name} Vertical {{ width: 68; max-width: 100%; height: auto; max-height: 100%; padding: 0 2; background: $rr-raised;
                       border: round $rr-rule; }}
    {name} RaisedLines {{ height: auto; max-height: 100%; }}
"""


class ConfirmScreen(Dialog[bool]):
    """`question`, `sentences` below it, and the two answers; gives True only for the second.

    `count`: so many things are meant that their number has to be typed too. `command`: the command line that does the same.
    """

    CSS = DIALOG_CSS.format(name="ConfirmScreen")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", show=False),
        Binding("backspace", "rub_out", show=False),
        Binding("enter", "choose", show=False),
        Binding("left,up", "mark(0)", show=False),
        Binding("right,down", "mark(1)", show=False),
        Binding("y", "copy", show=False),
    ]

    def __init__(
        self, question: str, sentences: Sequence[tuple[str, str]], no: str, yes: str, *, count: int | None = None, command: str = ""
    ) -> None:  # fmt: skip
        super().__init__()
        self._question = question
        self._sentences = sentences
        self._answers = (no, yes)
        self._count = count
        self._command = command
        self._said: tuple[str, str] | None = None
        self.typed = ""
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
        foot = [*self._count_lines(cells), cropped(self._answer_line(cells), cells)]
        head = first_lines(wrapped(self._question, "strong", cells), max(1, self.app.size.height - 2 - len(foot)), cells)
        room = max(0, self.app.size.height - 2 - len(head) - len(foot))
        body = fitting(self._parts(cells), room)
        lines = [*head, *([BLANK] if body and room > len(body) else []), *body, *foot]
        pane = self.query_one(RaisedLines)
        pane.styles.height = len(lines)
        pane.show(lines)

    def _parts(self, cells: int) -> list[list[Line]]:
        """What is said, the most important first; each is shown whole or not at all."""
        parts = [wrapped(text, style, cells) for text, style in self._sentences]
        if self._said is not None:
            parts.insert(0, wrapped(*self._said, cells))
        if self._command:
            lines = wrapped(f"the same: {self._command}", "dim", cells)
            parts.append([*lines[:2], ((("…", "dim"),))] if len(lines) > 3 else lines)
        hint: list[Line] = [(("← →", "key"), (" choose  ", "dim"), ("Enter", "key"), (" answers", "dim"))]
        if self._command:
            hint = [(*hint[0], ("  y", "key"), (" copies the command", "dim"))]
        return [*parts, [BLANK], [cropped(hint[0], cells)], [BLANK]]

    def _count_lines(self, cells: int) -> list[Line]:
        if self._count is None:
            return []
        told = f"Type {self._count} to go on: " if cells > 30 else f"Type {self._count}: "
        return [cropped(((told, "idle"), (self.typed or "_", "strong")), cells)]

    def _answer_line(self, cells: int) -> Line:
        """Both; where there is no room for both the one that is chosen, whole as far as it can be."""
        spans: list[tuple[str, str]] = []
        narrow = sum(map(len, self._answers)) + 8 > cells
        for place, answer in enumerate(self._answers):
            if narrow and place != self.chosen:
                continue
            here = place == self.chosen
            style = ("lost" if place else "strong") if here else "dim"
            spans += [("▌ " if here else "  ", "mark"), (answer, style), ("    ", "dim")]
        return tuple(spans)

    async def on_key(self, event: events.Key) -> None:
        """Digits of the number, in turn with what corrects them."""
        if self._count is not None and event.character and event.character in "0123456789" and len(self.typed) < 6:
            event.stop()
            self.typed += event.character
            self._show()
        elif event.key == "backspace":
            await act_now(self, event)

    def action_rub_out(self) -> None:
        """The last digit; without one it leaves."""
        if not self.typed:
            self.dismiss(False)
        else:
            self.typed = self.typed[:-1]
            self._show()

    def action_copy(self) -> None:
        if self._command:
            copy(self.app, self._command, "the command")
            self._say("The command is copied.", "accent")

    def _say(self, text: str, style: str) -> None:
        self._said = (text, style)
        self._show()

    def action_mark(self, place: int) -> None:
        self.chosen = place
        self._show()

    def action_choose(self) -> None:
        self._answer(bool(self.chosen))

    def action_answer(self, yes: bool) -> None:
        self._answer(yes)

    def _answer(self, yes: bool) -> None:
        if yes and self._count is not None and self.typed != str(self._count):
            self._say(f"Type {self._count} first: so many are meant.", "lost")
        else:
            self.dismiss(yes)

    def on_click(self, event: events.Click) -> None:
        pane = self.query_one(RaisedLines)
        if event.widget is pane and event.y == len(pane.lines) - 1:
            narrow = sum(map(len, self._answers)) + 8 > max(8, min(CELLS, self.app.size.width - 6))
            self._answer(bool(self.chosen) if narrow else event.x >= len(self._answers[0]) + 4)


def first_lines(lines: list[Line], count: int, cells: int) -> list[Line]:
    """So many of them; where some are left out the last one says so."""
    if len(lines) <= count:
        return lines
    text = "".join(part for part, _ in lines[count - 1])
    return [*lines[: count - 1], ((fitted(f"{text} …", cells).rstrip(), "strong"),)]


def fitting(parts: Sequence[list[Line]], room: int) -> list[Line]:
    """As many whole parts as there are lines for, from the first on; a blank one is never the last."""
    lines: list[Line] = []
    for part in parts:
        if len(lines) + len(part) <= room:
            lines += part
    while lines and lines[-1] == BLANK and len(lines) >= room:
        lines.pop()
    return lines


def copy(app: App[object], text: str, what: str) -> None:
    """By the app's own way to the clipboard where there is one."""
    copier = getattr(app, "copy_text", None)
    copier(text, what) if copier is not None else app.copy_to_clipboard(text)


class SignalScreen(Dialog[str | None]):
    """Which signal; Enter with an empty line answers nothing. What it says is asked about before it is sent."""

    CSS = (
        DIALOG_CSS.format(name="SignalScreen")
        + """
    SignalScreen Input { height: 1; border: none; padding: 0; background: $rr-raised; }
    SignalScreen Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]
    TAKES_EARLY = True

    def __init__(self, whom: str) -> None:
        super().__init__()
        self._whom = whom

    def compose(self) -> ComposeResult:
        with Vertical():
            yield RaisedLines(id="asked")
            yield LineInput(placeholder=f"signal: {USUAL_SIGNALS}", select_on_focus=False)
            yield RaisedLines(id="hint")

    def on_mount(self) -> None:
        cells = max(8, min(CELLS, self.app.size.width - 6))
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        for ident, text, style in (
            ("asked", f"A signal for {self._whom}", "strong"),
            ("hint", "It goes once to the first process. Enter goes on, Esc sends nothing.", "dim"),
        ):
            pane, lines = self.query_one(f"#{ident}", RaisedLines), wrapped(text, style, cells)
            pane.styles.height = len(lines)
            pane.show(lines)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip().upper() or None)
