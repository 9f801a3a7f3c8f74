"""The jobs of one node: everything that routes, app and daemon ask of them.

Invariant: everything here belongs to one event loop and nothing blocks it; jobs run on whatever becomes of the manager,
and a fault about one job is said on it and touches no other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from agent import wire
from agent.config import AgentConfig
from agent.errors import AgentFault, JobConflict, JobForbidden, JobUnknown
from agent.isolation.host import HostIsolation
from agent.jobs import ids, recover, view
from agent.jobs.actor import Actor
from agent.jobs.claims import cpu_claims, gpu_claims
from agent.jobs.context import Context, boottime_ms, now
from agent.jobs.curves import Asked, Curves
from agent.jobs.drains import Drains
from agent.jobs.logs import log_size, read_log
from agent.jobs.manager_desk import Desk
from agent.jobs.manager_life import Lives
from agent.jobs.manager_news import News
from agent.jobs.manager_queue import Queue
from agent.jobs.manager_round import Rounds
from agent.jobs.node_shape import GpuView, NodeView
from agent.jobs.plan import CHECKPOINT
from agent.jobs.rows import JobRow
from agent.jobs.sharing import Maker, Sharing
from agent.jobs.signals import signal_number
from agent.jobs.stopper import Stopper
from agent.meter import Meter
from agent.meter_claims import Claim

LOG_LOOK_SECONDS = 0.1
LARGEST_PAGE = 1_048_576
FIRST_READING_SECONDS = 5.0
_ACTIVE = ("starting", "running", "stopping")


class JobManager:
    """Belongs to the event loop that `start` is called on. Its calls raise JobFault (JobRefused, JobForbidden, ...)."""

    def __init__(
        self, context: Context, on_change: Callable[[wire.Job], None], meter: Meter | None, make_mps: Maker | None
    ) -> None:
        self._context = context
        self._store = context.store
        self._meter = meter
        if meter is not None:
            context.moment = self._moment
        self._news = News(context.store, lambda row: on_change(self._shown(row, detail=row.state == "ended")))
        changed = self._news.changed
        self._view = GpuView()
        node = NodeView(context.host)
        self._sharing = Sharing(context, make_mps)
        self._drains = Drains(context.boot_id)
        self._queue = Queue(
            context, self._view, node, self._sharing, self._drains,
            changed=changed, restated=self._news.restated, claims_changed=self._claim,
        )  # fmt: skip
        self._lives = Lives(
            context, self._view, self._sharing, self._drains,
            make=self._queue.prepare, changed=changed, freed=self._freed,
        )  # fmt: skip
        self._stopper = Stopper(context, self._lives, changed)
        self._queue.lives, self._queue.stopper = self._lives, self._stopper
        self._desk = Desk(context, self._queue, node, self._view, self._sharing)
        self._rounds = Rounds(
            context, self._view, self._lives, self._queue, self._stopper, self._sharing, self._drains,
            changed=changed, freed=self._freed,
        )  # fmt: skip
        self._curves = Curves()
        self._recovering: asyncio.Task[None] | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        config: AgentConfig,
        node: str,
        *,
        gpus: Callable[[], tuple[wire.GpuInventory, ...]],
        on_change: Callable[[wire.Job], None],
        meter: Meter | None = None,
        host: HostIsolation | None = None,
        runtime_root: Path | None = None,
        boot_id: str | None = None,
        durable: bool = True,
        make_mps: Maker | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> JobManager:
        """Opens the queue below the state directory. Raises StateDirectoryError and its kin.

        What follows `meter` is for tests: another host, place for run-time files, boot, MPS, environment.
        """
        context = Context(
            config, node, gpus, host=host, runtime_root=runtime_root, boot_id=boot_id, durable=durable, environ=environ
        )
        return cls(context, on_change, meter, make_mps)

    # Life

    def start(self) -> None:
        """Takes over what an agent before this one left, before the first sample; then the queue goes on."""
        recover.adopt(self._context, self._lives, self._stopper, self._drains)
        recover.tidy(self._context)
        self._claim()
        self._recovering = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        """What may take a while: shared GPUs are taken over, leftovers are cleared."""
        self._queue.kick()
        try:
            await self._sharing.adopt(recover.shares(self._store))
            await asyncio.to_thread(recover.sweep, self._context, recover.known_units(self._lives, self._drains))
        except Exception as error:
            self._context.failed("what an earlier agent left", error)

    def close(self) -> None:
        """Lets go of everything; jobs run on."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        self._lives.close()
        self._sharing.close()
        self._rounds.close()
        self._news.close()
        if self._recovering is not None:
            self._recovering.cancel()
        if not self._store.holding() and not self._drains.all:
            recover.leave(self._context)
        self._context.close()

    def step(self, sample: wire.Sample, info: wire.NodeInfo) -> None:
        """Takes one sample: once a second."""
        if not self._closed:
            self._rounds.step(sample)
            self._news.tell_restated()

    @property
    def problem(self) -> str | None:
        """What is wrong now, in a sentence; None: nothing."""
        return next(iter(self._context.problems.values()), None)

    @property
    def enabled(self) -> bool:
        return self._context.jobs.enabled

    @property
    def max_upload_bytes(self) -> int:
        return self._context.jobs.max_upload_bytes

    @property
    def isolation(self) -> HostIsolation:
        """How jobs are held on this host."""
        return self._context.host

    # Asking

    def counts(self) -> wire.JobCounts:
        return self._store.counts()

    def jobs(self, ended_limit: int = 200) -> wire.JobList:
        """Running ones first, then the queue in its order, then those that ended, newest first."""
        rows = self._store.unended()
        order = {id: place for place, id in enumerate(self._queue.reasons)}
        active = [row for row in rows if row.state in _ACTIVE]
        waiting = sorted((row for row in rows if row.state not in _ACTIVE), key=lambda row: order.get(row.id, len(order)))
        ended = self._store.ended(ended_limit) if ended_limit > 0 else []
        shown = tuple(self._shown(row) for row in (*active, *waiting, *ended))
        return wire.JobList(node=self._context.node, jobs=shown, problem=self.problem)

    def job(self, id: str) -> wire.Job:
        """With its attempts. Raises JobUnknown."""
        return self._shown(self._store.get(ids.checked(id)), detail=True)

    def _shown(self, row: JobRow, *, detail: bool = False) -> wire.Job:
        live = self._lives.all.get(row.id)
        shared = self._sharing.warnings.get(row.gpus[0], ()) if live is not None and not live.exclusive and row.gpus else ()
        return view.show(
            row,
            self._context.node,
            live=live,
            reason=self._reason(row),
            counts=self._store.array_counts(row.id) if row.is_array else None,
            attempts=self._store.attempts(row.id) if detail else (),
            warnings=shared,
            log_bytes=self._log_bytes(row) if live is not None else None,
        )

    def _reason(self, row: JobRow) -> str | None:
        if row.held_until is not None:
            return "reserved for a run over several nodes, which has not started yet"
        return self._queue.reasons.get(row.id) or (None if row.is_array else "is looked at next")

    def _log_bytes(self, row: JobRow) -> int | None:
        try:
            return log_size(self._context.attempt_folder(row.id, row.attempt))
        except AgentFault:
            return None

    def claims(self) -> dict[str, tuple[Claim, ...]]:
        """GPU -> who has which share of it, reservations and drained GPUs too."""
        return gpu_claims(self._store, self._drains)

    # Doing

    async def ready(self, seconds: float = FIRST_READING_SECONDS) -> None:
        """Returns once the GPUs of this node are known (the agent may have just started), or after `seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not (self._view.heard or self._context.gpus()) and loop.time() < until and not self._closed:
            await asyncio.sleep(0.05)

    def submit(self, spec: wire.JobSpec, actor: Actor) -> wire.Job:
        return self._handed_in(self._desk.submit(spec, actor))

    def reserve(self, spec: wire.JobSpec, actor: Actor) -> wire.Job:
        with self._context.moment() as at_ms:
            row = self._desk.reserve(spec, actor, at_ms)
            self._claim()
        return self._handed_in(row)

    def start_reserved(self, id: str, endpoint: str, actor: Actor) -> wire.Job:
        self._own(id, actor)
        if self._context.drained:
            raise JobConflict(f"job {id} does not start: {self._context.drained}")
        return self._shown(self._desk.start_reserved(id, endpoint, actor), detail=True)

    def plan(self, spec: wire.JobSpec, actor: Actor) -> wire.JobPlan:
        """A dry run: nothing is done."""
        return self._desk.plan(spec, actor)

    def _handed_in(self, row: JobRow) -> wire.Job:
        self._queue.kick()
        self._news.changed(row.id)
        return self._shown(row)

    def cancel(self, id: str, actor: Actor, *, force: bool = False) -> wire.Job:
        """Softly; with `force` without a grace. Of an array: all its tasks. JobConflict: it has ended."""
        row = self._own(id, actor)
        evidence = f"cancelled by {actor.name}" + (", at once" if force else "")
        self._context.record(actor.name, actor.peer, "cancel", id, "force" if force else "soft")
        if row.is_array:
            self._cancel_array(row, evidence, force)
        else:
            self._cancel_one(row, evidence, force)
        return self._shown(self._store.get(id), detail=True)

    def _cancel_one(self, row: JobRow, evidence: str, force: bool) -> None:
        if row.state == "queued":
            if row.held_until is not None:
                with self._context.moment() as at_ms:
                    ended = self._store.end(row.id, "cancelled", evidence, now(), cost=self._queue.cost_of_held(row, at_ms))
                    self._freed()
            else:
                ended = self._store.end(row.id, "cancelled", evidence, now())
                self._queue.kick()
            self._lives.forget_secrets(ended)
            self._news.changed(row.id)
        else:
            self._stopper.stop(row.id, "cancelled", evidence, grace_seconds=0.0 if force else None)

    def _cancel_array(self, row: JobRow, evidence: str, force: bool) -> None:
        if row.state == "ended":
            raise JobConflict(f"job {row.id} has ended already ({row.cause})")
        tasks = self._store.tasks(row.id)
        self._store.end(row.id, "cancelled", evidence, now())
        for task in tasks:
            if task.state in _ACTIVE:
                self._cancel_one(task, evidence, force)
            elif task.state == "queued":
                self._news.changed(task.id)
        self._lives.forget_secrets(self._store.get(row.id))
        self._news.changed(row.id)
        self._queue.kick()

    def signal(self, id: str, name: str, actor: Actor) -> wire.Job:
        """Once, to its first process. JobConflict: it does not run."""
        row = self._own(id, actor)
        number = signal_number(name)
        live = self._lives.all.get(id)
        if live is None or row.state not in ("running", "stopping") or not live.folder.signal(number):
            raise JobConflict(f"job {id} cannot be signalled: it is {row.state}")
        self._context.record(actor.name, actor.peer, "signal", id, str(number))
        return self._shown(row, detail=True)

    def _own(self, id: str, actor: Actor) -> JobRow:
        """JobForbidden: it is another user's, and the token stands for one alone."""
        row = self._store.get(ids.checked(id))
        if actor.user is not None and row.user != actor.user:
            raise JobForbidden(f"job {id} belongs to {row.user!r}, and the token {actor.name!r} stands for {actor.user!r}")
        return row

    # Logs and uploads

    def log(self, id: str, *, attempt: int | None = None, offset: int = 0, limit: int = 65_536) -> wire.LogPage:
        """A piece of an attempt's log (None: the newest attempt)."""
        row, number = self._attempt(id, attempt)
        over = row.state == "ended" or number < row.attempt
        if number == 0:
            return wire.LogPage(job=id, attempt=0, first_offset=0, offset=0, next_offset=0, text="", ended=over)
        folder = self._context.attempt_folder(id, number)
        size = min(max(1, limit), LARGEST_PAGE)
        return read_log(folder, max(0, offset), size, job=id, attempt=number, ended=True if over else None)

    async def curves(self, id: str, points: int, names: tuple[str, ...] = ()) -> wire.JobCurves:
        """What a job told of its training, over all attempts; read in a thread."""
        row, number = self._attempt(id, None)
        folder = self._context.job_folder(id)
        asked = Asked(id, number, row.state == "ended", folder, folder / CHECKPOINT)
        return await self._curves.ask(asked, points, names)

    async def log_grew(self, id: str, attempt: int | None, offset: int, seconds: float) -> None:
        """Returns when there is more than `offset` bytes, when no more will come, or after `seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._closed:
            row, number = self._attempt(id, attempt)
            if row.state == "ended" or number < row.attempt:
                return
            if number and log_size(self._context.attempt_folder(id, number)) > offset:
                return
            await asyncio.sleep(LOG_LOOK_SECONDS)

    def _attempt(self, id: str, attempt: int | None) -> tuple[JobRow, int]:
        row = self._store.get(ids.checked(id))
        if row.is_array:
            raise JobConflict(f"job {id} is an array; each of its tasks has a log of its own (`{id}_{row.spec.array[0]}`)")
        if attempt is not None and not 1 <= attempt <= row.attempt:
            raise JobUnknown(f"job {id} has no attempt {attempt}; it has {row.attempt or 'none yet'}")
        return row, row.attempt if attempt is None else attempt

    async def upload(self, sha256: str, chunks: AsyncIterator[bytes]) -> wire.Uploaded:
        return await self._context.uploads.receive(sha256, chunks)

    # Sharing and notices

    async def mps(self, gpu: str) -> wire.MpsState:
        return await self._sharing.state(gpu)

    async def mps_set(self, gpu: str, setting: wire.MpsSetting, actor: Actor) -> wire.MpsState:
        if actor.user is not None:
            raise JobForbidden(f"the token {actor.name!r} stands for one user, and how a GPU is shared is everybody's matter")
        state = await self._sharing.set(gpu, setting)
        self._context.record(actor.name, actor.peer, "mps", gpu, "set")
        return state

    def drain(self, sentence: str | None) -> None:
        """With a sentence no job starts any more, and those that wait say it; with None they start again."""
        if sentence != self._context.drained and not self._closed:
            self._context.drained = sentence
            if self._recovering is not None:
                self._queue.kick()

    def record(self, actor: str, peer: str | None, action: str, object: str, result: str) -> None:
        """A line of the audit about the node itself."""
        if not self._closed:
            self._context.record(actor, peer, action, object, result)

    def notice(self, notice: wire.Notice) -> None:
        """The cloud told something: interruptible jobs are stopped in time and queued again, and nothing starts."""
        self._stopper.take(notice)
        self._context.record("cloud", None, "notice", notice.id or notice.kind, "ended" if notice.ended_at else notice.kind)
        self._queue.kick()

    # Who holds what

    def _freed(self) -> None:
        self._claim()
        self._queue.kick()

    @contextmanager
    def _moment(self) -> Iterator[int]:
        """The meter's, or what the clock says where that cannot be had: a job ends all the same."""
        assert self._meter is not None
        with ExitStack() as stack:
            try:
                at_ms = stack.enter_context(self._meter.moment())
            except Exception as error:
                self._context.failed("the usage record", error)
                at_ms = boottime_ms()
            yield at_ms

    def _claim(self) -> None:
        if self._meter is None:
            return
        try:
            self._meter.claim(self.claims(), cpu_claims(self._store))
            self._context.works("the usage record")
        except Exception as error:
            self._context.failed("the usage record", error)
