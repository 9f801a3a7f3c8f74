"""The events that the app keeps in the background, whatever screen is open.

Invariant: agents are asked for what was before once each, by few at a time, and nobody waits for their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tui.events import EventLog
from tui.ui.asking import AT_ONCE
from tui.ui.navigation import Navigation

if TYPE_CHECKING:
    from tui.ui.panes.header import Costs


class Happenings(Navigation):
    """`clock`, `now` and `costs` are the app's."""

    clock: Callable[[], float]
    now: Callable[[], datetime]
    costs: Costs

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events = EventLog()
        self._past_asked: set[str] = set()

    def note_events(self) -> None:
        """What changed since the last look goes into the list."""
        self.events.look(self.fleet, self.clock(), self.now(), self.costs.alerts)

    def ask_past_events(self) -> None:
        """What agents tell of before: alerts of the last hour, jobs that ended."""
        self.asking.job_lists(view.name for view in self.fleet)
        names = [view.name for view in self.fleet if view.connected and view.name not in self._past_asked]
        if names:
            self._past_asked.update(names)
            self.asking.start(self._ask_all(names))

    async def _ask_all(self, names: Sequence[str]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> None:
            async with gate:
                await self._ask_alerts(name)

        await asyncio.gather(*(one(name) for name in names))
        self.redraw()

    async def _ask_alerts(self, name: str) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            async with self.asking.client(name) as client:
                self.events.seed_alerts(name, (await client.alerts()).alerts)
        except (ClientError, RackrateError):
            return
