"""One node as it runs: takes each sample, feeds meter, alerts and history, and tells everyone who listens.

Invariant: an event is encoded once, whatever the number of listeners, and a listener that does not read costs bounded
memory and delays nobody: it loses old samples, never an alert's or the node's newest state.
Everything here belongs to one event loop; nothing here waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent import wire
from agent.alert_pauses import AlertPausing
from agent.drain import NodeDrain
from agent.errors import AgentFault
from agent.security import OWNER, token_matches
from agent.stream_form import StreamForm
from agent.throttling import Throttling

if TYPE_CHECKING:
    from agent.alerts import AlertEngine
    from agent.history import HistoryRing
    from agent.jobs.actor import Actor
    from agent.jobs.manager import JobManager
    from agent.meter import Meter
    from agent.meter_claims import Claim

KEPT_SAMPLES = 8
"""How many unread samples wait for one listener."""
NODE = ""
"""Key of the node event among a listener's urgent lines (the others are alert keys, and those of jobs and the notice)."""
JOB = "job/"
NOTICE = "notice"
MOST_JOBS_AT_ONCE = 1000
"""Unended jobs that a new listener is told of; `GET /v1/jobs` has them all."""

METER_REPORT = "meter"
"""Name of the report that a sample carries while usage cannot be written."""


class Subscription:
    """What one listener has still to read: the newest line of each node and alert key, and the last samples.

    An async iterator of NDJSON lines; ends after `close`.
    """

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent
        self._urgent: dict[str, bytes] = {}
        self._samples: deque[bytes] = deque(maxlen=KEPT_SAMPLES)
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def put_urgent(self, key: str, line: bytes) -> None:
        self._urgent.pop(key, None)
        self._urgent[key] = line
        self._wake()

    def put_sample(self, line: bytes) -> None:
        self._samples.append(line)
        self._wake()

    def close(self) -> None:
        """Ends the iteration (after what is waiting was read) and frees the place."""
        self._closed = True
        self._agent.forget(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> bool:
        """Whether there is something to read; False when closed and empty."""
        while not self._urgent and not self._samples:
            if self._closed:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True

    async def take(self) -> bytes | None:
        """All lines that wait, joined; None when closed. Cheaper than one by one."""
        if not await self._wait():
            return None
        if not self._urgent and len(self._samples) == 1:
            return self._samples.popleft()
        lines = b"".join((*self._urgent.values(), *self._samples))
        self._urgent.clear()
        self._samples.clear()
        return lines

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> bytes:
        if not await self._wait():
            raise StopAsyncIteration
        if self._urgent:
            return self._urgent.pop(next(iter(self._urgent)))
        return self._samples.popleft()


def _given(gpu: wire.Gpu, claims: Mapping[str, tuple[Claim, ...]]) -> wire.Gpu:
    """The GPU with the jobs that have it."""
    found = claims.get(gpu.uuid)
    if not found:
        return gpu
    parts = (wire.GpuAllocation(job=one.job, user=one.user, project=one.project, share=Decimal(one.share).scaleb(-6)) for one in found)
    return msgspec.structs.replace(gpu, allocations=tuple(parts))


class NodeAgent:
    """The newest state of one node, and its listeners. `token` None: no token is asked for."""

    def __init__(
        self,
        info: wire.NodeInfo,
        meter: Meter | None,
        alerts: AlertEngine,
        history: HistoryRing,
        token: str | None,
    ) -> None:
        self.info = info
        self.sample: wire.Sample | None = None
        self.token = token
        self.token_check: Callable[[str], Actor | None] | None = None
        """Tells whom a presented token stands for, where there are more than `token`, or it may change."""
        self.meter_error: str | None = None
        """Why usage cannot be written now; None while it can."""
        self.jobs: JobManager | None = None
        """What runs jobs here; None on a node that only measures."""
        self.jobs_fault: str | None = None
        """Why jobs cannot run here, where they should."""
        self.asked_at: float | None = None
        """`time.monotonic` of the newest request of somebody who may ask; None before the first."""
        self.further_problems: Callable[[], list[str]] = list
        """Sentences about what else does not work."""
        self.notice: wire.Notice | None = None
        """The cloud's notice that is in force."""
        self.drain = NodeDrain()
        self.pauses = AlertPausing()
        self.record: Callable[[str, str | None, str, str, str], None] = lambda actor, peer, action, object, result: None
        """Notes in the audit who ordered what; without jobs there is none."""
        self._meter = meter
        self._alerts = alerts
        self._history = history
        self._throttling = Throttling()
        self._form = StreamForm()
        self.closing = asyncio.Event()
        """Set when the agent ends: whoever holds a request open answers it now."""
        self._subscriptions: set[Subscription] = set()
        self._node_line = wire.encode_event(wire.NodeEvent(node=info))
        self._sample_body: bytes | None = None

    def holder_of(self, presented: str | None) -> Actor | None:
        """Whom a request with this bearer token comes from; None: it may not be answered."""
        if self.token is None:
            return OWNER
        if presented is None:
            return None
        if self.token_check is not None:
            return self.token_check(presented)
        return OWNER if token_matches(presented, self.token) else None

    @property
    def listeners(self) -> int:
        return len(self._subscriptions)

    @property
    def sample_age_seconds(self) -> float | None:
        """Age of the newest sample; None before the first."""
        if self.sample is None:
            return None
        return (datetime.now(timezone.utc) - self.sample.taken_at).total_seconds()

    def keep_orders(self, folder: Path) -> None:
        """What was ordered before holds, and what is ordered from now on is kept in this folder."""
        self.drain, self.pauses = NodeDrain(folder), AlertPausing(folder)
        self.orders_changed()

    def with_orders(self, info: wire.NodeInfo) -> wire.NodeInfo:
        """Identity and inventory, with what people ordered of the node."""
        return msgspec.structs.replace(info, drain=self.drain.now, pauses=self.pauses.now)

    def orders_changed(self) -> None:
        """Tells everybody, and the queue, of a drain or a pause that came or went."""
        if self.jobs is not None:
            self.jobs.drain(self.drain.sentence)
        if self.with_orders(self.info) != self.info:
            self.set_info(self.info)

    def set_info(self, info: wire.NodeInfo) -> None:
        """New identity or inventory: from now on in rows, answers and streams."""
        info = self.info = self.with_orders(info)
        self._node_line = wire.encode_event(wire.NodeEvent(node=info))
        for subscription in self._subscriptions:
            subscription.put_urgent(NODE, self._node_line)
            self._tell_all(subscription)

    def step(self, sample: wire.Sample) -> None:
        """Takes one sample. A meter that cannot write is reported in the sample and in `/healthz`; the rest goes on."""
        if self.jobs is not None and (claims := self.jobs.claims()):
            sample = msgspec.structs.replace(sample, gpus=tuple(_given(gpu, claims) for gpu in sample.gpus))
        sample = self._throttling.told(sample)
        self._observe(sample)
        if self.meter_error is not None:
            report = wire.SensorReport(name=METER_REPORT, ok=False, taken_at=sample.taken_at, error=self.meter_error)
            sample = msgspec.structs.replace(sample, sensors=(*sample.sensors, report))
        self.sample = sample
        self._sample_body = None
        self._history.add(sample)
        if self.pauses.expire():
            self.orders_changed()
        if self.jobs is not None:
            self.jobs.step(sample, self.info)
        self._publish_alerts(self._alerts.evaluate(sample, sample.taken_at))
        self._publish_sample()

    def _observe(self, sample: wire.Sample) -> None:
        if self._meter is None:
            return
        try:
            self._meter.observe(sample, self.info)
        except (AgentFault, sqlite3.Error, OSError) as error:
            self._report_meter(str(error) or type(error).__name__)
        else:
            self._report_meter(self._meter.problem)

    def _report_meter(self, error: str | None) -> None:
        if error == self.meter_error:
            return
        self.meter_error = error
        print(f"usage: {error}" if error else "usage: is written again", file=sys.stderr, flush=True)

    def _publish_alerts(self, alerts: list[wire.Alert]) -> None:
        for alert in map(self.pauses.shown, alerts):
            self._publish(alert.key, wire.AlertEvent(alert=alert))

    def publish_job(self, job: wire.Job) -> None:
        """A job was submitted, or changed."""
        self._publish(JOB + job.id, wire.JobEvent(job=job))

    def set_notice(self, notice: wire.Notice) -> None:
        """The cloud told something new; one with `ended_at` takes back what is in force."""
        self.notice = notice if notice.ended_at is None else None
        if self.jobs is not None:
            self.jobs.notice(notice)
        self._publish(NOTICE, wire.NoticeEvent(notice=notice))

    def _publish(self, key: str, event: wire.Event) -> None:
        if not self._subscriptions:
            return
        line = wire.encode_event(event)
        for subscription in self._subscriptions:
            subscription.put_urgent(key, line)

    def _tell_all(self, subscription: Subscription) -> None:
        """What follows a node event: clients forget what they knew when they see one."""
        for alert in self.active_alerts():
            subscription.put_urgent(alert.key, wire.encode_event(wire.AlertEvent(alert=alert)))
        self._tell_jobs(subscription)
        if self.notice is not None:
            subscription.put_urgent(NOTICE, wire.encode_event(wire.NoticeEvent(notice=self.notice)))

    def _tell_jobs(self, subscription: Subscription) -> None:
        unended = self.jobs.jobs(ended_limit=0).jobs if self.jobs is not None else ()
        for job in unended[:MOST_JOBS_AT_ONCE]:
            subscription.put_urgent(JOB + job.id, wire.encode_event(wire.JobEvent(job=job)))

    def _publish_sample(self) -> None:
        if not self._subscriptions or self.sample is None:
            return
        line = self._line(wire.encoder.encode(self._form.of(self.sample)))
        for subscription in self._subscriptions:
            subscription.put_sample(line)

    @staticmethod
    def _line(body: bytes | None) -> bytes:
        return b'{"event":"sample","sample":' + (body or b"null") + b"}\n"

    def sample_body(self) -> bytes | None:
        """The newest sample as JSON, encoded once however often it is asked for; None before the first."""
        if self._sample_body is None and self.sample is not None:
            self._sample_body = wire.encoder.encode(self.sample)
        return self._sample_body

    def subscribe(self) -> Subscription:
        """A listener that finds the node event, active alerts, unended jobs, the notice and the newest sample waiting."""
        subscription = Subscription(self)
        subscription.put_urgent(NODE, self._node_line)
        self._tell_all(subscription)
        if self.sample is not None:
            subscription.put_sample(self._line(self.sample_body()))
        self._subscriptions.add(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    def close_streams(self) -> None:
        """Ends every listener's iteration and every long wait: the server can shut down without waiting for them."""
        self.closing.set()
        for subscription in tuple(self._subscriptions):
            subscription.close()

    def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        """Rows after sequence `after`; an empty page where nothing is metered."""
        if self._meter is None:
            return wire.UsagePage(node=self.info.node, meter="", rows=(), placements=(), last_sequence=0)
        return self._meter.usage(after, limit)

    def alert_list(self) -> wire.AlertList:
        """Active alerts first, then those that ended within the last hour."""
        return wire.AlertList(node=self.info.node, alerts=(*self.active_alerts(), *self._alerts.recent()))

    def active_alerts(self) -> tuple[wire.Alert, ...]:
        """Those that hold now; one that is paused says so."""
        return tuple(map(self.pauses.shown, self._alerts.active()))

    def history_of(self, seconds: float) -> wire.History:
        return self._history.history(seconds)
