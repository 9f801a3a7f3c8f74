"""The status line, the footer, and the line in which a filter is typed.

Invariant: the status sums over exactly the rows that are shown; a note covers it for a few seconds and goes away by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input

from tui.query import NODE_WORDS, QueryError, Words, compile_tree, parse_tree
from tui.query_complete import NONE, Options, extended, options
from tui.query_tree import Compare, Range, leaves
from tui.ui.actions import Scope
from tui.ui.in_turn import LineInput
from tui.ui.lines import Line, cropped, joined, spread, wrapped
from tui.ui.panes.header import Shown, footer_line, status_line
from tui.ui.widgets.lines_view import RaisedLines

NODE_EXAMPLE = "state:idle gpu:A100 user:me util<20 cost>5 !spot"
NOTE_SECONDS = 4.0
HISTORY_LENGTH = 50
HINT_ROWS = 3
RATE_CELLS = 11
RATE_FROM_CELLS = 60


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
        """The sums; `standing` is said beside them as long as the cursor stays (a node's error)."""
        note = self._note if self._clock() < self._until else ()
        self.show([status_line(shown, note, self.app.size.width, standing)])

    def show_line(self, line: Line) -> None:
        """Any line, unless a note covers it."""
        if self._clock() >= self._until:
            self.show([line])


class Footer(RaisedLines):
    """The keys that matter here."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope
        self._rate = ""

    def on_resize(self, event: events.Resize) -> None:
        self._draw(event.size.width)

    def show_rate(self, text: str) -> None:
        """`12 kB/s` at the right; empty where nobody limits it."""
        if text != self._rate:
            self._rate = text
            self._draw(self.size.width)

    def show_keys(self) -> None:
        """Those in force now: another time that is shown has keys of its own."""
        self._draw(self.size.width)

    def _draw(self, cells: int) -> None:
        if not self._rate or cells < RATE_FROM_CELLS:
            self.show([footer_line(self._scope, cells)])
        else:
            keys = footer_line(self._scope, cells - RATE_CELLS)
            self.show([spread(keys, ((self._rate, "dim"), (" ", "dim")), cells)])


class _Continued(Suggester):
    """What would be typed next, dimmed behind the cursor: Right takes it."""

    def __init__(self, bar: FilterBar) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._bar = bar

    async def get_suggestion(self, value: str) -> str | None:
        return extended(value, self._bar.found)


class FilterInput(LineInput):
    """Up and down walk through the filters of before, Tab through what could stand here; Enter and Esc close the line at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "recall(-1)", show=False),
        Binding("down", "recall(1)", show=False),
        Binding("tab", "fill(1)", show=False),
        Binding("shift+tab", "fill(-1)", show=False),
        Binding("escape", "clear", show=False),
    ]

    @property
    def _bar(self) -> FilterBar:
        assert isinstance(self.parent, FilterBar)
        return self.parent

    def action_recall(self, step: int) -> None:
        self._bar.recall(step)

    def action_fill(self, step: int) -> None:
        self._bar.fill(step)

    def action_clear(self) -> None:
        self._bar.clear()

    async def action_submit(self) -> None:
        self._bar.keep()


class FilterBar(Vertical):
    """Hidden until asked for. Filters while it is typed; a wrong query says what is wrong below and changes nothing."""

    DEFAULT_CSS = """
    FilterBar { height: auto; display: none; background: $rr-raised; }
    FilterBar.-open { display: block; }
    FilterBar Input { height: 1; border: none; padding: 0 1; background: $rr-raised; color: $foreground; }
    FilterBar Input:focus { border: none; background: $rr-raised; background-tint: $foreground 0%; }
    """

    class Changed(Message):
        """Another filter holds: `wanted` is None for no filter; `timed`: it compares numbers, which change as time goes on."""

        def __init__(self, text: str, wanted: Callable[[Any, float], bool] | None, timed: bool = False) -> None:
            super().__init__()
            self.text = text
            self.wanted = wanted
            self.timed = timed

    class Closed(Message):
        """Typing ended; the filter stays as it is."""

    def __init__(self, words: Words = NODE_WORDS, example: str = NODE_EXAMPLE) -> None:
        super().__init__()
        self.words = words
        self._example = example
        self.applied = ""
        """The filter that holds: what is typed may be wrong."""
        self.rows: Callable[[], Iterable[Any]] = tuple
        """Where values that could be typed come from."""
        self.found: Options = NONE
        """What could stand at the end of what is typed."""
        self._filled = ("", NONE, -1)
        self._history: list[str] = []
        self._place = 0

    def compose(self) -> ComposeResult:
        yield FilterInput(placeholder=f"filter: {self._example}", select_on_focus=False, suggester=_Continued(self))
        yield RaisedLines()

    def on_mount(self) -> None:
        self.query_one(FilterInput).cursor_blink = False

    @property
    def is_open(self) -> bool:
        """Whether a filter is being typed."""
        return self.has_class("-open")

    def open(self) -> None:
        """Shows the line and gives it the keys."""
        self._place = len(self._history)
        self.add_class("-open")
        self._explain()
        self.query_one(FilterInput).open_line()

    def put(self, text: str) -> None:
        """Filters by `text` without showing the line."""
        self.query_one(FilterInput).value = text

    def clear(self) -> None:
        """No filter any more."""
        self.query_one(FilterInput).value = ""
        self._close()

    def keep(self) -> None:
        """Ends the typing: the rows are those of the filter, and the next key is theirs."""
        self._take(self.query_one(FilterInput).value)
        self._close()

    def recall(self, step: int) -> None:
        """Puts a filter of before into the line; past the newest one it is empty."""
        self._place = max(0, min(len(self._history), self._place + step))
        text = self._history[self._place] if self._place < len(self._history) else ""
        field = self.query_one(FilterInput)
        field.value = text
        field.cursor_position = len(text)

    def fill(self, step: int) -> None:
        """Puts in the next thing that could stand at the end; the one before that with -1."""
        field = self.query_one(FilterInput)
        _, found, place = self._filled
        if not self._walking:
            found, place = self.found, -1 if step > 0 else 0
        if not found.terms:
            return
        place = (place + step) % len(found.terms)
        text = field.value[: found.start] + found.terms[place]
        self._filled = (text, found, place)
        field.value = text
        field.cursor_position = len(text)

    @property
    def _walking(self) -> bool:
        """What is typed is one of several that Tab goes through."""
        value, found, _ = self._filled
        return self.query_one(FilterInput).value == value and len(found.terms) > 1

    @property
    def named(self) -> dict[str, str]:
        """The filters that are kept."""
        return getattr(self.app, "filters", {})

    def _explain(self, error: QueryError | None = None) -> None:
        cells, hint = self.app.size.width - 1, self.query_one(RaisedLines)
        if error is not None:
            caret = error.caret(1)
            spot: list[Line] = [((caret, "lost"),)] if len(caret) < cells else []
            lines = [*spot, *wrapped(str(error), "lost", cells, " ")[: HINT_ROWS - len(spot)]]
        elif (walking := self._walking) or self.found.terms:
            _, found, place = self._filled
            shown, place = (found.shown, place) if walking else (self.found.shown, -1)
            at = max(0, place - 3)
            parts: list[Line] = [((name, "accent" if at + i == place else "text"),) for i, name in enumerate(shown[at:])]
            lines = [joined([((" Tab", "key"),), *parts], "  ", cells)]
        else:
            lines = wrapped("Enter keeps it, Esc clears it, ↑ ↓ filters of before, Tab completes", "dim", cells, " ")[:HINT_ROWS]
        hint.styles.height = len(lines)
        hint.show(lines)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value == self.query_one(FilterInput).value:  # else another one was typed since, and is told too
            self._take(event.value)

    def _take(self, text: str) -> None:
        now = getattr(self.app, "clock", lambda: 0.0)()
        self.found = options(text, self.words, self.rows, now, self.named) if text and self.is_open else NONE
        try:
            tree = parse_tree(text, self.words, self.named)
        except QueryError as error:
            self._explain(error)
            return
        self._explain()
        self.applied = text.strip()
        timed = any(isinstance(leaf, Compare | Range) for leaf, _ in leaves(tree))
        self._tell(self.Changed(self.applied, compile_tree(tree, self.words) if self.applied else None, timed))

    def _close(self) -> None:
        text = self.applied
        if text and text not in self._history[-1:]:
            self._history = [*self._history, text][-HISTORY_LENGTH:]
        self.remove_class("-open")
        self.query_one(FilterInput).close_line()
        self._tell(self.Closed())

    def _tell(self, what: Message) -> None:
        """The screen knows at once, and not by a message that comes behind the next key."""
        for _, handle in self.screen._get_dispatch_methods(what.handler_name, what):
            handle(what)
