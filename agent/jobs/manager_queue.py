"""The queue at work: the node's shape, the scheduler's decision, and what becomes of it.

Invariant: a job begins only through `JobStore.begin_attempt`, and a decision is made anew after whatever changed, once
for all that changed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import msgspec

from agent import wire
from agent.errors import JobConflict, JobFault, MpsFault
from agent.jobs import costs, gpu_check, users
from agent.jobs.actor import Actor
from agent.jobs.context import Context, now
from agent.jobs.drains import Drains
from agent.jobs.launch import Part
from agent.jobs.live import encode_usage
from agent.jobs.manager_life import Lives
from agent.jobs.node_shape import GpuView, NodeView
from agent.jobs.plan import Prepared, prepare
from agent.jobs.rows import JobRow
from agent.jobs.scheduler import Decision, Running, Waiting, decide, running_of, waiting_of, would_start
from agent.jobs.shapes import NodeShape, Placed
from agent.jobs.sharing import Sharing
from agent.jobs.stopper import Stopper

LATEST_SECONDS = 3600.0
T = TypeVar("T")


class Queue:
    """Belongs to the event loop."""

    lives: Lives
    stopper: Stopper

    def __init__(
        self, context: Context, view: GpuView, node: NodeView, sharing: Sharing, drains: Drains,
        *, changed: Callable[[str], None], restated: Callable[[str], None], claims_changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._context = context
        self._store = context.store
        self._view = view
        self._node = node
        self._sharing = sharing
        self._drains = drains
        self._changed = changed
        self._restated = restated
        self._claims_changed = claims_changed
        self._waiting: dict[str, tuple[JobRow, Waiting]] = {}
        self._running: dict[str, tuple[JobRow, Running]] = {}
        self._due: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._shape: NodeShape | None = None
        self.reasons: dict[str, str] = {}
        """Id -> why it waits, in the queue's order."""
        self.closed = False

    def close(self) -> None:
        self.closed = True
        for handle in (self._due, self._later):
            if handle is not None:
                handle.cancel()

    def kick(self) -> None:
        """Something changed: decide as soon as the loop is free."""
        if self._due is None and not self.closed:
            self._due = asyncio.get_running_loop().call_soon(self._run)

    def look(self) -> None:
        """A new sample: decides again where the node is not as it was."""
        if self.shape() != self._shape and self._store.counts().queued:
            self.kick()

    def shape(self) -> NodeShape:
        """The node now."""
        return self._node.shape(
            self._context.gpus(),
            self._view,
            foreign=self._stranger,
            drained=self._drains.gpus(),
            mps=self._sharing.refusal,
            closed=self._context.drained or self.stopper.closed(),
        )

    def _stranger(self, gpu: wire.Gpu) -> str | None:
        if not gpu.processes:
            return None
        holding = [live for live in self.lives.all.values() if gpu.uuid in live.gpus]
        holders, owners = {live.id for live in holding}, {live.user for live in holding}
        return gpu_check.stranger(gpu, holders, owners, told=self._context.host.enforcement != "none")

    def _run(self) -> None:
        self._due = None
        try:
            self._act(self._decide())
            self._context.works("the queue")
        except Exception as error:
            self._context.failed("the queue", error)
            self._again(1.0)

    def _decide(self) -> Decision:
        self._shape = self.shape()
        return decide(*self._sides(), self._shape, _now_ms(), outcomes=self._store.outcomes())

    def _sides(self) -> tuple[list[Waiting], list[Running]]:
        wait = self._context.jobs.kill_wait_seconds
        waiting = {row.id: self._kept(self._waiting, row, lambda row: waiting_of(row, kill_wait_seconds=wait))
                   for row in self._store.waiting()}  # fmt: skip
        running = {row.id: self._kept(self._running, row, lambda row: running_of(row, kill_wait_seconds=wait))
                   for row in self._store.holding()}  # fmt: skip
        self._waiting, self._running = waiting, running
        return [one for _, one in waiting.values()], [one for _, one in running.values()]

    @staticmethod
    def _kept(known: dict[str, tuple[JobRow, T]], row: JobRow, make: Callable[[JobRow], T]) -> tuple[JobRow, T]:
        """Rows are frozen and shared: the same object is the same job."""
        found = known.get(row.id)
        return found if found is not None and found[0] is row else (row, make(row))

    def _act(self, decision: Decision) -> None:
        for start in decision.starts:
            self._try_begin(start.id, start.placed)
        for id, evidence in decision.never.items():
            self._store.end(id, "cancelled", evidence, now())
            self._ended_waiting(id, "cancelled")
        before, self.reasons = self.reasons, decision.waits
        for id, reason in decision.waits.items():
            if before.get(id) != reason:
                self._restated(id)
        for id in decision.preempt:
            self._preempt(id, decision.preempt_reasons.get(id))
        if decision.never:
            self.kick()  # others may have waited for them
        if decision.again_ms is not None:
            self._again((decision.again_ms - _now_ms()) / 1000)

    def _ended_waiting(self, id: str, cause: str) -> None:
        self._context.record("agent", None, "end", id, cause)
        self.lives.forget_secrets(self._store.get(id))
        self._changed(id)

    def _preempt(self, id: str, evidence: str | None) -> None:
        row = self._store.find(id)
        if row is not None and row.stop_cause is None:
            try:
                self.stopper.stop(id, "preempted", evidence)
            except JobConflict:
                self.kick()

    def _again(self, seconds: float) -> None:
        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().call_later(max(0.05, min(seconds, LATEST_SECONDS)), self.kick)

    def _try_begin(self, id: str, placed: Placed) -> None:
        """A job that cannot begin holds up no other."""
        row = self._store.get(id)
        budget = row.spec.budget_usd
        if budget is not None and row.cost is not None and row.cost >= budget:
            self._store.end(id, "budget", f"it has cost {row.cost:.4f} of its {budget} USD", now())
            self._ended_waiting(id, "budget")
            return self.kick()
        try:
            self.begin(row, placed)
        except JobConflict:
            self.kick()
        except JobFault as fault:
            self._store.end(id, "start_error", str(fault), now())
            self._ended_waiting(id, "start_error")
            self.kick()

    def begin(self, row: JobRow, placed: Placed) -> JobRow:
        """queued -> starting. JobConflict: it is not queued any more; JobFault: it cannot be run as it stands now."""
        prepared = self._prepared(row, row.attempt + 1, placed, {})
        with self._context.moment() as at_ms:
            return self._begin(row, placed, prepared, at_ms)

    def _begin(self, row: JobRow, placed: Placed, prepared: Prepared, at_ms: int) -> JobRow:
        """What was reserved costs from then on."""
        price = costs.price(self._context.config.node.usd_per_hour, row.spec.node_usd_per_hour)
        count = len(self._context.gpus())
        held = costs.millionths(row.spec.gpus, row.spec.gpu_share)
        notes = {
            "price": str(price) if price is not None else "",
            "gpus": str(count),
            "begun_ms": str(min(at_ms, int(row.notes.get(costs.HELD, at_ms)))),
            "cost": str(row.cost) if row.cost is not None else "",
            "usage": encode_usage(row.usage),
        }
        self._store.begin_attempt(
            row.id,
            placed.gpus,
            placed.cpu_ids,
            now(),
            numa_nodes=placed.numa_nodes,
            boot_id=self._context.boot_id,
            enforcement=prepared.group.enforcement,
            limits=prepared.group.limits,
            not_enforced=(*prepared.group.not_enforced, *self._sharing_lacks(row, placed)),
            placement=placed.reason,
            usd_per_hour=costs.usd_per_hour(price, held, count),
            notes=notes,
        )
        self.reasons.pop(row.id, None)
        begun = self._store.get(row.id)
        self.lives.begin(begun, prepared.group)
        self._claims_changed()
        self._context.record("agent", None, "start", row.id, f"attempt {prepared.part.number}")
        self._changed(row.id)
        return begun

    def _sharing_lacks(self, row: JobRow, placed: Placed) -> tuple[str, ...]:
        if row.spec.gpu_share is None or not placed.gpus:
            return ()
        try:
            return self._sharing.not_enforced(placed.gpus[0])
        except MpsFault:
            return ()

    def prepare(self, row: JobRow, mps: dict[str, str]) -> Prepared:
        """The attempt that the row is in."""
        placed = Placed(gpus=row.gpus, cpu_ids=row.cpu_ids, numa_nodes=row.numa_nodes, reason=row.placement or "")
        return self._prepared(row, row.attempt, placed, mps)

    def _prepared(self, row: JobRow, number: int, placed: Placed, mps: dict[str, str]) -> Prepared:
        user = users.run_as(row.user, Actor("agent"), self._context.jobs)
        return self.put_together(row, number, user, placed, mps)

    def put_together(self, row: JobRow, number: int, user: users.RunAs, placed: Placed, mps: dict[str, str]) -> Prepared:
        """For a start and for a dry run alike."""
        spec = row.spec
        if spec.gang is not None and row.endpoint is not None:
            spec = msgspec.structs.replace(spec, gang=msgspec.structs.replace(spec.gang, endpoint=row.endpoint))
        part = Part(
            job=row.id, number=number, gpus=placed.gpus, array=row.array, array_index=row.array_index, mps=mps,
            usd_per_hour=self.price_of(spec),
        )  # fmt: skip
        shared = spec.gpu_share is not None and placed.gpus
        return prepare(
            self._context,
            spec,
            part,
            user,
            placed,
            devices=self._devices(placed),
            before_kill=self._sharing.before_kill(placed.gpus[0], part.unit) if shared else (),
        )

    def _devices(self, placed: Placed) -> tuple[str, ...] | None:
        inventory = self._context.gpus()
        if not inventory:
            return None
        return self._node.device_paths(tuple(gpu for gpu in inventory if gpu.uuid in placed.gpus))

    def would_start(self, row: JobRow) -> Placed | str:
        """Where a job that is not in the queue would start now, or why it would wait."""
        waiting, running = self._sides()
        job = waiting_of(row, kill_wait_seconds=self._context.jobs.kill_wait_seconds)
        return would_start(job, waiting, running, self.shape(), _now_ms(), outcomes=self._store.outcomes())

    def price_of(self, spec: wire.JobSpec) -> Decimal | None:
        """US dollars per hour of what the job would hold."""
        price = costs.price(self._context.config.node.usd_per_hour, spec.node_usd_per_hour)
        return costs.usd_per_hour(price, costs.millionths(spec.gpus, spec.gpu_share), len(self._context.gpus()))

    def cost_of_held(self, row: JobRow, at_ms: int) -> Decimal | None:
        """US dollars of a place that was reserved until now and never used: nobody else could have it."""
        price = costs.price(self._context.config.node.usd_per_hour, row.spec.node_usd_per_hour)
        lasted = at_ms - int(row.notes.get(costs.HELD, at_ms + 1))
        held = costs.millionths(row.spec.gpus, row.spec.gpu_share)
        return costs.cost(price, held, len(self._context.gpus()), lasted) if lasted >= 0 else None  # else of another boot


def _now_ms() -> int:
    return int(now().timestamp() * 1000)
