"""The events that the app keeps in the background, whatever screen is open; of another time that is shown those up to it.

Invariant: agents are asked for what was before once each, by few at a time, and nobody waits for their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tui.events import Event, EventLog
from tui.replay_time import moment
from tui.ui.asking import AT_ONCE
from tui.ui.navigation import Navigation

if TYPE_CHECKING:
    from tui.fleet import Fleet
    from tui.replay_log import ReplayLog, Told
    from tui.ui.panes.header import Costs
    from tui.ui.travel import Travel


class Shown(NamedTuple):
    """Events, the newest first; `version` is another one when they are others, `note` what is missing."""

    version: Hashable
    events: Iterable[Event]
    note: str = ""
    other_time: bool = False


class Happenings(Navigation):
    """`clock`, `live_now`, `now`, `costs` and what tells of another time are the app's."""

    clock: Callable[[], float]
    live_now: Callable[[], datetime]
    now: Callable[[], datetime]
    costs: Costs
    travel: Travel | None
    _parked: Fleet | None
    _live_costs: Costs
    _replay_log: ReplayLog | None = None
    _told: Told | None = None
    _telling = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.events = EventLog()
        self._past_asked: set[str] = set()

    def note_events(self) -> None:
        """What changed on the live fleet since the last look goes into the list, whatever time is shown."""
        if self.travel is None:
            self.events.look(self.fleet, self.clock(), self.live_now(), self.costs.alerts)
        elif self._parked is not None:
            self.events.look(self._parked, self.clock(), self.live_now(), self._live_costs.alerts)

    def shown_events(self) -> Shown:
        """Those of the moment that is shown."""
        travel = self.travel
        if travel is None:
            return Shown(self.events.version, self.events)
        if not travel.keeps_files:
            return Shown((self.events.version, int(travel.at_ms)), self.events.until(self.now()), other_time=True)
        self._bring_log(travel)
        if self._told is None:
            return Shown(None, (), "reading what happened until then ...", True)
        since = self.time_text(moment(self._told.starts_ms))
        return Shown((self._told.at_ms, len(self._told.events)), self._told.events, f"of nodes told from {since} on", True)

    def time_text(self, at: datetime) -> str:
        """`Nov 30 14:05:10`."""
        raise NotImplementedError

    def _bring_log(self, travel: Travel) -> None:
        """Asks for the events of the moment, unless they are there or on their way."""
        if self._telling or (self._told is not None and self._told.at_ms == int(travel.at_ms)):
            return
        from tui.replay_log import ReplayLog

        if self._replay_log is None:
            money = travel.money
            self._replay_log = ReplayLog(travel.recording, money.catalog if money is not None else lambda at_ms: None)
        self._telling = True
        self.asking.start(self._read_log(travel, self._replay_log))

    async def _read_log(self, travel: Travel, log: ReplayLog) -> None:
        try:
            told = await asyncio.to_thread(log.until, int(travel.at_ms))
        except Exception as error:  # noqa: BLE001 - whatever is in a file, the app goes on
            self._say(f"What happened until then cannot be told: {error}")
            return  # and it is not tried again
        self._told, self._telling = told, False
        self.redraw()

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
