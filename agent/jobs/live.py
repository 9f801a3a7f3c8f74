"""What the manager knows of one attempt while it is there: its figures, its timers, its warnings.

Invariant: figures only grow, start from what the attempts before have used, and are None where nothing measured them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from agent import wire
from agent.isolation.plan import GroupPlan
from agent.jobs import costs
from agent.jobs.attempt_dir import AttemptDir, ShimRecord
from agent.jobs.context import boottime_ms
from agent.jobs.ids import unit_name
from agent.jobs.rows import JobRow

IDLE_BELOW = 0.005
"""A GPU whose kernels ran for less of the time did nothing."""
LONGEST_GAP_MS = 5_000
_PEAKS = ("memory_peak_bytes", "memory_limit_bytes", "pids_peak")


class Live:
    """One attempt that holds something: starting, running, stopping."""

    def __init__(self, row: JobRow, folder: AttemptDir, plan: GroupPlan | None) -> None:
        self.id = row.id
        self.number = row.attempt
        self.spec = row.spec
        self.user = row.user
        self.gpus = row.gpus
        self.folder = folder
        self.plan = plan
        self.held = costs.millionths(row.spec.gpus, row.spec.gpu_share)
        self.exclusive = row.spec.gpu_share is None
        self.price = Decimal(row.notes["price"]) if row.notes.get("price") else None
        self.gpu_count = int(row.notes.get("gpus", "0"))
        self.begun_ms = int(row.notes.get("begun_ms", boottime_ms()))
        self.base_cost = Decimal(row.notes["cost"]) if row.notes.get("cost") else (Decimal(0) if row.attempt == 1 else None)
        self.base_usage = decode_usage(row.notes.get("usage"))
        self.adopted = False
        self.spawned = False
        self.child: int | None = None
        self.pidfd: int | None = None
        self.shim: ShimRecord | None = None
        self.task: asyncio.Task[None] | None = None
        self.warnings: dict[str, str] = {}
        self.pids: set[tuple[int, datetime | None]] = set()
        """Of the job's processes that were seen on GPUs."""
        self.counted: wire.JobUsage = wire.JobUsage()
        """By the kernel, this attempt."""
        self.gpu_seconds: float | None = None
        self.energy_joules: float | None = None
        self._energy_at: dict[str, tuple[float, int]] = {}
        self._sampled_ms: int | None = None
        self.idle_since_ms: int | None = None
        self.stop_deadline_ms: int | None = None
        """When the shim must have killed everything by itself."""
        self.published_ms = 0
        self.shown: wire.Job | None = None

    @property
    def unit(self) -> str:
        return unit_name(self.id, self.number)

    def cost(self, at_ms: int | None = None) -> Decimal | None:
        """US dollars, all attempts."""
        until = boottime_ms() if at_ms is None else at_ms
        return costs.total(self.base_cost, costs.cost(self.price, self.held, self.gpu_count, until - self.begun_ms))

    def own_cost(self, at_ms: int | None = None) -> Decimal | None:
        until = boottime_ms() if at_ms is None else at_ms
        return costs.cost(self.price, self.held, self.gpu_count, until - self.begun_ms)

    @property
    def usd_per_hour(self) -> Decimal | None:
        return costs.usd_per_hour(self.price, self.held, self.gpu_count)

    def own_usage(self) -> wire.JobUsage:
        return msgspec.structs.replace(self.counted, gpu_seconds=self.gpu_seconds, energy_joules=self.energy_joules)

    def usage(self) -> wire.JobUsage:
        """All attempts."""
        return together(self.base_usage, self.own_usage())

    def count(self, counters: Mapping[str, Any] | msgspec.Struct) -> None:
        """Takes the kernel's counters; what is None there keeps its last value."""
        given = counters if isinstance(counters, Mapping) else msgspec.structs.asdict(counters)
        known = {name: given.get(name) for name in wire.JobUsage.__struct_fields__ if given.get(name) is not None}
        self.counted = msgspec.structs.replace(self.counted, **known)

    def observe(self, gpus: Mapping[str, wire.Gpu], at_ms: int) -> None:
        """Takes one sample: GPU time, energy, idleness."""
        since, self._sampled_ms = self._sampled_ms, at_ms
        if not self.gpus or since is None or at_ms - since > LONGEST_GAP_MS:
            self.idle_since_ms = None
            self._energy_at = {}
            return
        own = [gpus[uuid] for uuid in self.gpus if uuid in gpus]
        busy = [self._busy(gpu) for gpu in own]
        if busy and len(own) == len(self.gpus) and None not in busy:
            seconds = (at_ms - since) / 1000
            self.gpu_seconds = (self.gpu_seconds or 0.0) + seconds * sum(ratio for ratio in busy if ratio is not None)
            self._idle(max(ratio for ratio in busy if ratio is not None) < IDLE_BELOW, since)
        else:
            self.idle_since_ms = None
        self._energy(own, at_ms - since)

    def _busy(self, gpu: wire.Gpu) -> float | None:
        """How much of the time this job's kernels ran there; None: not known, and so never idle."""
        if self.exclusive:
            return gpu.utilization_ratio
        ours = [one.utilization_ratio for one in gpu.processes or () if one.job == self.id]
        if gpu.processes is None or None in ours:
            return 0.0 if gpu.utilization_ratio == 0 else None
        return sum(ratio for ratio in ours if ratio is not None)

    def _idle(self, idle: bool, since_ms: int) -> None:
        if not idle:
            self.idle_since_ms = None
        elif self.idle_since_ms is None:
            self.idle_since_ms = since_ms

    def _energy(self, own: list[wire.Gpu], elapsed_ms: int) -> None:
        """By the driver's counter where there is one, else power by time; of a share its part."""
        part = self.held / costs.WHOLE if not self.exclusive else 1.0
        for gpu in own:
            joules = None
            before = self._energy_at.get(gpu.uuid)
            if gpu.energy_joules_total is not None:
                self._energy_at[gpu.uuid] = (gpu.energy_joules_total, 0)
                if before is not None and gpu.energy_joules_total >= before[0]:
                    joules = gpu.energy_joules_total - before[0]
            elif gpu.power_watts is not None:
                joules = gpu.power_watts * elapsed_ms / 1000
            if joules is not None:
                self.energy_joules = (self.energy_joules or 0.0) + joules * part


def together(before: wire.JobUsage | None, own: wire.JobUsage) -> wire.JobUsage:
    """Sums of what is used up, the highest of the peaks."""
    if before is None:
        return own
    merged: dict[str, Any] = {}
    for name in wire.JobUsage.__struct_fields__:
        one, other = getattr(before, name), getattr(own, name)
        if one is None or other is None:
            merged[name] = one if other is None else other
        else:
            merged[name] = max(one, other) if name in _PEAKS else one + other
    return wire.JobUsage(**merged)


def encode_usage(usage: wire.JobUsage | None) -> str:
    return msgspec.json.encode(usage).decode() if usage is not None else ""


def decode_usage(text: str | None) -> wire.JobUsage | None:
    return msgspec.json.decode(text, type=wire.JobUsage) if text else None
