"""Jobs as rows: one set of columns and filter words for the app and the commands.

Invariant: values that sort do not change with the clock, so that rows stay in their order while time goes on.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from agent import wire
from tui import format as fmt
from tui.columns import Column
from tui.fleet_jobs import RUNNING, JobView
from tui.query import Words

_STATE_ORDER = {"stopping": 0, "running": 1, "starting": 2, "queued": 3, "ended": 4}
DONE = "exit:0"
"""The cause of a job that ended well."""
IN_REPORTS = "in report"
"""As wide as the column of costs."""
_TEXT_KEYS = ("id", "state", "node", "user", "project", "cause", "name", "why")
_NUMBER_KEYS = ("gpus", "cost", "$", "run", "wait", "priority", "attempt")


def span(seconds: float | None) -> str:
    """`42s`, `12m`, `3h05m`, `2d04h`: the two largest units."""
    if seconds is None:
        return fmt.UNKNOWN
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s" if whole < 600 else f"{whole // 60}m"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    days = whole // 86_400
    return f"{days}d{whole % 86_400 // 3600:02}h" if days < 100 else f"{days}d"


def command_text(job: wire.Job) -> str:
    """argv as a shell would take it, in one line, made safe for a terminal."""
    text = " ".join(job.command) if job.shell else shlex.join(job.command)
    return fmt.clean(" ".join(text.split())) or fmt.UNKNOWN


def name_text(job: wire.Job) -> str:
    """The name with the place in its array, or the command where there is none."""
    name = fmt.clean(job.name) if job.name else command_text(job)
    return f"{name} [{job.array_index}]" if job.array_index is not None else name


def cause_text(job: wire.Job) -> str:
    """Why it ended, why it is being stopped, or how the attempt before ended."""
    return fmt.clean((job.stopping if job.state == "stopping" else job.cause) or fmt.UNKNOWN)


def gpus_text(job: wire.Job) -> str:
    """`4`, `0.5` of one, `0`."""
    return f"{job.gpu_share.normalize():f}" if job.gpu_share is not None else str(job.gpus_wanted)


def state_text(job: wire.Job) -> str:
    """The wire's word; of an array how many tasks are in which state: `3+12`."""
    if not job.array_counts:
        return job.state
    running = sum(count for state, count in job.array_counts.items() if state in RUNNING)
    return f"{running}+{job.array_counts.get('queued', 0)}" if job.state != "ended" else job.state


def has_gpu(job: wire.Job) -> bool:
    """Whole ones, or a share of one."""
    return bool(job.gpus_wanted) or job.gpu_share is not None


def is_in_reports(job: wire.Job) -> bool:
    """Whether it costs something that reports alone tell: its node knows neither what processors are worth nor memory."""
    return job.cost is None and not has_gpu(job) and job.started_at is not None


def cost_text(job: wire.Job, cost: Decimal | None) -> str:
    """`cost`: of this moment."""
    return IN_REPORTS if cost is None and is_in_reports(job) else fmt.usd(cost)


def why_text(job: wire.Job) -> str:
    """The sentence that matters now: why it waits, why it is being stopped or why it ended, else what to beware of."""
    if job.left_behind:
        return fmt.clean(job.left_behind[0])
    if job.state == "queued":
        return fmt.clean(job.reason or job.evidence or "")
    if job.state == "stopping":
        return fmt.clean(job.evidence or f"is being stopped: {(job.stopping or 'stop').replace('_', ' ')}")
    if job.state == "ended":
        return fmt.clean(job.evidence or "")
    return fmt.clean(next(iter((*job.warnings, *job.not_enforced)), ""))


def failed(job: wire.Job) -> bool:
    """It ended, and not because it was done or somebody wanted it to."""
    return job.state == "ended" and job.cause not in (None, DONE, "cancelled")


def _column(ident: str, title: str, width: int, priority: int, value: Callable[[wire.Job], Any],
            text: Callable[[wire.Job], str] | None = None, **more: Any) -> Column:  # fmt: skip
    """A column of the job alone; its text is made safe."""
    shown = text or (lambda job: value(job) or fmt.UNKNOWN)
    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, _: value(row.job),
                  text=lambda row, _: fmt.clean(shown(row.job)), **more)  # fmt: skip


JOB_COLUMNS: tuple[Column, ...] = (
    Column(id="state", title="STATE", width=8, priority=1, sort_key="1",
           value=lambda row, now: (_STATE_ORDER[row.job.state], -row.job.priority if row.job.state == "queued" else 0),
           text=lambda row, now: state_text(row.job)),
    _column("name", "NAME", 18, 1, name_text, name_text, flex=True, sort_key="2"),
    Column(id="node", title="NODE", width=14, priority=2, flex=True, sort_key="3",
           value=lambda row, now: row.node.name, text=lambda row, now: fmt.clean(row.node.name)),
    _column("user", "USER", 8, 4, lambda job: job.user, sort_key="4"),
    _column("project", "PROJECT", 10, 8, lambda job: job.project),
    _column("gpus", "GPUS", 5, 3, lambda job: job.gpu_share if job.gpu_share is not None else Decimal(job.gpus_wanted),
            gpus_text, align="right", descending=True, sort_key="5"),
    Column(id="run", title="RUN", width=6, priority=2, align="right", sort_key="6",
           value=lambda row, now: row.job.started_at if row.job.state != "queued" else None,
           text=lambda row, now: span(row.run_seconds(now))),
    Column(id="cost", title="COST", width=9, priority=2, align="right", descending=True, sort_key="7",
           value=lambda row, now: row.job.cost, text=lambda row, now: cost_text(row.job, row.cost(now))),
    _column("cause", "CAUSE", 12, 3, lambda job: None if cause_text(job) == fmt.UNKNOWN else cause_text(job), cause_text,
            sort_key="8"),
    _column("id", "ID", 12, 5, lambda job: job.id, sort_key="9"),
    Column(id="age", title="SENT", width=5, priority=9, align="right", descending=True, sort_key="0",
           value=lambda row, now: row.job.submitted_at, text=lambda row, now: fmt.age(row.wait_seconds(now))),
    _column("why", "WHY", 24, 6, lambda job: why_text(job) or None, why_text, flex=True),
)  # fmt: skip


def texts(row: JobView, key: str, now: float) -> list[str]:
    """All texts of a job under a key. `state` also says `done` or `failed` of one that ended."""
    job = row.job
    match key:
        case "state":
            return [job.state, *(["failed"] if failed(job) else ["done"] if job.cause == DONE else [])]
        case "node":
            return [row.node.name]
        case "name":
            return [job.name or "", " ".join(job.command)]
        case "why":
            return [why_text(job)]
        case "cause":
            return [word for word in (job.cause, job.stopping) if word]
    value = getattr(job, key)
    return [value] if value else []


def number_of(row: JobView, key: str, now: float) -> float | None:
    """`cost`/`$` in dollars so far, `run` and `wait` in seconds."""
    job = row.job
    match key:
        case "gpus":
            return float(job.gpu_share if job.gpu_share is not None else job.gpus_wanted)
        case "run":
            return row.run_seconds(now)
        case "wait":
            return row.wait_seconds(now)
        case "priority" | "attempt":
            return float(getattr(job, key))
    cost = row.cost(now)
    return None if cost is None else float(cost)


def _bare(row: JobView) -> list[str]:
    job = row.job
    words = (job.id, job.name, job.user, job.project, job.cause, row.node.name, " ".join(job.command))
    return [word for word in words if word]


STATES = ("queued", "starting", "running", "stopping", "ended", "done", "failed")
CAUSES = (
    DONE, "start_error", "cancelled", "time_limit", "budget", "preempted", "spot_reclaim", "idle_stop", "oom", "signal:", "exit:",
    "lost", "node_reboot", "unkillable",
)  # fmt: skip
JOB_WORDS = Words(
    _TEXT_KEYS, _NUMBER_KEYS, texts, number_of, _bare, seconds=("run", "wait"),
    known={"state": STATES, "user": ("me",), "cause": CAUSES},
)  # fmt: skip
