"""How fast a training is: samples a second, memory, utilisation, and how long it waited for its data.

Invariant: every figure is of the time since the line before; what a device does not tell is None.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

from agent.recipes.memory import used_bytes

Batch = TypeVar("Batch")
LOOK_SECONDS = 1.0
"""Asking a GPU for its utilisation costs more than a line."""


class Pace:
    """Of one rank; all ranks step together."""

    def __init__(self, batch_size: int, step: int, device: torch.device) -> None:
        self._batch, self._device = batch_size, device
        self._began = self._last = time.perf_counter()
        self._cpu = time.process_time()
        self._first = self._step = step
        self._waited = 0.0
        self._looked, self._utilization = -LOOK_SECONDS, None

    def watched(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same, and how long each let the step wait."""
        source = iter(batches)
        while True:
            began = time.perf_counter()
            batch = next(source, None)
            self._waited += time.perf_counter() - began
            if batch is None:
                return
            yield batch

    def since(self, step: int) -> dict[str, float | None]:
        """Since the call before, `step` having ended now."""
        now, cpu = time.perf_counter(), time.process_time()
        seconds = now - self._last
        figures = {
            "samples_per_second": (step - self._step) * self._batch / seconds if seconds else None,
            "memory_used_bytes": used_bytes(self._device),
            "utilization_ratio": self._used(now, seconds, cpu),
            "data_wait_seconds": self._waited,
        }
        self._last, self._cpu, self._step, self._waited = now, cpu, step, 0.0
        return figures

    def whole(self) -> dict[str, float | None]:
        """Since the start of this run of the training."""
        seconds, steps = time.perf_counter() - self._began, self._step - self._first
        return {"seconds": seconds, "samples_per_second": steps * self._batch / seconds if steps and seconds else None}

    def _used(self, now: float, seconds: float, cpu: float) -> float | None:
        if self._device.type != "cuda":
            return min(1.0, (cpu - self._cpu) / seconds / torch.get_num_threads()) if seconds else None
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._utilization = now, _gpu_utilization(self._device)
        return self._utilization


def _gpu_utilization(device: torch.device) -> float | None:
    try:
        return torch.cuda.utilization(device) / 100
    except Exception:  # noqa: BLE001 - no NVML binding, or a GPU (MIG) that does not tell: never a reason to end a training
        return None
