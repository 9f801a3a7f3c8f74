"""How long a candidate takes with its data in one place: getting ready, the steps, the checkpoints.

Invariant: the parts add up to the whole. Reading runs beside computing, so that the slower of both sets the pace of a step;
nothing else overlaps.
"""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

from pricing.planner_candidates import Candidate
from pricing.planner_spot import MOST_INTERVAL_SECONDS, interval
from pricing.planner_storage import CLOUD_TO_CLOUD, Site, Storage, node_network
from pricing.planner_workload import Workload

HOST_BYTES_PER_SECOND = 10e9
"""From a GPU to its node's memory: what a checkpoint that is written asynchronously makes it wait for."""


class Timing(NamedTuple):
    """Seconds; `total` is without interruptions."""

    startup: float
    copy: float
    """From another cloud, once."""
    stage: float
    """From the object store to the nodes."""
    steps: int
    first_step: float
    """In the first epoch."""
    later_step: float
    limit: str
    """What sets the pace of the later epochs (of the first, where there is one): `compute`, `exchange`, `reading` or `cpu`."""
    work: float
    """All steps."""
    checkpoint: float
    """That the GPUs wait for one."""
    checkpoints: int
    every: float

    @property
    def ready(self) -> float:
        return self.startup + self.copy + self.stage

    @property
    def total(self) -> float:
        return self.ready + self.work + self.checkpoint * self.checkpoints


def needed_rate(workload: Workload, candidate: Candidate) -> float:
    """Bytes per second that the GPUs would read if nothing held them up; 0 without data."""
    if workload.data is None:
        return 0.0
    return candidate.step.samples / candidate.step.seconds * float(workload.data.bytes_per_sample)


def site_of(workload: Workload, candidate: Candidate) -> Site | None:
    if workload.data is None:
        return None
    need = needed_rate(workload, candidate)
    return Site(workload.data, candidate.shape, candidate.wiring, candidate.nodes, need, workload.assumed)


def timing_of(workload: Workload, candidate: Candidate, storage: Storage | None, hazard_per_hour: float) -> Timing:
    """`hazard_per_hour`: of all nodes together, where the job may be interrupted; it sets the checkpoints' interval."""
    step = candidate.step
    steps = ceil(workload.samples / step.samples)
    first, later, limit = _steps(workload, candidate, storage)
    in_first = min(steps, ceil(workload.samples / workload.epochs / step.samples))
    work = in_first * first + (steps - in_first) * later
    wait, every = _checkpoint(workload, candidate, storage, hazard_per_hour)
    return Timing(
        startup=float(workload.run.startup_seconds),
        copy=_copy_seconds(workload, candidate),
        stage=storage.stage_seconds if storage else 0.0,
        steps=steps,
        first_step=first,
        later_step=later,
        limit=limit,
        work=work,
        checkpoint=wait,
        checkpoints=max(1, floor(work / every)) if workload.checkpoint else 0,
        every=every,
    )


def _steps(workload: Workload, candidate: Candidate, storage: Storage | None) -> tuple[float, float, str]:
    """Seconds of a step in the first and in later epochs, and what sets the pace."""
    step = candidate.step
    pace = step.seconds
    limit = "exchange" if step.exchange and step.exchange.exposed_seconds > step.compute_seconds else "compute"
    data = workload.data
    if data is None or storage is None:
        return pace, pace, limit
    threads = candidate.shape.vcpus
    if data.cpu_seconds_per_sample is not None and threads:
        prepared = step.samples * float(data.cpu_seconds_per_sample) / (threads * candidate.nodes)
        if prepared > pace:
            pace, limit = prepared, "cpu"
    moved = step.samples * float(data.bytes_per_sample)
    first, later = moved / storage.first_bytes_per_second, moved / storage.later_bytes_per_second
    if (later if workload.epochs > 1 else first) > pace:
        limit = "reading"
    return max(pace, first), max(pace, later), limit


def _copy_seconds(workload: Workload, candidate: Candidate) -> float:
    data = workload.data
    if data is None or data.cloud in (None, candidate.shape.cloud):
        return 0.0
    return float(data.size_bytes) / CLOUD_TO_CLOUD


def _checkpoint(
    workload: Workload, candidate: Candidate, storage: Storage | None, hazard_per_hour: float
) -> tuple[float, float]:
    """(seconds that the GPUs wait for one, seconds of work between two)."""
    checkpoint = workload.checkpoint
    if checkpoint is None:
        return 0.0, MOST_INTERVAL_SECONDS
    size = float(checkpoint.size_bytes)
    network = node_network(candidate.wiring, workload.assumed)
    rate = min(network, storage.tier_bytes_per_second) if storage and storage.tier == "shared" else network
    written = size / rate
    wait = min(written, size / HOST_BYTES_PER_SECOND) if checkpoint.asynchronous else written
    if checkpoint.every_seconds is not None:
        return wait, float(checkpoint.every_seconds)
    return wait, interval(wait, hazard_per_hour)
