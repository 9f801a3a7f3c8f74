"""Whether a job, as it was asked for, can be run on this node at all: every fault in a sentence, before anything is kept.

Invariant: what passes can be started without another question, as long as the node stays as it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec

from agent.config_file import VARIABLE, JobsTable
from agent.errors import JobRefused, JobUnknown
from agent.jobs import arrays, costs, dependencies, launch, retry, secrets, torchrun
from agent.jobs.signals import signal_number
from agent.wire import GPU_SHARE_PLACES, GpuInventory, JobSpec

LEAST_MEMORY_BYTES = 4 << 20
LONGEST_SECONDS = 366 * 86_400
LARGEST_COMMAND_BYTES = 128 << 10
"""What the kernel takes in one argument (MAX_ARG_STRLEN)."""
DEFAULT_GRACE_SECONDS = 30.0
ELASTIC_JOIN_SECONDS = 20.0
"""torch drops a peer that is gone after 3 x 5 s without a heartbeat (measured with 2.13: a shorter wait finds nobody)."""
SWEEP = ("-m", "agent.recipes.sweep")
SWEEP_SAVE_SECONDS = 25.0
"""A trial may save for 8 s, and Ray may end for 15 s more (agent/recipes/sweep_process.py, sweep_cluster.py)."""
_GANG = re.compile(r"[A-Za-z0-9_-]{1,64}")


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What this node has, as far as it is known now."""

    gpus: tuple[GpuInventory, ...]
    cpu_count: int
    memory_bytes: int | None
    usd_per_hour: str | None
    queued: int
    """Jobs that have not ended."""


def with_defaults(spec: JobSpec, jobs: JobsTable) -> JobSpec:
    """What the node fills in where the job says nothing (a grace of 30 s is what a spec says that says nothing)."""
    grace = jobs.grace_seconds if spec.grace_seconds == DEFAULT_GRACE_SECONDS else spec.grace_seconds
    share = spec.gpu_share.normalize() if spec.gpu_share is not None else None
    return msgspec.structs.replace(
        spec,
        grace_seconds=grace,
        gpu_share=share,
        pids=spec.pids if spec.pids is not None else jobs.default_pids,
        stop_signal=spec.stop_signal.strip().upper(),
        array=tuple(sorted(set(spec.array))),
    )


def check(
    spec: JobSpec, node: NodeFacts, jobs: JobsTable, *, known: Callable[[str], bool], upload: Callable[[str], Path]
) -> None:
    """Raises JobRefused with all faults, a sentence each. `known`: whether there is a job of this id."""
    faults = [
        *_command_faults(spec),
        *_name_faults(spec),
        *_gpu_faults(spec, node),
        *_host_faults(spec, node),
        *_time_faults(spec),
        *_budget_faults(spec, node),
        *_after_faults(spec, known),
        *filter(None, [arrays.refusal(spec.array, spec.array_at_once)]),
        *_env_faults(spec),
        *_folder_faults(spec, upload),
        *_gang_faults(spec),
        *_queue_faults(spec, node, jobs),
    ]
    if faults:
        raise JobRefused("; ".join(faults))


def warnings(spec: JobSpec, now: datetime) -> list[str]:
    """What is taken as it stands, and should be known."""
    found = []
    env = spec.env
    cut = torchrun.grace_warning(spec.command, shell=spec.shell, env=env, grace_seconds=spec.grace_seconds)
    if cut is not None:
        found.append(cut)
    if spec.grace_seconds < SWEEP_SAVE_SECONDS and SWEEP in zip(spec.command, spec.command[1:], strict=False):
        found.append(
            f"the grace of {spec.grace_seconds:g} s may be too short for the trials of a sweep to save: they and Ray take up to "
            f"{SWEEP_SAVE_SECONDS:g} s; use a longer --grace"
        )
    if spec.deadline is not None:
        if spec.deadline <= now:
            found.append("the deadline has passed already")
        elif spec.time_limit_seconds and now + timedelta(seconds=spec.time_limit_seconds) > spec.deadline:
            found.append("the deadline can be met only if the job ends before its time limit")
    return found


def _command_faults(spec: JobSpec) -> Iterator[str]:
    if not spec.command or not spec.command[0]:
        yield "there is no command to run"
        return
    if spec.shell and len(spec.command) != 1:
        yield f"a shell job is exactly one text, not {len(spec.command)}"
    for word in spec.command:
        if "\0" in word:
            yield "the command holds a NUL character"
        if len(word.encode("utf-8", "surrogateescape")) >= LARGEST_COMMAND_BYTES:
            yield f"one argument of the command is longer than {LARGEST_COMMAND_BYTES} bytes, which the kernel does not take"
    try:
        signal_number(spec.stop_signal)
    except JobRefused as fault:
        yield f"stop signal: {fault}"


def _name_faults(spec: JobSpec) -> Iterator[str]:
    for what, text in (("name", spec.name), ("project", spec.project), ("user", spec.user)):
        if text is None:
            continue
        if not text or len(text) > 128:
            yield f"the {what} has {len(text)} characters; 1 to 128 are allowed"
        elif not text.isprintable():
            yield f"the {what} {_shown(text)} holds control characters"


def _gpu_faults(spec: JobSpec, node: NodeFacts) -> Iterator[str]:
    have = len(node.gpus)
    if spec.gpus and spec.gpu_share is not None:
        yield "whole GPUs and a share of one cannot be asked for together; use either gpus or gpu_share"
    if spec.gpus < 0:
        yield f"{spec.gpus} GPUs cannot be given"
    if spec.gpus > have:
        yield f"{spec.gpus} GPU{'s are' if spec.gpus != 1 else ' is'} asked for, but this node has {have or 'none'}"
    if spec.gpu_share is not None:
        yield from _share_faults(spec, spec.gpu_share, node)
    elif spec.gpu_memory_bytes is not None:
        yield "a limit of GPU memory goes with a share of a GPU (gpu_share); a whole GPU is the job's own"
    if spec.idle_stop_seconds is not None and not spec.gpus and spec.gpu_share is None:
        yield "an idle stop looks at GPUs, and the job asks for none"


def _share_faults(spec: JobSpec, share: Decimal, node: NodeFacts) -> Iterator[str]:
    if not share.is_finite() or not 0 < share < 1:
        yield f"a share of {share} is not possible; it must lie between 0 and 1 (for a whole GPU use gpus = 1)"
    elif share != round(share, GPU_SHARE_PLACES):
        yield f"a share of {share} is finer than a millionth of a GPU"
    if not node.gpus:
        yield "a share of a GPU is asked for, but this node has none"
    sizes = [gpu.memory_total_bytes for gpu in node.gpus if gpu.memory_total_bytes is not None]
    wanted = spec.gpu_memory_bytes
    if wanted is not None and wanted <= 0:
        yield f"{wanted} bytes of GPU memory cannot be given"
    elif wanted is not None and sizes and wanted > max(sizes):
        yield f"{_bytes(wanted)} of GPU memory are asked for, but the largest GPU here has {_bytes(max(sizes))}"


def _host_faults(spec: JobSpec, node: NodeFacts) -> Iterator[str]:
    memory = spec.memory_bytes
    if memory is not None and memory < LEAST_MEMORY_BYTES:
        yield f"{memory} bytes of memory are too few for any program; at least {_bytes(LEAST_MEMORY_BYTES)}"
    if memory is not None and node.memory_bytes is not None and memory > node.memory_bytes:
        yield f"{_bytes(memory)} of memory are asked for, but this node has {_bytes(node.memory_bytes)}"
    if spec.cpus is not None:
        if not spec.cpus.is_finite() or spec.cpus < Decimal("0.01"):
            yield f"{spec.cpus} CPUs cannot be given"
        elif spec.cpus > node.cpu_count:
            yield f"{spec.cpus} CPUs are asked for, but this node has {node.cpu_count}"
    elif spec.cpu_quota:
        yield "a CPU quota needs a number of CPUs"
    if spec.pids is not None and not 1 <= spec.pids <= 4_194_304:
        yield f"a limit of {spec.pids} processes is not possible; 1 to 4194304 are"
    if spec.io_weight is not None and not 1 <= spec.io_weight <= 10_000:
        yield f"an io weight of {spec.io_weight} is not possible; 1 to 10000 are"


def _time_faults(spec: JobSpec) -> Iterator[str]:
    for what, seconds in (("time limit", spec.time_limit_seconds), ("idle stop", spec.idle_stop_seconds)):
        if seconds is not None and not 0 < seconds <= LONGEST_SECONDS:
            yield f"a {what} of {seconds:g} s is not possible; it must be above 0 and at most a year"
    if not 0 <= spec.grace_seconds <= 86_400:
        yield f"a grace of {spec.grace_seconds:g} s is not possible; 0 to 86400 are"
    if (refused := retry.refusal(spec.retry_on, spec.retries)) is not None:
        yield refused
    if not -1000 <= spec.priority <= 1000:
        yield f"a priority of {spec.priority} is not possible; -1000 to 1000 are"
    if spec.deadline is not None and spec.deadline.tzinfo is None:
        yield "the deadline has no time zone; write it as 2026-01-31T18:00:00Z"
    if spec.log_quota_bytes is not None and spec.log_quota_bytes < 8192:
        yield f"a log of {spec.log_quota_bytes} bytes is too small; at least 8192"


def _budget_faults(spec: JobSpec, node: NodeFacts) -> Iterator[str]:
    price = spec.node_usd_per_hour
    if price is not None and (not price.is_finite() or price <= 0):
        yield f"the node's price of {price} USD an hour is not possible"
    if spec.budget_usd is None:
        return
    if not spec.budget_usd.is_finite() or spec.budget_usd <= 0:
        yield f"a budget of {spec.budget_usd} USD is not possible"
    if not spec.gpus and spec.gpu_share is None:
        yield (
            "a budget needs GPUs: what a job without one costs is worked out in reports, by its processors and memory; "
            "limit it with --time-limit"
        )
    elif costs.price(node.usd_per_hour, price) is None:
        yield (
            "a budget needs the node's price, which is not known here; set `usd_per_hour` in [node] of agent.toml, "
            "or submit from a client whose catalog has it"
        )


def _after_faults(spec: JobSpec, known: Callable[[str], bool]) -> Iterator[str]:
    try:
        dependencies.check(spec.after, known)
    except JobRefused as fault:
        yield str(fault)


def _env_faults(spec: JobSpec) -> Iterator[str]:
    for name, value in spec.env.items():
        if not VARIABLE.fullmatch(name):
            yield f"{_shown(name)} is no name of an environment variable"
        elif launch.reserved(name):
            yield f"the environment variable {name} is set by the node itself"
        elif "\0" in value:
            yield f"the environment variable {name} holds a NUL character"
        elif len(value.encode("utf-8", "surrogateescape")) >= LARGEST_COMMAND_BYTES:
            yield f"the environment variable {name} is longer than {LARGEST_COMMAND_BYTES} bytes"
    yield from secrets.faults(spec.secrets)


def _folder_faults(spec: JobSpec, upload: Callable[[str], Path]) -> Iterator[str]:
    folder = spec.workdir
    if spec.upload is not None:
        try:
            upload(spec.upload)
        except JobUnknown as fault:
            yield str(fault)
        if folder is not None and (os.path.isabs(folder) or ".." in Path(folder).parts):
            yield f"beside an upload the work directory {_shown(folder)} must lie inside it"
        return
    if folder is None:
        return
    if not os.path.isabs(folder) or "\0" in folder:
        yield f"the work directory {_shown(folder)} is no absolute path"
    elif not _may_be_folder(folder):
        yield f"there is no work directory {_shown(folder)} on this node"


def _may_be_folder(folder: str) -> bool:
    """Also where only the job's user, and not the agent, can look (a home on a network drive)."""
    try:
        return os.path.isdir(folder) or (not os.stat(folder) and False)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def _gang_faults(spec: JobSpec) -> Iterator[str]:
    if spec.gang is None or not spec.command:
        return
    if not _GANG.fullmatch(spec.gang.id):
        yield f"{_shown(spec.gang.id)} is no id of a run over several nodes"
    if spec.array:
        yield "a run over several nodes cannot be an array"
    if spec.gang.endpoint is not None and not is_endpoint(spec.gang.endpoint):
        yield f"{_shown(spec.gang.endpoint)} is no HOST:PORT"
    if spec.gang.least_nodes < spec.gang.nodes and spec.gang.join_timeout_seconds < ELASTIC_JOIN_SECONDS:
        yield (
            f"a join time-out of {spec.gang.join_timeout_seconds:g} s is too short to go on without a lost node: torch takes 15 s"
            f" to notice one, so it has to be at least {ELASTIC_JOIN_SECONDS:g} s"
        )
    yield from torchrun.gang_faults(spec.command, shell=spec.shell, gang=spec.gang)


def is_endpoint(text: str) -> bool:
    """Whether it can be HOST:PORT."""
    return re.fullmatch(r"[A-Za-z0-9._:\[\]%-]{1,255}:[0-9]{1,5}", text) is not None


def _queue_faults(spec: JobSpec, node: NodeFacts, jobs: JobsTable) -> Sequence[str]:
    more = max(1, len(spec.array))
    if node.queued + more > jobs.max_queue:
        return (f"the queue of this node is full: {node.queued} jobs have not ended, and {jobs.max_queue} are allowed",)
    return ()


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def _bytes(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= 1 << 30 else f"{number / (1 << 20):.1f} MiB"
