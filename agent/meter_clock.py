"""The meter's time: UTC milliseconds, anchored to the wall clock once and carried forward by CLOCK_BOOTTIME.

Invariant: it never goes backwards. A wall clock that is set forward is followed, and the jump is told to the caller;
one that is set back is not followed, for a second that has been accounted for must never come again.

CLOCK_BOOTTIME counts suspended time and is slewed by NTP just as the wall clock is, so the two part only when
somebody *sets* the wall clock, or when a virtual machine was paused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

STEP_MS = 2000
"""A wall clock further ahead than this was set forward; less is left alone."""

EARLIEST_MS = 1_704_067_200_000
"""2024-01-01 UTC. A wall clock before it has not been set yet (a board without a battery starts at 1970)."""

log = logging.getLogger(__name__)


def wall_ms() -> int:
    """The wall clock, UTC milliseconds."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """Milliseconds since boot, suspended time included where the system can tell (Linux)."""
    boottime: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if boottime is None else time.clock_gettime_ns(boottime)) // 1_000_000


class Tick(NamedTuple):
    """One reading of the meter's time."""

    at_ms: int
    stepped_from_ms: int | None = None
    """Where our time stood when the wall clock was found set forward to `at_ms`; None: no step."""


class MeterClock:
    """See the module. `wall` and `boot` return milliseconds; tests hand in their own."""

    def __init__(self, wall: Callable[[], int] = wall_ms, boot: Callable[[], int] = boot_ms) -> None:
        self._wall = wall
        self._boot = boot
        self._offset: int | None = None
        self._warned = False

    def read(self, not_before_ms: int = 0) -> Tick | None:
        """The time now, at least `not_before_ms`; None while the wall clock is plainly not set."""
        boot, wall = self._boot(), self._wall()
        if self._offset is None:
            return self._anchor(boot, wall, not_before_ms)
        ours = boot + self._offset
        if ours < not_before_ms:
            self._offset += not_before_ms - ours
            ours = not_before_ms
        if wall - ours > STEP_MS:
            self._offset = wall - boot
            log.warning("the clock was set forward by %.1f s; the time between is recorded as down", (wall - ours) / 1000)
            return Tick(wall, ours)
        self._warn_if_behind(ours - wall)
        return Tick(ours)

    def boot_of(self, at_ms: int | None) -> int:
        """Milliseconds since boot at a time that was read since the last step; None: now."""
        return self._boot() if at_ms is None or self._offset is None else at_ms - self._offset

    def _anchor(self, boot: int, wall: int, not_before_ms: int) -> Tick | None:
        if wall < EARLIEST_MS and not_before_ms < EARLIEST_MS:
            return None
        start = max(wall, not_before_ms)
        self._offset = start - boot
        self._warn_if_behind(start - wall)
        return Tick(start)

    def _warn_if_behind(self, behind_ms: int) -> None:
        """Says once that the wall clock is behind the time already recorded; being right again re-arms it."""
        if behind_ms <= STEP_MS:
            self._warned = False
        elif not self._warned:
            self._warned = True
            log.warning("the clock is %.1f s behind the usage already recorded; the record keeps its own time", behind_ms / 1000)
