"""`launch.json`: all that a shim needs to run one attempt of a job, and nothing secret.

Invariant: the environment is built from nothing: names of an allow-list from the agent's own, what the node sets, and what
the job brings; a dry run and a start call the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from agent.config_file import JobsTable
from agent.jobs import torchrun
from agent.jobs.ids import unit_name
from agent.jobs.signals import signal_number
from agent.jobs.users import RunAs
from agent.wire import JobSpec

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UMASK = 0o077
LEAST_FREE_BYTES = 64 << 20
ERROR_FILE = "error.json"
RESERVED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CREDENTIALS_DIRECTORY", "TORCHELASTIC_ERROR_FILE")
RESERVED_PREFIXES = ("RACKRATE_", "CUDA_MPS_")
FREE = ("RACKRATE_CHECKPOINT_DIR",)
"""Ours by name, but a job may say another."""


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of one attempt."""

    job: Path
    attempt: Path
    runtime: Path
    directory: str
    checkpoint: Path


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt is, beside its spec."""

    job: str
    number: int
    gpus: tuple[str, ...] = ()
    array: str | None = None
    array_index: int | None = None
    mps: Mapping[str, str] = {}
    """Environment of an MPS client."""
    usd_per_hour: Decimal | None = None
    """What the job costs while it runs."""

    @property
    def unit(self) -> str:
        return unit_name(self.job, self.number)


def reserved(name: str) -> bool:
    """Whether the node sets this variable itself, so that a job cannot."""
    return name not in FREE and (name in RESERVED or name.startswith(RESERVED_PREFIXES))


def argv(spec: JobSpec) -> tuple[str, ...]:
    """What is executed. Nothing of ours is put into a shell's text."""
    if spec.shell:
        return ("/bin/sh", "-c", *spec.command)
    if spec.gang is not None:
        return torchrun.gang_argv(spec.command, spec.gang)
    return spec.command


def environment(
    spec: JobSpec, part: Part, places: Places, user: RunAs, jobs: JobsTable, own: Mapping[str, str]
) -> dict[str, str]:
    """The job's whole environment; `own` is the agent's."""
    result = {name: own[name] for name in jobs.environment if name in own}
    result.setdefault("PATH", DEFAULT_PATH)
    result.setdefault("LANG", "C.UTF-8")
    result |= {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    result |= {"PWD": places.directory}
    result |= torchrun.stop_environment(spec.grace_seconds)
    if (threads := _threads(spec)) is not None:
        result["OMP_NUM_THREADS"] = str(threads)
    result["RACKRATE_CHECKPOINT_DIR"] = str(places.checkpoint)
    result |= spec.env
    result |= _gpu_environment(spec, part)
    result |= _facts(spec, part)
    result["TORCHELASTIC_ERROR_FILE"] = str(places.runtime / ERROR_FILE)
    if spec.secrets:
        result["CREDENTIALS_DIRECTORY"] = str(places.runtime / "secrets")
    return result


def _threads(spec: JobSpec) -> int | None:
    """CPUs for each worker that the command starts; None where the job names no CPUs."""
    if spec.cpus is None:
        return None
    workers = torchrun.processes_here(spec.command, shell=spec.shell, gpus=spec.gpus, gang=spec.gang)
    return max(1, int(spec.cpus) // workers)


def _gpu_environment(spec: JobSpec, part: Part) -> dict[str, str]:
    """Whole GPUs by UUID in the order of NVML. An MPS client sees what its daemon shows, so it names none."""
    if part.mps:
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **part.mps}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(part.gpus)}


def _facts(spec: JobSpec, part: Part) -> dict[str, str]:
    facts: dict[str, object] = {
        "RACKRATE_JOB": part.job,
        "RACKRATE_ATTEMPT": part.number,
        "RACKRATE_PROJECT": spec.project,
        "RACKRATE_JOB_NAME": spec.name,
        "RACKRATE_DEADLINE": spec.deadline.isoformat() if spec.deadline is not None else None,
        "RACKRATE_TIME_LIMIT_SECONDS": _plain(spec.time_limit_seconds),
        "RACKRATE_ARRAY": part.array,
        "RACKRATE_ARRAY_INDEX": part.array_index,
        "RACKRATE_ARRAY_COUNT": len(spec.array) if part.array is not None else None,
        "RACKRATE_USD_PER_HOUR": _plain(part.usd_per_hour),
        **_gang_facts(spec),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _gang_facts(spec: JobSpec) -> dict[str, object]:
    """How a program that is no torch finds the other nodes."""
    if spec.gang is None:
        return {}
    return {
        "RACKRATE_GANG": spec.gang.id,
        "RACKRATE_GANG_NODES": spec.gang.nodes,
        "RACKRATE_GANG_ENDPOINT": spec.gang.endpoint,
        "RACKRATE_GANG_HOST": int(spec.gang.host_here),
    }


def _plain(number: float | Decimal | None) -> str | None:
    return f"{Decimal(str(number)):f}" if number is not None else None


def launch(
    spec: JobSpec,
    part: Part,
    places: Places,
    user: RunAs,
    jobs: JobsTable,
    own: Mapping[str, str],
    *,
    group: Mapping[str, Any],
    boot_id: str,
    before_kill: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """launch.json as an object. `group` is the plan of the job's cgroup, `before_kill` what MPS needs."""
    quota = min(spec.log_quota_bytes or jobs.log_quota_bytes, jobs.log_quota_bytes)
    return {
        "version": 1,
        "job": part.job,
        "attempt": part.number,
        "unit": part.unit,
        "argv": list(argv(spec)),
        "environment": environment(spec, part, places, user, jobs, own),
        "directory": places.directory,
        "user": user.to_launch(),
        "umask": UMASK,
        "no_new_privs": user.uid != 0,
        "group": dict(group),
        "stop": {
            "signal": signal_number(spec.stop_signal),
            "grace_seconds": spec.grace_seconds,
            "kill_wait_seconds": jobs.kill_wait_seconds,
            "before_kill": [dict(step) for step in before_kill],
        },
        "time_limit_seconds": spec.time_limit_seconds,
        "log": {
            "rotate_bytes": min(jobs.log_rotate_bytes, quota),
            "quota_bytes": quota,
            "free_floor_bytes": LEAST_FREE_BYTES,
        },
        "boot_id": boot_id,
    }
