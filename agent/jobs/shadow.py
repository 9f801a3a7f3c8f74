"""The reservation of the first in line: when it starts at the latest, and what is free beside it then.

Invariant: whatever `take` let start, the first one still fits at `at`, if all time limits hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.jobs.room import Room
from agent.jobs.shapes import Held, Running, Wanted

_FOREVER = float("inf")


class Shadow:
    def __init__(self, first: Wanted, room: Room, running: Sequence[Running], now_ms: int) -> None:
        self._now_ms, self._first = now_ms, first
        self._room = room.copy()
        self.at = float(now_ms)
        """In milliseconds; infinite where it waits for a job without a time limit."""
        self.last: Running | None = None
        """Whose end lets it start."""
        for one in sorted(running, key=_leaves):
            self._room.give_back(one.held)
            self.at = max(self.at, _FOREVER if one.ends_ms is None else one.ends_ms)
            self.last = one
            if self._room.fits(first):
                return

    def take(self, held: Held, longest_ms: int | None) -> bool:
        """Whether a job that gets this now is gone by then or fits beside the first one; if so it is reckoned with."""
        if longest_ms is not None and self._now_ms + longest_ms <= self.at:
            return True
        self._room.take(held)
        if self._room.fits(self._first):
            return True
        self._room.give_back(held)
        return False


def _leaves(one: Running) -> tuple[float, int, str]:
    return _FOREVER if one.ends_ms is None else one.ends_ms, one.started_ms, one.id
