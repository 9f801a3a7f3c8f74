"""A job as the wire shows it: the queue's row, with what is known of it this moment.

Invariant: no secret's value and no environment value is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent import wire
from agent.jobs import arrays
from agent.jobs.live import Live
from agent.jobs.rows import AttemptRow, JobRow


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
        id=row.id,
        state=state,
        cause=row.cause,
        evidence=row.evidence,
        name=spec.name,
        node=node,
        user=row.user,
        project=spec.project,
        command=spec.command,
        shell=spec.shell,
        gpus=row.gpus,
        gpus_wanted=spec.gpus,
        gpu_share=spec.gpu_share,
        gpu_memory_bytes=spec.gpu_memory_bytes,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        pids=spec.pids,
        priority=spec.priority,
        interruptible=spec.interruptible,
        time_limit_seconds=spec.time_limit_seconds,
        budget_usd=spec.budget_usd,
        deadline=spec.deadline,
        stop_signal=spec.stop_signal,
        grace_seconds=spec.grace_seconds,
        after=spec.after,
        array=row.array,
        array_index=row.array_index,
        array_counts=dict(counts) if counts else {},
        secrets=tuple(spec.secrets),
        workdir=spec.workdir,
        submitted_at=row.submitted_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        not_before=row.not_before if waits else None,
        exit_code=row.exit_code,
        signal=row.signal,
        attempt=row.attempt,
        retries=row.retries,
        reason=reason if waits else None,
        stopping=row.stop_cause if state in ("starting", "running", "stopping") else None,
        enforcement=row.enforcement,
        limits=row.limits,
        not_enforced=row.not_enforced,
        warnings=tuple(dict.fromkeys(said)),
        usage=live.usage() if live is not None else row.usage,
        usd_per_hour=row.usd_per_hour,
        cost=live.cost() if live is not None and holds else row.cost,
        left_behind=row.left_behind,
        log_bytes=log_bytes if log_bytes is not None else row.log_bytes,
        log_dropped_lines=row.log_dropped_lines,
        gang=spec.gang.id if spec.gang is not None else None,
        held_until=row.held_until,
        attempts=tuple(attempt.to_wire() for attempt in attempts),
    )
