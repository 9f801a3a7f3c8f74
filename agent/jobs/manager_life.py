"""The life of each attempt: started or adopted, watched, ended. One task for each.

Invariant: an attempt is ended exactly once, from what its shim left on the disk; its GPUs are let go only then. A fault
about one of them is said on that job and tried again, and touches no other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agent.errors import AgentFault, StateDirectoryError
from agent.isolation.group import group_for
from agent.isolation.plan import GroupPlan
from agent.jobs import gpu_check, secrets, starter
from agent.jobs.attempt_dir import LAUNCH, SHIM, AttemptDir, ExitRecord
from agent.jobs.cause import Verdict, judge
from agent.jobs.context import Context, now
from agent.jobs.drains import NOTE, Drain, Drains
from agent.jobs.launch import ERROR_FILE
from agent.jobs.live import Live, encode_usage
from agent.jobs.node_shape import GpuView
from agent.jobs.plan import Prepared
from agent.jobs.retry import next_try, uses_retry
from agent.jobs.rows import JobRow
from agent.jobs.sharing import Sharing

LOOK_SECONDS = 0.5
SILENT_SECONDS = 5.0
"""Without a new reading of the driver for so long, its word on processes is not waited for."""
LARGEST_ERROR_FILE = 65_536
_PAUSES = (0.002, 0.003, 0.005, 0.01, 0.02, 0.05)


class Lives:
    """Belongs to the event loop. `changed(id)`: the job is to be shown; `freed()`: something can start."""

    def __init__(
        self,
        context: Context,
        view: GpuView,
        sharing: Sharing,
        drains: Drains,
        *,
        make: Callable[[JobRow, dict[str, str]], Prepared],
        changed: Callable[[str], None],
        freed: Callable[[], None],
    ) -> None:
        self._context = context
        self._store = context.store
        self._view = view
        self._sharing = sharing
        self._drains = drains
        self._make = make
        self._changed = changed
        self._freed = freed
        self._sampled = asyncio.Event()
        self.all: dict[str, Live] = {}

    def begin(self, row: JobRow, plan: GroupPlan) -> None:
        """The row is `starting`: brings the attempt to life."""
        self._add(Live(row, self._folder(row), plan), self._start_and_watch)

    def adopt(self, row: JobRow) -> Live:
        """Of an agent before this one: whatever became of it, it ends as it should."""
        live = Live(row, self._folder(row), None)
        live.adopted = True
        self._read_plan(live)
        self._add(live, self._watch)
        return live

    def _folder(self, row: JobRow) -> AttemptDir:
        return AttemptDir(self._context.attempt_folder(row.id, row.attempt))

    def _add(self, live: Live, life: Callable[[Live], Any]) -> None:
        self.all[live.id] = live
        live.task = asyncio.create_task(life(live), name=live.unit)

    def _read_plan(self, live: Live) -> None:
        try:
            launch = msgspec.json.decode((live.folder.path / LAUNCH).read_bytes())
            live.plan = GroupPlan.from_dict(launch["group"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, AgentFault):
            live.plan = None  # it was never prepared

    def sampled(self) -> None:
        """A new sample is there."""
        self._sampled.set()
        self._sampled = asyncio.Event()

    def close(self) -> None:
        """Jobs run on; nobody looks."""
        for live in self.all.values():
            if live.task is not None:
                live.task.cancel()

    # Start

    async def _start_and_watch(self, live: Live) -> None:
        try:
            verdict = await self._start(live)
        except (AgentFault, OSError, ValueError) as error:
            verdict = Verdict(cause="start_error", evidence=_sentence(error), started=False)
        if verdict is not None:
            await self._trying(live, lambda: self._finish(live, verdict, None, []))
        else:
            await self._watch(live)

    async def _start(self, live: Live) -> Verdict | None:
        """A verdict where it is over before anything of it ran."""
        row = self._store.get(live.id)
        prepared = self._make(row, {})
        if not live.exclusive:
            mps = await self._sharing.admit(live.id, live.gpus[0], row.spec, prepared.user)
            prepared = self._make(row, mps)
        live.plan = prepared.group
        live.folder = await starter.put_files(self._context, prepared)
        row = self._store.get(live.id)
        if row.stop_cause is not None:  # between this look and the spawn nothing else runs
            return Verdict(cause=row.stop_cause, evidence=_unbegun(row), started=False)
        live.child, live.pidfd = starter.spawn(prepared, self._context.environ)
        live.spawned = True
        return None

    # Watch

    async def _watch(self, live: Live) -> None:
        await self._trying(live, lambda: self._watch_once(live))

    async def _trying(self, live: Live, action: Callable[[], Any]) -> None:
        """Again and again until it works: a full disk empties, a driver comes back."""
        what, pause = f"job {live.id}", 0.5
        while True:
            try:
                await action()
                self._context.works(what)
                live.warnings.pop("agent", None)
                return
            except Exception as error:
                live.warnings["agent"] = self._context.failed(what, error)
                self._changed(live.id)
            await asyncio.sleep(pause)
            pause = min(30.0, pause * 2)

    async def _watch_once(self, live: Live) -> None:
        await self._until_gone(live)
        await self._end(live)

    async def _until_gone(self, live: Live) -> None:
        gone = asyncio.create_task(self._gone(live))
        try:
            for pause in _pauses():
                if live.shim is not None or gone.done():
                    break
                self._look_for_start(live)
                await asyncio.wait({gone}, timeout=pause)
            await gone
            self._look_for_start(live)
        finally:
            gone.cancel()

    async def _gone(self, live: Live) -> None:
        """Returns when the shim has ended."""
        if live.pidfd is None:
            live.pidfd = live.folder.shim_pidfd()
        if live.pidfd is None:
            while live.folder.look(self._context.boot_id) == "running":
                await asyncio.sleep(LOOK_SECONDS)
                if live.pidfd is None and (late := live.folder.shim_pidfd()) is not None:
                    live.pidfd = late
                    break
        if live.pidfd is not None:
            await _readable(live.pidfd)
            starter.reap(live.pidfd)
            os.close(live.pidfd)
            live.pidfd = None

    def _look_for_start(self, live: Live) -> None:
        if live.shim is not None or not os.path.lexists(live.folder.path / SHIM):
            return
        live.shim = live.folder.shim()
        if live.shim is None:
            return
        row = self._store.get(live.id)
        if (
            row.state == "starting"
            or row.started_at is None
            or row.attempt == live.number
            and row.started_at < live.shim.started_at
        ):
            self._store.mark_running(live.id, live.number, live.shim.started_at)
        for failed in live.shim.failed:
            live.warnings[f"limit {failed.get('path')}"] = (
                f"{failed.get('limit') or 'a limit'} is not as asked for: {failed.get('path')} {failed.get('error')}"
            )
        self._changed(live.id)

    # End

    async def _end(self, live: Live) -> None:
        """The shim is gone: what did it leave?"""
        record = live.folder.exit()
        standing: str = "exited"
        left: list[str] = []
        if record is None:
            standing = live.folder.look(self._context.boot_id)
            if standing == "running":
                raise StateDirectoryError(f"the supervising process of {live.unit} is gone, but its lock is held")
            if standing == "exited":
                record = live.folder.exit()
            elif standing == "not_started" and live.spawned:
                said = starter.shim_errors(live.folder) or "it said nothing"
                evidence = f"the job's supervising process ended before it began: {said}"
                return await self._finish(live, Verdict(cause="start_error", evidence=evidence, started=False), None, [])
            elif standing == "lost":
                left = await asyncio.to_thread(_kill_lost, live, self._context.jobs.kill_wait_seconds)
        pids: tuple[int, ...] = ()
        if record is not None:
            live.count(record.counters)
            pids = record.left
        left += await self._until_clean(live, pids)
        row = self._store.get(live.id)
        verdict = _never_begun(record, row) or judge(
            record,
            standing,
            row.stop_cause,
            intent_evidence=row.stop_evidence,
            error_file=self._error_file(live),
            left=left,
        )
        await self._finish(live, verdict, record, left)

    async def _until_clean(self, live: Live, pids: tuple[int, ...]) -> list[str]:
        """Waits for a reading of the driver that shows nothing of the job; else sentences about what stays."""
        if not live.gpus:
            return []
        ended, loop = now(), asyncio.get_running_loop()
        trace = gpu_check.trace_of(live, pids)
        begun = loop.time()
        until = begun + self._context.jobs.kill_wait_seconds
        found: list[str] = []
        while loop.time() < until:
            if gpu_check.read_since(self._view, ended):
                found = gpu_check.strays(trace, self._view)
                if not found:
                    return []
            elif loop.time() > begun + SILENT_SECONDS:
                return found
            await self._next_sample(1.0)
        return found

    async def _next_sample(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._sampled.wait(), seconds)
        except TimeoutError:
            pass

    def _error_file(self, live: Live) -> bytes | None:
        """What torch elastic left; the job's user could have put anything there."""
        path = self._context.runtime(live.id, live.number) / ERROR_FILE
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(descriptor, LARGEST_ERROR_FILE)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    async def _finish(self, live: Live, verdict: Verdict, record: ExitRecord | None, left: list[str]) -> None:
        row = self._store.get(live.id)
        if row.state == "ended" or row.attempt != live.number:
            self.all.pop(live.id, None)  # it was ended before, and what came after failed
            return
        stuck = verdict.cause == "unkillable"
        fields = self._last_fields(live, record, verdict)
        if stuck:
            fields |= self._drain(live, verdict, record, left)
        else:
            fields |= await self._let_go(live)
        again = next_try(
            row.spec, verdict.cause, row.retries, now(), self._context.rng, started=verdict.started, stop_cause=row.stop_cause
        )
        ended = self._store.end_attempt(
            live.id,
            live.number,
            verdict,
            (record.ended_at if record is not None else None) or now(),
            requeue_at=again,
            uses_retry=again is not None and uses_retry(row.spec, verdict.cause, started=verdict.started),
            **fields,
        )
        self.all.pop(live.id, None)
        self._after(ended, verdict)

    def _after(self, row: JobRow, verdict: Verdict) -> None:
        self._context.record("agent", None, "end" if row.state == "ended" else "requeue", row.id, verdict.cause)
        if row.state == "ended":
            self.forget_secrets(row)
        self._changed(row.id)
        self._freed()

    def forget_secrets(self, row: JobRow) -> None:
        """Once no attempt, and no task of the array, needs them any more."""
        owner = row.array or row.id
        if row.spec.secrets and (row.array is None or (array := self._store.find(owner)) is None or array.state == "ended"):
            secrets.forget(self._context.job_folder(owner))

    def _last_fields(self, live: Live, record: ExitRecord | None, verdict: Verdict) -> dict[str, Any]:
        usage = live.usage()
        cost = live.cost()
        row = self._store.get(live.id)
        if row.boot_id not in (None, self._context.boot_id):
            cost = row.cost  # of the last boot: as far as it was noted
        fields: dict[str, Any] = {
            "usage": usage,
            "attempt_usage": live.own_usage(),
            "cost": cost,
            "attempt_cost": live.own_cost() if cost is not row.cost else None,
            "notes": {"usage": encode_usage(usage), "cost": str(cost) if cost is not None else ""},
            "warnings": tuple(dict.fromkeys((*row.warnings, *(text for key, text in live.warnings.items() if key != "agent")))),
        }
        if record is not None:
            fields |= {"log_bytes": record.log_bytes, "log_dropped_lines": record.log_dropped_lines}
            if not record.group_removed and record.empty:
                fields["left_behind"] = (f"the cgroup of {live.unit} could not be removed",)
        return fields

    async def _let_go(self, live: Live) -> dict[str, Any]:
        """Gives back what the attempt had beside its GPUs."""
        left = []
        if not live.exclusive and live.gpus:
            try:
                await self._sharing.release(live.id, live.gpus[0])
            except AgentFault as fault:
                left.append(str(fault))
        try:
            starter.clean_up(self._context, live.id, live.number)
        except AgentFault as fault:
            left.append(str(fault))
        return {"left_behind": tuple(left)} if left else {}

    def _drain(self, live: Live, verdict: Verdict, record: ExitRecord | None, left: list[str]) -> dict[str, Any]:
        """The GPUs stay allocated, and the node is marked."""
        trace = gpu_check.trace_of(live, record.left if record is not None else ())
        drain = Drain(
            trace=trace,
            unit=live.unit,
            sentence=f"something of job {live.id} could not be killed and may still use it",
            begun_ms=live.begun_ms,
            plan=live.plan.to_dict() if live.plan is not None else None,
            boot_id=self._context.boot_id,
        )
        self._drains.add(drain)
        self._context.problems[f"unkillable {live.id}"] = f"job {live.id} could not be killed: {verdict.evidence}"
        row = self._store.get(live.id)
        notes = {"price": row.notes.get("price", ""), "gpus": row.notes.get("gpus", "0"), "begun_ms": str(live.begun_ms)}
        return {"left_behind": tuple(left) or (verdict.evidence,), "notes": {**notes, NOTE: Drains.note(drain)}}


def _never_begun(record: ExitRecord | None, row: JobRow) -> Verdict | None:
    """The shim found the order to stop before it had started anything."""
    if record is None or record.stop is None or record.start_error is not None or record.started_at is not None:
        return None
    if record.exit_code is not None or record.signal is not None:
        return None
    return Verdict(cause=row.stop_cause or record.stop.cause, evidence=_unbegun(row), started=False)


def _unbegun(row: JobRow) -> str:
    why = f"{row.stop_evidence}, " if row.stop_evidence else ""
    return f"{why}before its first process began"


def _kill_lost(live: Live, wait_seconds: float) -> list[str]:
    """The shim is gone without a record: ends what it left, by its cgroup, never by a stored pid. Blocks."""
    if live.plan is None or live.plan.enforcement == "none":
        live.folder.kill_orphans()
        return []
    group = group_for(live.plan.to_dict())
    until = time.monotonic() + wait_seconds
    while not group.empty():
        group.kill()
        if time.monotonic() > until:
            pids = group.pids()
            return [f"process {pid} could not be killed" for pid in pids[:8]] or [f"{live.unit} could not be killed"]
        time.sleep(0.02)
    live.count(group.counters())
    group.remove()
    return []


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.add_reader(descriptor, lambda: done.done() or done.set_result(None))
    try:
        await done
    finally:
        loop.remove_reader(descriptor)


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _sentence(error: Exception) -> str:
    if isinstance(error, AgentFault):
        return str(error)
    return f"{type(error).__name__}: {error}"
