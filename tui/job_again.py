"""A job of before as the beginning of a new one: what of it can be asked for again, and what cannot.

Invariant: a value is taken over exactly or is told as left out; secrets, and what the node never tells, are never guessed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from agent import wire
from tui import format as fmt
from tui.job_command import options_of

USUAL_PIDS = 16_384
"""What a node allows a job that asks for no limit of its own."""
_RECIPE = re.compile(r"agent\.recipes\.([a-z_]+)")
NEVER_TOLD = "Environment variables and files sent along (--workdir) are not told by the node: give them again if it had any."


class Again(NamedTuple):
    """`draft`: what would be typed, by the options' keys; `told`: sentences about what is not taken over."""

    draft: dict[str, str]
    told: tuple[str, ...]


def again(job: wire.Job, now: datetime, user: str) -> Again:
    """`user`: who asks."""
    draft = {key: _typed(value) for key, value in options_of(_spec(job, now), user).items()}
    draft["command"] = (job.command[0] if job.command else "") if job.shell else shlex.join(job.command)
    return Again(draft, tuple(_told(job, now, user)))


def _typed(value: object) -> str:
    """A switch is `yes`, several texts are words."""
    if isinstance(value, list):
        return shlex.join(value)
    return "yes" if value is True else str(value)


def _spec(job: wire.Job, now: datetime) -> wire.JobSpec:
    """The user is left out: whoever asks is the user."""
    same = ("command", "shell", "name", "project", "gpu_share", "gpu_memory_bytes", "cpus", "memory_bytes", "pids", "budget_usd",
            "time_limit_seconds", "interruptible", "retries", "priority", "after", "workdir")  # fmt: skip
    spec = wire.JobSpec(**{name: getattr(job, name) for name in same}, gpus=job.gpus_wanted)
    changes: dict[str, object] = {"pids": None} if job.pids == USUAL_PIDS else {}
    if job.deadline is not None and job.deadline > now:
        changes["deadline"] = job.deadline
    if job.stop_signal:
        changes["stop_signal"] = job.stop_signal.removeprefix("SIG")
    if job.grace_seconds:
        changes["grace_seconds"] = job.grace_seconds
    return msgspec.structs.replace(spec, **changes)


def _told(job: wire.Job, now: datetime, user: str) -> Iterator[str]:
    if job.secrets:
        names = ", ".join(map(fmt.clean, job.secrets))
        yield f"Its secrets ({names}) never come out of the node: `rackrate run --secret NAME=FILE` gives them again."
    if job.deadline is not None and job.deadline <= now:
        yield "Its deadline is past."
    if job.user and job.user != user:
        yield f"It was {fmt.clean(job.user)}'s; this one runs as {fmt.clean(user)}."
    if job.array_counts:
        yield "It is an array: which tasks it had is not told, so this is one job; `rackrate run --array` asks for several."
    elif job.array is not None:
        yield f"It was task {job.array_index} of an array: this is one job without an index."
    if job.gang:
        yield "It was one node's part of a run over several: `rackrate run --nodes` starts such a run."
    if (found := _RECIPE.search(" ".join(job.command))) is not None:
        yield f"It ran a recipe, whose program is sent along: `rackrate run --recipe {found[1]}` does that."
    yield NEVER_TOLD
