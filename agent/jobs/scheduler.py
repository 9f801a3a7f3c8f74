"""Who starts now, who waits and why, and who must make room.

Invariant: a job that is not first in line starts only where it cannot make the first one start later than the time
limits of what runs now allow; a preemption is asked for only where it really lets the higher job start.

Pure and deterministic: the same arguments give the same Decision. Order: priority, deadline, age, id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agent.jobs.dependencies import Need, Outcome
from agent.jobs.placement import Held, NodeShape, Placed, Wanted
from agent.jobs.rows import JobRow


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A queued job. Make it once per change of its row (`waiting_of`) and keep it."""

    id: str
    wanted: Wanted
    submitted_ms: int
    priority: int = 0
    deadline_ms: int | None = None
    longest_ms: int | None = None
    """Time limit plus grace: how long it can hold what it gets. None: no limit."""
    interruptible: bool = False
    after: tuple[Need, ...] = ()
    array: str | None = None
    array_index: int | None = None
    array_at_once: int | None = None
    not_before_ms: int | None = None


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A job that holds something: starting, running, stopping or reserved."""

    held: Held
    priority: int = 0
    interruptible: bool = False
    started_ms: int = 0
    ends_ms: int | None = None
    """The latest moment at which its place is free: start + time limit + grace, or of a stop the end of its grace."""
    limit_ms: int | None = None
    """Its time limit, for the sentence."""
    stopping: bool = False
    array: str | None = None

    @property
    def id(self) -> str:
        return self.held.job


class Start(msgspec.Struct, frozen=True):
    id: str
    placed: Placed


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    starts: tuple[Start, ...] = ()
    """In this order. `store.begin_attempt` each."""
    waits: dict[str, str] = {}
    """Id -> why it waits: wire.Job.reason."""
    preempt: tuple[str, ...] = ()
    """Running jobs to stop with the cause `preempted`; the higher job starts in a later decision, when they are gone."""
    preempt_reasons: dict[str, str] = {}
    """Id -> evidence for `store.want_stop`."""
    never: dict[str, str] = {}
    """Id -> evidence: end these with cause `cancelled`; their dependency can no longer be met."""
    again_ms: int | None = None
    """Decide again then at the latest, even if nothing changed (a `not_before`)."""


def waiting_of(row: JobRow) -> Waiting:
    """A queued row as `decide` takes it."""
    raise NotImplementedError


def running_of(row: JobRow, *, kill_wait_seconds: float = 60.0) -> Running:
    """A holding row as `decide` takes it."""
    raise NotImplementedError


def decide(
    queue: Sequence[Waiting],
    running: Sequence[Running],
    node: NodeShape,
    now_ms: int,
    *,
    outcomes: Mapping[str, Outcome] | None = None,
) -> Decision:
    """`outcomes`: `store.outcomes()`. Every id of `queue` is in exactly one of `starts`, `waits` and `never`."""
    raise NotImplementedError


def would_start(
    job: Waiting,
    queue: Sequence[Waiting],
    running: Sequence[Running],
    node: NodeShape,
    now_ms: int,
    *,
    outcomes: Mapping[str, Outcome] | None = None,
) -> Placed | str:
    """For a dry run and a gang's reservation: where `job` would start now, with the queue as it is, or why it would wait."""
    raise NotImplementedError
