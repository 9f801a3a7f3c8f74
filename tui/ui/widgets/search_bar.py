"""The line in which one types what to look for in a log.

Invariant: while it is open letters go into it; Esc closes it, and the log stays where it is.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from tui.ui.in_turn import LineInput


class SearchBar(LineInput):
    """Posts `Wanted` with each change, `Done` with Enter, `Left` with Esc."""

    DEFAULT_CSS = """
    SearchBar { display: none; height: 1; width: 1fr; border: none; padding: 0 1; background: $rr-cursor; color: $foreground; }
    SearchBar:focus { border: none; background-tint: $foreground 0%; }
    SearchBar.-open { display: block; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    class Wanted(Message):
        """What is typed now."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Done(Message):
        """Enter."""

    class Left(Message):
        """Esc."""

    def __init__(self) -> None:
        super().__init__(placeholder="search the whole log: text, or /expression/", select_on_focus=True)
        self.cursor_blink = False

    def open(self) -> None:
        self.add_class("-open")
        self.open_line()

    def close(self) -> None:
        self.remove_class("-open")
        self.close_line()

    def action_leave(self) -> None:
        self.close()
        self.post_message(self.Left())

    async def action_submit(self) -> None:
        self.close()
        self.post_message(self.Done())

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Wanted(self.value))
