"""Behind `:`: every screen by its name with what it is to show, and every action of the screen below by its title.

Invariant: it lists what the registry lists, and runs it on the screen from which it was opened; what is wrong stays in the
line, with the spot below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from tui.ui import actions, colon
from tui.ui.actions import Action, Scope, palette
from tui.ui.colon import Goto, World, WrongWord
from tui.ui.in_turn import LineInput
from tui.ui.lines import Line, fitted, wrapped
from tui.ui.widgets.lines_view import RaisedLines

WIDTH = 58
MOST_TARGETS = 6
"""Nodes and jobs whose names hold what is typed."""
HINT = "Enter runs it, Tab completes, ↑ ↓ choose, F1 explains"
HELP = (
    "A word opens a screen: costs, market, budgets, advice, alerts, events, help.",
    "Behind some words stands a filter: jobs user:me, alerts severity:critical, market a100, fleet state:idle.",
    "node gpu-07, gpu gpu-07 3 and job ID open one of them; Tab completes names as far as they are known.",
    "Other words are looked for in the titles of the actions of this screen, and in the names of nodes and jobs.",
)


class Row(NamedTuple):
    """A line of the list: an action, or a text that is read as a command."""

    label: str
    key: str
    action: Action | None = None
    text: str = ""


class PaletteInput(LineInput):
    """Arrows and Tab are for the list below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "screen.step(1)", show=False),
        Binding("up", "screen.step(-1)", show=False),
        Binding("tab", "screen.fill(1)", show=False),
        Binding("shift+tab", "screen.fill(-1)", show=False),
    ]


class PaletteScreen(ModalScreen[Action | Goto | None]):
    """Type to narrow, arrows to choose, Tab to complete, Enter to run, Esc to leave."""

    HELP_LINES = HELP
    TAKES_EARLY = True
    CSS = """
    PaletteScreen { align: center top; background: $background 0%; }
    PaletteScreen Vertical { width: 64; max-width: 100%; height: auto; margin-top: 2; padding: 0 1; background: $rr-raised;
                             border: round $rr-rule; }
    PaletteScreen Input { height: 1; border: none; padding: 0; background: $rr-raised; }
    PaletteScreen Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    PaletteScreen #found { height: auto; max-height: 14; overflow-y: auto; }
    PaletteScreen #said { height: auto; }
    PaletteScreen.-low Vertical { margin-top: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
    ]

    def __init__(self, scope: Scope, world: World) -> None:
        super().__init__()
        self._all = palette(scope)
        self._world = world
        self._found: list[Row] = []
        self._place = 0
        self._moved = False
        self._filled: tuple[str, list[str], int] = ("", [], -1)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield PaletteInput(placeholder="a screen, an action, a node: costs, jobs user:me, gpu-07", select_on_focus=False)
            yield RaisedLines(id="said")
            yield RaisedLines(id="found")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self._find("")

    def on_resize(self) -> None:
        low = self.app.size.height < 14
        self.set_class(low, "-low")
        self.query_one("#found").styles.max_height = max(1, min(14, self.app.size.height - (4 if low else 8)))
        self.query_one("#said").display = self.app.size.height >= 8
        self._show()

    # -- what is found ----------------------------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        self._find(event.value)

    def _find(self, text: str) -> None:
        self._place, self._moved = 0, False
        self._found = self._rows(text)
        self._say()
        self._show()

    def _rows(self, text: str) -> list[Row]:
        rest = colon.split(text)[1]
        if colon.is_word(text) and (rest or " " in text.strip(":").lstrip()):
            return [Row(one.strip(), "", text=one) for one in colon.completions(text, self._world)]
        words = text.casefold().removeprefix(":").split()
        titled = [Row(one.title, one.shown, one) for one in self._all if all(word in one.title.casefold() for word in words)]
        if not words:
            return [*titled, *self._commands(lambda word: not self._has(word))]
        starts = self._commands(lambda word: any(one.startswith(words[0]) for one in (word.name, *word.also)) and len(words) == 1)
        # what both the word and the title lead to stands once, under its title
        ids = {row.action.id for row in titled if row.action is not None}
        starts = [row for row in starts if self._action_of(row.text) not in ids]
        begins = [row for row in titled if row.action is not None and self._is_named(row.action.id, words[0])]
        return [*begins, *starts, *(row for row in titled if row not in begins), *self._targets(text.strip(": "))]

    def _has(self, word: colon.Word) -> bool:
        return any(one.id == word.action for one in self._all)

    @staticmethod
    def _action_of(text: str) -> str:
        return colon.BY_NAME[text.strip()].action

    @staticmethod
    def _is_named(ident: str, typed: str) -> bool:
        return any(word.action == ident and word.name.startswith(typed) for word in colon.WORDS)

    def _commands(self, wanted: Callable[[colon.Word], bool]) -> list[Row]:
        shown = [word for word in colon.WORDS if wanted(word) and not (actions.read_only() and word.name in colon.CHANGING)]
        return [Row(word.title, f":{word.usage}", text=word.name + " " * bool(word.takes)) for word in shown]

    def _targets(self, typed: str) -> list[Row]:
        if len(typed) < 2 or " " in typed:
            return []
        nodes = [Row(f"node {name}", "", text=f"node {name}") for name in colon.beginning(self._world.nodes(), typed)]
        jobs = [Row(f"job {one} on {node}", "", text=f"job {one}") for one, node in self._world.jobs() if one.startswith(typed)]
        return [*nodes[:MOST_TARGETS], *jobs[:MOST_TARGETS]]

    # -- what is done ---------------------------------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        text = event.value
        row = self._found[self._place] if self._found else None
        if row is not None and (self._moved or not colon.is_word(text)):
            self._run(row)
        elif row is not None and row.action is not None and not colon.split(text)[1]:
            self.dismiss(row.action)
        else:
            self._run_text(text)

    def _run(self, row: Row) -> None:
        if row.action is not None:
            self.dismiss(row.action)
            return
        word = colon.BY_NAME[colon.split(row.text)[0]]
        if word.takes in ("", "query", "theme") or colon.split(row.text)[1]:
            self._run_text(row.text)
        else:
            self._put(row.text)

    def _run_text(self, text: str) -> None:
        try:
            self.dismiss(colon.read(text, self._world))
        except WrongWord as error:
            self._say(error)

    def _put(self, text: str) -> None:
        field = self.query_one(Input)
        field.value = text
        field.cursor_position = len(text)

    def action_fill(self, step: int) -> None:
        """Puts the next thing into the line that what is typed could become."""
        value = self.query_one(Input).value
        filled, found, place = self._filled
        if value != filled or len(found) < 2:
            found, place = colon.completions(value, self._world), -1 if step > 0 else 0
        if not found:
            return
        place = (place + step) % len(found)
        self._filled = (found[place], found, place)
        self._put(found[place])

    def action_step(self, step: int) -> None:
        if self._found:
            self._place, self._moved = (self._place + step) % len(self._found), True
            self._show()

    def on_click(self, event: events.Click) -> None:
        pane = self.query_one("#found", RaisedLines)
        place = event.y + round(pane.scroll_y)
        if event.widget is pane and 0 <= place < len(self._found):
            self._run(self._found[place])

    # -- what is shown --------------------------------------------------------------------------------------------------------

    @property
    def _cells(self) -> int:
        return max(8, min(WIDTH, self.app.size.width - 6))

    def _say(self, error: WrongWord | None = None) -> None:
        """The error with its spot, else what the keys do."""
        pane = self.query_one("#said", RaisedLines)
        if error is None:
            lines: list[Line] = wrapped(HINT, "dim", self._cells)[: 1 if self._cells < WIDTH else 2]
        else:
            caret = " " * error.start + "^" * (error.end - error.start)
            spot: list[Line] = [((caret, "lost"),)] if error.end < self._cells else []
            lines = [*spot, *wrapped(error.why[0].upper() + error.why[1:], "lost", self._cells)[:3]]
        pane.styles.height = len(lines)
        pane.show(lines)

    def _show(self) -> None:
        pane = self.query_one("#found", RaisedLines)
        lines = [self._line(i, row) for i, row in enumerate(self._found)]
        if not lines and not colon.is_word(self.query_one(Input).value):
            lines = [(("nothing of that name", "dim"),)]
        pane.display = bool(lines)
        pane.styles.height = max(1, len(lines))
        pane.show(lines)
        pane.scroll_to(y=max(0, self._place - 12), animate=False)

    def _line(self, place: int, row: Row) -> Line:
        chosen = place == self._place and (self._moved or not colon.is_word(self.query_one(Input).value))
        mark, style = ("▌ ", "strong") if chosen else ("  ", "text")
        right = min(len(row.key), 20)
        return ((mark, "mark"), (fitted(row.label, self._cells - 3 - right), style), (" ", "text"), (fitted(row.key, right, right=True), "key"))
