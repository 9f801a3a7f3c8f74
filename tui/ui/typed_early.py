"""What is typed right behind the key that opens a line belongs into the line, though it went to the screen below.

Invariant: order is kept and nothing is typed twice. A screen that is one line says so by `TAKES_EARLY`; a line that is shown
when it is asked for (a filter, a search) has the class `-open` meanwhile, or is within what has it. Dialogs that confirm have neither.
"""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import ScreenStackError
from textual.screen import Screen
from textual.widgets import Input

from tui.ui.in_turn import InTurn

KEYS = frozenset({"enter", "escape", "tab", "backspace"})
"""Which are handed on as well, behind letters that are on their way."""


class TypedEarly(InTurn):
    """A part of the app."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._early: list[events.Key] = []
        """For a line that is not on the screen yet."""
        self._on_the_way: list[events.Key] = []

    async def on_event(self, event: events.Event) -> None:
        """What is typed or clicked while there is no screen, at the start and at the end, is for nobody."""
        if isinstance(event, events.InputEvent) and not self._has_screen():
            return
        await super().on_event(event)

    def _has_screen(self) -> bool:
        try:
            return self.screen is not None
        except ScreenStackError:
            return False

    def take_early(self, event: events.Key) -> bool:
        """Whether the key was meant for the line of the screen on top and is given to it.

        A letter that the line took itself never comes here.
        """
        screen = self.screen
        if not (_is_line(screen) or _opened(screen)) or any(event is one for one in self._on_the_way):
            return False
        if not event.is_printable and not (event.key in KEYS and (self._early or self._on_the_way)):
            return False
        if self.has_to_wait:
            self.waits(event)
            return True
        self._early.append(event)
        self._hand_on(screen)
        return True

    def _hand_on(self, screen: Screen[Any]) -> None:
        if screen is not self.screen:
            self._early.clear()
            return
        field = _opened(screen) or screen.focused
        if not isinstance(field, Input):
            screen.call_after_refresh(self._hand_on, screen)
            return
        if not field.has_focus:
            screen.set_focus(field)
        while self._early and not self.has_to_wait:
            typed = self._early.pop(0)
            event = events.Key(typed.key, typed.character)
            self._on_the_way.append(event)
            field._forward_event(event)  # as the app gives a key to what has the focus
            field.call_later(self.call_later, self._on_the_way.remove, event)
            self.handed_on(field, event)
        for typed in self._early:
            self.waits(typed)
        self._early.clear()


def _is_line(screen: Screen[Any]) -> bool:
    return bool(getattr(screen, "TAKES_EARLY", False))


def _opened(screen: Screen[Any]) -> Input | None:
    """The line that is being typed on the screen, whether or not it has the focus already."""
    return next(iter(screen.query("Input.-open, .-open Input").results(Input)), None)
