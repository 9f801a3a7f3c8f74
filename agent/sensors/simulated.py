"""Readings of a node that does not exist: GPUs of a preset such as `8xH100`, and the host around them.

Invariant: the same (preset, seed, name) gives the same reading at the same moment, in every process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from agent import wire
from agent.errors import ConfigurationError
from agent.sensors import Reading
from agent.simulation.boards import PRESETS
from agent.simulation.fleet import plan_preset
from agent.simulation.model import NO_GPU_REASON, NodeModel


class SimulatedSensor:
    """A `Sensor` for `rackrate-agent run --simulate PRESET`.

    `host` True also simulates the machine; False (the default) leaves `Reading.host` None, for a real `HostSensor`
    beside this one. `clock` returns seconds since the epoch.
    """

    name = "simulated"
    interval_seconds = 1.0

    def __init__(
        self, preset: str, seed: int = 1, *, name: str = "simulated", host: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        if preset not in PRESETS:
            raise ConfigurationError(f"there is no simulated machine {preset!r}; --simulate takes one of {', '.join(PRESETS)}")
        self.model = NodeModel(plan_preset(preset, name), seed)
        self._host = host
        self._clock = clock

    @property
    def driver_version(self) -> str | None:
        return self.model.board and self.model.board.driver_version

    @property
    def cuda_version(self) -> str | None:
        return self.model.board and self.model.board.cuda_version

    @property
    def gpu_reason(self) -> str | None:
        """Why there are no GPUs; None for a preset that has some."""
        return None if self.model.board else NO_GPU_REASON

    def inventory(self) -> tuple[wire.GpuInventory, ...]:
        return self.model.inventory

    def read(self) -> Reading:
        return self.read_at(int(self._clock() * 1000))

    def read_at(self, at_ms: int) -> Reading:
        """The reading at one moment (UTC milliseconds since the epoch); `gpus` is empty, not None, without GPUs."""
        host = self.model.host_at(at_ms) if self._host else None
        gpus, ancestors = self.model.gpus_at(at_ms), self.model.ancestors_at(at_ms)
        return Reading(host=host, gpus=gpus, gpu_reason=self.gpu_reason, ancestors=ancestors)

    def close(self) -> None:
        """Nothing is held open."""
