"""A job as the wire shows it: the queue's row, with what is known of it this moment.

Invariant: no secret's value and no environment value is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import wire
from agent.jobs import arrays
from agent.jobs.live import Live
from agent.jobs.rows import AttemptRow, JobRow

_OF_SPEC = (
    "name", "project", "command", "shell", "gpu_share", "gpu_memory_bytes", "cpus", "memory_bytes", "pids", "priority",
    "interruptible", "time_limit_seconds", "budget_usd", "deadline", "stop_signal", "grace_seconds", "after", "workdir",
)  # fmt: skip
_OF_ROW = (
    "id", "cause", "evidence", "user", "gpus", "array", "array_index", "submitted_at", "started_at", "ended_at", "exit_code",
    "signal", "attempt", "retries", "enforcement", "limits", "not_enforced", "usd_per_hour", "left_behind",
    "log_dropped_lines", "held_until",
)  # fmt: skip
"""What is shown as it stands in spec and row, under the same name."""


def show(
    row: JobRow,
    node: str,
    *,
    live: Live | None = None,
    reason: str | None = None,
    counts: Mapping[str, int] | None = None,
    attempts: Sequence[AttemptRow] = (),
    warnings: Sequence[str] = (),
    log_bytes: int | None = None,
) -> wire.Job:
    """`reason`: why it waits; `counts`: of an array's own row; `warnings`: beside those of row and attempt."""
    spec, state = row.spec, row.state
    if row.is_array and counts is not None and state != "ended":
        state = arrays.state_of(counts)
    waits = state == "queued"
    holds = row.holds
    said = (*row.warnings, *(live.warnings.values() if live is not None else ()), *warnings)
    return wire.Job(
        **{name: getattr(spec, name) for name in _OF_SPEC},
        **{name: getattr(row, name) for name in _OF_ROW},
        state=state,
        node=node,
        gpus_wanted=spec.gpus,
        array_counts=dict(counts) if counts else {},
        secrets=tuple(spec.secrets),
        not_before=row.not_before if waits else None,
        reason=reason if waits else None,
        stopping=row.stop_cause if state in ("starting", "running", "stopping") else None,
        warnings=tuple(dict.fromkeys(said)),
        usage=live.usage() if live is not None else row.usage,
        cost=live.cost() if live is not None and holds else row.cost,
        log_bytes=log_bytes if log_bytes is not None else row.log_bytes,
        gang=spec.gang.id if spec.gang is not None else None,
        attempts=tuple(attempt.to_wire() for attempt in attempts),
    )
