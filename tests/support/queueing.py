"""Nodes, jobs and rows for the tests of the queue, with as few words as can be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from agent import wire
from agent.jobs.rows import JobRow
from agent.jobs.shapes import GpuShape, Held, NodeShape, Running, Waiting, Wanted

T0 = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)
MINUTE = 60_000
HOUR = 60 * MINUTE
GIB = 2**30


def after(**length: float) -> datetime:
    return T0 + timedelta(**length)


def job_id(number: int) -> str:
    return f"{number:012}"


def node(gpus: int = 8, *, numa: int = 2, cpus: int = 32, memory_gib: int = 256, **more: Any) -> NodeShape:
    """GPUs g0, g1, … of 80 GiB and CPUs 0, 1, …, spread evenly over the NUMA nodes."""
    shapes = tuple(
        GpuShape(uuid=f"g{index}", index=index, numa_node=index * numa // gpus, memory_bytes=80 * GIB) for index in range(gpus)
    )
    each = cpus // numa
    by_numa = {one: tuple(range(one * each, (one + 1) * each)) for one in range(numa)}
    return NodeShape(gpus=shapes, cpus=by_numa, memory_bytes=memory_gib * GIB, **more)


def waiting(id: str, gpus: int = 0, *, hours: float | None = None, submitted: int = 0, **more: Any) -> Waiting:
    wanted = {name: more.pop(name) for name in ("share", "gpu_memory_bytes", "cpu_millis", "memory_bytes") if name in more}
    longest = None if hours is None else int(hours * HOUR)
    user = more.pop("user", "ann")
    return Waiting(id=id, wanted=Wanted(user=user, gpus=gpus, **wanted), submitted_ms=submitted, longest_ms=longest, **more)


def running(id: str, *gpus: str, ends: float | None = None, started: int = 0, **more: Any) -> Running:
    """`ends` in hours from T0."""
    held = {
        name: more.pop(name) for name in ("share", "gpu_memory_bytes", "cpu_ids", "cpu_millis", "memory_bytes") if name in more
    }
    ends_ms = None if ends is None else T0_MS + int(ends * HOUR)
    user = more.pop("user", "ann")
    return Running(held=Held(job=id, user=user, gpus=gpus, **held), started_ms=started, ends_ms=ends_ms, **more)


def spec(**fields: Any) -> wire.JobSpec:
    return wire.JobSpec(**{"command": ("train",), **fields})


def row(number: int = 1, *, submitted_at: datetime = T0, **fields: Any) -> JobRow:
    """A queued job; `array` and fields that JobRow does not have are the spec's."""
    own = {
        name: fields.pop(name)
        for name in list(fields)
        if name in JobRow.__struct_fields__ and name not in ("array", "gpus", "retries")
    }
    return JobRow(id=job_id(number), spec=own.pop("spec", None) or spec(**fields), submitted_at=submitted_at, **own)
