"""The past that is looked at: one node and one span at a time, asked of its agent, kept fresh by its stream.

Invariant: a node is asked only while its plots are looked at, and at most once in ten seconds; the app never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from tui import format as fmt
from tui.node_history import FIRST, SPANS, Span, Track

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.fleet import Fleet

AFTER_FAULT_SECONDS = 15.0
KEPT = 12
"""Tracks that are remembered, so that going back and forth asks nobody."""


class Asker(Protocol):
    """Who can ask a node beside the app."""

    def client(self, name: str) -> AgentClient: ...

    def start(self, work: Coroutine[Any, Any, None]) -> object: ...


class _Entry:
    def __init__(self, track: Track) -> None:
        self.track = track
        self.answered_at: float | None = None
        self.again_at = float("-inf")
        self.error: str | None = None
        self.busy = False


class PlotHistory:
    """`can_ask` says whether a node can be asked at all (a replay cannot)."""

    def __init__(
        self, fleet: Fleet, asker: Asker, clock: Callable[[], float], changed: Callable[[], None], can_ask: Callable[[str], bool]
    ) -> None:
        self._fleet = fleet
        self._asker = asker
        self._clock = clock
        self._changed = changed
        self._can_ask = can_ask
        self._entries: dict[tuple[str, int], _Entry] = {}
        self._place = FIRST

    @property
    def span(self) -> Span:
        """How far back all plots reach now."""
        return SPANS[self._place]

    def step_span(self, step: int) -> None:
        """A longer (1) or a shorter (-1) past."""
        self._place = max(0, min(len(SPANS) - 1, self._place + step))

    def track(self, name: str, span: Span) -> Track:
        """What is known of the node over this span now; the agent is asked where that is due."""
        entry = self._entry(name, span)
        view, now = self._fleet[name], self._clock()
        if view.sample is not None and entry.track.step_seconds == 1.0 and entry.track.add(view.sample):
            entry.track.trim(span.seconds)
        if now >= entry.again_at and not entry.busy and self._can_ask(name) and view.state(now) in ("live", "stale"):
            entry.busy = True
            self._asker.start(self._ask(name, span, entry))
        return entry.track

    def forget(self) -> None:
        """All of it: what is shown is of another time."""
        self._entries.clear()

    def note(self, name: str, span: Span) -> str:
        """How far apart the points are and how old the answer is, or why there is less than could be."""
        entry = self._entry(name, span)
        if entry.error:
            return entry.error
        if entry.answered_at is None:
            return "asking its agent" if entry.busy else "as heard by this app"
        step = fmt.age(entry.track.step_seconds)
        if entry.track.step_seconds == 1.0:
            return f"a point each {step}"
        return f"a point each {step}, asked {fmt.age(max(0.0, self._clock() - entry.answered_at))} ago"

    def _entry(self, name: str, span: Span) -> _Entry:
        key = name, span.seconds
        entry = self._entries.get(key)
        if entry is None:
            view = self._fleet[name]
            track = Track.heard(view.past, view.sample) if view.sample is not None else Track()
            entry = self._entries[key] = _Entry(track)
            while len(self._entries) > KEPT:
                del self._entries[next(iter(self._entries))]
        return entry

    async def _ask(self, name: str, span: Span, entry: _Entry) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        try:
            async with self._asker.client(name) as client:
                track = Track.of(await client.history(span.seconds))
        except (ClientError, RackrateError) as error:
            entry.error, entry.again_at = str(error), self._clock() + AFTER_FAULT_SECONDS
        else:
            if track.times:
                entry.track = track
            entry.error, entry.answered_at = None, self._clock()
            entry.again_at = self._clock() + span.again_seconds
            view = self._fleet[name]
            if view.sample is not None and track.step_seconds == 1.0:
                entry.track.add(view.sample)
        finally:
            entry.busy = False
        self._changed()
