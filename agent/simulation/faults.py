"""What goes wrong on a simulated node, and when.

Invariant: a fault's times are functions of its own fields and the time asked about, so a replay has the same faults.
"""

from __future__ import annotations

import random

import msgspec


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that fell off the bus at `since` (seconds since the epoch) and comes back with a reboot at `until`, if ever."""

    gpu: int
    since: float
    until: float | None = None

    def holds(self, seconds: float) -> bool:
        return seconds >= self.since and (self.until is None or seconds < self.until)


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """HTTP that stops answering: once in every `period`, for `shortest` to `longest` seconds."""

    key: str
    period: float = 240.0
    shortest: float = 20.0
    longest: float = 40.0

    def window(self, seconds: float) -> tuple[float, float]:
        """The stall of the period that `seconds` lies in: from, until (seconds since the epoch)."""
        turn = int(seconds // self.period)
        rng = random.Random(f"stall/{self.key}/{turn}")
        length = rng.uniform(self.shortest, self.longest)
        start = turn * self.period + rng.uniform(0.2 * self.period, self.period - length)
        return start, start + length

    def remaining(self, seconds: float) -> float:
        """How many seconds the node will still not answer; 0 when it does."""
        start, end = self.window(seconds)
        return end - seconds if start <= seconds < end else 0.0


class Flap(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is up for `up` seconds and then cuts every connection for `down` seconds, again and again."""

    up: float = 3.0
    down: float = 3.0

    def is_down(self, seconds: float) -> bool:
        return seconds % (self.up + self.down) >= self.up

    def remaining(self, seconds: float) -> float:
        """How long it stays down; 0 when it is up."""
        return self.up + self.down - seconds % (self.up + self.down) if self.is_down(seconds) else 0.0


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that fills from `low` to `high` (parts of its size) in `period` seconds; then somebody cleans up."""

    mount: str = "/scratch"
    low: float = 0.955
    high: float = 0.992
    period: float = 86_400.0

    def used_ratio(self, seconds: float) -> float:
        return self.low + (self.high - self.low) * (seconds % self.period) / self.period


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """All faults of one node. `hot` lists GPUs whose cooling is poor: they throttle when they work."""

    lost: tuple[Lost, ...] = ()
    hot: tuple[int, ...] = ()
    stall: Stall | None = None
    flap: Flap | None = None
    filling: Filling | None = None


NONE = Faults()
