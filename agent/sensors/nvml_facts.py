"""What of a GPU seldom or never changes: its highest clocks, and the modes that an administrator sets.

Invariant: each function takes a device handle and raises `pynvml.NVMLError` when the driver refuses; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from agent.sensors.nvml_calls import MOST_MEGAHERTZ


def clock_max(kind: int) -> Callable[[Any], int | None]:
    """The highest clock of the GPU, in hertz."""

    def read(handle: Any) -> int | None:
        megahertz = pynvml.nvmlDeviceGetMaxClockInfo(handle, kind)
        return megahertz * 1_000_000 if 0 < megahertz <= MOST_MEGAHERTZ else None

    return read


def persistence(handle: Any) -> bool:
    """Whether the driver stays loaded while nobody uses the GPU."""
    return pynvml.nvmlDeviceGetPersistenceMode(handle) == pynvml.NVML_FEATURE_ENABLED


def display_active(handle: Any) -> bool:
    """Whether a display is drawn by it."""
    return pynvml.nvmlDeviceGetDisplayActive(handle) == pynvml.NVML_FEATURE_ENABLED


_COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def compute_mode(handle: Any) -> str | None:
    """Who may use it: `default` anybody, `exclusive_process` one process at a time, `prohibited` nobody."""
    mode = pynvml.nvmlDeviceGetComputeMode(handle)
    return _COMPUTE_MODES[mode] if 0 <= mode < len(_COMPUTE_MODES) else None
