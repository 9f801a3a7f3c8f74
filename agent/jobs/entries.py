"""Rows of the queue as the scheduler takes them.

Invariant: `ends_ms` and `longest_ms` are upper bounds: time limit, grace and the wait for the kill together.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from agent.jobs import dependencies
from agent.jobs.placement import held_by
from agent.jobs.rows import JobRow
from agent.jobs.shapes import Placed, Running, Waiting, Wanted, cpu_millis_of, share_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
KILL_WAIT_SECONDS = 60.0
UNSAID_CPU_MILLIS = 500
"""A job that asks for neither GPUs nor CPUs counts as half a CPU, so that a queue of thousands does not start at once."""


def waiting_of(row: JobRow, *, kill_wait_seconds: float = KILL_WAIT_SECONDS) -> Waiting:
    """A queued row as `decide` takes it."""
    spec = row.spec
    return Waiting(
        id=row.id,
        wanted=wanted_of(row),
        submitted_ms=_ms(row.submitted_at),
        priority=spec.priority,
        deadline_ms=None if spec.deadline is None else _ms(spec.deadline),
        longest_ms=_longest_ms(row, kill_wait_seconds),
        interruptible=spec.interruptible,
        after=dependencies.parse(spec.after),
        array=row.array,
        array_index=row.array_index,
        array_at_once=spec.array_at_once,
        not_before_ms=None if row.not_before is None else _ms(row.not_before),
    )


def running_of(row: JobRow, *, kill_wait_seconds: float = KILL_WAIT_SECONDS) -> Running:
    """A holding row as `decide` takes it."""
    spec, wanted = row.spec, wanted_of(row)
    since = row.started_at or row.begun_at or row.submitted_at
    longest, ends = _longest_ms(row, kill_wait_seconds), None
    if row.state == "stopping" and row.stop_at is not None:
        grace = spec.grace_seconds if row.stop_grace_seconds is None else row.stop_grace_seconds
        ends = _ms(row.stop_at) + int(1000 * (grace + kill_wait_seconds))
    elif longest is not None:
        ends = _ms(row.held_until or since) + longest
    placed = Placed(gpus=row.gpus, cpu_ids=row.cpu_ids, numa_nodes=row.numa_nodes, reason="")
    return Running(
        held=held_by(row.id, wanted, placed),
        priority=spec.priority,
        interruptible=spec.interruptible and row.state != "queued",
        started_ms=_ms(since),
        ends_ms=ends,
        limit_ms=None if spec.time_limit_seconds is None else int(1000 * spec.time_limit_seconds),
        stopping=row.state == "stopping",
        array=row.array,
    )


def wanted_of(row: JobRow) -> Wanted:
    spec = row.spec
    return Wanted(
        user=row.user,
        gpus=spec.gpus,
        share=share_of(spec.gpu_share),
        gpu_memory_bytes=spec.gpu_memory_bytes,
        cpu_millis=cpu_millis_of(spec.cpus) if spec.cpus is not None or spec.gpus or spec.gpu_share else UNSAID_CPU_MILLIS,
        memory_bytes=spec.memory_bytes,
    )


def _longest_ms(row: JobRow, kill_wait_seconds: float) -> int | None:
    limit = row.spec.time_limit_seconds
    return None if limit is None else int(1000 * (limit + row.spec.grace_seconds + kill_wait_seconds))


def _ms(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND
