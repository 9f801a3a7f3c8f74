"""A node that runs real jobs for tests: real shims and cgroups, made-up GPUs, a manager that is closed and opened again.

Invariant: whatever a test does, nothing of its jobs outlives the fixture: each carries the node's mark in its environment.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from agent import wire
from agent.config import AgentConfig, JobsTable, NodeConfig
from agent.isolation.group import clear, sweep
from agent.isolation.host import HostIsolation, detect, nothing
from agent.jobs.actor import Actor
from agent.jobs.manager import JobManager

NODE = Actor("node")
PARENT = f"rackrate-test-{os.getpid()}"
HAS_CGROUPS = os.geteuid() == 0 and detect(parent=PARENT, systemd=False).enforcement != "none"
INFO = wire.NodeInfo(node="n1", gpus=())


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code)


def sh(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


def inventory(count: int, **fields: Any) -> tuple[wire.GpuInventory, ...]:
    return tuple(
        wire.GpuInventory(index=i, uuid=f"GPU-{i:08d}-0000-0000-0000-000000000000", memory_total_bytes=80 << 30,
                          compute_capability="9.0", **fields)
        for i in range(count)
    )  # fmt: skip


class JobNode:
    """`manager` after `open`. `step` is what the daemon does each second."""

    def __init__(
        self, gpus: int = 0, *, cgroups: bool = False, make_mps: Any = None, node: NodeConfig | None = None, **jobs: Any
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="jobs-", dir="/tmp"))
        self.folder.chmod(0o711)
        self.mark = self.folder.name
        defaults: dict[str, Any] = {
            "allow_root": True, "kill_wait_seconds": 60.0, "grace_seconds": 10.0, "cgroup_parent": PARENT, "environment": ("PATH", "MARK"),
        }  # fmt: skip
        self.config = AgentConfig(
            state_dir=self.folder / "state",
            node=node or NodeConfig(usd_per_hour="3.60"),
            jobs=JobsTable(**{**defaults, **jobs}),
        )
        self.config.state_dir.mkdir(mode=0o711)
        self.host: HostIsolation = detect(parent=PARENT, systemd=False) if cgroups else nothing("a test without cgroups")
        self.gpus = inventory(gpus)
        self.processes: dict[str, list[wire.Process]] = {gpu.uuid: [] for gpu in self.gpus}
        self.utilization: float | None = 0.5
        self.told: list[wire.Job] = []
        self.make_mps = make_mps
        self.boot_id: str | None = None
        self.sequence = 0
        self.manager: JobManager | None = None

    @property
    def jobs(self) -> JobManager:
        assert self.manager is not None
        return self.manager

    def open(self, **more: Any) -> JobManager:
        self.manager = JobManager.open(
            self.config, "n1", gpus=lambda: self.gpus, on_change=self.told.append, host=self.host, boot_id=self.boot_id,
            runtime_root=self.folder / "run", make_mps=self.make_mps, durable=False, environ={**os.environ, "MARK": self.mark}, **more,
        )  # fmt: skip
        self.manager.start()
        if self.gpus:
            self.step()
        return self.manager

    def close(self) -> None:
        if self.manager is not None:
            self.manager.close()
            self.manager = None

    def step(self) -> None:
        self.sequence += 1
        gpus = tuple(
            wire.Gpu(
                index=gpu.index, uuid=gpu.uuid, state="ok", utilization_ratio=self.utilization, power_watts=100.0,
                processes=tuple(self.processes[gpu.uuid]),
            )
            for gpu in self.gpus
        )  # fmt: skip
        self.jobs.step(wire.Sample(node="n1", sequence=self.sequence, taken_at=datetime.now(UTC), gpus=gpus), INFO)

    def submit(self, command: Sequence[str], actor: Actor = NODE, **fields: Any) -> str:
        return self.jobs.submit(wire.JobSpec(command=tuple(command), **fields), actor).id

    async def until(self, id: str, *states: str, steps: bool = True, seconds: float = 60.0) -> wire.Job:
        """Waits until the job is in one of the states (default: ended); steps meanwhile."""
        wanted = states or ("ended",)
        await self.when(lambda: self.jobs.job(id).state in wanted, steps=steps, seconds=seconds)
        if wanted == ("ended",):
            await asyncio.sleep(0)  # who listens is told one turn of the loop later
        return self.jobs.job(id)

    async def when(self, condition: Callable[[], object], *, steps: bool = True, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, [msgspec.to_builtins(job) for job in self.jobs.jobs().jobs[:3]]
            if steps:
                self.step()
            await asyncio.sleep(0.01)

    async def run(self, command: Sequence[str], **fields: Any) -> wire.Job:
        return await self.until(self.submit(command, **fields))

    async def begun(self, id: str, word: str = "ready") -> wire.Job:
        """Waits until the job runs and has written the word."""
        await self.until(id, "running")
        await self.when(lambda: word in self.jobs.log(id).text)
        return self.jobs.job(id)

    def left(self) -> list[int]:
        """Living processes of this node's jobs, wherever they are."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX" and f"MARK={self.mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return found

    def groups(self) -> list[str]:
        """Cgroups of jobs that are there."""
        root = Path("/sys/fs/cgroup")
        return sorted(str(path) for pattern in ("*/", "") for path in root.glob(f"{pattern}{PARENT}/job-*"))

    async def clear(self) -> None:
        self.close()
        await asyncio.sleep(0)
        for _ in range(4000):
            left = [*self.left(), *self._shims()]
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            _reap()
            await asyncio.sleep(0.005)
        _reap()
        if HAS_CGROUPS:
            root = str(detect(parent=PARENT, systemd=False).root)
            sweep(root, PARENT, set())
            clear(root, PARENT)
        shutil.rmtree(self.folder)

    def _shims(self) -> list[int]:
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"{self.folder}/".encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return [pid for pid in found if pid != os.getpid() and _state(pid) not in "ZX"]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _reap() -> None:
    """Shims of a closed manager are still this process's children; none else is waited for here."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z" and int(fields[1]) == os.getpid() and int(fields[3]) == int(name):
                os.waitpid(int(name), os.WNOHANG)
        except (OSError, ChildProcessError):
            continue


@asynccontextmanager
async def job_node(gpus: int = 0, **options: Any) -> AsyncIterator[JobNode]:
    node = JobNode(gpus, **options)
    try:
        node.open()
        yield node
    finally:
        await node.clear()
