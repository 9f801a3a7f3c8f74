"""`queue.db`: the queue's truth. What is not in here did not happen, and what is in here is never forgotten.

Invariant: a job starts at most once per attempt: `begin_attempt` is a compare-and-set in one durable transaction, and a
GPU that it gives is held by nobody else. An intent to stop is written before any signal. Every change of a job is one
transaction with an fsync (`note` alone is not: it is for figures that may be a second old after a power cut).

All methods are quick and blocking; not thread-safe: one thread (the agent's loop) calls them. Rows that have not ended
are kept in memory as frozen structs, so reading them costs nothing and two reads give the same objects.
Errors: `open` StateTooNew, StateFull, StateLocked, StateDirectoryError; every method StateFull / StateDirectoryError;
JobUnknown for an id that is not there; JobConflict where the job is not in the state for it.

| method | what it does |
|---|---|
| `JobStore.open(path, durable=True)` | opens or makes the file; `close()` |
| `add(row or rows)` | new rows, all or none; secrets' values are dropped; unknown `after` -> JobRefused |
| `get(id)` / `find(id)` | one row, ended or not; JobUnknown / None |
| `unended()` | all rows that have not ended, oldest first, arrays' own rows among them |
| `waiting()` | queued, not reserved, no array's own row: what `scheduler.decide` takes |
| `holding()` | starting, running, stopping, and reserved: whose GPUs, CPUs and memory are taken |
| `ended(limit)` | newest first |
| `tasks(array)` / `array_counts(array)` | an array's tasks by index; state -> number |
| `outcomes()` | of every id that an unended job depends on and that has ended: `well`, `badly`, `gone` |
| `counts()` | wire.JobCounts (tasks count, arrays' own rows do not) |
| `change(id, **fields)` | any other fields, durable; `state` only as `ALLOWED` says |
| `note({id: fields})` | cost, usage, log sizes of many jobs in one transaction without fsync |
| `reserve(id, gpus, cpus, until)` / `release(id)` | a gang's part holds its place; lets it go |
| `begin_attempt(id, gpus, cpus, at)` | queued -> starting exactly once; a new AttemptRow |
| `mark_running(id, attempt, at)` | starting -> running (a job being stopped stays `stopping`) |
| `want_stop(id, cause, at)` | the persisted intent; starting / running -> stopping; the first cause stands, cancel replaces |
| `end_attempt(id, attempt, verdict, at)` | the attempt is over: job -> ended, or -> queued with `requeue_at` |
| `end(id, cause, evidence, at)` | a queued job ends without an attempt (cancelled, its dependency failed) |
| `attempts(id)` | AttemptRows, oldest first |
| `prune(before)` | forgets what ended before; returns the ids, whose folders may go |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from agent import wire
from agent.errors import JobConflict
from agent.jobs import arrays, dependencies, ids, schema
from agent.jobs.cause import Verdict
from agent.jobs.dependencies import Outcome
from agent.jobs.queue_file import QueueFile
from agent.jobs.queue_memory import QueueMemory
from agent.jobs.retry import NEVER
from agent.jobs.rows import NO_STOP, AttemptRow, JobRow, intent, without_secrets

ALLOWED: dict[wire.JobState, tuple[wire.JobState, ...]] = {
    "queued": ("queued", "ended"),
    "starting": ("starting", "running", "stopping", "queued", "ended"),
    "running": ("running", "stopping", "queued", "ended"),
    "stopping": ("stopping", "queued", "ended"),
    "ended": ("ended",),
}
"""State -> what `change` may make of it. queued -> starting is `begin_attempt`'s alone."""
_FIXED = frozenset({"id", "spec", "array", "array_index", "attempt", "submitted_at"})
_PRUNED_AT_ONCE = 2_000


class JobStore:
    """The open file."""

    def __init__(self, file: QueueFile) -> None:
        self._file = file
        self._memory = QueueMemory()
        for row in file.unended():
            self._memory.enter(row)
        self._memory.states["ended"] = file.count_ended()
        self._look_up_needs(self._memory.live.values())

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = True) -> JobStore:
        """Opens or makes the file. `durable=False` (tests): no fsync."""
        file = QueueFile(schema.connect(str(path), durable=durable), str(path), durable)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        self._file.close()

    # Reading

    def get(self, id: str) -> JobRow:
        """JobUnknown where there is none."""
        row = self.find(id)
        if row is None:
            raise ids.unknown(ids.checked(id))
        return row

    def find(self, id: str) -> JobRow | None:
        return self._memory.live.get(id) or self._file.find(id)

    def unended(self) -> list[JobRow]:
        """All rows that have not ended, oldest first; an array's own row (`is_array`) ends with its last task."""
        return list(self._memory.live.values())

    def waiting(self) -> list[JobRow]:
        """Queued, neither reserved nor an array's own row."""
        return [
            row for row in self._memory.live.values() if row.state == "queued" and row.held_until is None and not row.is_array
        ]

    def holding(self) -> list[JobRow]:
        """Rows whose GPUs, CPUs and memory are taken: starting, running, stopping, reserved."""
        return list(self._memory.holding.values())

    def ended(self, limit: int) -> list[JobRow]:
        """Newest first; tasks of arrays among them."""
        return self._file.ended(limit)

    def tasks(self, array: str) -> list[JobRow]:
        """An array's tasks by index, ended or not."""
        return [self._memory.live.get(row.id, row) for row in self._file.tasks(array)]

    def array_counts(self, array: str) -> dict[str, int]:
        """State -> number of tasks; `arrays.state_of` makes the array's own state of it."""
        return self._file.array_counts(array)

    def attempts(self, id: str) -> list[AttemptRow]:
        """Oldest first."""
        return self._file.attempts(id)

    def outcomes(self) -> Mapping[str, Outcome]:
        """For `scheduler.decide`: how the jobs ended that unended jobs depend on; absent: not ended yet."""
        return self._memory.outcomes

    def counts(self) -> wire.JobCounts:
        return wire.JobCounts(**{state: max(0, self._memory.states[state]) for state in ALLOWED})

    # Changing

    def add(self, rows: JobRow | Iterable[JobRow]) -> None:
        """New rows, all or none. JobConflict: an id is there already. JobRefused: an `after` that is not known."""
        specs: dict[str, wire.JobSpec] = {}
        clean: dict[int, wire.JobSpec] = {}
        stored = []
        for row in [rows] if isinstance(rows, JobRow) else list(rows):
            if id(row.spec) not in clean:
                dependencies.check(row.spec.after, lambda one: self.find(one) is not None, row.id)
                clean[id(row.spec)] = without_secrets(row.spec)
            stored.append(_replace(row, spec=clean[id(row.spec)], submitted_at=row.submitted_at))
            specs[row.array or row.id] = clean[id(row.spec)]
        self._file.insert(stored, specs)
        for row in stored:
            self._memory.enter(row)
        self._look_up_needs(stored)

    def change(self, id: str, **fields: Any) -> JobRow:
        """Sets fields of JobRow (not `id`, `spec`, `array`), durable. JobConflict: a step of `state` that cannot be."""
        row = self.get(id)
        _check_fields(fields, _FIXED)
        state = fields.get("state", row.state)
        if state == "ended" and (fields.get("ended_at") or row.ended_at) is None:
            raise ValueError("a job that ended has a time at which it did")
        if state not in ALLOWED[row.state]:
            raise JobConflict(f"job {id} is {row.state} and cannot become {state}")
        return self._write({id: fields})[id]

    def note(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Figures of many jobs, id -> fields, in one transaction that a power cut may undo. Never `state`."""
        for some in fields.values():
            _check_fields(some, (*_FIXED, "state"))
        self._write(fields, durable=False)

    def reserve(
        self, id: str, gpus: Sequence[str], cpus: Sequence[int], until: datetime, *, numa_nodes: Sequence[int] = ()
    ) -> JobRow:
        """A queued job (a gang's part) holds its GPUs and CPUs until then. JobConflict: not queued, or a GPU is held."""
        row = self._startable(id)
        self._memory.check_gpus(row, gpus)
        place = {"gpus": tuple(gpus), "cpu_ids": tuple(cpus), "numa_nodes": tuple(numa_nodes)}
        return self._write({id: {"held_until": until, **place}})[id]

    def release(self, id: str) -> JobRow:
        """Ends a reservation; the job is queued as any other."""
        return self._write({id: {"held_until": None, "gpus": (), "cpu_ids": (), "numa_nodes": ()}})[id]

    def begin_attempt(
        self,
        id: str,
        gpus: Sequence[str],
        cpus: Sequence[int],
        at: datetime,
        *,
        numa_nodes: Sequence[int] = (),
        boot_id: str | None = None,
        **fields: Any,
    ) -> AttemptRow:
        """queued -> starting, exactly once; `fields` are set on the job in the same transaction (limits, placement, ...).

        JobConflict: not queued (any more), a stop is wanted, its reservation is over, or a GPU is held by another job.
        """
        row = self._startable(id)
        if row.held_until is not None and row.held_until <= at:
            raise JobConflict(f"the reservation of job {id} ended at {row.held_until:%H:%M:%S} UTC; reserve again")
        self._memory.check_gpus(row, gpus)
        place = {"gpus": tuple(gpus), "cpu_ids": tuple(cpus), "numa_nodes": tuple(numa_nodes), "boot_id": boot_id}
        attempt = AttemptRow(job=id, number=row.attempt + 1, begun_at=schema.utc(schema.ms(at)), **place)
        begun = {
            "state": "starting", "attempt": attempt.number, "begun_at": at, "started_at": None, "held_until": None,
            "not_before": None, "cause": None, "evidence": None, "exit_code": None, "signal": None, "left_behind": (),
        }  # fmt: skip
        _check_fields(fields, begun)
        self._write({id: {**fields, **begun, **place}}, begins=attempt, was=row)
        return attempt

    def mark_running(self, id: str, attempt: int, at: datetime, **fields: Any) -> JobRow:
        """starting -> running; `at` is the first instruction. A job being stopped stays `stopping`, with `started_at`."""
        row = self._attempting(id, attempt)
        state = "stopping" if row.state == "stopping" else "running"
        _check_fields(fields, ("state", "started_at"))
        return self._write({id: {**fields, "state": state, "started_at": at}}, attempt={"started_at": at})[id]

    def want_stop(
        self, id: str, cause: str, at: datetime, *, evidence: str | None = None, grace_seconds: float | None = None
    ) -> JobRow:
        """Writes the intent; the caller signals (or ends a queued job) after it returned. Of an array: of all its tasks.

        The first cause stands; `cancelled` replaces any other; a grace that ends earlier replaces one that ends later. starting and
        running become `stopping`; queued stays queued but can no longer begin. JobConflict: it has ended.
        """
        row = self._unended(id)
        rows = [row, *(one for one in self._memory.live.values() if one.array == id)] if row.is_array else [row]
        wanted = {one.id: intent(one, cause, at, evidence, grace_seconds) for one in rows}
        return self._write({one: fields for one, fields in wanted.items() if fields}).get(id, row)

    def end_attempt(
        self,
        id: str,
        attempt: int,
        verdict: Verdict,
        at: datetime,
        *,
        requeue_at: datetime | None = None,
        uses_retry: bool = False,
        usage: wire.JobUsage | None = None,
        cost: Decimal | None = None,
        attempt_usage: wire.JobUsage | None = None,
        attempt_cost: Decimal | None = None,
        **fields: Any,
    ) -> JobRow:
        """The newest attempt is over. With `requeue_at` the job is queued again (its stop intent cleared), else ended.

        A job whose cancel (or budget, ...) was written is ended also with `requeue_at`. `usage` and `cost` are the job's
        (all attempts); None leaves them as they are. The last task to end ends its array's own row in the same
        transaction. JobConflict: that attempt is not the newest, or has ended already.
        """
        row = self._attempting(id, attempt)
        outcome = {
            "cause": verdict.cause,
            "evidence": verdict.evidence,
            "exit_code": verdict.exit_code,
            "signal": verdict.signal,
        }
        over: dict[str, Any] = dict(outcome)
        if requeue_at is None or row.stop_cause in NEVER:
            over |= {"state": "ended", "ended_at": at}
        else:
            over |= {"state": "queued", "not_before": requeue_at, "retries": row.retries + uses_retry, **NO_STOP}
        over |= {name: value for name, value in (("usage", usage), ("cost", cost)) if value is not None}
        _check_fields(fields, over)
        attempt_fields = {**outcome, "ended_at": at, "usage": attempt_usage, "cost": attempt_cost}
        return self._write({id: {**fields, **over}}, attempt=attempt_fields)[id]

    def end(self, id: str, cause: str, evidence: str, at: datetime, **fields: Any) -> JobRow:
        """A queued job ends without an attempt; of an array: all its queued tasks, and its own row when none is left."""
        row = self._unended(id)
        over = {"state": "ended", "cause": cause, "evidence": evidence, "ended_at": at, "held_until": None}
        _check_fields(fields, over)
        if row.is_array:
            queued = [one.id for one in self._memory.live.values() if one.array == id and one.state == "queued"]
            return self._write({one: {**fields, **over} for one in queued}).get(id, row)
        if row.state != "queued":
            raise JobConflict(f"job {id} is {row.state}; it has to be stopped first")
        return self._write({id: {**fields, **over}})[id]

    def prune(self, before: datetime) -> list[str]:
        """Forgets jobs that ended before `before`, as far as nobody depends on them and their array has ended too.

        A few thousand a call. Returns their ids.
        """
        self._memory.forget_needs()
        gone, own = self._file.prune(schema.ms(before), self._memory.needed, _PRUNED_AT_ONCE)
        self._memory.states["ended"] -= len(gone) - own
        return gone

    # Within

    def _write(
        self,
        changes: Mapping[str, Mapping[str, Any]],
        *,
        attempt: Mapping[str, Any] | None = None,
        begins: AttemptRow | None = None,
        was: JobRow | None = None,
        durable: bool = True,
    ) -> dict[str, JobRow]:
        """All in one transaction: the jobs' fields, those of the (one) job's newest attempt, a new attempt.

        What is in memory changes after the commit alone.
        """
        rows = {one: _replace(self.get(one), **fields) for one, fields in changes.items()}
        with self._file.transaction(durable):
            if was is not None:
                self._file.compare(was)
            self._file.update(changes)
            if begins is not None:
                self._file.begin(begins)
            if attempt is not None:
                ((one, row),) = rows.items()
                self._file.update_attempt(one, row.attempt, attempt)
            for own in self._arrays_over(rows.values()):
                rows[own.id] = own
        for row in rows.values():
            self._memory.replace(row)
        return rows

    def _arrays_over(self, rows: Iterable[JobRow]) -> list[JobRow]:
        """Ends the own rows of the arrays whose last tasks end with these."""
        ending = [row for row in rows if row.array is not None and row.state == "ended" and row.id in self._memory.live]
        over = []
        for array, number in Counter(row.array for row in ending).items():
            own = self._memory.live.get(array or "")
            if own is not None and number == self._memory.left[own.id]:
                cause, evidence = arrays.outcome_of(self._file.array_causes(own.id))
                at = max(row.ended_at for row in ending if row.array == array and row.ended_at is not None)
                fields = {"state": "ended", "cause": cause, "evidence": evidence, "ended_at": at}
                self._file.update({own.id: fields})
                over.append(_replace(own, **fields))
        return over

    def _look_up_needs(self, rows: Iterable[JobRow]) -> None:
        for row in {id(row.spec): row for row in rows if row.spec.after}.values():
            named = {need.id for need in dependencies.parse(row.spec.after)} - self._memory.live.keys()
            found = {one: self._file.find(one) for one in named}
            self._memory.need(
                row, ((one, "gone" if was is None else dependencies.outcome(was.cause)) for one, was in found.items())
            )

    def _unended(self, id: str) -> JobRow:
        row = self.get(id)
        if row.state == "ended":
            raise JobConflict(f"job {id} has ended already ({row.cause})")
        return row

    def _startable(self, id: str) -> JobRow:
        row = self._unended(id)
        if row.is_array:
            raise JobConflict(f"job {id} is an array, whose tasks run and not itself")
        if row.state != "queued":
            raise JobConflict(f"job {id} is {row.state} already and cannot be started again")
        if row.stop_cause is not None:
            raise JobConflict(f"job {id} is to be stopped ({row.stop_cause}) and cannot be started")
        return row

    def _attempting(self, id: str, attempt: int) -> JobRow:
        row = self._unended(id)
        if row.attempt != attempt or row.state == "queued":
            raise JobConflict(f"attempt {attempt} of job {id} is not the one that runs")
        return row


def _check_fields(fields: Mapping[str, Any], set_here: Iterable[str]) -> None:
    twice = sorted(set(fields) & set(set_here))
    if twice:
        raise ValueError(f"{', '.join(twice)} cannot be given here")


def _replace(row: JobRow, **fields: Any) -> JobRow:
    """As the file will give it back: times are whole milliseconds there."""
    whole = {name: schema.utc(schema.ms(value)) if isinstance(value, datetime) else value for name, value in fields.items()}
    return msgspec.structs.replace(row, **whole)
