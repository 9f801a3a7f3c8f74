"""A stand-in for the job manager: the same calls, everything in memory, and nothing is ever started.

What a test wants to happen it says itself: `write` to a log, `end` a job, `refuse` the next submission.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import itertools
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec

from agent import wire
from agent.errors import JobConflict, JobFault, JobForbidden, JobRefused, JobUnknown
from agent.jobs.actor import Actor
from agent.meter_claims import Claim

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
GPU = "GPU-0"


class JobService:
    """`gpus`: how many are free. `usd_per_hour`: of one GPU. `taken`: a sentence why nothing starts now."""

    problem: str | None = None

    def __init__(
        self, node: str = "n1", *, gpus: int = 8, usd_per_hour: Decimal | None = None, taken: str | None = None
    ) -> None:
        self.node, self.gpus, self.usd_per_hour, self.taken = node, gpus, usd_per_hour, taken
        self.specs: dict[str, wire.JobSpec] = {}
        self.kept: dict[str, wire.Job] = {}
        self.logs: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.asked: list[tuple[Any, ...]] = []
        """What changed something: (what, of which, by whom)."""
        self.refuse: JobFault | None = None
        self.mps_states = {GPU: wire.MpsState(gpu=GPU, state="off", shares={})}
        self.max_upload_bytes = 200 * 1024 * 1024
        self.first_kept = 0
        self._numbers = itertools.count(1)
        self._grew = asyncio.Event()

    def drain(self, sentence: str | None) -> None:
        """As the manager: with a sentence nothing starts."""
        self.taken = sentence

    # -- what a test says

    def write(self, job: str, text: bytes) -> None:
        self.logs[job] = self.logs.get(job, b"") + text
        self._wake()

    def end(self, job: str, *, exit_code: int | None = 0, cause: str | None = None, **fields: Any) -> None:
        default = None if exit_code == 0 else f"exit:{exit_code}"
        self.change(
            job, state="ended", exit_code=exit_code, cause=cause or default, ended_at=START + timedelta(hours=1), **fields
        )

    def change(self, job: str, **fields: Any) -> wire.Job:
        self.kept[job] = msgspec.structs.replace(self.kept[job], **fields)
        self._wake()
        return self.kept[job]

    def _wake(self) -> None:
        self._grew.set()
        self._grew = asyncio.Event()

    # -- what the routes ask

    def plan(self, spec: wire.JobSpec, actor: Actor) -> wire.JobPlan:
        self._check(spec, actor)
        starts = self.taken is None and spec.gpus <= self.gpus
        price = self.usd_per_hour * spec.gpus if self.usd_per_hour is not None and spec.gpus else spec.node_usd_per_hour
        return wire.JobPlan(
            node=self.node,
            starts_now=starts,
            reason="its GPUs are on one NUMA node" if starts else self.taken or f"waits for {spec.gpus} GPUs",
            gpus=tuple(f"GPU-{number}" for number in range(spec.gpus)),
            gpu_indexes=tuple(range(spec.gpus)),
            cpus="0-7",
            numa_node=0,
            argv=("/bin/sh", "-c", *spec.command) if spec.shell else spec.command,
            environment=("PATH", *sorted(spec.env)),
            user=spec.user or "nobody",
            enforcement="v2",
            steps=(
                wire.PlanStep(kind="mkdir", target="/sys/fs/cgroup/rackrate/job-x-1"),
                wire.PlanStep(kind="write", target="/sys/fs/cgroup/rackrate/job-x-1/memory.max", text="1024", limit="memory"),
            ),
            not_enforced=("io: this host has no io controller",) if spec.io_weight else (),
            usd_per_hour=price,
        )

    def claims(self) -> dict[str, tuple[Claim, ...]]:
        return {}

    async def ready(self, seconds: float = 5.0) -> None:
        """Its GPUs are known from the start."""

    def submit(self, spec: wire.JobSpec, actor: Actor) -> wire.Job:
        self._check(spec, actor)
        return self._add(spec, actor, "queued" if self.taken or spec.gpus > self.gpus else "running")

    def reserve(self, spec: wire.JobSpec, actor: Actor) -> wire.Job:
        self._check(spec, actor)
        if spec.gang is None:
            raise JobRefused("only a part of a run over several nodes is reserved")
        if self.taken or spec.gpus > self.gpus:
            raise JobConflict(self.taken or f"waits for {spec.gpus} GPUs")
        held = datetime.now(timezone.utc) + timedelta(seconds=60)
        return self._add(spec, actor, "queued", held_until=held)

    def start_reserved(self, id: str, endpoint: str, actor: Actor) -> wire.Job:
        job = self.job(id)
        if job.held_until is None:
            raise JobConflict(f"job {id} is not reserved")
        self.asked.append(("start", id, endpoint))
        return self.change(id, state="running", held_until=None, started_at=START, attempt=1)

    def jobs(self, ended_limit: int = 200) -> wire.JobList:
        live = [job for job in self.kept.values() if job.state != "ended"]
        ended = [job for job in self.kept.values() if job.state == "ended"][::-1][:ended_limit]
        return wire.JobList(node=self.node, jobs=(*live, *ended), problem=self.problem)

    def job(self, id: str) -> wire.Job:
        if id not in self.kept:
            raise JobUnknown(f"there is no job {id} on {self.node}")
        return self.kept[id]

    def cancel(self, id: str, actor: Actor, *, force: bool = False) -> wire.Job:
        job = self.job(id)
        if actor.user not in (None, job.user):
            raise JobForbidden(f"job {id} belongs to {job.user}")
        if job.state == "ended":
            raise JobConflict(f"job {id} has ended already")
        self.asked.append(("cancel", id, actor, force))
        self.end(id, exit_code=None, cause="cancelled")
        return self.kept[id]

    def signal(self, id: str, name: str, actor: Actor) -> wire.Job:
        if name not in ("USR1", "SIGUSR1", "10"):
            raise JobRefused(f"{name!r} is no signal")
        self.asked.append(("signal", id, name, actor))
        return self.job(id)

    def log(self, id: str, *, attempt: int | None = None, offset: int = 0, limit: int = 65536) -> wire.LogPage:
        job, whole = self.job(id), self.logs.get(id, b"")
        start = min(max(offset, self.first_kept), len(whole))
        piece = whole[start : start + limit]
        over = job.state == "ended" and start + len(piece) == len(whole)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # cut between characters, as the real one does
        text = decoder.decode(piece, over)
        return wire.LogPage(
            job=id,
            attempt=attempt or job.attempt,
            first_offset=self.first_kept,
            offset=start,
            next_offset=start + len(piece) - len(decoder.getstate()[0]),
            text=text,
            ended=over,
            dropped_lines=job.log_dropped_lines or 0,
        )

    async def curves(self, id: str, points: int, names: tuple[str, ...] = ()) -> wire.JobCurves:
        job = self.job(id)
        steps = tuple(range(1, 5))
        loss = wire.Curve(name="loss", steps=steps, values=(2.0, None, 1.5, 1.0), count=4, mean=1.5, source="log")
        return wire.JobCurves(
            job=id, attempt=job.attempt, curves=(loss,) if not names or "loss" in names else (), names=("loss",), step=4,
            ended=job.state == "ended", sources=("the log: 4 lines of attempt 1",),
        )  # fmt: skip

    async def log_grew(self, id: str, attempt: int | None, offset: int, seconds: float) -> None:
        self.asked.append(("wait", id, seconds))
        try:
            await asyncio.wait_for(self._grew.wait(), seconds)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            self.asked.append(("gone", id))
            raise

    async def upload(self, sha256: str, chunks: AsyncIterator[bytes]) -> wire.Uploaded:
        digest, total, kept = hashlib.sha256(), 0, bytearray()
        async for chunk in chunks:
            digest.update(chunk)
            total += len(chunk)
            kept += chunk[: max(0, 1_000_000 - len(kept))]
        if digest.hexdigest() != sha256:
            raise JobRefused(f"the archive's SHA-256 is {digest.hexdigest()}, not {sha256}; send it again")
        self.uploads[sha256] = bytes(kept)
        return wire.Uploaded(upload=f"sha256:{sha256}", files=1, bytes=total)

    def mps(self, gpu: str) -> wire.MpsState:
        if gpu not in self.mps_states:
            raise JobUnknown(f"there is no GPU {gpu} on {self.node}")
        return self.mps_states[gpu]

    async def mps_set(self, gpu: str, setting: wire.MpsSetting, actor: Actor) -> wire.MpsState:
        percentage = setting.active_thread_percentage
        if percentage is not None and not 0 < percentage <= 100:
            raise JobRefused(f"active_thread_percentage has to be above 0 and at most 100; it is {percentage}")
        state = self.mps(gpu)
        self.mps_states[gpu] = msgspec.structs.replace(
            state, active_thread_percentage=percentage, pinned_memory_bytes=setting.pinned_memory_bytes
        )
        return self.mps_states[gpu]

    def step(self, sample: wire.Sample, info: wire.NodeInfo) -> None:
        pass

    def notice(self, notice: wire.Notice) -> None:
        pass

    def counts(self) -> wire.JobCounts:
        states = [job.state for job in self.kept.values()]
        return wire.JobCounts(**{state: states.count(state) for state in set(states)})

    def _check(self, spec: wire.JobSpec, actor: Actor) -> None:
        if self.refuse is not None:
            raise self.refuse
        if not spec.command:
            raise JobRefused("the command is empty")
        if actor.user is not None and spec.user not in (None, actor.user):
            raise JobForbidden(f"the token {actor.name} may submit jobs of {actor.user} alone, not of {spec.user}")
        if spec.gpus > 8:
            raise JobRefused(f"{spec.gpus} GPUs are more than the 8 of this node")

    def _add(self, spec: wire.JobSpec, actor: Actor, state: wire.JobState, **fields: Any) -> wire.Job:
        id = f"{self.node[-1]}00000{next(self._numbers):06}"
        running = state == "running"
        self.asked.append(("submit", id, actor))
        self.specs[id] = spec
        self.kept[id] = wire.Job(
            id=id, state=state, name=spec.name, node=self.node, user=spec.user or actor.user, project=spec.project,
            command=spec.command, shell=spec.shell, gpus_wanted=spec.gpus, secrets=tuple(spec.secrets), after=spec.after,
            gpus=tuple(f"GPU-{number}" for number in range(spec.gpus)) if running else (), submitted_at=START,
            started_at=START if running else None, attempt=int(running), usd_per_hour=self.usd_per_hour,
            cost=Decimal("1.25") if running else None, reason=None if running else self.taken or "reserved",
            gang=spec.gang.id if spec.gang else None, **fields,
        )  # fmt: skip
        self._wake()
        return self.kept[id]
