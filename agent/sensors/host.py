"""The machine itself, read with psutil: CPU, load, memory, swap, network, disks, file systems.

Invariant: a rate needs two readings of the same counter, so the first reading has none; no byte is counted twice
(partitions, bonds, bridges and mappings are left out), and no remote file system is ever touched.
"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from agent import wire
from agent.sensors import Reading
from agent.sensors.filesystems import FilesystemLane
from agent.sensors.processes import LABEL_LENGTH, clean_text

_VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "cni", "flannel", "cali", "tun", "tap", "dummy", "kube", "ifb", "podman", "lxc")
_Counters = tuple[int, int]
SLOW_SECONDS = 5.0


class HostSensor:
    """A `Sensor` of the machine. `proc_root` and `sys_root` are where /proc and /sys are mounted.

    psutil knows one /proc only: a `proc_root` other than /proc holds for the whole process.
    """

    name = "host"
    subject = "host sensor"
    interval_seconds = 1.0

    def __init__(
        self, *, proc_root: str | Path = "/proc", sys_root: str | Path = "/sys", clock: Callable[[], float] = time.monotonic
    ) -> None:
        if str(proc_root) != psutil.PROCFS_PATH:
            psutil.PROCFS_PATH = str(proc_root)
        self._proc_root = Path(proc_root)
        self._sys_root = Path(sys_root)
        self._clock = clock
        self._cpu: tuple[float, float] | None = None
        self._network = _Rates(_network, lambda names: physical_interfaces(names, self._sys_root))
        self._disks = _Rates(_disks, lambda names: physical_disks(names, self._sys_root))
        self._swap: dict[str, int] = {}
        self._swap_at = float("-inf")
        self._filesystems = FilesystemLane()

    def read(self) -> Reading:
        """The host now; a part that cannot be read is None and does not take the others with it."""
        now = self._clock()
        received, sent = self._network.read(now)
        disk_read, disk_written = self._disks.read(now)
        host = wire.Host(
            cpu_utilization_ratio=self._cpu_ratio(),
            cpu_count=psutil.cpu_count(),
            network_receive_bytes_per_second=received,
            network_transmit_bytes_per_second=sent,
            disk_read_bytes_per_second=disk_read,
            disk_write_bytes_per_second=disk_written,
            filesystems=self._filesystems.latest(),
            boot_at=_boot_at(),
            **_load(self._proc_root),
            **_memory(),
            **self._swap_now(now),
        )
        return Reading(host=host)

    def _swap_now(self, now: float) -> dict[str, int]:
        if now - self._swap_at >= SLOW_SECONDS:
            self._swap, self._swap_at = _swap(), now
        return self._swap

    def close(self) -> None:
        """Ends the thread that looks at file systems."""
        self._filesystems.close()

    def describe(self) -> dict[str, Any]:
        """Static facts, named as in `wire.NodeInfo`; those that are not known are left out."""
        facts = {
            "os": _os_name(),
            "kernel": platform.release() or None,
            "cpu_model": _cpu_model(self._proc_root),
            "cpu_count": psutil.cpu_count(),
            "memory_total_bytes": _memory().get("memory_total_bytes"),
            "boot_id": _first_line(self._proc_root / "sys/kernel/random/boot_id"),
        }
        return {name: value for name, value in facts.items() if value is not None}

    def _cpu_ratio(self) -> float | None:
        before, self._cpu = self._cpu, _cpu_seconds()
        if before is None or self._cpu is None:
            return None
        total, busy = self._cpu[0] - before[0], self._cpu[1] - before[1]
        return min(max(busy / total, 0.0), 1.0) if total > 0 else None


class _Rates:
    """Bytes per second of named pairs of counters, summed over those that `choose` picks.

    A counter that is new or went back counts for nothing.
    """

    def __init__(
        self, counters: Callable[[], Mapping[str, _Counters] | None], choose: Callable[[Iterable[str]], Sequence[str]]
    ) -> None:
        self._counters = counters
        self._choose = choose
        self._seen: Set[str] = frozenset()
        self._chosen: Sequence[str] = ()
        self._before: Mapping[str, _Counters] | None = None
        self._read_at = 0.0

    def read(self, now: float) -> tuple[float | None, float | None]:
        """Both rates since the reading before; (None, None) when there is nothing to compare."""
        before, seconds = self._before, now - self._read_at
        current = self._before = self._current()
        self._read_at = now
        if before is None or current is None or seconds <= 0:
            return None, None
        first, second = (sum(_growth(before, current, side)) / seconds for side in (0, 1))
        return first, second

    def _current(self) -> Mapping[str, _Counters] | None:
        counters = self._counters() or {}
        if counters.keys() != self._seen:  # /sys is asked again only when something came or went
            self._seen, self._chosen = frozenset(counters), self._choose(counters)
        return {name: counters[name] for name in self._chosen} or None


def _growth(before: Mapping[str, _Counters], current: Mapping[str, _Counters], side: int) -> list[int]:
    return [max(current[name][side] - before[name][side], 0) for name in current.keys() & before.keys()]


def _cpu_seconds() -> tuple[float, float] | None:
    """(all, busy) seconds of all CPUs since boot. Guest time is in user time already; waiting for I/O is not busy."""
    try:
        times = psutil.cpu_times()
    except (OSError, ValueError):
        return None
    counted = [getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")]
    idle = times.idle + getattr(times, "iowait", 0.0)
    return sum(counted) + idle, sum(counted)


def _memory() -> dict[str, int]:
    facts: dict[str, int] = {}
    try:
        memory = psutil.virtual_memory()
        facts.update(
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.total - memory.available,
            memory_available_bytes=memory.available,
        )
    except (OSError, ValueError):
        pass
    return facts


def _swap() -> dict[str, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # psutil's, where /proc/vmstat has no swap counters
        try:
            swap = psutil.swap_memory()
        except (OSError, ValueError):
            return {}
    return {"swap_total_bytes": swap.total, "swap_used_bytes": swap.used}


def _load(proc_root: Path) -> dict[str, float]:
    words = (_first_line(proc_root / "loadavg") or "").split()[:3]
    return dict(zip(("load_1m", "load_5m", "load_15m"), map(float, words))) if len(words) == 3 else {}


def _boot_at() -> datetime | None:
    try:
        return datetime.fromtimestamp(psutil.boot_time(), UTC)
    except (OSError, ValueError, RuntimeError):
        return None


def _network() -> dict[str, _Counters] | None:
    try:
        counters = psutil.net_io_counters(pernic=True)
    except (OSError, ValueError):
        return None
    return {name: (counter.bytes_recv, counter.bytes_sent) for name, counter in counters.items()}


def physical_interfaces(names: Iterable[str], sys_root: Path) -> list[str]:
    """Those with a device behind them; where none has one (a container), all but the known virtual ones."""
    names, folder = list(names), sys_root / "class/net"
    physical = [name for name in names if (folder / name / "device").exists() and not _has_physical_master(folder, name)]
    return physical or [name for name in names if not name.startswith(_VIRTUAL)]


def _has_physical_master(folder: Path, name: str) -> bool:
    # a cloud's virtual function under its synthetic interface: both count the same bytes
    master = folder / name / "master"
    return master.exists() and (master / "device").exists()


def _disks() -> dict[str, _Counters] | None:
    try:
        counters = psutil.disk_io_counters(perdisk=True) or {}
    except (OSError, ValueError, NotImplementedError):
        return None
    return {name: (counter.read_bytes, counter.write_bytes) for name, counter in counters.items()}


def physical_disks(names: Iterable[str], sys_root: Path) -> list[str]:
    """Whole disks; partitions, mappings, RAID, loops and memory disks have no device of their own."""
    return [name for name in names if (sys_root / "block" / name / "device").exists()]


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def _cpu_model(proc_root: Path) -> str | None:
    try:
        lines = (proc_root / "cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    names = (line.partition(":")[2] for line in lines if line.startswith(("model name", "Model", "cpu model")))
    return clean_text(next(names, ""), LABEL_LENGTH) or platform.processor() or None


def _os_name() -> str | None:
    try:
        return clean_text(platform.freedesktop_os_release()["PRETTY_NAME"], LABEL_LENGTH)
    except (OSError, KeyError):
        return platform.system() or None
