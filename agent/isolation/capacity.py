"""What the machine has that a limit must fit in: memory, swap, CPUs, NUMA nodes, processes.

Invariant: nothing is written; what cannot be read is None or empty, and then no limit is checked against it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from agent.isolation.limits import numbers


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    memory_bytes: int | None = None
    swap_bytes: int | None = None
    cpu_ids: tuple[int, ...] = ()
    """Those that a job may be pinned to, in the agent's own part of the machine."""
    numa_nodes: tuple[int, ...] = ()
    pid_max: int | None = None


def read_capacity(proc: Path, sys: Path, cpuset: Path | None) -> Capacity:
    """`cpuset`: the folder of the hierarchy with that controller, below which jobs will be."""
    table = memory_table(text(proc / "meminfo"))
    return Capacity(
        memory_bytes=table.get("MemTotal"),
        swap_bytes=table.get("SwapTotal"),
        cpu_ids=_listed(
            *_cpuset_files(cpuset, "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"),
            sys / "devices/system/cpu/online",
        ),
        numa_nodes=_listed(
            *_cpuset_files(cpuset, "cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems"),
            sys / "devices/system/node/online",
        ),
        pid_max=_whole(text(proc / "sys/kernel/pid_max")),
    )


def memory_table(content: str | None) -> dict[str, int]:
    """Bytes by name, of /proc/meminfo."""
    lines = (line.split() for line in (content or "").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if len(words) > 1 and words[1].isdigit()}


def text(path: Path) -> str | None:
    """What a kernel file says; None where it is not there."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _cpuset_files(folder: Path | None, *names: str) -> list[Path]:
    return [folder / name for name in names] if folder else []


def _listed(*paths: Path) -> tuple[int, ...]:
    for path in paths:
        if content := text(path):
            try:
                return numbers(content)
            except ValueError:
                continue
    return ()


def _whole(content: str | None) -> int | None:
    return int(content) if content and content.isdigit() else None
