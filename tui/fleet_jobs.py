"""The jobs of a node as last heard of, and the cloud's notice that is in force.

Invariant: what an agent no longer tells of is gone by the first sample after it told anew, and not a moment before: a row
that is still there never flickers. Of ended jobs the newest are kept. No clock of its own; `now` is monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from agent import wire

if TYPE_CHECKING:
    from tui.fleet import NodeView

MOST_ENDED = 200
"""Ended jobs that are kept of a node."""
TOLD_AT_MOST = 1000
"""An agent tells no more unended jobs than this when a stream opens: past it, silence about a job means nothing."""
RUNNING = frozenset({"starting", "running", "stopping"})
SOFT_NOTICES = frozenset({"rebalance", "maintenance"})
"""Notices that do not say that the node goes away."""


class JobView:
    """One job with its node: a row of the jobs screen. Mutated only by `NodeJobs`."""

    __slots__ = ("key", "node", "job", "heard_at", "version")

    def __init__(self, node: NodeView, job: wire.Job, now: float) -> None:
        self.key = f"{node.name} {job.id}"
        """Unique in the fleet."""
        self.node = node
        self.job = job
        self.heard_at = now
        self.version = 0

    def run_seconds(self, now: float) -> float | None:
        """How long its newest attempt ran, by the node's clock; None before its start."""
        job, started = self.job, self.job.started_at
        if started is None or job.state == "queued":
            return None
        end = job.ended_at or self.node.utc(now)
        return None if end is None else max(0.0, (end - started).total_seconds())

    def wait_seconds(self, now: float) -> float | None:
        """How long ago it was submitted, by the node's clock."""
        at = self.node.utc(now)
        return None if at is None else max(0.0, (at - self.job.submitted_at).total_seconds())

    def cost(self, now: float) -> Decimal | None:
        """US dollars so far: what the agent said, and what its price per hour makes of the time since."""
        job = self.job
        if job.cost is None or job.state not in RUNNING or job.usd_per_hour is None:
            return job.cost
        seconds = max(0.0, self.node.heard_until(now) - self.heard_at)
        return job.cost + job.usd_per_hour * Decimal(round(seconds)) / 3600


def whole_cost(parts: Iterable[JobView], now: float) -> Decimal | None:
    """US dollars so far of a run's parts together; None where one is not known."""
    costs = [one.cost(now) for one in parts]
    return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))


class NodeJobs:
    """Jobs of one node by id: those that have not ended in the order in which they were told, and those that ended."""

    __slots__ = ("_node", "_unended", "_ended", "_doubted", "_told", "running", "queued", "problem")

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._unended: dict[str, JobView] = {}
        self._ended: dict[str, JobView] = {}
        self._doubted: set[str] | None = None
        self._told = 0
        self.running = 0
        self.queued = 0
        self.problem: str | None = None
        """Why jobs cannot run here, as the agent said when it was asked."""

    def __len__(self) -> int:
        return len(self._unended) + len(self._ended)

    def __iter__(self) -> Iterator[JobView]:
        """Unended ones first, then those that ended, newest first."""
        yield from self._unended.values()
        yield from reversed(self._ended.values())

    def get(self, ident: str) -> JobView | None:
        """The job of that id."""
        return self._unended.get(ident) or self._ended.get(ident)

    def take(self, job: wire.Job, now: float) -> None:
        """A job as it stands now."""
        if self._doubted is not None:
            self._doubted.discard(job.id)
            self._told += 1
        view = self.get(job.id)
        if view is None:
            view = JobView(self._node, job, now)
        else:
            self._count(view.job, -1)
            if view.job.state == "ended" or job.state == "ended":
                self._unended.pop(job.id, None)
                self._ended.pop(job.id, None)
        view.job, view.heard_at = job, now
        view.version += 1
        self._count(job, 1)
        (self._ended if job.state == "ended" else self._unended)[job.id] = view
        self._forget_oldest()

    def doubt(self) -> None:
        """The agent tells its unended jobs anew: those that it does not name until the next sample are no more."""
        self._doubted, self._told = set(self._unended), 0

    def settle(self) -> bool:
        """A sample came: everything was told. Whether a job went."""
        if self._doubted is None:
            return False
        gone = self._doubted if self._told < TOLD_AT_MOST else set()
        self._doubted = None
        for ident in gone:
            self._count(self._unended.pop(ident).job, -1)
        return bool(gone)

    def seed(self, listed: wire.JobList, now: float) -> None:
        """The agent's whole list: brings the ended jobs of before, and takes away what is no more."""
        self.problem = listed.problem
        told = {job.id for job in listed.jobs}
        for ident in [ident for ident in self._unended if ident not in told]:
            self._count(self._unended.pop(ident).job, -1)
        self._ended = {ident: view for ident, view in self._ended.items() if ident not in told}
        ended = [job for job in listed.jobs if job.state == "ended"]
        for job in (*reversed(ended), *(job for job in listed.jobs if job.state != "ended")):
            self.take(job, now)

    def _count(self, job: wire.Job, step: int) -> None:
        """An array's own row is not counted: its tasks are."""
        if job.array_counts:
            return
        if job.state in RUNNING:
            self.running += step
        elif job.state == "queued":
            self.queued += step

    def _forget_oldest(self) -> None:
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]


class NoticeView(msgspec.Struct, frozen=True):
    """What the cloud will do to a node, and when."""

    notice: wire.Notice

    @property
    def hard(self) -> bool:
        """The node goes away; otherwise it is only recommended to leave it."""
        return self.notice.kind not in SOFT_NOTICES

    def left_seconds(self, at: datetime | None) -> float | None:
        """From `at` until it happens, never below 0; None: it was not said when."""
        when = self.notice.at
        return None if when is None or at is None else max(0.0, (when - at).total_seconds())

    def short(self, at: datetime | None) -> str:
        """Six cells: `!1m43s`, `!12m`, `!now`, `!rebal`, `!maint`."""
        left = self.left_seconds(at)
        if left is None:
            return "!now" if self.hard else f"!{self.notice.kind[:5]}"
        return f"!{countdown(left)}" if left else "!now"

    def sentence(self, at: datetime | None) -> str:
        """`terminate in 1m43s: <what to do>`."""
        return f"{self.brief(at)}: {self.notice.message}"

    def brief(self, at: datetime | None) -> str:
        """`terminate in 1m43s`, `terminate now`, `rebalance`."""
        left = self.left_seconds(at)
        return self.notice.kind + (f" in {countdown(left)}" if left else " now" if left == 0 or self.hard else "")


def countdown(seconds: float) -> str:
    """`43s`, `1m43s`, `12m`, `3h`: exact where it matters."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 60}m" if whole < 6000 else f"{whole // 3600}h"


class JobCounts(msgspec.Struct, frozen=True):
    """Of some nodes."""

    running: int
    queued: int
    notices: int


def node_clock(sample: wire.Sample | None, heard_at: float | None, until: float) -> datetime | None:
    """The time at a node, by the time that its newest sample carried; None before the first sample."""
    if sample is None or heard_at is None:
        return None
    return sample.taken_at + timedelta(seconds=until - heard_at)
