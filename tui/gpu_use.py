"""How the GPUs of a node are used: who holds each, and what they add up to.

Invariant: what the driver does not tell is None, and not known is never counted as wasted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from agent import wire


class GpuUse(msgspec.Struct, frozen=True, gc=False):
    """How one GPU of a node is used right now: who holds it, and whether it stands idle."""

    gpu: wire.Gpu
    users: tuple[str, ...]
    """Users of its processes; `?` for one that cannot be resolved."""
    held: bool | None
    """None: the driver does not tell who holds it."""

    @property
    def wasted(self) -> bool:
        """Nobody can or does use it: unheld, or lost. Not known is not wasted."""
        return self.held is False or self.gpu.state == "lost"


def gpu_use(gpu: wire.Gpu) -> GpuUse:
    """Derives holders from the GPU's processes, and from the jobs that have it."""
    users = {process.user or "?" for process in gpu.processes or ()}
    users |= {one.user or "?" for one in gpu.allocations}
    return GpuUse(gpu, tuple(sorted(users)), gpu.held)


_VENDORS = ("NVIDIA", "Tesla", "GeForce", "Quadro", "AMD", "Instinct")


@lru_cache(maxsize=256)
def family(model: str | None) -> str:
    """`A100` of `NVIDIA A100-SXM4-40GB`, `RTX 4090` of `NVIDIA GeForce RTX 4090`; `GPU` where no model is known."""
    words = [word for word in (model or "").split() if word not in _VENDORS]
    if not words:
        return "GPU"
    return " ".join(words[:2]) if words[0] == "RTX" else words[0].split("-")[0] or words[0]


def free_instances(gpu: wire.Gpu) -> list[str]:
    """Profiles of the MIG instances of a GPU in which nothing runs; none where the driver does not tell who is in which."""
    if not gpu.mig_instances or gpu.processes is None or gpu.allocations:
        return []
    taken = {process.mig_instance for process in gpu.processes}
    if None in taken:
        return []
    return [one.profile or "MIG" for one in gpu.mig_instances if one.uuid not in taken]


class Use(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a sample's GPUs add up to; worked out once a sample, when somebody asks."""

    gpus: int
    held: int
    untold: int
    """Of which the driver does not tell who holds them."""
    lost: int
    wasted: int
    free: tuple[tuple[str, int], ...]
    """Families of GPUs (and profiles of MIG instances) that nobody holds, with how many there are."""
    utilization_sum: float
    utilization_known: int
    memory_used_bytes: int
    memory_total_bytes: int
    power_watts: float | None

    @classmethod
    def of(cls, gpus: Sequence[wire.Gpu]) -> Use:
        """One pass without objects of its own: it runs for every node of a fleet, each second."""
        held = untold = lost = wasted = known = used = total = 0
        busy, power = 0.0, None
        free: dict[str, int] = {}
        for gpu in gpus:
            is_lost = gpu.state == "lost"
            processes, given = gpu.processes, bool(gpu.allocations)
            lost += is_lost
            held += given or bool(processes)
            untold += not given and processes is None
            idle = not given and processes is not None and not processes
            wasted += is_lost or idle
            if idle and gpu.state == "ok":
                name = family(gpu.model)
                free[name] = free.get(name, 0) + 1
            elif gpu.mig_instances:
                for name in free_instances(gpu):
                    free[name] = free.get(name, 0) + 1
            if (ratio := gpu.utilization_ratio) is not None:
                busy, known = busy + ratio, known + 1
            if gpu.memory_total_bytes and (memory := gpu.memory_used_bytes) is not None:
                used, total = used + memory, total + gpu.memory_total_bytes
            if (watts := gpu.power_watts) is not None:
                power = watts if power is None else power + watts
        return cls(
            gpus=len(gpus), held=held, untold=untold, lost=lost, wasted=wasted, free=tuple(free.items()), utilization_sum=busy, utilization_known=known,
            memory_used_bytes=used, memory_total_bytes=total, power_watts=power,
        )  # fmt: skip


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the known ones."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
