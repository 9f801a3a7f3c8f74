"""Why a job waits, beside what its node says: its place in the line, what has to end first, and when it starts at the latest.

Invariant: a time is told only where the time limits of all that hold what it needs allow it; it is the latest, never a guess.
GPUs are counted; what else a node may lack is in the node's own sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from agent import wire
from tui import format as fmt
from tui.fleet import NodeView
from tui.fleet_jobs import RUNNING, JobView
from tui.job_rows import span

SHOWN = 3
_LAST = datetime.max


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """`place`: 1 is the first in line."""

    place: int
    line: int
    ahead: tuple[str, ...] = ()
    """Ids of those before it in the line, the nearest last."""
    ends_first: tuple[str, ...] = ()
    """Ids of the running jobs that have to end, in the order in which they do at the latest; empty: none, or not known."""
    starts_at: datetime | None = None
    """At the latest; None: not known, or at once."""
    unlimited: str | None = None
    """The running job without a time limit for which no time can be told."""


def line_of(node: NodeView) -> list[wire.Job]:
    """The jobs that wait for GPUs or else, in the order in which they start."""
    waiting = [view.job for view in node.jobs if view.job.state == "queued" and not view.job.array_counts]
    return sorted(waiting, key=lambda job: (-job.priority, _naive(job.deadline), job.submitted_at, job.array or job.id, _index(job)))


def _index(job: wire.Job) -> int:
    return -1 if job.array_index is None else job.array_index


def _naive(at: datetime | None) -> datetime:
    return _LAST if at is None else at.replace(tzinfo=None)


def wait_of(view: JobView, now: float) -> Wait | None:
    """None where it does not wait in the line."""
    job = view.job
    if job.state != "queued" or job.array_counts:
        return None
    line = line_of(view.node)
    place = next((at for at, one in enumerate(line) if one.id == job.id), None)
    if place is None:
        return None
    ahead = tuple(one.id for one in line[:place])
    at = view.node.utc(now)
    found = Wait(place=place + 1, line=len(line), ahead=ahead)
    if at is None or any(one.after or one.not_before for one in line[: place + 1]) or job.gpu_share is not None:
        return found
    return _latest(found, line[: place + 1], view.node, at)


def _latest(found: Wait, line: Sequence[wire.Job], node: NodeView, now: datetime) -> Wait:
    """All of the line up to this one start in order, each when enough GPUs are free; each runs as long as it may."""
    running = [view.job for view in node.jobs if view.job.state in RUNNING and not view.job.array_counts and view.job.gpus]
    held = {uuid for job in running for uuid in job.gpus}
    free = sum(use.held is False and use.gpu.state == "ok" and use.gpu.uuid not in held for use in node.uses)
    ends: list[tuple[datetime | None, str, int]] = [(_end(job), job.id, len(job.gpus)) for job in running if job.gpu_share is None]
    ended: list[str] = []
    at = now
    for job in line:
        ends.sort(key=lambda one: (one[0] is None, one[0] or now, one[1]))
        while free < job.gpus_wanted:
            if not ends:
                return found
            when, ident, count = ends.pop(0)
            if when is None:
                return msgspec.structs.replace(found, unlimited=ident, ends_first=tuple(ended))
            free, at = free + count, max(at, when)
            ended.append(ident)
        free -= job.gpus_wanted
        if job.gpus_wanted:
            limit = job.time_limit_seconds
            ends.append((None if limit is None else at + timedelta(seconds=limit), job.id, job.gpus_wanted))
    return msgspec.structs.replace(found, ends_first=tuple(ended), starts_at=at if at > now else None)


def _end(job: wire.Job) -> datetime | None:
    if job.time_limit_seconds is None or job.started_at is None:
        return None
    return job.started_at + timedelta(seconds=job.time_limit_seconds)


def wait_text(view: JobView, now: float) -> str:
    """`2nd of 5 in line, behind 0abc…; when JOB and JOB end; in 2h10m at the latest`; empty where there is nothing to say."""
    wait = wait_of(view, now)
    if wait is None:
        return ""
    parts = [f"{_ordinal(wait.place)} of {wait.line} in line"]
    if wait.ahead:
        more = f" and {len(wait.ahead) - SHOWN} more" if len(wait.ahead) > SHOWN else ""
        parts[0] += f", behind {', '.join(map(fmt.clean, wait.ahead[-SHOWN:]))}{more}"
    if wait.ends_first:
        names = ", ".join(map(fmt.clean, wait.ends_first[:SHOWN]))
        more = f" and {len(wait.ends_first) - SHOWN} more" if len(wait.ends_first) > SHOWN else ""
        parts.append(f"when {names}{more} {'has' if len(wait.ends_first) == 1 else 'have'} ended")
    at = view.node.utc(now)
    if wait.starts_at is not None and at is not None:
        parts.append(f"in {span(max(0.0, (wait.starts_at - at).total_seconds()))} at the latest")
    elif wait.unlimited is not None:
        parts.append(f"nobody can say when: {fmt.clean(wait.unlimited)} has no time limit")
    return "; ".join(parts)


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


_CAUSES = {
    "oom": "out of memory", "time_limit": "its time limit", "budget": "its budget", "cancelled": "cancelled",
    "preempted": "gave way to another job", "spot_reclaim": "the cloud took the node back", "idle_stop": "its GPUs stood idle",
    "lost": "its watcher vanished", "node_reboot": "the node was restarted", "unkillable": "could not be killed",
    "start_error": "did not start",
}  # fmt: skip


def end_text(job: wire.Job) -> str:
    """How it ended: the cause in words, the exit code or signal, and the node's evidence."""
    if job.state != "ended" or not job.cause:
        return ""
    kind, _, number = job.cause.partition(":")
    evidence = fmt.clean(job.evidence or "")
    if kind in ("exit", "signal") and evidence:
        return evidence
    if kind == "exit":
        words = "ended well" if number == "0" else f"its exit code was {fmt.clean(number)}"
    elif kind == "signal":
        words = f"killed by signal {_signal(number)}"
    else:
        words = _CAUSES.get(job.cause, fmt.clean(job.cause))
        if job.signal is not None:
            words += f", signal {_signal(str(job.signal))}"
        elif job.exit_code:
            words += f", exit code {job.exit_code}"
    return f"{words}: {evidence}" if evidence else words


def _signal(number: str) -> str:
    """`9 (KILL)`."""
    from signal import Signals

    try:
        return f"{int(number)} ({Signals(int(number)).name.removeprefix('SIG')})"
    except ValueError:
        return fmt.clean(number)
