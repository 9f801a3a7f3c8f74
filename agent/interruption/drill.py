"""`rackrate-agent drill`: a command as an interruptible job, a false spot notice, and the time until its work is saved.

Invariant: the notice takes the way of a true one (metadata service, watch, job manager, soft signal); nothing of the
drill is left when it ends, however it ends, except the folder that was asked for and what the command itself wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent import wire
from agent.config import AgentConfig
from agent.config_file import JobsTable, NodeConfig
from agent.errors import AgentFault, ConfigurationError, JobConflict
from agent.interruption.drill_report import DrillReport, Facts, judge
from agent.interruption.drill_server import LEAD_SECONDS, DrillServer
from agent.interruption.watch import NoticeWatch
from agent.isolation import group
from agent.jobs.actor import Actor
from agent.jobs.attempt_dir import AttemptDir, ExitRecord
from agent.jobs.context import default_runtime
from agent.jobs.logs import log_size, read_log
from agent.jobs.manager import JobManager
from agent.sampler import Sampler
from agent.sensors.processes import clean_text

NODE = "drill"
LOOK_SECONDS = 0.02
STEP_SECONDS = 1.0
START_SECONDS = 60.0
"""A job that has not begun by then never will: nobody else is here."""
LATE_SECONDS = 2.0
"""Beyond the node's end, so that a job which is a little late is told so rather than cut off."""
JUDGED_SECONDS = 5.0
TAIL_LINES = 12
_TAIL_BYTES = 16 * 1024
_ACTOR = Actor("drill")


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `lead_seconds` None: what the cloud promises. `pace` multiplies the watch's waits (for tests)."""

    command: tuple[str, ...]
    cloud: str = "aws"
    lead_seconds: float | None = None
    marker: Path | None = None
    wait_for_marker: bool = False
    warm_up_seconds: float = 10.0
    grace_seconds: float = 30.0
    gpus: int = 0
    environment: Mapping[str, str] = {}
    state_dir: Path | None = None
    pace: float = 1.0


def run(drill: Drill) -> DrillReport:
    """Runs it in the current folder. AgentFault: it could not be done, in a sentence; KeyboardInterrupt: it was ended."""
    lead = _lead(drill)
    with _folder(drill.state_dir) as folder, DrillServer(drill.cloud, lead) as server:
        return asyncio.run(_interruptible(drill, lead, folder, server))


def show_log(report: DrillReport) -> None:
    """The end of the job's log, on stderr, where the work was not saved."""
    if not report.saved and report.log_tail:
        print("the end of its log:", *(f"  {line}" for line in report.log_tail), sep="\n", file=sys.stderr)


def _lead(drill: Drill) -> float:
    promised = LEAD_SECONDS[drill.cloud]
    if drill.lead_seconds is not None and drill.cloud == "gcp" and drill.lead_seconds != promised:
        raise ConfigurationError(f"GCP says no time with its notice: it is always {promised:.0f} s; leave --lead out")
    if drill.lead_seconds is not None and drill.lead_seconds <= 0:
        raise ConfigurationError("--lead must be above 0")
    if drill.wait_for_marker and drill.marker is None:
        raise ConfigurationError("--wait-for-marker needs a --marker to wait for")
    return promised if drill.lead_seconds is None else drill.lead_seconds


@contextlib.contextmanager
def _folder(state_dir: Path | None) -> Iterator[Path]:
    if state_dir is not None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield state_dir
        return
    with tempfile.TemporaryDirectory(prefix="rackrate-drill-") as folder:
        yield Path(folder)


async def _interruptible(drill: Drill, lead: float, folder: Path, server: DrillServer) -> DrillReport:
    """A signal to end is a cancellation here too, so that the job does not outlive the drill."""
    task = asyncio.ensure_future(_Run(drill, lead, folder, server).report())
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    def end() -> None:
        if not asked.is_set():  # a second signal must not break off what clears up
            asked.set()
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with contextlib.suppress(RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class _Run:
    """One drill."""

    def __init__(self, drill: Drill, lead: float, folder: Path, server: DrillServer) -> None:
        self._drill = drill
        self._lead = lead
        self._server = server
        self._heard_at: datetime | None = None
        jobs = JobsTable(allow_root=True, grace_seconds=drill.grace_seconds)
        self._config = AgentConfig(state_dir=folder, node=NodeConfig(name=NODE, cloud=drill.cloud, metadata=False), jobs=jobs)
        self._gpus = _gpu_sensor() if drill.gpus else None
        self._sampler = Sampler(NODE, [self._gpus] if self._gpus is not None else [])
        self._info = wire.NodeInfo(node=NODE, gpus=(), cloud=drill.cloud)

    async def report(self) -> DrillReport:
        self._sampler.start()
        await asyncio.to_thread(self._sampler.wait, 5.0)
        self._manager = JobManager.open(self._config, NODE, gpus=self._inventory, on_change=lambda job: None, meter=None)
        loop = asyncio.get_running_loop()
        watch = NoticeWatch(
            self._drill.cloud,
            lambda notice: loop.call_soon_threadsafe(self._hear, notice) and None,
            base_urls={self._drill.cloud: self._server.url},
            pace=self._drill.pace,
        )
        self._manager.start()
        ticking = asyncio.create_task(self._tick())
        watch.start()
        try:
            return await self._submitted()
        finally:
            watch.close()
            ticking.cancel()
            self._manager.close()
            await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        """The folders that this state directory alone used."""
        self._sampler.close()
        host, runtime = self._manager.isolation, default_runtime(self._config)
        if host.enforcement != "none":
            group.clear(str(host.root), host.parent)
        if runtime is not None:
            with contextlib.suppress(OSError):
                runtime.rmdir()

    def _inventory(self) -> tuple[wire.GpuInventory, ...]:
        return self._gpus.inventory() if self._gpus is not None else ()

    def _hear(self, notice: wire.Notice) -> None:
        if notice.ended_at is None and self._heard_at is None:
            self._heard_at = notice.noticed_at
        self._manager.notice(notice)

    async def _tick(self) -> None:
        sequence = 0
        while True:
            sequence += 1
            self._manager.step(self._sampler.sample(sequence), self._info)
            await asyncio.sleep(STEP_SECONDS)

    async def _submitted(self) -> DrillReport:
        drill = self._drill
        spec = wire.JobSpec(
            command=drill.command,
            name=NODE,
            gpus=drill.gpus,
            interruptible=True,
            env=dict(drill.environment),
            workdir=os.getcwd(),
            grace_seconds=drill.grace_seconds,
        )
        id = self._manager.submit(spec, _ACTOR).id
        try:
            await self._ready(id)
            notice_at = self._server.give()
            _say(f"the notice is given: {drill.cloud} ends this node in {self._lead:g} s")
            ended = await self._over(id, notice_at)
            return judge(await self._facts(id, notice_at, ended))
        finally:
            await self._end(id)

    async def _ready(self, id: str) -> None:
        """Until the job runs, and long enough, or has saved once."""
        begun = time.monotonic()
        while (job := await self._running(id)) is None or job.started_at is None:
            if time.monotonic() - begun > START_SECONDS:
                raise AgentFault(f"the job does not start: {self._manager.job(id).reason or 'nobody knows why'}")
            await asyncio.sleep(LOOK_SECONDS)
        marker, started = self._drill.marker, time.monotonic()
        awaited = f"once {marker} is written" if self._drill.wait_for_marker else f"in {self._drill.warm_up_seconds:g} s"
        _say(f"the job runs; the notice follows {awaited}")
        while not self._warm(job.started_at, time.monotonic() - started):
            await self._running(id)
            await asyncio.sleep(LOOK_SECONDS)

    async def _running(self, id: str) -> wire.Job | None:
        """None: it does not run yet. AgentFault: it runs no more."""
        job = self._manager.job(id)
        if job.state == "ended" or job.attempt > 1 or self._record(id) is not None:
            attempt = await self._judged(id)
            why = f"{attempt.cause}: {attempt.evidence}" if attempt is not None else f"it is {job.state}"
            tail = self._tail(id)
            last = f"; its last words: {tail[-1]}" if tail else ""
            raise AgentFault(f"the command ended before the notice was given ({why}){last}")
        return job if job.state == "running" else None

    def _warm(self, started_at: datetime, seconds: float) -> bool:
        if self._drill.wait_for_marker:
            written = _written_at(self._drill.marker)
            return written is not None and written >= started_at
        return seconds >= self._drill.warm_up_seconds

    async def _over(self, id: str, notice_at: datetime) -> ExitRecord | None:
        """The job's exit record; None: it still ran when the node would have gone."""
        until = time.monotonic() + self._lead + LATE_SECONDS
        while (record := self._record(id)) is None and time.monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
        return record

    def _attempt(self, id: str) -> AttemptDir:
        return AttemptDir(self._config.state_dir / "jobs" / id / "1")

    def _record(self, id: str) -> ExitRecord | None:
        return self._attempt(id).exit()

    async def _facts(self, id: str, notice_at: datetime, record: ExitRecord | None) -> Facts:
        stop = record.stop if record is not None else None
        judged = await self._judged(id) if record is not None else None
        drill = self._drill
        return Facts(
            cloud=drill.cloud,
            lead_seconds=self._lead,
            command=drill.command,
            notice_at=notice_at,
            marker=None if drill.marker is None else str(drill.marker),
            marker_at=_written_at(drill.marker),
            heard_at=self._heard_at,
            signalled_at=stop.signalled_at if stop is not None else None,
            killed_at=stop.killed_at if stop is not None else None,
            ended_at=record.ended_at if record is not None else None,
            cause=judged.cause if judged is not None else None,
            exit_code=record.exit_code if record is not None else None,
            signal=record.signal if record is not None else None,
            log_tail=self._tail(id),
        )

    async def _judged(self, id: str) -> wire.Attempt | None:
        """The first attempt, once the manager has a word for its end."""
        for _ in range(int(JUDGED_SECONDS / LOOK_SECONDS)):
            attempts = self._manager.job(id).attempts
            if attempts and attempts[0].cause is not None:
                return attempts[0]
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def _tail(self, id: str) -> tuple[str, ...]:
        folder = self._attempt(id)
        with contextlib.suppress(AgentFault, OSError):
            page = read_log(folder, max(0, log_size(folder) - _TAIL_BYTES), _TAIL_BYTES, job=id, attempt=1)
            return tuple(clean_text(line) for line in page.text.splitlines()[-TAIL_LINES:])
        return ()

    async def _end(self, id: str) -> None:
        """Ends the job for good; its grace is over."""
        with contextlib.suppress(JobConflict):
            self._manager.cancel(id, _ACTOR, force=True)
        until = time.monotonic() + self._config.jobs.kill_wait_seconds + 5
        while (job := self._manager.job(id)).state != "ended" and time.monotonic() < until:
            await asyncio.sleep(LOOK_SECONDS)
        for sentence in job.left_behind:
            _say(sentence)


def _gpu_sensor():  # type: ignore[no-untyped-def]  # the type would import the driver's binding
    from agent.sensors.nvml import NvmlSensor

    return NvmlSensor()


def _written_at(path: Path | None) -> datetime | None:
    if path is None:
        return None
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None


def _say(text: str) -> None:
    print(f"rackrate-agent: {text}", file=sys.stderr, flush=True)
