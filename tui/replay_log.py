"""What happened in a recording up to a moment, found by the rule of a live app (`EventLog`).

Invariant: what is told of a moment is what an app would have noted by then that was opened at `starts_ms`; of before that there
are only jobs and alerts that ended. The longest span is the one that can be gone through in a few seconds.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tui.events import LOOK_SECONDS, Event, EventLog
from tui.record import Key
from tui.record_codec import WORDS, Doc
from tui.replay_events import Happened, apply
from tui.replay_streams import seldom_searched
from tui.replay_time import moment

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from tui.fleet import Fleet
    from tui.replay import Recording

MOST_SAMPLES = 120_000
SHORTEST_MS, LONGEST_MS = 60_000, 6 * 3_600_000
STRIDE_MS = 20_000
_LOOK_MS = round(LOOK_SECONDS * 1000)
_GPUS, _STATE, _PROCESSES, _ALLOCATIONS = map(WORDS.index, ("gpus", "state", "processes", "allocations"))


class Told(NamedTuple):
    """The newest first, and since when what happens on nodes is told."""

    at_ms: int
    starts_ms: int
    events: tuple[Event, ...]


class ReplayLog:
    """May be used from any thread; one question waits for the other."""

    def __init__(self, recording: Recording, catalog_of: Callable[[int], Catalog | None] = lambda at_ms: None) -> None:
        self._recording = recording
        self._catalog_of = catalog_of
        self._turn = threading.Lock()
        self._log = EventLog()
        self._fleet: Fleet | None = None
        self._standing: dict[Key, tuple[object, ...]] = {}
        self._session = self._starts_ms = self._at_ms = self._looked_ms = 0
        self._counts: list[tuple[int, int]] = []
        """Moments of looks, and how many events had been noted then."""

    def until(self, at_ms: int) -> Told:
        """What had been noted by a moment."""
        with self._turn, seldom_searched():
            session = self._recording.session(at_ms)[0]
            if self._fleet is None or session != self._session or not self._starts_ms <= at_ms <= self._at_ms + self._span_ms():
                self._begin(session, at_ms)
            while self._at_ms < at_ms:
                self._go_on(min(self._at_ms + STRIDE_MS, at_ms))
            place = bisect_right(self._counts, at_ms, key=lambda one: one[0])
            count = self._counts[place - 1][1] if place else 0
            return Told(at_ms, self._starts_ms, tuple(event for event in self._log if event.number <= count))

    def _span_ms(self) -> int:
        about = self._recording.session(self._recording.ends_ms)[2]
        samples = MOST_SAMPLES / max(1, len(about.nodes)) * about.every_seconds
        return max(SHORTEST_MS, min(LONGEST_MS, round(samples * 1000)))

    def _begin(self, session: int, at_ms: int) -> None:
        start = max(session, self._recording.starts_ms, at_ms - self._span_ms())
        self._log, self._standing, self._counts = EventLog(), {}, []
        self._session, self._starts_ms, self._at_ms = session, start, start
        self._fleet = self._recording.fleet(start, start / 1000, self._catalog_of(start))
        for node, alerts in self._recording.ended_alerts(start).items():
            self._log.seed_alerts(node, alerts)
        self._look(start)

    def _go_on(self, until_ms: int) -> None:
        fleet = self._fleet
        assert fleet is not None
        catalog = self._catalog_of(until_ms)
        if catalog is not None and catalog is not fleet.catalog:
            fleet.set_catalog(catalog)
        for happened in self._recording.between(self._at_ms, until_ms, self._stands_otherwise):
            while self._looked_ms + _LOOK_MS < happened.at_ms:
                self._look(self._looked_ms + _LOOK_MS)
            self._apply(fleet, happened)
        while self._looked_ms + _LOOK_MS <= until_ms:
            self._look(self._looked_ms + _LOOK_MS)
        self._at_ms = until_ms

    @staticmethod
    def _apply(fleet: Fleet, happened: Happened) -> None:
        if happened.node in fleet:
            apply(fleet, happened, happened.at_ms / 1000)

    def _look(self, at_ms: int) -> None:
        assert self._fleet is not None
        self._looked_ms = at_ms
        self._log.look(self._fleet, at_ms / 1000, moment(at_ms))
        if not self._counts or self._counts[-1][1] != self._log.count:
            self._counts.append((at_ms, self._log.count))

    def _stands_otherwise(self, key: Key, doc: Doc) -> bool:
        """A GPU was taken, let go or lost: of the rest of a sample nothing is told."""
        now = tuple([(gpu.get(_STATE), _held(gpu.get(_PROCESSES)), bool(gpu.get(_ALLOCATIONS))) for gpu in doc.get(_GPUS, ())])
        if self._standing.get(key) == now:
            return False
        self._standing[key] = now
        return True


def _held(processes: list[Doc] | None) -> bool | None:
    return None if processes is None else bool(processes)
