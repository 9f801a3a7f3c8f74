"""Where jobs are handed in: checked, answered with a plan, kept, or held for a run over several nodes.

Invariant: nothing is kept of a job that is refused; what is kept can be started as it stands.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from agent import wire
from agent.errors import AgentFault, IsolationFault, JobConflict, JobRefused, MpsFault
from agent.isolation.check import check as check_limits
from agent.isolation.plan import plan as group_plan
from agent.jobs import arrays, costs, placement, plan, starter, submit, users
from agent.jobs.actor import Actor
from agent.jobs.context import Context, now
from agent.jobs.entries import wanted_of
from agent.jobs.ids import unit_name
from agent.jobs.manager_queue import Queue
from agent.jobs.node_shape import GpuView, NodeView
from agent.jobs.rows import JobRow, without_secrets
from agent.jobs.shapes import Placed
from agent.jobs.sharing import Sharing
from agent.jobs.users import RunAs

HELD_SECONDS = 60.0


class Desk:
    """Belongs to the event loop."""

    def __init__(self, context: Context, queue: Queue, node: NodeView, view: GpuView, sharing: Sharing) -> None:
        self._context = context
        self._store = context.store
        self._queue = queue
        self._node = node
        self._view = view
        self._sharing = sharing

    def submit(self, spec: wire.JobSpec, actor: Actor) -> JobRow:
        """Keeps the job in the queue. JobRefused, JobForbidden, JobConflict, StateFull: nothing was kept."""
        row, _ = self._check(spec, actor)
        if spec.gang is not None and spec.gang.endpoint is None:
            raise JobRefused("a part of a run over several nodes is reserved first, on all of them (reserve=true)")
        return self._keep(row, spec, actor, "submit")

    def reserve(self, spec: wire.JobSpec, actor: Actor, at_ms: int) -> JobRow:
        """Holds the place of a part of a run over several nodes, which costs from now on. JobConflict: it would have to wait."""
        row, _ = self._check(spec, actor)
        if spec.gang is None:
            raise JobRefused("only a part of a run over several nodes can be reserved, and the job has no `gang`")
        placed = self._queue.would_start(row)
        if not isinstance(placed, Placed):
            raise JobConflict(placed)
        held = msgspec.structs.replace(
            row,
            gpus=placed.gpus,
            cpu_ids=placed.cpu_ids,
            numa_nodes=placed.numa_nodes,
            placement=placed.reason,
            held_until=now() + timedelta(seconds=HELD_SECONDS),
            notes={**row.notes, costs.HELD: str(at_ms)},
        )
        return self._keep(held, spec, actor, "reserve")

    def plan(self, spec: wire.JobSpec, actor: Actor) -> wire.JobPlan:
        """What a start would do now. Does nothing."""
        row, user = self._check(spec, actor)
        spec = row.spec
        placed = self._queue.would_start(row)
        waits = not isinstance(placed, Placed)
        if waits:
            placed = self._on_empty_node(row, placed)
        assert isinstance(placed, Placed)
        shared = spec.gpu_share is not None and bool(placed.gpus)
        mps = self._sharing.environment_shown(spec) if shared else {}
        prepared = self._queue.put_together(row, 1, user, placed, mps)
        return plan.show(
            self._context,
            prepared,
            starts_now=not waits,
            gpus=self._mps_steps(placed, spec, user) if shared else (),
            warnings=row.warnings,
            usd_per_hour=self._queue.price_of(spec),
        )

    def _on_empty_node(self, row: JobRow, reason: object) -> Placed:
        """For a job that waits: where it would go if it were alone, with the reason of its waiting."""
        alone = placement.place(wanted_of(row), self._queue.shape(), ())
        if isinstance(alone, Placed):
            return msgspec.structs.replace(alone, reason=str(reason))
        return Placed(reason=str(reason))

    def _mps_steps(self, placed: Placed, spec: wire.JobSpec, user: RunAs) -> tuple[wire.PlanStep, ...]:
        try:
            return self._sharing.plan(placed.gpus[0], spec, user)
        except MpsFault as fault:
            raise JobRefused(str(fault)) from None

    def _check(self, asked: wire.JobSpec, actor: Actor) -> tuple[JobRow, RunAs]:
        """The row that would be kept, and its user."""
        context = self._context
        if not context.jobs.enabled:
            raise JobConflict("jobs are switched off on this node; set `enabled = true` in [jobs] of agent.toml")
        user = users.run_as(asked.user, actor, context.jobs)
        spec = submit.with_defaults(asked, context.jobs)
        if (spec.gpus or spec.gpu_share) and not context.gpus() and not self._view.heard:
            raise JobConflict("the GPUs of this node have not been read yet; ask again in a moment")
        submit.check(
            spec, self._facts(), context.jobs, known=lambda id: self._store.find(id) is not None, upload=context.uploads.path
        )
        row = JobRow(
            id=context.ids.new(), spec=without_secrets(spec), user=user.name, actor=actor.name, submitted_at=now()
        )  # fmt: skip
        self._check_place(row)
        unmet, all_lacks = self._check_limits(row)
        if spec.strict and unmet:
            raise JobRefused("; ".join(unmet))
        said = tuple(submit.warnings(spec, now()))
        return msgspec.structs.replace(row, warnings=said, not_enforced=all_lacks), user

    def _facts(self) -> submit.NodeFacts:
        counts = self._store.counts()
        return submit.NodeFacts(
            gpus=self._context.gpus(),
            cpu_count=self._node.cpu_count,
            memory_bytes=self._node.memory_bytes,
            usd_per_hour=self._context.config.node.usd_per_hour,
            queued=counts.queued + counts.starting + counts.running + counts.stopping,
        )

    def _check_place(self, row: JobRow) -> None:
        if (fault := placement.refusal(wanted_of(row), self._queue.shape())) is not None:
            raise JobRefused(fault)

    def _check_limits(self, row: JobRow) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(asked for and not enforced, all that is not enforced) on this host. JobRefused: the host cannot take one."""
        wished = plan.limits(row.spec, Placed(reason=""), None)
        if faults := check_limits(self._context.host, wished):
            raise JobRefused("; ".join(faults))
        try:
            group = group_plan(self._context.host, unit_name(row.id, 1), wished)
        except IsolationFault as fault:
            raise JobRefused(str(fault)) from None
        return group.unmet, group.not_enforced

    def _keep(self, row: JobRow, asked: wire.JobSpec, actor: Actor, action: str) -> JobRow:
        folder = self._context.job_folder(row.id)
        try:
            starter.keep_spec(self._context, row.id, asked)
            self._store.add(arrays.rows(row))
        except AgentFault:
            starter.remove_folder(folder)
            raise
        self._context.record(actor.name, actor.peer, action, row.id, "queued")
        return self._store.get(row.id)

    def start_reserved(self, id: str, endpoint: str, actor: Actor) -> JobRow:
        """JobConflict: it is not reserved (any more). JobRefused: no HOST:PORT."""
        row = self._store.get(id)
        if row.spec.gang is None or row.state != "queued" or row.held_until is None:
            raise JobConflict(f"job {id} is not reserved: it is {row.state}")
        if row.held_until <= now():
            raise JobConflict(f"the reservation of job {id} is over; reserve it again")
        if not submit.is_endpoint(endpoint):
            raise JobRefused(f"{endpoint[:80]!r} is no HOST:PORT")
        row = self._store.change(id, endpoint=endpoint)
        placed = Placed(gpus=row.gpus, cpu_ids=row.cpu_ids, numa_nodes=row.numa_nodes, reason=row.placement or "")
        self._context.record(actor.name, actor.peer, "start", id, endpoint)
        return self._queue.begin(row, placed)
