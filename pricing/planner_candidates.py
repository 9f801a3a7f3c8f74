"""Hardware that could run a workload: each instance type in some numbers of nodes, and why the others cannot.

Invariant: a type is a candidate, or has one sentence why it is none; nothing here knows a price.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from pricing.contracts import type_matches
from pricing.hardware import Gpu, Wiring, gpu_of, wiring_of
from pricing.instances import InstanceType
from pricing.planner_memory import Memory, memory_of, misfit
from pricing.planner_speed import Speed, Step, precision_on, speed_of, step_of
from pricing.planner_workload import Workload

LEAST_COMPUTE_CAPABILITY = 5.0
"""PyTorch's CUDA builds know no older GPUs."""


class Candidate(NamedTuple):
    """`nodes` of one type, of each of which `per_node` GPUs are used (1, where the type has a part of one)."""

    shape: InstanceType
    nodes: int
    per_node: int
    gpu: Gpu
    wiring: Wiring
    precision: str
    memory: Memory
    speed: Speed
    step: Step
    notes: tuple[str, ...]

    @property
    def gpus(self) -> int | Fraction:
        """Used, in all."""
        count = self.shape.gpu_count
        return self.nodes * count if isinstance(count, Fraction) else self.nodes * self.per_node


class Misfit(NamedTuple):
    cloud: str
    instance_type: str
    gpu_model: str | None
    kind: str
    """One word for counting: `limits`, `memory`, `precision`, `speed`, `gpu`, `storage`, `batch`, `nodes`."""
    reason: str


def candidates(workload: Workload, shape: InstanceType) -> Iterator[Candidate | Misfit]:
    """Every number of nodes of one type that is looked at; the smallest alone tells why none fits."""
    wiring = wiring_of(shape)
    gpu = None if shape.kind != "gpu" else gpu_of(shape, wiring.form)
    reason = _outside(workload, shape) or _unusable(workload, shape, gpu)
    if reason is not None:
        yield _misfit(shape, *reason)
        return
    assert gpu is not None and shape.gpu_count is not None
    for nodes, per_node in _counts(workload, shape.gpu_count):
        found = _candidate(workload, shape, gpu, wiring, nodes, per_node)
        yield found
    if not _counts(workload, shape.gpu_count):
        asked = workload.limits.gpus
        yield _misfit(
            shape,
            "nodes",
            f"{asked} GPUs are not a number of its {shape.gpu_count} in at most {workload.limits.max_nodes} nodes",
        )


def _misfit(shape: InstanceType, kind: str, reason: str) -> Misfit:
    return Misfit(shape.cloud, shape.instance_type, shape.gpu_model, kind, reason)


def _outside(workload: Workload, shape: InstanceType) -> tuple[str, str] | None:
    limits = workload.limits
    if limits.clouds and shape.cloud not in limits.clouds:
        return "limits", f"{shape.cloud} is not among the clouds allowed"
    if limits.gpu_models and shape.gpu_model not in limits.gpu_models:
        return "limits", f"{shape.gpu_model or 'no GPU'} is not among the GPU models allowed"
    if limits.instance_types and not any(type_matches(shape.cloud, one, shape.instance_type) for one in limits.instance_types):
        return "limits", "it is not among the instance types allowed"
    if limits.local_nvme_bytes is not None:
        if shape.nvme_bytes is None:
            return "storage", "its local disks are not known"
        if shape.nvme_bytes < limits.local_nvme_bytes:
            return (
                "storage",
                f"it has {shape.nvme_bytes / 1e9:,.0f} GB of local disks, "
                f"{float(limits.local_nvme_bytes) / 1e9:,.0f} GB are asked for",
            )
    return None


def _unusable(workload: Workload, shape: InstanceType, gpu: Gpu | None) -> tuple[str, str] | None:
    if shape.kind == "ai_chip":
        return "gpu", f"{shape.gpu_model} is no GPU: it needs a framework of its own, and no peak figure is at hand"
    if shape.gpu_count is None:
        return "gpu", f"how many {shape.gpu_model} it has is not known"
    if gpu is None:
        return "gpu", f"no figures of the {shape.gpu_model} are at hand"
    if gpu.runtime not in workload.limits.runtimes:
        return "gpu", f'the {gpu.model} needs {gpu.runtime}: allow it with runtimes = ["{gpu.runtime}"]'
    if gpu.compute_capability is not None and gpu.compute_capability < LEAST_COMPUTE_CAPABILITY:
        return "gpu", f"the {gpu.model} (compute capability {gpu.compute_capability}) is too old for PyTorch"
    try:
        precision_on(workload.model, gpu)
    except ValueError as fault:
        return "precision", str(fault)
    return None


def _counts(workload: Workload, count: int | Fraction) -> list[tuple[int, int]]:
    """(nodes, GPUs used of each), rising."""
    limits = workload.limits
    if isinstance(count, Fraction):
        return [(1, 1)] if limits.gpus in (None, 1) else []
    if limits.gpus is None:
        most, powers = limits.max_nodes, [1]
        while powers[-1] * 2 <= most:
            powers.append(powers[-1] * 2)
        return [(nodes, count) for nodes in sorted({*powers, most})]
    if count >= limits.gpus:
        return [(1, limits.gpus)]
    nodes, rest = divmod(limits.gpus, count)
    return [] if rest or nodes > limits.max_nodes else [(nodes, count)]


def _candidate(
    workload: Workload, shape: InstanceType, gpu: Gpu, wiring: Wiring, nodes: int, per_node: int
) -> Candidate | Misfit:
    ranks = nodes * per_node
    model = workload.model
    if nodes > 1 and model.task == "train" and wiring.network_bytes_per_second is None:
        return _misfit(shape, "nodes", "the speed of its network is not known, so only one node is judged")
    if model.task == "train" and workload.global_batch is not None and workload.global_batch < ranks:
        return _misfit(
            shape, "batch", f"the global batch of {workload.global_batch} gives {ranks} GPUs less than a sample each"
        )
    part = float(shape.gpu_count) if isinstance(shape.gpu_count, Fraction) else 1.0
    held = float(shape.gpu_memory_bytes) if shape.gpu_memory_bytes is not None else gpu.memory_bytes * part
    precision, fell = precision_on(model, gpu)
    memory = memory_of(model, precision, ranks, held, workload.assumed.memory_reserve)
    if (reason := misfit(memory, f"{gpu.model} of {held / 1e9:,.0f} GB")) is not None:
        hint = '; sharding = "full" would spread it' if model.sharding == "none" and model.task == "train" and ranks > 1 else ""
        return _misfit(shape, "memory", reason + hint)
    speed = speed_of(workload, gpu, precision, part, ranks, held / part)
    if isinstance(speed, str):
        return _misfit(shape, "speed", speed)
    step = step_of(workload, gpu, wiring, speed, nodes, per_node, precision, memory.samples)
    notes = [fell] if fell else []
    if wiring.inside == "unknown" and per_node > 1:
        notes.append("whether its GPUs share NVLink is not known: PCIe is counted")
    if nodes > 1 and wiring.burst:
        notes.append("its cloud tells only a burst of the network: a quarter of it is counted")
    if isinstance(shape.gpu_count, int) and per_node < shape.gpu_count:
        notes.append(f"{per_node} of its {shape.gpu_count} GPUs are used, all are paid")
    return Candidate(shape, nodes, per_node, gpu, wiring, precision, memory, speed, step, tuple(notes))
