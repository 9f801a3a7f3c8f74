"""The life of each attempt: started or adopted, watched, ended. One task for each.

Invariant: an attempt is ended exactly once, from what its shim left on the disk; its GPUs are let go only then. A fault
about one of them is said on that job and tried again, and touches no other.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from agent.errors import AgentFault
from agent.isolation.plan import GroupPlan
from agent.jobs import starter
from agent.jobs.attempt_dir import LAUNCH, SHIM, AttemptDir
from agent.jobs.cause import Verdict
from agent.jobs.context import Context
from agent.jobs.drains import Drains
from agent.jobs.ender import Ender, unbegun
from agent.jobs.live import Live
from agent.jobs.node_shape import GpuView
from agent.jobs.plan import Prepared
from agent.jobs.rows import JobRow
from agent.jobs.sharing import Sharing

LOOK_SECONDS = 0.5
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
        self._sharing = sharing
        self._ender = Ender(context, view, sharing, drains, self._over)
        self._make = make
        self._changed = changed
        self._freed = freed
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
        self._ender.sampled()

    def forget_secrets(self, row: JobRow) -> None:
        """Once no attempt, and no task of the array, needs them any more."""
        self._ender.forget_secrets(row)

    def _over(self, row: JobRow) -> None:
        self.all.pop(row.id, None)
        self._changed(row.id)
        self._freed()

    def close(self) -> None:
        """Jobs run on; nobody looks."""
        for live in self.all.values():
            if live.task is not None:
                live.task.cancel()

    # Start

    async def _start_and_watch(self, live: Live) -> None:
        try:
            verdict = await self._start(live)
        except Exception as error:
            verdict = Verdict(cause="start_error", evidence=self._why_not(live, error), started=False)
        if verdict is not None:
            await self._trying(live, lambda: self._ender.finish(live, verdict, None, []))
        else:
            await self._watch(live)

    def _why_not(self, live: Live, error: Exception) -> str:
        return str(error) if isinstance(error, AgentFault) else self._context.failed(f"the start of job {live.id}", error)

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
            return Verdict(cause=row.stop_cause, evidence=unbegun(row), started=False)
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
        await self._ender.end(live)

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
        if live.pidfd is None:
            return
        try:
            await _readable(live.pidfd)
            starter.reap(live.pidfd)
        finally:
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
