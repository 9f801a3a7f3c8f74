"""What is done once a second, and less often: readings, timers, limits that drifted, figures to the disk, old things away.

Invariant: one job's fault does not keep the round from the others; nothing here takes long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta

from agent import wire
from agent.errors import AgentFault, IsolationFault
from agent.isolation import watch
from agent.isolation.group import group_for
from agent.jobs import costs, gpu_check, starter
from agent.jobs.context import Context, boottime_ms, now
from agent.jobs.drains import NOTE, Drain, Drains, seen_left
from agent.jobs.live import Live
from agent.jobs.manager_life import Lives
from agent.jobs.manager_queue import Queue
from agent.jobs.node_shape import GpuView
from agent.jobs.sharing import Sharing
from agent.jobs.stopper import Stopper

COUNT_MS = 3_000
DRIFT_MS = 10_000
NOTE_MS = 10_000
PRUNE_MS = 3_600_000
SHOW_MS = 2_000


class Rounds:
    """Belongs to the event loop."""

    def __init__(
        self, context: Context, view: GpuView, lives: Lives, queue: Queue, stopper: Stopper, sharing: Sharing, drains: Drains,
        *, changed: Callable[[str], None], freed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._context = context
        self._store = context.store
        self._view = view
        self._lives = lives
        self._queue = queue
        self._stopper = stopper
        self._sharing = sharing
        self._drains = drains
        self._changed = changed
        self._freed = freed
        self._due = {"count": 0, "drift": 0, "note": 0, "prune": boottime_ms() + 60_000}
        self._pruning: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()

    def step(self, sample: wire.Sample) -> None:
        self._view.take(sample)
        at_ms = boottime_ms()
        for live in self._lives.all.values():
            gpu_check.remember(live, self._view)
            live.observe(self._view.gpus, at_ms)
            self._look_for_strangers(live)
        self._lives.sampled()
        self._guarded("reservations", self._end_reservations)
        self._stopper.tick()
        if self._is_due("count", at_ms, COUNT_MS):
            self._for_each(self._count)
        if self._is_due("drift", at_ms, DRIFT_MS):
            self._for_each(self._look_for_drift)
        if self._is_due("note", at_ms, NOTE_MS):
            self._guarded("figures of jobs", self._note)
        self._guarded("drained GPUs", self._look_at_drains)
        self._guarded("the queue", self._queue.look)
        self._sharing.poll(live.gpus[0] for live in self._lives.all.values() if not live.exclusive and live.gpus)
        self._show(at_ms)
        if self._is_due("prune", at_ms, PRUNE_MS):
            self._pruning = asyncio.create_task(self._prune())

    def _is_due(self, what: str, at_ms: int, every_ms: int) -> bool:
        if at_ms < self._due[what]:
            return False
        self._due[what] = at_ms + every_ms
        return True

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
            self._context.works(what)
        except Exception as error:
            self._context.failed(what, error)

    def _for_each(self, action: Callable[[Live], None]) -> None:
        for live in list(self._lives.all.values()):
            try:
                action(live)
            except Exception as error:
                live.warnings["agent"] = self._context.failed(f"job {live.id}", error)

    def _count(self, live: Live) -> None:
        """The kernel's counters, while it runs."""
        if live.shim is not None and live.plan is not None and live.plan.enforcement != "none":
            live.count(group_for(live.plan.to_dict()).counters())

    def _look_for_drift(self, live: Live) -> None:
        """Limits are as they were set; else it is said, and put right where that is wanted."""
        if live.shim is None:
            return
        for drift in watch.drifted(live.shim.applied):
            found = drift.found if drift.found is not None else "nothing: it is not there"
            text = f"{drift.limit}: {drift.path} was changed from {drift.expected} to {found}"
            if self._context.jobs.repair_limits:
                try:
                    watch.repair(drift)
                    text += "; it was put back"
                except IsolationFault as fault:
                    text += f"; {fault}"
            if live.warnings.get(f"limit {drift.path}") != text:
                live.warnings[f"limit {drift.path}"] = text
                self._context.record("agent", None, "drift", live.id, text)
                self._changed(live.id)

    def _look_for_strangers(self, live: Live) -> None:
        """Somebody else on a GPU that the job has for itself: it is slowed down, and may run out of memory there."""
        told = self._context.host.enforcement != "none"
        found = None
        for gpu in (self._view.gpus[uuid] for uuid in live.gpus if live.exclusive and uuid in self._view.gpus):
            who = gpu_check.stranger(gpu, {live.id}, {live.user}, told=told)
            found = f"{who} is on GPU {gpu.index}, which this job has for itself" if who is not None else found
        if found != live.warnings.get("stranger"):
            live.warnings.pop("stranger", None)
            if found is not None:
                live.warnings["stranger"] = found
            self._changed(live.id)

    def _note(self) -> None:
        figures = {
            live.id: {"cost": live.cost(), "usage": live.usage()} for live in self._lives.all.values() if live.shim is not None
        }
        if figures:
            self._store.note(figures)

    def _show(self, at_ms: int) -> None:
        """Live figures, every two seconds a job."""
        for live in self._lives.all.values():
            if live.shim is not None and at_ms - live.published_ms >= SHOW_MS:
                live.published_ms = at_ms
                self._changed(live.id)

    def _end_reservations(self) -> None:
        wall = now()
        for row in self._store.holding():
            if row.state == "queued" and row.held_until is not None and row.held_until <= wall:
                with self._context.moment() as at_ms:
                    cost = self._queue.cost_of_held(row, at_ms)
                    self._store.end(row.id, "cancelled", "the run over several nodes was not started in time", wall, cost=cost)
                    self._freed()
                self._lives.forget_secrets(self._store.get(row.id))
                self._changed(row.id)

    def _look_at_drains(self) -> None:
        for drain in list(self._drains.all.values()):
            if not self._is_clean(drain):
                continue
            with self._context.moment() as at_ms:
                self._drains.remove(drain.trace.job)
                self._context.problems.pop(f"unkillable {drain.trace.job}", None)
                self._settle(drain, at_ms)
                self._changed(drain.trace.job)
                self._freed()

    def _is_clean(self, drain: Drain) -> bool:
        if seen_left(drain, self._view):
            return False
        if drain.trace.gpus and not self._known(drain):
            return False
        if drain.plan is None or drain.plan.get("enforcement") == "none":
            return not any(_alive(pid) for pid in drain.trace.pids)
        group = group_for(drain.plan)
        return group.empty() and group.remove(0.1)

    def _known(self, drain: Drain) -> bool:
        """Whether the driver tells who is on all of its GPUs."""
        return all(self._view.processes(uuid) is not None for uuid in drain.trace.gpus)

    def _settle(self, drain: Drain, at_ms: int) -> None:
        """The job's last figures: it had its GPUs until now."""
        row = self._store.find(drain.trace.job)
        if row is None:
            return
        held = costs.millionths(row.spec.gpus, row.spec.gpu_share)
        price = costs.price(row.notes.get("price") or None, None)
        more = costs.cost(price, held, int(row.notes.get("gpus", "0")), at_ms - drain.begun_ms)
        attempts = self._store.attempts(row.id)
        before = [attempt.cost for attempt in attempts[:-1]]
        notes = {name: text for name, text in row.notes.items() if name != NOTE}
        self._store.change(row.id, left_behind=(), cost=costs.total(*before, more), notes=notes)
        if row.spec.gpu_share is not None and row.gpus:
            asyncio.get_running_loop().create_task(self._release(row.id, row.gpus[0]))
        starter.clean_up(self._context, row.id, row.attempt)

    async def _release(self, job: str, uuid: str) -> None:
        try:
            await self._sharing.release(job, uuid)
        except AgentFault as fault:
            self._context.failed(f"sharing of {uuid}", fault)

    async def _prune(self) -> None:
        """Jobs that ended long ago, with their folders; uploads that nobody needs."""
        try:
            gone = self._store.prune(now() - timedelta(days=self._context.jobs.keep_days))
            used = [row.spec.upload for row in self._store.unended() if row.spec.upload is not None]
            await asyncio.to_thread(self._remove, gone, used)
            self._context.works("old jobs")
        except Exception as error:
            self._context.failed("old jobs", error)

    def _remove(self, gone: list[str], used: list[str]) -> None:
        for id in gone:
            starter.remove_folder(self._context.job_folder(id))
        self._context.uploads.prune(used)


def _alive(pid: int) -> bool:
    """Whether a process that could not be killed is still there; its pid cannot be another's while it is."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    os.close(descriptor)
    return True
