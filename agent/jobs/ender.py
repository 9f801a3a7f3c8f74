"""The end of each attempt: what its shim left, what the driver still shows, what it has cost, what comes next.

Invariant: an attempt is ended exactly once, in one step in the queue's file; before it nothing that the job held is given
to another, and what could not be killed keeps its GPUs from others.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from agent.errors import AgentFault, StateDirectoryError
from agent.isolation.group import group_for
from agent.jobs import gpu_check, secrets, starter
from agent.jobs.attempt_dir import ExitRecord
from agent.jobs.cause import Verdict, judge
from agent.jobs.context import Context, now
from agent.jobs.drains import NOTE, Drain, Drains
from agent.jobs.launch import ERROR_FILE
from agent.jobs.live import Live, encode_usage
from agent.jobs.node_shape import GpuView
from agent.jobs.retry import next_try, uses_retry
from agent.jobs.rows import JobRow
from agent.jobs.sharing import Sharing

SILENT_SECONDS = 5.0
"""Without a new reading of the driver for so long, its word on processes is not waited for."""
LARGEST_ERROR_FILE = 65_536


class Ender:
    """Belongs to the event loop. `over(row)`: the attempt is ended in the queue's file."""

    def __init__(
        self, context: Context, view: GpuView, sharing: Sharing, drains: Drains, over: Callable[[JobRow], None]
    ) -> None:
        self._context = context
        self._store = context.store
        self._view = view
        self._sharing = sharing
        self._drains = drains
        self._over = over
        self._sampled = asyncio.Event()

    def sampled(self) -> None:
        """A new sample is there."""
        self._sampled.set()
        self._sampled = asyncio.Event()

    async def end(self, live: Live) -> None:
        """The shim is gone: what did it leave?"""
        record, standing = self._record(live)
        if record is None and standing == "not_started" and live.spawned:
            said = starter.shim_errors(live.folder) or "it said nothing"
            evidence = f"the job's supervising process ended before it began: {said}"
            return await self.finish(live, Verdict(cause="start_error", evidence=evidence, started=False), None, [])
        left: list[str] = []
        if standing == "lost":
            left = await asyncio.to_thread(_kill_lost, live, self._context.jobs.kill_wait_seconds)
        if record is not None:
            live.count(record.counters)
        left += await self._until_clean(live, record.left if record is not None else ())
        row = self._store.get(live.id)
        verdict = _never_begun(record, row) or judge(
            record,
            standing,
            row.stop_cause,
            intent_evidence=row.stop_evidence,
            error_file=self._error_file(live),
            left=left,
        )
        await self.finish(live, verdict, record, left)

    def _record(self, live: Live) -> tuple[ExitRecord | None, str]:
        """(exit record, standing). Raises StateDirectoryError for a shim that is gone and not gone."""
        record = live.folder.exit()
        if record is not None:
            return record, "exited"
        standing = live.folder.look(self._context.boot_id)
        if standing == "running":
            raise StateDirectoryError(f"the supervising process of {live.unit} is gone, but its lock is held")
        return (live.folder.exit() if standing == "exited" else None), standing

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

    async def finish(self, live: Live, verdict: Verdict, record: ExitRecord | None, left: list[str]) -> None:
        row = self._store.get(live.id)
        if row.state == "ended" or row.attempt != live.number:
            return  # it was ended before, and what came after failed
        stuck = verdict.cause == "unkillable"
        let_go = self._drain(live, verdict, record, left) if stuck else await self._let_go(live)
        with self._context.moment() as at_ms:  # until then it holds its GPUs
            self._end(live, verdict, record, {**self._last_fields(live, record, verdict, at_ms), **let_go})

    def _end(self, live: Live, verdict: Verdict, record: ExitRecord | None, fields: dict[str, Any]) -> None:
        row = self._store.get(live.id)
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
        self._after(ended, verdict)

    def _after(self, row: JobRow, verdict: Verdict) -> None:
        self._context.record("agent", None, "end" if row.state == "ended" else "requeue", row.id, verdict.cause)
        if row.state == "ended":
            self.forget_secrets(row)
        self._over(row)

    def forget_secrets(self, row: JobRow) -> None:
        """Once no attempt, and no task of the array, needs them any more."""
        owner = row.array or row.id
        if row.spec.secrets and (row.array is None or (array := self._store.find(owner)) is None or array.state == "ended"):
            secrets.forget(self._context.job_folder(owner))

    def _last_fields(self, live: Live, record: ExitRecord | None, verdict: Verdict, at_ms: int) -> dict[str, Any]:
        usage = live.usage()
        cost = live.cost(at_ms)
        row = self._store.get(live.id)
        if row.boot_id not in (None, self._context.boot_id):
            cost = row.cost  # of the last boot: as far as it was noted
        fields: dict[str, Any] = {
            "usage": usage,
            "attempt_usage": live.own_usage(),
            "cost": cost,
            "attempt_cost": live.own_cost(at_ms) if cost is not row.cost else None,
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
    return Verdict(cause=row.stop_cause or record.stop.cause, evidence=unbegun(row), started=False)


def unbegun(row: JobRow) -> str:
    why = f"{row.stop_evidence}, " if row.stop_evidence else ""
    return f"{why}before its first process began"


def _kill_lost(live: Live, wait_seconds: float) -> list[str]:
    """The shim is gone without a record: ends what it left, by its cgroup, never by a stored pid. Blocks."""
    until = time.monotonic() + wait_seconds
    if live.plan is None or live.plan.enforcement == "none":
        while live.folder.kill_orphans() and time.monotonic() < until:
            pass  # on a busy machine what was killed takes its time to be gone
        return []
    group = group_for(live.plan.to_dict())
    while not group.empty():
        group.kill()
        if time.monotonic() > until:
            pids = group.pids()
            return [f"process {pid} could not be killed" for pid in pids[:8]] or [f"{live.unit} could not be killed"]
        time.sleep(0.02)
    live.count(group.counters())
    group.remove()
    return []
