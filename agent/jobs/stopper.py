"""Stops: why a job is to end, written down first, then asked of its shim; and all the reasons that time brings.

Invariant: an intent is in the queue's file before any signal; whoever asks a second time can only shorten the grace.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import datetime

import msgspec

from agent import wire
from agent.errors import JobConflict
from agent.isolation.group import group_for
from agent.jobs import costs
from agent.jobs.attempt_dir import StopOrder
from agent.jobs.context import Context, boottime_ms, now
from agent.jobs.live import Live
from agent.jobs.manager_life import Lives
from agent.jobs.rows import JobRow
from agent.jobs.signals import signal_number

NOTICE_MARGIN_SECONDS = 5.0
"""Of the time until the node goes: for the kill, the record, and telling others."""
NOTICE_EARLY_SECONDS = 120.0
"""A notice that leaves more than this beyond the grace is not acted on yet."""
CLOSED_SECONDS = 3600.0
"""Nothing new starts when the node goes within this time; maintenance is announced weeks ahead."""
SHIM_LATE_SECONDS = 15.0
LEAVES = ("terminate", "stop", "hibernate", "maintenance")
"""Kinds of notices after which nothing of the node is left to run on."""


class Stopper:
    """Belongs to the event loop."""

    def __init__(self, context: Context, lives: Lives, changed: Callable[[str], None]) -> None:
        self._context = context
        self._store = context.store
        self._lives = lives
        self._changed = changed
        self.notice: wire.Notice | None = None

    def stop(self, id: str, cause: str, evidence: str | None = None, *, grace_seconds: float | None = None) -> JobRow:
        """Of a job that holds something. The intent is durable when this returns. JobConflict: it has ended."""
        row = self._store.want_stop(id, cause, now(), evidence=evidence, grace_seconds=grace_seconds)
        live = self._lives.all.get(id)
        if live is not None and (live.spawned or live.adopted):
            self.order(live, row)
        self._changed(id)
        return row

    def order(self, live: Live, row: JobRow) -> None:
        """Tells the shim. Also after a restart: an agent may have ended between the intent and this."""
        assert row.stop_cause is not None
        grace = row.spec.grace_seconds if row.stop_grace_seconds is None else row.stop_grace_seconds
        order = StopOrder(
            cause=row.stop_cause,
            signal=signal_number(row.spec.stop_signal),
            grace_seconds=grace,
            requested_at=row.stop_at or now(),
        )
        live.folder.stop(order)
        late = grace + self._context.jobs.kill_wait_seconds + SHIM_LATE_SECONDS
        deadline = boottime_ms() + int(late * 1000)
        live.stop_deadline_ms = min(live.stop_deadline_ms or deadline, deadline)

    def tick(self) -> None:
        """Once a second: what has become due."""
        at_ms, wall = boottime_ms(), now()
        for live in list(self._lives.all.values()):
            try:
                self._look_at(live, at_ms, wall)
            except JobConflict:
                continue  # it ended meanwhile
            except Exception as error:
                live.warnings["agent"] = self._context.failed(f"job {live.id}", error)

    def _look_at(self, live: Live, at_ms: int, wall: datetime) -> None:
        row = self._store.find(live.id)
        if row is None:
            return
        if row.stop_cause is not None:
            self._escalate(live, at_ms)
            return
        if live.shim is None:
            return
        ran_ms = at_ms - live.shim.started_boottime_ns // 1_000_000
        limit = live.spec.time_limit_seconds
        if limit is not None and ran_ms >= limit * 1000:  # the shim stops it by itself; here it is only shown
            evidence = f"its time limit of {limit:g} s is over"
            self._store.want_stop(live.id, "time_limit", wall, evidence=evidence)
            self._changed(live.id)
        elif (evidence := self._over_budget(live, at_ms)) is not None:
            self.stop(live.id, "budget", evidence)
        elif (evidence := self._idle(live, at_ms)) is not None:
            self.stop(live.id, "idle_stop", evidence)
        elif self.notice is not None and live.spec.interruptible:
            self._reclaim(live, self.notice, wall)

    def _over_budget(self, live: Live, at_ms: int) -> str | None:
        budget, rate, spent = live.spec.budget_usd, live.usd_per_hour, live.base_cost
        if budget is None or rate is None or spent is None:
            return None
        due_ms = live.begun_ms + int(costs.seconds_until_stop(budget, spent, rate, live.spec.grace_seconds) * 1000)
        if at_ms < due_ms:
            return None
        cost = live.cost(at_ms)
        return f"it has cost {cost:.4f} of its {budget} USD, and the rest is its grace" if cost is not None else None

    def _idle(self, live: Live, at_ms: int) -> str | None:
        """Warns at half of the time."""
        most = live.spec.idle_stop_seconds
        if most is None or live.idle_since_ms is None:
            live.warnings.pop("idle", None)
            return None
        idle = (at_ms - live.idle_since_ms) / 1000
        if idle >= most:
            return f"its GPUs did nothing for {idle:.0f} s, and {most:g} s are allowed"
        if idle >= most / 2:
            if "idle" not in live.warnings:
                live.warnings["idle"] = f"its GPUs have done nothing for {idle:.0f} s; after {most:g} s it is stopped"
                self._changed(live.id)
        else:
            live.warnings.pop("idle", None)
        return None

    def _reclaim(self, live: Live, notice: wire.Notice, wall: datetime) -> None:
        if notice.kind not in LEAVES:
            return
        left = (notice.at - wall).total_seconds() - NOTICE_MARGIN_SECONDS if notice.at is not None else None
        if left is not None and left > live.spec.grace_seconds + NOTICE_EARLY_SECONDS:
            return
        grace = live.spec.grace_seconds if left is None else max(0.0, min(live.spec.grace_seconds, left))
        self.stop(live.id, "spot_reclaim", notice.message, grace_seconds=grace)

    def _escalate(self, live: Live, at_ms: int) -> None:
        """A shim that has not ended a job long after it should have: the agent ends both itself."""
        if live.stop_deadline_ms is None or at_ms < live.stop_deadline_ms:
            return
        live.stop_deadline_ms = at_ms + int(SHIM_LATE_SECONDS * 1000)
        live.warnings["shim"] = "its supervising process did not end it in time; the agent does"
        self._changed(live.id)
        asyncio.get_running_loop().run_in_executor(None, _end_both, live)

    def closed(self) -> str | None:
        """Why nothing may start on this node now."""
        notice = self.notice
        if notice is None or notice.kind not in LEAVES:
            return None
        if notice.at is not None and (notice.at - now()).total_seconds() > CLOSED_SECONDS:
            return None
        when = f" at {notice.at:%H:%M:%S} UTC" if notice.at is not None else ""
        return f"waits: {notice.cloud} takes this node away{when}"

    def take(self, notice: wire.Notice) -> None:
        """The cloud's word, or that it took it back."""
        self.notice = None if notice.ended_at is not None else notice
        for live in self._lives.all.values():
            if self.notice is None:
                live.warnings.pop("notice", None)
            else:
                live.warnings["notice"] = self.notice.message
            self._changed(live.id)
        self.tick()


def _end_both(live: Live) -> None:
    """Blocks."""
    if live.plan is not None and live.plan.enforcement != "none":
        group_for(msgspec.to_builtins(live.plan)).kill()
    else:
        live.folder.kill_orphans()
    descriptor = live.folder.shim_pidfd()
    if descriptor is not None:
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except OSError:
            pass
        finally:
            os.close(descriptor)
