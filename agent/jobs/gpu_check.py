"""Whether a job has really left its GPUs: what the driver says after its end, not what its exit code says.

Invariant: a GPU is free only when a reading taken after the end shows nothing of the job on it; what stays longer than
`kill_wait_seconds` makes the job `unkillable`, and the GPU is kept from others until it is gone.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import msgspec

from agent import wire
from agent.jobs.live import Live
from agent.jobs.node_shape import GpuView

Seen = tuple[int, datetime | None]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """How a job's processes are known again on its GPUs."""

    job: str
    gpus: tuple[str, ...]
    user: str | None
    exclusive: bool
    seen: tuple[Seen, ...] = ()
    pids: tuple[int, ...] = ()
    """Processes that outlived the kill, by the kernel."""


def trace_of(live: Live, pids: Collection[int] = ()) -> Trace:
    return Trace(
        job=live.id,
        gpus=live.gpus,
        user=live.user,
        exclusive=live.exclusive,
        seen=tuple(sorted(live.pids, key=lambda one: one[0])),
        pids=tuple(sorted(pids)),
    )


def remember(live: Live, view: GpuView) -> None:
    """Notes which processes on its GPUs are the job's, while it runs and they can still be told apart."""
    trace = Trace(job=live.id, gpus=live.gpus, user=live.user, exclusive=live.exclusive)
    for uuid in live.gpus:
        live.pids |= {_seen(one) for one in view.processes(uuid) or () if _is_of(one, trace)}


def strays(trace: Trace, view: GpuView) -> list[str]:
    """A sentence for each process of the job that is still on one of its GPUs."""
    found = []
    for uuid in trace.gpus:
        gpu = view.gpus.get(uuid)
        for process in (gpu.processes if gpu is not None else None) or ():
            if _is_of(process, trace):
                command = f" ({process.command[:60]})" if process.command else ""
                found.append(f"process {process.pid}{command} still holds GPU {gpu.index if gpu is not None else uuid}")
    return found


def read_since(view: GpuView, moment: datetime) -> bool:
    """Whether the driver was asked after `moment`."""
    return view.read_at is not None and view.read_at > moment


def stranger(gpu: wire.Gpu, holders: Collection[str], users: Collection[str | None], *, told: bool) -> str | None:
    """Who is on a GPU that `holders` (jobs, run as `users`) may use: a text for a sentence; None: nobody else.

    `told`: whether the job of a process is known here (cgroups tell); else a process of their users is theirs.
    """
    for process in gpu.processes or ():
        if process.kind != "compute" or process.job in holders and process.job is not None:
            continue
        if holders and not told and (process.user in users or not process.visible):
            continue
        who = f"{process.command or 'a process'} ({process.pid})"[:80]
        return f"{who} of {process.user}" if process.user else who
    return None


def _is_of(process: wire.Process, trace: Trace) -> bool:
    if process.job is not None:
        return process.job == trace.job
    if process.pid in trace.pids or _seen(process) in trace.seen:
        return True
    if not trace.exclusive or process.kind == "graphics":
        return False
    return not process.visible or process.user is None or process.user == trace.user


def _seen(process: wire.Process) -> Seen:
    return process.pid, process.started_at
