"""Help over a line or a dialog in which something is typed: F1 shows it, and what was typed stays.

Invariant: it changes nothing; Esc, Enter and F1 leave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Input

from tui.query import Words
from tui.ui.lines import BLANK, Line, wrapped
from tui.ui.screens.confirm import CELLS, DIALOG_CSS
from tui.ui.widgets.lines_view import LinesView

LANGUAGE: tuple[tuple[str, str], ...] = (
    ("word", "a word in any of the texts"),
    ("key:value", "a text of that key; key:=value is the whole text, key: any"),
    ("cost>5 age:5m..1h", "numbers and times: < <= > >= = != and ranges"),
    ("a b", "both; ! before one negates it"),
    ("a or (b c)", "either; brackets make groups"),
    ('"red hot" /gpu-0[1-3]/', "quotes keep blanks; a regular expression between /"),
    ("user:me", "exactly you"),
    ("@name", "a filter that is kept: K keeps the one in force"),
)
TYPING = ("What is typed goes into the line. Enter takes it, Esc leaves everything as it was.",)
CHOOSING = (
    "The arrows or a click choose an answer; Enter gives the one that is marked.",
    "The harmless one is marked at first, and Esc always gives that one: nothing is changed then.",
)


def filter_help(words: Words, kept: Sequence[str], cells: int) -> list[Line]:
    """The language, with the keys that these rows have."""
    lines: list[Line] = [((f"{sign}  ", "key"), (text, "text")) for sign, text in LANGUAGE]
    for title, names in (("texts", words.text_keys), ("numbers", words.number_keys), ("kept", [f"@{name}" for name in kept])):
        if names:
            lines += [BLANK, ((f"{title} ", "dim"),), *wrapped(" ".join(names), "text", cells, "  ")]
    for key, values in words.known.items():
        lines += wrapped(f"{key}: {' '.join(values)}", "dim", cells, "  ")
    return [*lines, BLANK, (("Tab completes, ↑ ↓ filters of before, Enter keeps it, Esc clears it", "dim"),)]


def dialog_help(screen: Screen[object], cells: int) -> list[Line]:
    """What a dialog says of itself in `HELP_LINES`, else what holds for all of its kind."""
    told = getattr(screen, "HELP_LINES", None) or (TYPING if screen.query(Input) else CHOOSING)
    return [line for sentence in told for line in (*wrapped(sentence, "text", cells), BLANK)][:-1]


class _RaisedPane(LinesView):
    """It scrolls, and looks like the dialog around it."""

    UNDER = "raised"


class DialogHelp(ModalScreen[None]):
    """`title` and lines, made for a width."""

    CSS = DIALOG_CSS.format(name="DialogHelp") + "DialogHelp LinesView { height: auto; max-height: 100%; background: $rr-raised; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,f1,q,question_mark", "dismiss(None)", show=False)]

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self._lines = [((title, "strong"),), BLANK, *lines]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield _RaisedPane(self._lines)

    def on_mount(self) -> None:
        pane = self.query_one(LinesView)
        pane.styles.height = min(len(self._lines), max(1, self.app.size.height - 2))
        pane.focus()

    @staticmethod
    def cells(screen_cells: int) -> int:
        """For the text."""
        return max(8, min(CELLS, screen_cells - 6))
