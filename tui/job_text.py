"""A job, a plan and a list of jobs as text and as JSON.

Invariant: in JSON every key is there, null where it is not known, and money is a decimal string; in text nothing that came
from outside can move the cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from agent import wire
from tui import format as fmt
from tui.job_rows import gpus_text, is_in_reports, span

_UNKNOWN = fmt.UNKNOWN


def filled(value: Any) -> Any:
    """A struct with all its fields, also those of the structs in it; JSON-ready."""
    if isinstance(value, msgspec.Struct):
        return {name: filled(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, (tuple, list)):
        return [filled(one) for one in value]
    if isinstance(value, dict):
        return {str(key): filled(one) for key, one in value.items()}
    return msgspec.to_builtins(value)


def job_record(node: str, job: wire.Job) -> dict[str, Any]:
    """`node` is what the client calls it."""
    return {**filled(job), "node": node}


def plan_record(node: str, plan: wire.JobPlan) -> dict[str, Any]:
    return {**filled(plan), "node": node}


def plan_lines(node: str, plan: wire.JobPlan) -> Iterator[str]:
    """What a dry run prints."""
    yield from _rows(
        {
            "node": node,
            "starts": "now" if plan.starts_now else "later",
            "because": plan.reason,
            "GPUs": ", ".join(f"{index} ({uuid})" for index, uuid in zip(plan.gpu_indexes, plan.gpus, strict=False)) or "none",
            "CPUs": plan.cpus or "any",
            "NUMA node": None if plan.numa_node is None else str(plan.numa_node),
            "command": quoted(plan.argv),
            "folder": plan.workdir,
            "user": plan.user,
            "environment": " ".join(plan.environment),
            "isolation": plan.enforcement,
            "price": f"{fmt.usd(plan.usd_per_hour, 4)} an hour" if plan.usd_per_hour is not None else "not known",
        }
    )
    yield from (f"warning: {fmt.clean(text)}" for text in plan.warnings)
    yield from (f"not enforced: {fmt.clean(text)}" for text in plan.not_enforced)
    if plan.steps:
        yield "steps:"
    yield from (f"  {_step(step)}" for step in plan.steps)


def _step(step: wire.PlanStep) -> str:
    text = "" if step.text is None else f" {fmt.clean(step.text)}"
    return f"{step.kind:<6}{fmt.clean(step.target)}{text}"


def quoted(argv: Sequence[str]) -> str:
    import shlex

    return shlex.join(argv)


def job_lines(node: str, job: wire.Job) -> Iterator[str]:
    """What `rackrate job show` prints."""
    yield from _rows(_facts(node, job))
    yield from (f"warning: {fmt.clean(text)}" for text in job.warnings)
    yield from (f"not enforced: {fmt.clean(text)}" for text in job.not_enforced)
    yield from (f"left behind: {fmt.clean(text)}" for text in job.left_behind)
    if job.limits:
        yield "limits:"
        yield from (f"  {fmt.clean(name):<14}{fmt.clean(text)}" for name, text in job.limits.items())
    if job.usage is not None:
        yield "used:"
        yield from (f"  {name:<16}{text}" for name, text in _usage(job.usage))
    if job.attempts:
        yield "attempts:"
    yield from (f"  {_attempt(attempt)}" for attempt in job.attempts)


def _facts(node: str, job: wire.Job) -> dict[str, str | None]:
    return {
        "id": job.id,
        "name": job.name,
        "node": node,
        "state": f"{job.state}{f' ({job.stopping})' if job.stopping else ''}",
        "cause": job.cause,
        "evidence": job.evidence,
        "reason": job.reason,
        "exit code": _number(job.exit_code),
        "signal": _number(job.signal),
        "command": job.command[0] if job.shell and job.command else quoted(job.command),
        "folder": job.workdir,
        "user": job.user,
        "project": job.project,
        "GPUs": f"{gpus_text(job)}{f' ({chr(44).join(job.gpus)})' if job.gpus else ''}",
        "GPU memory": None if job.gpu_memory_bytes is None else fmt.size(job.gpu_memory_bytes),
        "priority": _number(job.priority or None),
        "interruptible": "yes" if job.interruptible else None,
        "after": ", ".join(job.after) or None,
        "array": None if job.array is None else f"task {job.array_index} of {job.array}",
        "tasks": ", ".join(f"{count} {state}" for state, count in job.array_counts.items()) or None,
        "run": None if job.gang is None else f"part of {job.gang} over several nodes",
        "secrets": ", ".join(job.secrets) or None,
        "submitted": moment(job.submitted_at),
        "started": moment(job.started_at),
        "ended": moment(job.ended_at),
        "deadline": moment(job.deadline),
        "next try": moment(job.not_before),
        "time limit": None if job.time_limit_seconds is None else span(job.time_limit_seconds),
        "attempt": f"{job.attempt} ({job.retries} retries allowed)" if job.attempt else None,
        "price": None if job.usd_per_hour is None else f"{fmt.usd(job.usd_per_hour, 4)} an hour",
        "cost": _cost(job),
        "budget": None if job.budget_usd is None else fmt.usd(job.budget_usd),
        "isolation": job.enforcement,
        "log": None if job.log_bytes is None else f"{fmt.size(job.log_bytes)}{_dropped(job)}",
    }


def _cost(job: wire.Job) -> str | None:
    if job.cost is not None:
        return fmt.usd(job.cost, 4)
    return "in reports by job: its processors' and memory's part of the node" if is_in_reports(job) else None


def _dropped(job: wire.Job) -> str:
    return f", {fmt.counted(job.log_dropped_lines, 'line')} dropped" if job.log_dropped_lines else ""


def _usage(usage: wire.JobUsage) -> Iterator[tuple[str, str]]:
    for name in usage.__struct_fields__:
        value = getattr(usage, name)
        if value is None:
            continue
        label, _, unit = name.rpartition("_")
        match unit:
            case "bytes":
                yield label.replace("_", " "), fmt.size(value)
            case "seconds":
                yield label.replace("_", " ") + " time", span(value)
            case "joules":
                yield label.replace("_", " "), f"{value / 3_600_000:.3f} kWh"
            case _:
                yield name.replace("_", " "), f"{value:,}"


def _attempt(attempt: wire.Attempt) -> str:
    ran = None
    if attempt.started_at and attempt.ended_at:
        ran = (attempt.ended_at - attempt.started_at).total_seconds()
    words = [
        f"{attempt.number:>2}", moment(attempt.started_at) or _UNKNOWN, f"{span(ran):>6}", fmt.clean(attempt.cause or "runs"),
        fmt.usd(attempt.cost), fmt.clean(attempt.evidence or ""),
    ]  # fmt: skip
    return "  ".join(words).rstrip()


def _number(value: int | None) -> str | None:
    return None if value is None else str(value)


def moment(at: datetime | None) -> str | None:
    """This machine's local time, with its zone."""
    return None if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def _rows(facts: Mapping[str, str | None]) -> Iterator[str]:
    for name, text in facts.items():
        if text is not None:
            yield f"{name:<15}{fmt.clean(text)}"
