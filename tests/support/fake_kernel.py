"""A folder that behaves like a cgroup file system where it matters for the order of steps, and records every call.

Version 2: a group has the files of the controllers that its parent has enabled, and a group with enabled controllers
takes no process. Version 1: a cpuset without CPUs or nodes takes no process, and memory alone cannot exceed memory and swap.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agent.isolation.kernel import Kernel

V2_FILES = {
    "cpu": ("cpu.weight", "cpu.max"),
    "cpuset": ("cpuset.cpus", "cpuset.mems"),
    "memory": ("memory.max", "memory.swap.max", "memory.oom.group", "memory.peak", "memory.events"),
    "pids": ("pids.max", "pids.events"),
    "io": ("io.weight", "io.bfq.weight", "io.stat"),
}
V1_FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.swappiness", "memory.use_hierarchy"),
    "cpu": ("cpu.shares", "cpu.cfs_period_us", "cpu.cfs_quota_us"),
    "cpuacct": ("cpuacct.usage",),
    "cpuset": ("cpuset.cpus", "cpuset.mems", "cpuset.effective_cpus", "cpuset.effective_mems"),
    "pids": ("pids.max",),
    "blkio": ("blkio.bfq.weight",),
    "devices": ("devices.allow", "devices.deny"),
    "freezer": ("freezer.state",),
}
_UNLIMITED = str(1 << 63)


def machine(folder: Path, *, memory_kib: int = 64 << 20, swap_kib: int = 0, kernel: str = "6.1.0", bfq: bool = True) -> None:
    """/proc and /sys of a machine with 8 CPUs and 2 NUMA nodes."""
    files = {
        "proc/meminfo": f"MemTotal: {memory_kib} kB\nSwapTotal: {swap_kib} kB\n",
        "proc/self/cgroup": "0::/\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/osrelease": f"{kernel}-cloud\n",
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/devices/system/node/online": "0-1\n",
        "sys/block/sda/queue/scheduler": "none [bfq] kyber\n" if bfq else "[none] bfq\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for number in range(2):
        (folder / "dev").mkdir(exist_ok=True)
        (folder / f"dev/nvidia{number}").touch()
    (folder / "dev/nvidiactl").touch()


def unified(folder: Path, controllers: str = "cpuset cpu io memory pids", *, real_root: bool = True, procs: str = "") -> Path:
    """A mounted version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.procs": procs}.items():
        (folder / name).write_text(text)
    if not real_root:
        (folder / "cgroup.type").write_text("domain\n")
    return folder


def legacy(folder: Path, *names: str) -> Path:
    """Mounted hierarchies of version 1; `cpu,cpuacct` is one with two controllers, and with links as systemd makes them."""
    for name in names or tuple(V1_FILES):
        (folder / name).mkdir(parents=True)
        for controller in name.split(","):
            if controller != name:
                (folder / controller).symlink_to(folder / name)
            _files(folder / name, ("cgroup.procs", *V1_FILES[controller]))
    if (folder / "cpuset").exists():
        (folder / "cpuset/cpuset.effective_cpus").write_text("0-7")
        (folder / "cpuset/cpuset.effective_mems").write_text("0-1")
    return folder


class FakeKernel(Kernel):
    """`calls` has every mkdir and write, in order, as steps are recorded."""

    def __init__(self) -> None:
        self.calls: list[list[str | None]] = []

    def mkdir(self, path: str) -> None:
        self.calls.append(["mkdir", path, None])
        if os.path.exists(path):
            raise FileExistsError(errno.EEXIST, "File exists")
        os.mkdir(path)
        parent = Path(path).parent
        if (parent / "cgroup.subtree_control").exists():
            enabled = (parent / "cgroup.subtree_control").read_text()
            _files(Path(path), ("cgroup.procs", "cgroup.subtree_control", "cgroup.events", "cgroup.kill"))
            (Path(path) / "cgroup.controllers").write_text(enabled)
            (Path(path) / "cgroup.events").write_text("populated 0\nfrozen 0\n")
            for name in enabled.split():
                _files(Path(path), V2_FILES.get(name, ()))
        else:
            _files(Path(path), [entry.name for entry in parent.iterdir() if entry.is_file()])
            if (Path(path) / "memory.memsw.limit_in_bytes").exists():
                (Path(path) / "memory.memsw.limit_in_bytes").write_text(_UNLIMITED)

    def rmdir(self, path: str) -> None:
        for entry in Path(path).iterdir():
            if entry.is_dir():
                raise OSError(errno.EBUSY, "Device or resource busy")
        for entry in Path(path).iterdir():
            entry.unlink()
        os.rmdir(path)

    def write(self, path: str, text: str) -> None:
        file = Path(path)
        self.calls.append(["enter" if file.name == "cgroup.procs" else "write", path, text])
        if file.name == "cgroup.procs":
            _admit(file.parent)
        elif file.name == "cgroup.subtree_control":
            return self._enable(file, text.lstrip("+"))
        elif file.name == "memory.limit_in_bytes":
            both = file.with_name("memory.memsw.limit_in_bytes")
            if both.exists() and int(text) > int(both.read_text()):
                raise OSError(errno.EINVAL, "Invalid argument")
        super().write(path, text + "\n")
        os.truncate(path, len(text) + 1)

    def _enable(self, file: Path, name: str) -> None:
        if name not in (file.parent / "cgroup.controllers").read_text().split():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        if (file.parent / "cgroup.procs").read_text().strip():
            raise OSError(errno.EBUSY, "Device or resource busy")
        file.write_text(" ".join([*file.read_text().split(), name]))


def _admit(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    if control.exists() and control.read_text().strip():
        raise OSError(errno.EBUSY, "Device or resource busy")
    if (folder / "cpuset.effective_cpus").exists():
        if not ((folder / "cpuset.cpus").read_text().strip() and (folder / "cpuset.mems").read_text().strip()):
            raise OSError(errno.ENOSPC, "No space left on device")


def _files(folder: Path, names: tuple[str, ...] | list[str]) -> None:
    for name in names:
        (folder / name).touch()
