"""Made-up jobs, and a node in memory that runs them: its answers are what the test put there.

Invariant: the same call gives the same jobs; times are relative to the fleets' moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec

from agent import wire
from agent.client import AgentRefused, Unreachable
from tests.support.fleets import AT, GIB, NOW, StubCatalog, gpu, idle_gpu, put
from tui.config import NodeConfig
from tui.fleet import Fleet

ID = "0abc{:08}"


def ident(number: int) -> str:
    """A job id."""
    return ID.format(number)


def job(number: int = 1, node: str = "gpu-01", **fields: Any) -> wire.Job:
    """One that runs on two GPUs for three hours."""
    values: dict[str, Any] = {
        "state": "running", "name": f"train-{number}", "user": "ada", "project": "vision", "attempt": 1, "gpus_wanted": 2,
        "command": ("python", "train.py", "--config", "vit.yaml"), "gpus": (f"GPU-{node}-0", f"GPU-{node}-1"),
        "submitted_at": AT - timedelta(hours=4), "started_at": AT - timedelta(hours=3, minutes=12),
        "usd_per_hour": Decimal("8.19"), "cost": Decimal("26.21"), "enforcement": "v2", "memory_bytes": 64 * GIB,
        "cpus": Decimal(8), "limits": {"memory": "64.0 GiB", "cpus": "0-7", "pids": "8192"}, "log_bytes": 0,
    }  # fmt: skip
    return wire.Job(**{"id": ident(number), "node": node, **values, **fields})


def queued(number: int, node: str = "gpu-01", **fields: Any) -> wire.Job:
    """One that waits for GPUs."""
    values: dict[str, Any] = {
        "state": "queued", "started_at": None, "gpus": (), "attempt": 0, "cost": None, "enforcement": None, "limits": {},
        "reason": "waits for 2 free GPUs: all 8 are held, the next is free in 2 h at the latest", "log_bytes": None,
    }  # fmt: skip
    return job(number, node, **{**values, **fields})


def ended(number: int, cause: str = "exit:0", node: str = "gpu-01", **fields: Any) -> wire.Job:
    """One that ended two hours ago."""
    values: dict[str, Any] = {
        "state": "ended", "cause": cause, "ended_at": AT - timedelta(hours=2), "evidence": None,
        "exit_code": int(cause.partition(":")[2]) if cause.startswith("exit:") else None,
    }  # fmt: skip
    return job(number, node, **{**values, **fields})


def tell(fleet: Fleet, *jobs: wire.Job, now: float = NOW) -> None:
    """Each on the node that it names."""
    for each in jobs:
        fleet.apply(each.node, wire.JobEvent(job=each), now)


def notice(**fields: Any) -> wire.Notice:
    """A spot instance that will be taken away in 103 seconds."""
    values: dict[str, Any] = {
        "cloud": "aws", "kind": "terminate", "at": AT + timedelta(seconds=103), "noticed_at": AT - timedelta(seconds=17),
        "message": "save what must not be lost; interruptible jobs are being stopped and queued again",
    }  # fmt: skip
    return wire.Notice(**{**values, **fields})


def job_fleet() -> Fleet:
    """Three nodes: one with jobs of every kind, one idle spot node with a notice, one simulated."""
    return with_jobs(Fleet(StubCatalog()))  # type: ignore[arg-type]


def with_jobs(fleet: Fleet) -> Fleet:
    """The same fleet, with those nodes beside what it has."""
    put(fleet, "gpu-01", tuple(gpu(i, node="gpu-01", users=("ada",) if i < 6 else ("bob",)) for i in range(8)))
    put(fleet, "gpu-02", tuple(idle_gpu(i, node="gpu-02") for i in range(8)), purchase="spot")
    put(fleet, "sim-01", (gpu(0, node="sim-01"),), simulated=True)
    tell(
        fleet,
        job(1),
        job(2, name="sweep", user="bob", project="nlp", gpus_wanted=0, gpu_share=Decimal("0.5"), gpus=("GPU-gpu-01-6",),
            not_enforced=("cpus: this host has no cpuset controller; the weight is used alone",)),
        job(3, state="stopping", stopping="time_limit", name=None, user="carol", project=None, cost=None, usd_per_hour=None,
            gpus=("GPU-gpu-01-4",), gpus_wanted=1),
        queued(4, priority=5), queued(5, user="bob", gpus_wanted=8),
        ended(6), ended(7, "oom", evidence="the kernel killed 1 process of the group at its limit of 64.0 GiB", user="dan"),
        ended(8, "exit:2", evidence="exit code 2"), ended(9, "cancelled", evidence="cancelled by ada"),
    )  # fmt: skip
    fleet.apply("gpu-02", wire.NoticeEvent(notice=notice()), NOW)
    return fleet


class FakeNode:
    """What a client of a node answers. `calls` remembers what was asked; `refusals` are raised instead, by method."""

    def __init__(self, name: str, jobs: Iterable[wire.Job] = (), log: str = "") -> None:
        self.name = name
        self.known = {each.id: each for each in jobs}
        self.log_bytes = log.encode()
        self.first_offset = 0
        self.log_ended = False
        self.calls: list[tuple[Any, ...]] = []
        self.refusals: dict[str, str] = {}
        self.silent: set[str] = set()
        """Calls that nobody answers."""
        self.plan: dict[str, Any] = {}
        self.curves: dict[str, wire.JobCurves] = {}
        self.grew = asyncio.Event()

    def client(self) -> FakeClient:
        return FakeClient(self)

    def write(self, text: str) -> None:
        """The job writes."""
        self.log_bytes += text.encode()
        self.grew.set()

    def _asked(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self.silent:
            raise Unreachable(f"{self.name} is not reachable: no answer")
        if (text := self.refusals.get(call[0])) is not None:
            raise AgentRefused(400, text, f"http://{self.name}/")


class FakeClient:
    """Stands in for `AgentClient`."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node

    async def __aenter__(self) -> FakeClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self.node.calls.append(("close",))

    async def history(self, seconds: int) -> wire.History:
        return wire.History(node=self.node.name, step_seconds=1.0, gpus={})

    async def jobs(self, ended: int = 200) -> wire.JobList:
        self.node._asked("jobs")
        return wire.JobList(node=self.node.name, jobs=tuple(self.node.known.values()))

    async def job(self, id: str) -> wire.Job:
        self.node._asked("job", id)
        if id not in self.node.known:
            raise AgentRefused(404, f"there is no job {id}", f"http://{self.node.name}/")
        return msgspec.structs.replace(self.node.known[id], log_bytes=len(self.node.log_bytes))

    async def curves(self, id: str, *, points: int = 200, names: Iterable[str] = ()) -> wire.JobCurves:
        self.node._asked("curves", id)
        return self.node.curves.get(id) or wire.JobCurves(job=id, attempt=self.node.known[id].attempt, curves=(), ended=True)

    async def cancel(self, id: str, *, force: bool = False) -> wire.Job:
        self.node._asked("cancel", id, force)
        changed = msgspec.structs.replace(self.node.known[id], state="stopping", stopping="cancelled")
        self.node.known[id] = changed
        return changed

    async def signal(self, id: str, name: str) -> wire.Job:
        self.node._asked("signal", id, name)
        return self.node.known[id]

    async def drain(self, reason: str | None = None, *, who: str | None = None) -> wire.NodeInfo:
        self.node._asked("drain", reason, who)
        return wire.NodeInfo(node=self.node.name, gpus=(), drain=wire.Drain(since=AT, by="token node", reason=reason))

    async def undrain(self) -> wire.NodeInfo:
        self.node._asked("undrain")
        return wire.NodeInfo(node=self.node.name, gpus=())

    async def pause_alerts(self, order: wire.PauseOrder) -> wire.NodeInfo:
        self.node._asked("pause_alerts", order)
        return wire.NodeInfo(node=self.node.name, gpus=())

    async def resume_alerts(self, id: str | None = None) -> wire.NodeInfo:
        self.node._asked("resume_alerts", id)
        return wire.NodeInfo(node=self.node.name, gpus=())

    async def mps_set(self, gpu: str, setting: wire.MpsSetting) -> wire.MpsState:
        self.node._asked("mps_set", gpu, setting)
        return wire.MpsState(gpu=gpu, state="idle")

    async def dry_run(self, spec: wire.JobSpec) -> wire.JobPlan:
        self.node._asked("dry_run", spec)
        values: dict[str, Any] = {
            "starts_now": True, "reason": "GPUs 0 and 1 share NUMA node 0", "gpu_indexes": (0, 1), "argv": spec.command,
            "environment": ("PATH",), "user": "ada", "enforcement": "v2", "usd_per_hour": Decimal("8.19"), "cpus": "0-7",
            "numa_node": 0,
        }  # fmt: skip
        return wire.JobPlan(node=self.node.name, **{**values, **self.node.plan})

    async def submit(self, spec: wire.JobSpec, *, reserve: bool = False) -> wire.Job:
        self.node._asked("submit", spec)
        made = queued(99, self.node.name, name=spec.name, command=spec.command, gpus_wanted=spec.gpus)
        self.node.known[made.id] = made
        return made

    async def log(
        self, id: str, offset: int = 0, *, limit: int = 65_536, wait: float = 0, attempt: int | None = None
    ) -> wire.LogPage:
        node = self.node
        node._asked("log", offset, limit, attempt)
        if offset >= len(node.log_bytes) and wait and not node.log_ended:
            node.grew.clear()
            await node.grew.wait()
        at = max(offset, node.first_offset)
        text = node.log_bytes[at : at + limit]
        return wire.LogPage(
            job=id, attempt=attempt or 1, first_offset=node.first_offset, offset=at, next_offset=at + len(text),
            text=text.decode(errors="replace"), ended=node.log_ended and at + len(text) >= len(node.log_bytes),
        )  # fmt: skip


def asked_nodes(*nodes: FakeNode) -> dict[str, Any]:
    """Options of the app: it knows these nodes and asks them."""
    by_name = {node.name: node for node in nodes}
    configured = [NodeConfig(name=node.name, url=f"http://127.0.0.1:9477/nodes/{node.name}/") for node in nodes]
    return {"nodes": configured, "client_for": lambda node: by_name[node.name].client()}
