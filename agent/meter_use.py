"""What each holder of a shared GPU does with his part of it.

Invariant: the device's own counter is of the whole GPU and is never told as each tenant's: that 99 % would stand in every
row of a GPU that one of four keeps busy. It is divided among the holders as their processes used the SMs; a part is used at
most wholly, so the parts together are never busier than the GPU.

Not divided, but told alike for all of them: where the driver does not tell each process's use (MIG, old drivers), where no
process has a figure of its own while the GPU works, and under MPS, whose server may be charged for its clients.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.meter_holders import WHOLE, Holder, Part, claimants, named
from agent.wire import Gpu


def use_of_parts(parts: tuple[Part, ...], gpu: Gpu, projects: Mapping[str, str]) -> tuple[float, ...] | None:
    """Part by part, 1.0 for one that is used wholly (more where its holder used others' too); None: the GPU's for all."""
    busy = gpu.utilization_ratio
    if busy is None or not gpu.processes or sum(part.kind == "held" for part in parts) < 2:
        return None
    used: dict[Holder | str, float] = {}
    """By job where there is one: a claim's project is its job's, a process's may be another."""
    for process in claimants(gpu.processes):
        if process.utilization_ratio is None or process.kind == "mps":
            return None
        key = process.job or named(process, projects)
        used[key] = used.get(key, 0.0) + process.utilization_ratio
    whole = sum(used.values())
    if whole <= 0.0:
        return None
    return tuple(busy * _used(used, part) / whole * WHOLE / part.share for part in parts)


def _used(used: Mapping[Holder | str, float], part: Part) -> float:
    return used.get(part.holder.job or part.holder, 0.0) if part.kind == "held" else 0.0
