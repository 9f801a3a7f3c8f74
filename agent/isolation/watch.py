"""Limits while a job runs: read again, and put back where somebody changed them behind our back.

Invariant: a group that is gone is no drift; a repair never kills: a memory limit below what the job uses now is not set.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from agent.errors import IsolationFault
from agent.isolation.group import agrees, group_for
from agent.isolation.kernel import Kernel

_LIMITS = {
    "memory": "memory",
    "cpuset": "cpus",
    "pids": "pids",
    "io": "io_weight",
    "blkio": "io_weight",
    "cgroup": "controllers",
}
_CPU_FILES = {"cpu.weight": "cpu_weight", "cpu.shares": "cpu_weight"}
_USE = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


class Drift(msgspec.Struct, frozen=True):
    """One file that does not read as when the job started."""

    path: str
    expected: str
    found: str | None
    """None: the file is not there any more, as its controller was taken away."""
    limit: str


def drifted(applied: Mapping[str, str], kernel: Kernel | None = None) -> list[Drift]:
    """What changed, in the order of the writes, which is the order to repair in."""
    kernel = kernel or Kernel()
    found: list[Drift] = []
    for path, expected in applied.items():
        try:
            value = kernel.read(path)
        except OSError as error:
            if error.errno != errno.ENOENT or not os.path.isdir(os.path.dirname(path)):
                continue
            value = None
        if value is None or not agrees(path, expected, value):
            found.append(Drift(path, expected, value, _limit(path)))
    return found


def repair(drift: Drift, kernel: Kernel | None = None) -> None:
    """Writes the value that was there. Raises IsolationFault with the reason where that cannot be done."""
    kernel = kernel or Kernel()
    _refuse_below_use(kernel, drift)
    text = drift.expected
    if drift.limit == "controllers":
        text = " ".join(f"+{name}" for name in text.split())
    try:
        _write(kernel, drift.path, text)
    except OSError as error:
        raise IsolationFault(f"{drift.path} cannot be set back to {drift.expected!r} ({error.strerror})") from None


def events(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Live counters of a job: those of `Group.counters`, with `populated`, `memory_bytes` and `pids`."""
    group = group_for(dict(plan))
    leaves: dict[str, str] = getattr(group, "leaves", {})
    return {
        **group.counters(),
        "populated": not group.empty(),
        "memory_bytes": _now(leaves, "memory", "memory.usage_in_bytes", "memory.current"),
        "pids": _now(leaves, "pids", "pids.current", "pids.current"),
    }


def _now(leaves: Mapping[str, str], controller: str, v1: str, v2: str) -> int | None:
    folder, name = (leaves[controller], v1) if controller in leaves else (leaves.get("unified"), v2)
    try:
        return int(Kernel().read(f"{folder}/{name}")) if folder else None
    except (OSError, ValueError):
        return None


def _limit(path: str) -> str:
    name = os.path.basename(path)
    return _CPU_FILES.get(name) or _LIMITS.get(name.partition(".")[0], "cpu_quota")


def _refuse_below_use(kernel: Kernel, drift: Drift) -> None:
    """Version 2 kills at once what is above a new limit."""
    folder, name = os.path.split(drift.path)
    if name not in _USE or not drift.expected.isdigit():
        return
    try:
        used = int(kernel.read(f"{folder}/{_USE[name]}"))
    except (OSError, ValueError):
        return
    if used > int(drift.expected):
        raise IsolationFault(
            f"{drift.path} was set to {drift.found} and the job uses {used} bytes now: to set it back to "
            f"{drift.expected} would kill it"
        )


def _write(kernel: Kernel, path: str, text: str) -> None:
    """Version 1 takes no memory limit above that of memory and swap together, so that one is lifted first."""
    try:
        kernel.write(path, text)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.endswith("/memory.limit_in_bytes"):
            raise
        both = path.replace("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        before = kernel.read(both)
        kernel.write(both, "-1")
        kernel.write(path, text)
        if int(before) >= int(text):
            kernel.write(both, before)
