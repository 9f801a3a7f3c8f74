"""Who starts now, who waits and why, and who must make room.

Invariant: a job that is not first in line starts only where it cannot make the first one start later than the time
limits of what runs now allow; a preemption is asked for only where it really lets the higher job start.

Pure and deterministic: the same arguments give the same Decision. Order: priority, deadline, age, id. The first that
cannot start has a reservation (EASY backfill, Lifka 1995): `shadow` is when it starts at the latest. Jobs without a time
limit end "never", in the order in which they started; a job without one goes ahead only where both fit for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from agent.jobs import dependencies
from agent.jobs.dependencies import Outcome
from agent.jobs.entries import running_of, waiting_of
from agent.jobs.eviction import Eviction
from agent.jobs.placement import choose, held_by
from agent.jobs.room import Room
from agent.jobs.shadow import Shadow
from agent.jobs.shapes import Held, NodeShape, Placed, Running, Waiting, Wanted

__all__ = ["Decision", "Running", "Start", "Waiting", "decide", "running_of", "waiting_of", "would_start"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FOREVER = float("inf")
_MOST_PROMISES = 8
"""Jobs that others are stopped for, in one decision: the rest get theirs in the next."""


class Start(msgspec.Struct, frozen=True):
    id: str
    placed: Placed


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    starts: tuple[Start, ...] = ()
    """In this order. `store.begin_attempt` each."""
    waits: dict[str, str] = {}
    """Id -> why it waits: wire.Job.reason. In the order of the queue."""
    preempt: tuple[str, ...] = ()
    """Running jobs to stop with the cause `preempted`; the higher job starts in a later decision, when they are gone."""
    preempt_reasons: dict[str, str] = {}
    """Id -> evidence for `store.want_stop`."""
    never: dict[str, str] = {}
    """Id -> evidence: end these with cause `cancelled`; their dependency can no longer be met."""
    again_ms: int | None = None
    """Decide again then at the latest, even if nothing changed (a `not_before`)."""


def decide(
    queue: Sequence[Waiting],
    running: Sequence[Running],
    node: NodeShape,
    now_ms: int,
    *,
    outcomes: Mapping[str, Outcome] | None = None,
) -> Decision:
    """`outcomes`: `store.outcomes()`. Every id of `queue` is in exactly one of `starts`, `waits` and `never`."""
    return _Round(running, node, now_ms, outcomes or {}).run(queue)


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
    decision = decide([*(one for one in queue if one.id != job.id), job], running, node, now_ms, outcomes=outcomes)
    placed = next((start.placed for start in decision.starts if start.id == job.id), None)
    return placed or decision.waits.get(job.id) or decision.never[job.id]


def line(job: Waiting) -> tuple[float, float, int, str, int]:
    """The place of a job in the queue, as a sort key."""
    deadline = _FOREVER if job.deadline_ms is None else job.deadline_ms
    return -job.priority, deadline, job.submitted_ms, job.array or job.id, -1 if job.array_index is None else job.array_index


class _Round:
    """One decision in the making."""

    def __init__(self, running: Sequence[Running], node: NodeShape, now_ms: int, outcomes: Mapping[str, Outcome]) -> None:
        self.node, self.now_ms, self.outcomes = node, now_ms, outcomes
        self.running = sorted(running, key=lambda one: one.id)
        self.empty = Room(node)
        self.room = Room(node, (one.held for one in self.running))
        self.busy = Counter(one.array for one in self.running if one.array is not None)
        """Array -> tasks of it that run, those started in this round among them."""
        self.claimed: Counter[str] = Counter()
        """Array -> tasks of it that are first in line or were promised room: their turn is not given to another task."""
        self.starts: list[Start] = []
        self.started: list[Running] = []
        self.waits: dict[str, str] = {}
        self.never: dict[str, str] = {}
        self.again_ms: int | None = None
        self.lacking: dict[Wanted, str | None] = {}
        """What does not fit now; rooms only get smaller within a round, so it does not fit later in it either."""
        self.impossible: dict[Wanted, str | None] = {}
        self.eviction: Eviction | None = None
        self.shadow: Shadow | None = None
        self.hindering: set[tuple[Wanted, int | None]] = set()
        """Shapes that would hold up the first in line."""

    def run(self, queue: Iterable[Waiting]) -> Decision:
        ready = [job for job in sorted(queue, key=line) if self._may(job)]
        if self.node.closed is not None:
            self.waits.update((job.id, self.node.closed) for job in ready)
            return self._decision()
        blocked = self._start_in_order(ready)
        if blocked:
            self._behind(blocked, ready)
        return self._decision()

    def _decision(self) -> Decision:
        eviction = self.eviction
        return Decision(
            starts=tuple(self.starts),
            waits=self.waits,
            preempt=tuple(eviction.reasons) if eviction else (),
            preempt_reasons=eviction.reasons if eviction else {},
            never=self.never,
            again_ms=self.again_ms,
        )

    def _may(self, job: Waiting) -> bool:
        """Whether only resources can keep it from starting; else says why."""
        if job.after:
            answer = dependencies.look(job.after, self.outcomes)
            if answer.standing != "met":
                (self.never if answer.standing == "never" else self.waits)[job.id] = answer.reason or ""
                return False
        if job.not_before_ms is not None and job.not_before_ms > self.now_ms:
            self.again_ms = min(self.again_ms or job.not_before_ms, job.not_before_ms)
            self.waits[job.id] = f"waits until {self._clock(job.not_before_ms, seconds=True)} before it is tried again"
            return False
        impossible = self._impossible(job.wanted)
        if impossible is not None:
            self.waits[job.id] = impossible
        return impossible is None

    def _impossible(self, wanted: Wanted) -> str | None:
        """What it would lack even if no job ran: then it holds up nobody."""
        if wanted not in self.impossible:
            text = None if self.empty.fits(wanted) else f"cannot start as the node is now: it needs {self.empty.lacks(wanted)}"
            self.impossible[wanted] = text
        return self.impossible[wanted]

    def _full(self, job: Waiting) -> bool:
        """Whether as many tasks of its array run as may; then says so."""
        if job.array is None or job.array_at_once is None:
            return False
        busy, claimed = self.busy[job.array], self.claimed[job.array]
        if busy + claimed < job.array_at_once:
            return False
        next_ones = f", and {claimed} more start before it" if claimed else " already"
        self.waits[job.id] = f"array: {busy} of {job.array_at_once} tasks run{next_ones}"
        return True

    def _crowded(self, ready: Iterable[Waiting]) -> set[str | None]:
        """Arrays with tasks that wait for another task's end."""
        most = {job.array: job.array_at_once for job in ready if job.array is not None and job.array_at_once is not None}
        return {array for array, at_once in most.items() if array is not None and self.busy[array] >= at_once}

    def _lacks(self, wanted: Wanted) -> str | None:
        lacking = self.lacking.get(wanted)
        if lacking is None:
            lacking = self.room.lacks(wanted)
            if lacking is not None:
                self.lacking[wanted] = lacking
        return lacking

    def _held(self, job: Waiting) -> tuple[Held, Placed]:
        """What it would get now; it was seen to fit."""
        placed = choose(job.wanted, self.room)
        assert isinstance(placed, Placed), "it was seen to fit"
        return held_by(job.id, job.wanted, placed), placed

    def _start(self, job: Waiting, held: Held, placed: Placed) -> None:
        self.room.take(held)
        self.starts.append(Start(job.id, placed))
        ends = None if job.longest_ms is None else self.now_ms + job.longest_ms
        self.started.append(Running(held=held, priority=job.priority, started_ms=self.now_ms, ends_ms=ends, array=job.array))
        if job.array is not None:
            self.busy[job.array] += 1

    def _start_in_order(self, ready: Sequence[Waiting]) -> Sequence[Waiting]:
        """Starts jobs until one does not fit; that one and all behind it are returned."""
        for place, job in enumerate(ready):
            if self._full(job):
                continue
            if self._lacks(job.wanted) is not None:
                return ready[place:]
            self._start(job, *self._held(job))
        return ()

    def _behind(self, blocked: Sequence[Waiting], ready: Sequence[Waiting]) -> None:
        """The first in line gets a promise or a reservation, and the others what does not touch it."""
        first = blocked[0]
        eviction = self.eviction = Eviction(self.room, self.running, self._crowded(ready))
        promising = eviction.make_room(first)
        if promising:
            self.waits[first.id] = self._promised(first)
        else:
            shadow = self.shadow = Shadow(first.wanted, self.room, [*self.running, *self.started], self.now_ms)
            self.waits[first.id] = self._late(first, f"waits for {self._lacks(first.wanted)}{self._until(shadow.last)}")
        self.claimed[first.array or ""] += 1
        for job in blocked[1:]:
            if self._full(job) or self._backfill(job, first):
                continue
            promising = promising and len(eviction.promised) < _MOST_PROMISES and eviction.make_room(job)
            if promising:
                self.claimed[job.array or ""] += 1
                self.waits[job.id] = self._promised(job)

    def _backfill(self, job: Waiting, first: Waiting) -> bool:
        """Starts the job if it fits and takes nothing from those before it; else says why not."""
        lacking, shape = self._lacks(job.wanted), (job.wanted, job.longest_ms)
        if lacking is not None:
            self.waits[job.id] = self._late(job, f"waits for {lacking}")
            return False
        if shape not in self.hindering:
            held, placed = self._held(job)
            if self._harmless(held, job.longest_ms):
                self._start(job, held, placed)
                return True
            self.hindering.add(shape)
        self.waits[job.id] = self._late(job, f"could start, but might hold up job {first.id}, which is first in line")
        return False

    def _harmless(self, held: Held, longest_ms: int | None) -> bool:
        """Notes what it takes if it is so."""
        assert self.eviction is not None
        if self.shadow is not None:
            return self.shadow.take(held, longest_ms)
        return self.eviction.take(held)

    def _until(self, last: Running | None) -> str:
        if last is None:
            return ""
        if last.ends_ms is None:
            return f"; {last.id} has no time limit"
        limit = f" ({_length(last.limit_ms)} limit)" if last.limit_ms is not None else ""
        if last.ends_ms <= self.now_ms:
            return f"; {last.id}{limit} should have ended by now"
        return f"; {last.id}{limit} ends at {self._clock(last.ends_ms)} at the latest"

    def _promised(self, job: Waiting) -> str:
        assert self.eviction is not None
        going, lacking = self.eviction.promised[job.id], self._lacks(job.wanted)
        who = f"job {going[0]} is" if len(going) == 1 else f"{len(going)} jobs are"
        return self._late(job, f"waits for {lacking or 'its turn'}; {who} being stopped")

    def _late(self, job: Waiting, text: str) -> str:
        if job.deadline_ms is None or job.deadline_ms > self.now_ms:
            return text
        return f"{text}; its deadline of {self._clock(job.deadline_ms)} is over"

    def _clock(self, ms: int, *, seconds: bool = False) -> str:
        at, now = _utc(ms), _utc(self.now_ms)
        day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
        return f"{day}{at:%H:%M:%S} UTC" if seconds else f"{day}{at:%H:%M} UTC"


def _length(ms: int) -> str:
    minutes = round(ms / 60_000)
    if minutes < 1:
        return f"{ms / 1000:g}s"
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest:02}" if hours and rest else f"{hours}h" if hours else f"{minutes}m"


def _utc(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
