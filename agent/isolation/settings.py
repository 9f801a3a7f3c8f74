"""Each limit as files of version 1 and of version 2, without a host in mind.

Invariant: the order of the writes of one setting is the order that the kernel needs.
"""

from __future__ import annotations

import os
from decimal import Decimal
from typing import Literal

import msgspec

from agent.isolation.host import HostIsolation
from agent.isolation.limits import QUOTA_PERIOD_US, Limits, bfq_weight, quota_us, ranges, size, v1_shares

LimitName = Literal["memory", "cpus", "cpu_weight", "cpu_quota", "pids", "io_weight", "gpus"]


class Write(msgspec.Struct, frozen=True):
    """One file of the job's own group."""

    file: str
    text: str
    required: bool = True


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One limit: what to write, and how it is called for a person."""

    limit: LimitName
    controller: str
    """By its name of version 1; version 2 calls `blkio` `io`."""
    v1: tuple[Write, ...] = ()
    v2: tuple[Write, ...] = ()
    human: str
    wanted: str
    """As in `the memory limit of 64.0 GiB`."""


def settings(host: HostIsolation, limits: Limits) -> list[Setting]:
    """What was asked for, in the order of writing."""
    found = [_memory(limits), _cpuset(host, limits), _weight(limits), _quota(limits.cpus if limits.cpu_quota else None)]
    found += [_pids(limits), _io(host, limits), _devices(host, limits)]
    return [setting for setting in found if setting is not None]


def quota(cpus: Decimal) -> Setting:
    """A hard quota of so many CPUs."""
    text, period = str(quota_us(cpus)), str(QUOTA_PERIOD_US)
    return Setting(
        limit="cpu_quota",
        controller="cpu",
        v1=(Write("cpu.cfs_period_us", period), Write("cpu.cfs_quota_us", text)),
        v2=(Write("cpu.max", f"{text} {period}"),),
        human=f"{cpus.normalize():f} CPUs of time",
        wanted=f"the quota of {cpus.normalize():f} CPUs",
    )


def _quota(cpus: Decimal | None) -> Setting | None:
    return None if cpus is None else quota(cpus)


def _memory(limits: Limits) -> Setting | None:
    """Swap is off (version 2), or within the limit and avoided (version 1, where memsw counts both)."""
    if limits.memory_bytes is None:
        return None
    page = os.sysconf("SC_PAGE_SIZE")
    text = str(limits.memory_bytes // page * page)
    return Setting(
        limit="memory",
        controller="memory",
        v1=(
            Write("memory.limit_in_bytes", text),
            Write("memory.memsw.limit_in_bytes", text),
            Write("memory.swappiness", "0", required=False),
        ),
        v2=(
            Write("memory.max", text),
            Write("memory.swap.max", "0", required=False),
            Write("memory.oom.group", "1", required=False),
        ),
        human=size(limits.memory_bytes),
        wanted=f"the memory limit of {size(limits.memory_bytes)}",
    )


def _cpuset(host: HostIsolation, limits: Limits) -> Setting | None:
    """Version 1 takes no process before both files are filled; version 2 inherits what is left empty."""
    if not limits.cpu_ids and not limits.numa_nodes:
        return None
    cpus, nodes = ranges(limits.cpu_ids), ranges(limits.numa_nodes)
    human = " and ".join(
        part for part in (f"CPUs {cpus}" if cpus else "", f"memory of NUMA node {nodes}" if nodes else "") if part
    )
    v2 = ((Write("cpuset.mems", nodes),) if nodes else ()) + ((Write("cpuset.cpus", cpus),) if cpus else ())
    return Setting(
        limit="cpus",
        controller="cpuset",
        v1=(
            Write("cpuset.mems", nodes or ranges(host.capacity.numa_nodes)),
            Write("cpuset.cpus", cpus or ranges(host.capacity.cpu_ids)),
        ),
        v2=v2,
        human=human,
        wanted=f"the pinning to {human}",
    )


def _weight(limits: Limits) -> Setting | None:
    if (weight := limits.weight) is None:
        return None
    return Setting(
        limit="cpu_weight",
        controller="cpu",
        v1=(Write("cpu.shares", str(v1_shares(weight)), required=False),),
        v2=(Write("cpu.weight", str(weight), required=False),),
        human=str(weight),
        wanted=f"the CPU weight of {weight}",
    )


def _pids(limits: Limits) -> Setting | None:
    if limits.pids is None:
        return None
    writes = (Write("pids.max", str(limits.pids)),)
    human = str(limits.pids)
    return Setting(limit="pids", controller="pids", v1=writes, v2=writes, human=human, wanted=f"the limit of {human} processes")


def _io(host: HostIsolation, limits: Limits) -> Setting | None:
    if limits.io_weight is None:
        return None
    file = host.io_weight_file
    weight = limits.io_weight if file == "io.weight" else bfq_weight(limits.io_weight)
    writes = (Write(file, str(weight), required=False),) if file else ()
    return Setting(
        limit="io_weight",
        controller="blkio",
        v1=writes,
        v2=writes,
        human=str(limits.io_weight),
        wanted=f"the I/O weight of {limits.io_weight}",
    )


def _devices(host: HostIsolation, limits: Limits) -> Setting | None:
    """Denies each other GPU by its own number: to deny all and allow one again leaves all denied in version 1."""
    if limits.device_paths is None:
        return None
    allowed = {os.stat(path).st_rdev for path in limits.device_paths if os.path.exists(path)}
    denied = [path.stat().st_rdev for path in gpu_device_files(host) if path.stat().st_rdev not in allowed]
    writes = tuple(Write("devices.deny", f"c {os.major(number)}:{os.minor(number)} rwm") for number in denied)
    names = ", ".join(os.path.basename(path) for path in limits.device_paths) or "none"
    return Setting(limit="gpus", controller="devices", v1=writes, human=names, wanted=f"the GPU device files ({names})")


def gpu_device_files(host: HostIsolation) -> list[os.PathLike[str]]:
    """`/dev/nvidia0` and so on; not the control devices, which every job needs."""
    return sorted(path for path in host.dev.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit())
