"""Time in the app: stepping back from live, and the replay of a recording.

Invariant: what is shown of another time is marked in words on every screen, its money is that of its time, and nothing on a
node can be changed meanwhile; the loop never waits for a file; live streams go on, and `L` returns to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from textual.app import ScreenStackError

from tui.errors import RackrateError
from tui.fleet import Fleet
from tui.replay_time import milliseconds, moment, moment_of
from tui.ui import actions
from tui.ui.panes.header import Costs
from tui.ui.screens.base import RackrateScreen
from tui.ui.travel import Travel, TravelMoney

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.config import NodeConfig
    from tui.live import Live
    from tui.replay import Recording
    from tui.replay_client import RecordedClient
    from tui.ui.time_buffer import TimeBuffer

SPEEDS = (0, 1, 10, 60)
MOST_APPLIED_MS = 1500
"""A longer stretch is not gone through event by event."""
BEHIND = "what is shown is behind live; L returns"
IN_REPLAY = "this is a recording"


class TimeTravel(TravelMoney):
    """`live_now` is UTC; what screens ask is `now`. The other attributes are the app's."""

    live_now: Callable[[], datetime]
    clock: Callable[[], float]
    live: Live | None
    costs: Costs
    _client_for: Callable[[NodeConfig], AgentClient] | None
    buffer: TimeBuffer | None = None
    _live_costs: Costs = Costs()

    def time_text(self, at: datetime) -> str:
        """`Nov 30 14:05:10`."""
        raise NotImplementedError

    def now(self) -> datetime:
        """UTC of what is shown."""
        return self.live_now() if self.travel is None else moment(int(self.travel.at_ms))

    def travel_text(self, zone: Any) -> str:
        """`REPLAY Nov 30 14:05:10 +01:00`."""
        travel = self.travel
        assert travel is not None
        at = self.now()
        offset = f"{at.astimezone(zone):%z}"
        pace = "" if not travel.keeps_files or travel.speed == 1 else " still" if not travel.speed else f" {travel.speed}x"
        return f"{travel.word}{pace} {self.time_text(at)} {offset[:3]}:{offset[3:5]}"

    # -- what keys do ------------------------------------------------------------------------------------------------

    def action_time_step(self, seconds: int) -> None:
        """So much later (or earlier); from live it begins."""
        if self.travel is None:
            if seconds > 0:
                self._say("This is live: there is nothing newer. , steps back.")
                return
            self._leave_live(lambda ends_ms: ends_ms + seconds * 1000)
            return
        travel = self.travel
        travel.speed = 0
        self._seek((travel.at_ms if travel.wish_ms is None else travel.wish_ms) + seconds * 1000)

    def action_time_jump(self) -> None:
        """Asks for a moment."""
        from tui.ui.screens.ask_text import AskText

        def answered(text: str | None) -> None:
            if text:
                self._jump(text)

        hint = "-2h is two hours before the newest, 14:05 or 14:05:10 of the last day, or a whole time: 2026-11-30T14:05."
        self.push_screen(AskText("Show which moment?", hint, "", "-10m"), answered)

    def _jump(self, text: str) -> None:
        if self.travel is not None:
            self._seek_to(text, self.travel.recording)
        elif self.buffer is not None:
            self._leave_live(None, text)
        else:
            self._say("Nothing of the past is kept here.")

    def _seek_to(self, text: str, recording: Recording) -> None:
        ends, starts = moment(recording.ends_ms), moment(recording.starts_ms)
        try:
            at = moment_of(text, ends, starts, self.zone)  # type: ignore[attr-defined]
        except ValueError as error:
            self._say(f"{text!r} {error}")
            return
        assert self.travel is not None
        self.travel.speed = 0
        self._seek(milliseconds(at))

    def action_time_live(self) -> None:
        """Back to live; in a replay to the newest moment."""
        travel = self.travel
        if travel is None:
            self._say("This is live.")
        elif travel.keeps_files:
            travel.speed = 0
            self._start(self._to_newest(travel))
        else:
            self._return()

    async def _to_newest(self, travel: Travel) -> None:
        """The recorder may have written more meanwhile."""
        await asyncio.to_thread(travel.recording.look_again)
        if self.travel is travel:
            self._seek(travel.recording.ends_ms)

    def action_time_run(self) -> None:
        """Stand still, go on at 1, 10 or 60 seconds a second, in turn."""
        travel = self.travel
        if travel is None:
            self._say("This is live; , steps back.")
            return
        travel.speed = SPEEDS[(SPEEDS.index(travel.speed) + 1) % len(SPEEDS)]
        self._say("time stands still" if not travel.speed else f"time goes on, {travel.speed} s a second")
        self.redraw()

    def _say(self, text: str) -> None:
        with suppress(ScreenStackError):  # the app ends meanwhile
            if isinstance(self.seen, RackrateScreen):
                self.seen.note(text, "dim")

    def keep_past(self, nodes: Sequence[NodeConfig]) -> None:
        """Keeps the last minutes from now on, unless they are kept already."""
        from tui.ui.time_buffer import TimeBuffer

        if self.buffer is None and nodes:
            self.buffer = TimeBuffer(self.fleet, nodes, lambda: milliseconds(self.live_now()), complain=self._say)

    # -- from live and back --------------------------------------------------------------------------------------------

    def _leave_live(self, place: Callable[[int], int] | None, text: str = "") -> None:
        """Shows the recording of the last minutes."""
        if self.buffer is None or not self.buffer.has_any:
            self._say("Nothing of the past is kept yet; it is from the first seconds on.")
            return
        self._start(self._open_buffer(place, text))

    async def _open_buffer(self, place: Callable[[int], int] | None, text: str) -> None:
        assert self.buffer is not None
        try:
            recording = await self.buffer.recording()
        except RackrateError as error:
            self._say(str(error))
            return
        if self.travel is not None:
            return
        self._parked = self.fleet.parted()
        self.fleet.tap = None
        if self.live is not None:
            self.live.fleet = self._parked
        self._live_costs = self.costs
        travel = self.travel = Travel(recording, recording.ends_ms, 0, keeps_files=False)
        travel.live_files = self.files
        self.asking.speak_to(lambda node: self.recorded(node.name, travel))  # type: ignore[arg-type, return-value]
        actions.hold(BEHIND)
        if place is not None:
            self._seek(place(recording.ends_ms))
        else:
            self._seek_to(text, recording)
        self._fit()

    def recorded(self, name: str, travel: Travel) -> RecordedClient:
        """Stands for an agent: it answers what was recorded."""
        from tui.replay_client import RecordedClient

        return RecordedClient(name, travel.recording, lambda: int(travel.at_ms), lambda: self.fleet)

    def keep_live_costs(self, costs: Costs) -> bool:
        """Figures of now that are not for the screen now; False: they are."""
        if self.travel is not None:
            self._live_costs = costs
        return self.travel is not None

    def _return(self) -> None:
        assert self._parked is not None and self.travel is not None
        self.files = self.travel.live_files or self.files
        self.travel = None
        actions.hold("")
        self.fleet.show(self._parked)
        self.fleet.tap = self._parked.tap
        if self.live is not None:
            self.live.fleet = self.fleet
        self.asking.speak_to(self._client_for)
        self._parked, self.costs = None, self._live_costs
        self._money_changed()
        self._fit()
        self._say("live again")

    def _fit(self) -> None:
        """A mark needs its line, also on a low screen."""
        with suppress(ScreenStackError):
            if isinstance(self.seen, RackrateScreen):
                self.seen.fit_rows()
            self.redraw()

    # -- going there -----------------------------------------------------------------------------------------------------

    def start_replay(self, travel: Travel) -> None:
        """The app is opened on a recording."""
        self.travel = travel
        self._seek(travel.at_ms)

    def _seek(self, at_ms: float) -> None:
        travel = self.travel
        assert travel is not None
        recording = travel.recording
        bounded = min(max(at_ms, recording.starts_ms), recording.ends_ms)
        if at_ms < recording.starts_ms:
            self._say("This is the oldest moment that is kept.")
        elif at_ms > recording.ends_ms:
            self._say("This is the newest moment." if travel.keeps_files else "This is the newest moment; L returns to live.")
        travel.wish_ms = bounded
        if not travel.busy:
            self._start(self._build(travel))

    async def _build(self, travel: Travel) -> None:
        """Until it is where it shall be; a wish that comes meanwhile is answered next."""
        travel.busy = True
        try:
            while self.travel is travel and travel.wish_ms is not None:
                at_ms = travel.wish_ms
                fleet, error = await asyncio.to_thread(self._fleet_of, travel, int(at_ms))
                if travel.wish_ms == at_ms:
                    travel.wish_ms = None
                if self.travel is travel:
                    self._arrived(travel, at_ms, fleet, error)
        finally:
            travel.busy = False

    def _fleet_of(self, travel: Travel, at_ms: int) -> tuple[Fleet | None, str | None]:
        try:
            return travel.recording.fleet(at_ms, 0.0, self._catalog_of(travel, at_ms)), None
        except Exception as error:  # noqa: BLE001 - whatever is in a file, the app goes on
            return None, str(error) or type(error).__name__

    def _arrived(self, travel: Travel, at_ms: float, fleet: Fleet | None, error: str | None) -> None:
        if fleet is None:
            self._say(f"This moment cannot be shown: {error}")
            return
        from tui.replay_events import shift

        now = self.clock()
        shift(fleet, now)
        self.fleet.show(fleet)
        travel.at_ms, travel.clock_at = at_ms, now
        self.asking.other_time()
        for screen in self.screen_stack:
            if isinstance(name := getattr(screen, "node", None), str):
                self.entered_node(name)
        self._want_money(travel)
        if travel.recording.damage:
            self._say(travel.recording.damage[0])
        self.redraw()

    def travel_tick(self) -> None:
        """A second has passed: the time that is shown goes on, or stands still."""
        travel = self.travel
        if self.buffer is not None:
            self.buffer.tick(self.clock())
        if travel is None or travel.clock_at is None:
            return
        from tui.replay_events import shift

        now = self.clock()
        passed, travel.clock_at = now - travel.clock_at, now
        if not travel.speed or travel.wish_ms is not None or travel.busy:
            shift(self.fleet, passed)
            return
        at_ms = min(travel.at_ms + passed * 1000 * travel.speed, travel.recording.ends_ms)
        if at_ms >= travel.recording.ends_ms:
            travel.speed = 0
            self._say("This is the end of the recording." if travel.keeps_files else "This is where you left live; L returns.")
        if at_ms - travel.at_ms > MOST_APPLIED_MS:
            shift(self.fleet, passed)
            self._seek(at_ms)
            return
        self._start(self._go_on(travel, at_ms, passed))

    async def _go_on(self, travel: Travel, at_ms: float, passed: float) -> None:
        from tui.replay_events import apply, shift

        travel.busy = True
        try:
            happened = await asyncio.to_thread(travel.recording.between, int(travel.at_ms), int(at_ms))
        except (RackrateError, OSError) as error:
            self._say(str(error))
            return
        finally:
            travel.busy = False
        if self.travel is not travel:
            return
        shift(self.fleet, passed - (at_ms - travel.at_ms) / 1000)
        for one in happened:
            if one.node in self.fleet:
                apply(self.fleet, one, travel.clock_at - (at_ms - one.at_ms) / 1000 if travel.clock_at is not None else self.clock())
        travel.at_ms = at_ms
        self._want_money(travel)
        self.redraw()

    async def end_travel(self) -> None:
        """The app ends."""
        actions.hold("")
        if self.buffer is not None:
            await self.buffer.close()
