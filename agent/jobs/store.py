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

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent import wire
from agent.jobs.cause import Verdict
from agent.jobs.dependencies import Outcome
from agent.jobs.rows import AttemptRow, JobRow


class JobStore:
    """The open file."""

    @classmethod
    def open(cls, path: str | Path, *, durable: bool = True) -> JobStore:
        """Opens or makes the file. `durable=False` (tests): no fsync."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def add(self, rows: JobRow | Iterable[JobRow]) -> None:
        """New rows, all or none. JobConflict: an id is there already. JobRefused: an `after` that is not known."""
        raise NotImplementedError

    def get(self, id: str) -> JobRow:
        """JobUnknown where there is none."""
        raise NotImplementedError

    def find(self, id: str) -> JobRow | None:
        raise NotImplementedError

    def unended(self) -> list[JobRow]:
        """All rows that have not ended, oldest first; an array's own row (`is_array`) ends with its last task."""
        raise NotImplementedError

    def waiting(self) -> list[JobRow]:
        """Queued, neither reserved nor an array's own row."""
        raise NotImplementedError

    def holding(self) -> list[JobRow]:
        """Rows whose GPUs, CPUs and memory are taken: starting, running, stopping, reserved."""
        raise NotImplementedError

    def ended(self, limit: int) -> list[JobRow]:
        """Newest first; tasks of arrays among them."""
        raise NotImplementedError

    def tasks(self, array: str) -> list[JobRow]:
        """An array's tasks by index, ended or not."""
        raise NotImplementedError

    def array_counts(self, array: str) -> dict[str, int]:
        """State -> number of tasks; `arrays.state_of` makes the array's own state of it."""
        raise NotImplementedError

    def outcomes(self) -> Mapping[str, Outcome]:
        """For `scheduler.decide`: how the jobs ended that unended jobs depend on; absent: not ended yet."""
        raise NotImplementedError

    def counts(self) -> wire.JobCounts:
        raise NotImplementedError

    def change(self, id: str, **fields: Any) -> JobRow:
        """Sets fields of JobRow (not `id`, `spec`, `array`), durable. JobConflict: a step of `state` that cannot be."""
        raise NotImplementedError

    def note(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Figures of many jobs, id -> fields, in one transaction that a power cut may undo. Never `state`."""
        raise NotImplementedError

    def reserve(
        self, id: str, gpus: Sequence[str], cpus: Sequence[int], until: datetime, *, numa_nodes: Sequence[int] = ()
    ) -> JobRow:
        """A queued job (a gang's part) holds its GPUs and CPUs until then. JobConflict: not queued, or a GPU is held."""
        raise NotImplementedError

    def release(self, id: str) -> JobRow:
        """Ends a reservation; the job is queued as any other."""
        raise NotImplementedError

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
        raise NotImplementedError

    def mark_running(self, id: str, attempt: int, at: datetime, **fields: Any) -> JobRow:
        """starting -> running; `at` is the first instruction. A job being stopped stays `stopping`, with `started_at`."""
        raise NotImplementedError

    def want_stop(
        self, id: str, cause: str, at: datetime, *, evidence: str | None = None, grace_seconds: float | None = None
    ) -> JobRow:
        """Writes the intent; the caller signals (or ends a queued job) after it returned.

        The first cause stands; `cancelled` replaces any other; a shorter grace replaces a longer one. starting and
        running become `stopping`; queued stays queued but can no longer begin. JobConflict: it has ended.
        """
        raise NotImplementedError

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

        `usage` and `cost` are the job's (all attempts); None leaves them as they are. The last task to end ends its
        array's own row in the same transaction. JobConflict: that attempt is not the newest, or has ended already.
        """
        raise NotImplementedError

    def end(self, id: str, cause: str, evidence: str, at: datetime, **fields: Any) -> JobRow:
        """A queued job (or an array's own row with all its queued tasks) ends without an attempt."""
        raise NotImplementedError

    def attempts(self, id: str) -> list[AttemptRow]:
        """Oldest first."""
        raise NotImplementedError

    def prune(self, before: datetime) -> list[str]:
        """Forgets jobs that ended before `before`, as far as nobody depends on them and their array has ended too.

        A few thousand a call. Returns their ids.
        """
        raise NotImplementedError
