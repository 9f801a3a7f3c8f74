"""GPUs that jobs share: one `MpsGpu` for each, asked in threads, one call at a time.

Invariant: the event loop never waits for a control daemon; a GPU whose last job has left is given back as it was found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent import wire
from agent.errors import AgentFault, JobUnknown, MpsFault
from agent.isolation.mps import MpsGpu, left_behind, refusal
from agent.jobs.context import Context
from agent.jobs.users import RunAs

INVENTORY_SECONDS = 10.0
_CLIENT = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
Maker = Callable[[wire.GpuInventory, Path, Context], MpsGpu]


def real_gpu(gpu: wire.GpuInventory, folder: Path, context: Context) -> MpsGpu:
    from agent.isolation.mps_modes import NvmlComputeMode

    return MpsGpu(
        gpu.uuid,
        folder,
        control=context.jobs.mps_control,
        compute_mode=NvmlComputeMode(),
        memory_total_bytes=gpu.memory_total_bytes,
        compute_capability=gpu.compute_capability,
        launcher=_launcher(context),
    )


def _launcher(context: Context) -> tuple[str, ...]:
    """Under systemd the daemon must outlive the agent's own unit."""
    systemd = context.host.systemd
    if systemd is None:
        return ()
    user = ("--user",) if systemd.manager == "user" else ()
    return ("systemd-run", *user, "--scope", "--quiet", "--collect", f"--slice={context.host.parent}.slice", "--")


class Sharing:
    """Belongs to the event loop."""

    def __init__(self, context: Context, make: Maker | None = None) -> None:
        self._context = context
        self._make = make or real_gpu
        self._gpus: dict[str, MpsGpu] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._refusals: dict[wire.GpuInventory, str | None] = {}
        self._polling: asyncio.Task[None] | None = None
        self._adopted = asyncio.Event()
        """Before it nobody is admitted or let go: what an earlier agent left is not known yet."""
        self.warnings: dict[str, tuple[str, ...]] = {}
        """GPU -> what is wrong with its sharing now."""

    @property
    def folder(self) -> Path:
        return self._context.runtime_root or self._context.config.state_dir / "run"

    def refusal(self, gpu: wire.GpuInventory) -> str | None:
        """Why this GPU cannot be shared."""
        if gpu not in self._refusals:
            self._refusals[gpu] = refusal(gpu, control=self._context.jobs.mps_control)
        return self._refusals[gpu]

    def _gpu(self, uuid: str) -> MpsGpu:
        found = self._gpus.get(uuid)
        if found is None:
            known = next((gpu for gpu in self._context.gpus() if gpu.uuid == uuid), None)
            if known is None:
                raise JobUnknown(f"there is no GPU {uuid[:80]!r} on this node")
            found = self._gpus[uuid] = self._make(known, self.folder, self._context)
        return found

    def _lock(self, uuid: str) -> asyncio.Lock:
        return self._locks.setdefault(uuid, asyncio.Lock())

    def plan(self, uuid: str, spec: wire.JobSpec, user: RunAs) -> tuple[wire.PlanStep, ...]:
        """What `admit` would do; asks nobody. Raises MpsFault."""
        return self._gpu(uuid).plan(_share(spec), spec.gpu_memory_bytes, uid=user.uid)

    def environment_shown(self, spec: wire.JobSpec) -> dict[str, str]:
        """Names of the variables that a client gets, for a dry run."""
        names = _CLIENT if spec.gpu_memory_bytes is None else (*_CLIENT, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")
        return dict.fromkeys(names, "")

    def not_enforced(self, uuid: str) -> tuple[str, ...]:
        return self._gpu(uuid).not_enforced

    def before_kill(self, uuid: str, unit: str) -> list[dict[str, Any]]:
        return self._gpu(uuid).before_kill(unit)

    async def admit(self, job: str, uuid: str, spec: wire.JobSpec, user: RunAs) -> dict[str, str]:
        """Starts the daemon where it does not run yet; the client's environment. Raises MpsFault."""
        await self._adopted.wait()
        gpu = self._gpu(uuid)
        async with self._lock(uuid):
            try:
                await asyncio.to_thread(gpu.start)
                return await asyncio.to_thread(gpu.admit, job, _share(spec), spec.gpu_memory_bytes, uid=user.uid)
            except MpsFault:
                await self._stop_if_empty(gpu)
                raise

    async def release(self, job: str, uuid: str) -> None:
        """The job is gone. Raises MpsFault where the GPU cannot be put back."""
        await self._adopted.wait()
        gpu = self._gpus.get(uuid)
        if gpu is None:
            return
        async with self._lock(uuid):
            await asyncio.to_thread(gpu.release, job)
            await self._stop_if_empty(gpu)

    async def _stop_if_empty(self, gpu: MpsGpu) -> None:
        if not gpu.shares:
            await asyncio.to_thread(gpu.stop)
            self.warnings.pop(gpu.uuid, None)

    async def adopt(self, jobs: Mapping[str, Mapping[str, Decimal]]) -> None:
        """After a restart: GPU -> job -> share. What an earlier agent left on other GPUs is cleared away."""
        try:
            for uuid in {*jobs, *left_behind(self.folder)}:
                await self._adopt(uuid, dict(jobs.get(uuid, {})))
        finally:
            self._adopted.set()

    async def _adopt(self, uuid: str, jobs: dict[str, Decimal]) -> None:
        try:
            gpu = self._gpus.get(uuid) or await self._read_gpu(uuid)
            async with self._lock(uuid):
                await asyncio.to_thread(gpu.adopt, jobs)
        except AgentFault as fault:
            self._context.failed(f"sharing of {uuid}", fault)

    async def _read_gpu(self, uuid: str) -> MpsGpu:
        """The driver may not have answered yet; what it does not know after a while is ended as well as can be."""
        for _ in range(int(INVENTORY_SECONDS / 0.1)):
            if any(gpu.uuid == uuid for gpu in self._context.gpus()):
                return self._gpu(uuid)
            await asyncio.sleep(0.1)
        self._gpus[uuid] = self._make(wire.GpuInventory(index=0, uuid=uuid), self.folder, self._context)
        return self._gpus[uuid]

    async def state(self, uuid: str) -> wire.MpsState:
        known = next((gpu for gpu in self._context.gpus() if gpu.uuid == uuid), None)
        if known is None:
            raise JobUnknown(f"there is no GPU {uuid[:80]!r} on this node")
        refused = self.refusal(known)
        if refused is not None and uuid not in self._gpus:
            return wire.MpsState(gpu=uuid, state="refused", reason=refused)
        await self._adopted.wait()
        return await asyncio.to_thread(self._gpu(uuid).state)

    async def set(self, uuid: str, setting: wire.MpsSetting) -> wire.MpsState:
        await self._adopted.wait()
        gpu = self._gpu(uuid)
        async with self._lock(uuid):
            await asyncio.to_thread(gpu.set, setting)
        return await asyncio.to_thread(gpu.state)

    def poll(self, sharing: Iterable[str]) -> None:
        """Looks after the daemons of these GPUs, unless that is still going on."""
        active = [uuid for uuid in dict.fromkeys(sharing) if uuid in self._gpus]
        if active and (self._polling is None or self._polling.done()):
            self._polling = asyncio.create_task(self._poll(active))

    async def _poll(self, active: list[str]) -> None:
        for uuid in active:
            gpu = self._gpus[uuid]
            try:
                await asyncio.to_thread(gpu.poll)
                self.warnings[uuid] = gpu.warnings
                self._context.works(f"sharing of {uuid}")
            except AgentFault as fault:
                self._context.failed(f"sharing of {uuid}", fault)

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()


def _share(spec: wire.JobSpec) -> Decimal:
    assert spec.gpu_share is not None
    return spec.gpu_share
