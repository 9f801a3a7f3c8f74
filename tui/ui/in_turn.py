"""Keys have their effect in the order in which they were typed, however fast they come.

Invariant: behind a key that is no letter, no other is handed on before the line that got it has dealt with it: it may have
given the focus away. Keys that wait never wait for a widget that was taken down.
"""

from __future__ import annotations

from typing import Any, ClassVar

from textual import events
from textual.app import App
from textual.widget import Widget
from textual.widgets import Input


class InTurn(App[None]):
    """A part of the app. Only what is typed into widgets with `IN_TURN` waits, so that no other key is held up."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._dealing: tuple[Widget, events.Key] | None = None
        self._waiting: list[events.Key | events.Paste] = []

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self.has_to_wait:
            self._waiting.append(event)
        else:
            await self._hand_out(event)

    @property
    def has_to_wait(self) -> bool:
        """Whether a line still deals with the key before."""
        return self._dealing is not None and self._dealing[0].is_running

    def waits(self, event: events.Key) -> None:
        """This one too, which went to the screen before there was a line."""
        self._waiting.append(events.Key(event.key, event.character))

    def handed_on(self, target: Widget | None, event: events.Key) -> None:
        """The next ones wait until `target` has dealt with this one, if it may turn the focus."""
        if target is None or event.is_printable or not getattr(target, "IN_TURN", False):
            return
        if target.call_later(self.call_later, self._dealt, event):  # it stands in the queue of the widget behind the key
            self._dealing = (target, event)

    async def _dealt(self, event: events.Key) -> None:
        if self._dealing is not None and self._dealing[1] is event:
            self._dealing = None
            await self._hand_out()

    async def _hand_out(self, *newest: events.Key | events.Paste) -> None:
        self._waiting += newest
        while self._waiting and not self.has_to_wait:
            event = self._waiting.pop(0)
            target = self.focused
            await super().on_event(event)
            if isinstance(event, events.Key) and event.is_forwarded:
                self.handed_on(target, event)


async def act_now(widget: Widget, event: events.Key) -> None:
    """Does what `widget` itself binds to the key, at once: by way of the app it would come behind letters that were typed later."""
    for binding in widget._bindings.key_to_bindings.get(event.key, ()):
        if await widget.app.run_action(binding.action, widget):
            event.stop()
            event.prevent_default()
            return


class LineInput(Input):
    """A line in which one types. One that is shown only when it is asked for opens and closes by `open_line` and `close_line`."""

    IN_TURN: ClassVar = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._before: Widget | None = None

    async def _on_key(self, event: events.Key) -> None:
        await act_now(self, event)

    def open_line(self) -> None:
        """Takes the keys."""
        if self.screen.focused is not self:
            self._before = self.screen.focused
        self.focus()

    def close_line(self) -> None:
        """The next key is for what had them before."""
        before, self._before = self._before, None
        if self.screen.focused is self:
            self.screen.set_focus(before if before is not None and before.is_attached else None)
