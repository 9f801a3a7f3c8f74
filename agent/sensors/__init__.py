"""Sources of readings, one per file. A sensor is timed and may fail or hang alone.

Invariant: a sensor returns only what it read; what it could not read is None, never 0.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from agent import wire


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What one `read()` brought. A part that this sensor does not measure is None."""

    host: wire.Host | None = None
    gpus: tuple[wire.Gpu, ...] | None = None
    gpu_reason: str | None = None
    ancestors: tuple[wire.Ancestor, ...] = ()
    """Processes above those that hold GPUs."""


class Sensor(Protocol):
    """One source of readings.

    `read` is called from a thread of its own, never from two at once; it may block and it may raise:
    the sampler reports the error's text for this sensor alone.
    """

    name: str
    interval_seconds: float

    def read(self) -> Reading: ...

    def close(self) -> None: ...
