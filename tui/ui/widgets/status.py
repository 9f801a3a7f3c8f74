"""The status line, the footer, and the line in which a filter is typed.

Invariant: the status sums over exactly the rows that are shown; a note covers it for a few seconds and goes away by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from tui.errors import WrongUsage
from tui.query import NODE_WORDS, Words, parse
from tui.ui.actions import Scope
from tui.ui.lines import Line, cropped, wrapped
from tui.ui.panes.header import Shown, footer_line, status_line
from tui.ui.widgets.lines_view import RaisedLines

NODE_EXAMPLE = "state:idle gpu:A100 user:me util<20 cost>5 !spot"
NOTE_SECONDS = 4.0
HISTORY_LENGTH = 50
HINT_ROWS = 3


class StatusLine(RaisedLines):
    """One line. `note` covers it for a while."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._note: Line = ()
        self._until = 0.0

    def note(self, text: str, style: str = "idle", seconds: float = NOTE_SECONDS) -> None:
        """Shows a sentence instead of the sums."""
        self._note, self._until = ((text, style),), self._clock() + seconds
        self.show([cropped(((" ", style), *self._note), self.app.size.width)])

    def show_sums(self, shown: Shown, standing: Line = ()) -> None:
        """The sums; `standing` is a note that stays as long as the cursor does (a node's error)."""
        note = self._note if self._clock() < self._until else standing
        self.show([status_line(shown, note, self.app.size.width)])

    def show_line(self, line: Line) -> None:
        """Any line, unless a note covers it."""
        if self._clock() >= self._until:
            self.show([line])


class Footer(RaisedLines):
    """The keys that matter here."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def on_resize(self, event: events.Resize) -> None:
        self.show([footer_line(self._scope, event.size.width)])


class FilterInput(Input):
    """Up and down walk through the filters of before."""

    async def _on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            event.stop()
            event.prevent_default()
            bar = self.parent
            assert isinstance(bar, FilterBar)
            bar.recall(-1 if event.key == "up" else 1)
            return
        await super()._on_key(event)


class FilterBar(Vertical):
    """Hidden until asked for. Filters while it is typed; a wrong query says what is wrong below and changes nothing."""

    DEFAULT_CSS = """
    FilterBar { height: auto; display: none; background: $rr-raised; }
    FilterBar.-open { display: block; }
    FilterBar Input { height: 1; border: none; padding: 0 1; background: $rr-raised; color: $foreground; }
    FilterBar Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    """

    class Changed(Message):
        """Another filter holds: `wanted` is None for no filter."""

        def __init__(self, text: str, wanted: Callable[[Any, float], bool] | None) -> None:
            super().__init__()
            self.text = text
            self.wanted = wanted

    class Closed(Message):
        """Typing ended; the filter stays as it is."""

    def __init__(self, words: Words = NODE_WORDS, example: str = NODE_EXAMPLE) -> None:
        super().__init__()
        self._words = words
        self._example = example
        self.applied = ""
        """The filter that holds: what is typed may be wrong."""
        self._history: list[str] = []
        self._place = 0

    def compose(self) -> ComposeResult:
        yield FilterInput(placeholder=f"filter: {self._example}", select_on_focus=False)
        yield RaisedLines()

    def on_mount(self) -> None:
        self.query_one(FilterInput).cursor_blink = False

    def open(self) -> None:
        """Shows the line and gives it the keys."""
        self._place = len(self._history)
        self.add_class("-open")
        self._explain()
        self.query_one(FilterInput).focus()

    def put(self, text: str) -> None:
        """Filters by `text` without showing the line."""
        self.query_one(FilterInput).value = text

    def clear(self) -> None:
        """No filter any more."""
        self.query_one(FilterInput).value = ""
        self._close()

    def recall(self, step: int) -> None:
        """Puts a filter of before into the line; past the newest one it is empty."""
        self._place = max(0, min(len(self._history), self._place + step))
        text = self._history[self._place] if self._place < len(self._history) else ""
        field = self.query_one(FilterInput)
        field.value = text
        field.cursor_position = len(text)

    def _explain(self, error: str = "") -> None:
        text = error or "Enter keeps it, Esc clears it, ↑ ↓ filters of before"
        hint = self.query_one(RaisedLines)
        lines = wrapped(text, "lost" if error else "dim", self.app.size.width - 1, " ")[:HINT_ROWS]
        hint.styles.height = len(lines)
        hint.show(lines)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        try:
            wanted = parse(event.value, self._words) if event.value.strip() else None
        except WrongUsage as error:
            self._explain(str(error))
            return
        self._explain()
        self.applied = event.value.strip()
        self.post_message(self.Changed(self.applied, wanted))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close()

    def _close(self) -> None:
        text = self.applied
        if text and text not in self._history[-1:]:
            self._history = [*self._history, text][-HISTORY_LENGTH:]
        self.remove_class("-open")
        self.post_message(self.Closed())
