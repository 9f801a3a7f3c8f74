"""How jobs can be held on this host: which version of cgroups, which controllers, by whose leave.

Invariant: to look changes nothing and never raises; where nothing can be done the answer is `none`, with the reason and
what to do about it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from agent import wire
from agent.isolation import systemd as sd
from agent.isolation.capacity import Capacity, read_capacity, text
from agent.isolation.io_weight import io_weight_file

V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "cpuset", "pids", "blkio", "devices", "freezer")
_CGROUP_KILL = (5, 14)
_CGROUP_FREEZE = (5, 2)
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_RUN_AS_ROOT = "run the agent as root, or under `systemd-run --user` with a session that lingers"


class HostIsolation(msgspec.Struct, frozen=True, kw_only=True):
    """What `plan` needs to know of the host."""

    enforcement: wire.Enforcement
    controllers: frozenset[str] = frozenset()
    """By their names of version 2 (`io`, not `blkio`), with `devices` and `freezer` of version 1."""
    can_kill: bool = False
    """Whether a whole tree can be killed without a race: `cgroup.kill`, or a freezer."""
    reasons: tuple[str, ...] = ()
    """Sentences: why it is this way and no better one."""
    remedy: str | None = None
    root: Path = Path("/sys/fs/cgroup")
    """What `sweep` is given: the folder with the hierarchies (version 1), or the one that our parent is in (version 2)."""
    parent: str = "rackrate"
    v1: dict[str, str] = {}
    """Controller of version 1 -> the folder of its hierarchy."""
    unified: Path | None = None
    """The group of version 2 that our parent is in."""
    v2_controllers: frozenset[str] = frozenset()
    systemd: sd.Systemd | None = None
    crowded: bool = False
    """`unified` is no true root and has processes, which must move to a leaf before it can have groups with limits."""
    capacity: Capacity = Capacity()
    io_weight_file: str | None = None
    dev: Path = Path("/dev")


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look; all of it can be a test's folder."""

    root: Path
    proc: Path
    sys: Path
    dev: Path
    run: Path
    parent: str


def detect(
    root: str | Path = "/sys/fs/cgroup",
    *,
    proc: str | Path = "/proc",
    systemd: bool | None = None,
    parent: str = "rackrate",
    sys: str | Path = "/sys",
    dev: str | Path = "/dev",
    run: str | Path = "/run",
) -> HostIsolation:
    """The best of `systemd`, `v2`, `hybrid`, `v1` and `none` that works here. `systemd` None: use it where it runs."""
    ground = _Ground(root=Path(root), proc=Path(proc), sys=Path(sys), dev=Path(dev), run=Path(run), parent=parent)
    if not parent or not set(parent) <= _PLAIN or parent.startswith("-"):
        return nothing(f"{parent!r} is no name for a cgroup", "name it with letters, digits and dashes", ground=ground)
    try:
        problem = sd.absent(ground.run)
        if systemd and problem:
            return nothing(problem, 'set isolation = "auto" in [jobs] of agent.toml', ground=ground)
        wanted = not problem if systemd is None else systemd
        if (ground.root / "cgroup.controllers").exists():
            return _unified_host(ground, wanted)
        return _v1_host(ground, wanted)
    except (OSError, ValueError) as error:
        return nothing(f"cgroups cannot be looked at ({error})", _RUN_AS_ROOT, ground=ground)


def nothing(reason: str, remedy: str | None = None, *, ground: _Ground | None = None) -> HostIsolation:
    """A host, or a configuration, that holds no job."""
    if ground is None:
        return HostIsolation(enforcement="none", reasons=(reason,), remedy=remedy)
    capacity = read_capacity(ground.proc, ground.sys, None)
    return HostIsolation(
        enforcement="none",
        reasons=(reason,),
        remedy=remedy,
        root=ground.root,
        parent=ground.parent,
        capacity=capacity,
        dev=ground.dev,
    )


def describe(host: HostIsolation) -> str:
    """One line for `rackrate-agent doctor`."""
    how = {
        "systemd": "a systemd scope for each job",
        "v2": "cgroups version 2",
        "hybrid": "cgroups version 1 for limits, version 2 for kill",
        "v1": "cgroups version 1",
        "none": "nothing holds jobs in their limits",
    }[host.enforcement]
    held = ", ".join(sorted(host.controllers - {"freezer"})) or "no limits"
    parts = [how if host.enforcement == "none" else f"{how}: {held}"]
    return "; ".join([*parts, *host.reasons])


def settle(host: HostIsolation) -> HostIsolation:
    """Moves the processes of a crowded group (ours, or a container's) into a leaf, so that jobs can have limits.

    To be called once by the agent before its first job; elsewhere it does nothing. Gives the host as it then is.
    """
    if not host.crowded or host.unified is None:
        return host
    leaf = host.unified / f"{host.parent}-agent"
    try:
        leaf.mkdir(exist_ok=True)
        for _ in range(5):
            pids = (host.unified / "cgroup.procs").read_text().split()
            if not pids:
                return msgspec.structs.replace(host, crowded=False)
            for pid in pids:
                _move(leaf, pid)
    except OSError as error:
        return _unsettled(host, f"the processes in {host.unified} cannot be moved to a group of their own ({error.strerror})")
    return _unsettled(host, f"{host.unified} has processes that do not leave it")


def _move(leaf: Path, pid: str) -> None:
    try:
        (leaf / "cgroup.procs").write_text(pid)
    except ProcessLookupError:
        pass  # it ended meanwhile


def _unsettled(host: HostIsolation, reason: str) -> HostIsolation:
    remedy = "run the agent in a group of its own that is delegated to it, or as root outside a container"
    return msgspec.structs.replace(
        host, enforcement="none", reasons=(reason,), remedy=remedy, controllers=frozenset(), can_kill=False
    )


def _unified_host(ground: _Ground, with_systemd: bool) -> HostIsolation:
    reasons: list[str] = []
    if with_systemd:
        found = sd.find(ground.root, ground.run, os.geteuid())
        if isinstance(found, sd.Systemd):
            return _v2(ground, "systemd", found.root, systemd=found)
        reasons.append(found)
    for folder in dict.fromkeys((ground.root, _own_group(ground))):
        if folder is not None and _may_use(folder):
            return _v2(ground, "v2", folder, reasons=tuple(reasons))
    return nothing("; ".join([*reasons, _why_closed(ground.root)]), _remedy(ground.root), ground=ground)


def _v2(
    ground: _Ground,
    enforcement: wire.Enforcement,
    folder: Path,
    *,
    systemd: sd.Systemd | None = None,
    reasons: tuple[str, ...] = (),
) -> HostIsolation:
    there = frozenset((text(folder / "cgroup.controllers") or "").split()) & frozenset(V2_CONTROLLERS)
    if missing := sorted(set(V2_CONTROLLERS) - there):
        reasons += (f"the kernel or whoever delegated {folder} gives no {' and no '.join(missing)} controller",)
    crowded = systemd is None and (folder / "cgroup.type").exists() and bool(text(folder / "cgroup.procs"))
    return HostIsolation(
        enforcement=enforcement,
        controllers=there,
        can_kill=_kernel(ground) >= _CGROUP_FREEZE,
        reasons=reasons,
        root=folder,
        parent=ground.parent,
        unified=folder,
        v2_controllers=there,
        systemd=systemd,
        crowded=crowded,
        capacity=read_capacity(ground.proc, ground.sys, folder if "cpuset" in there else None),
        io_weight_file=io_weight_file(ground.sys, folder, version=2),
        dev=ground.dev,
    )


def _v1_host(ground: _Ground, with_systemd: bool) -> HostIsolation:
    mounted = _v1_folders(ground.root)
    v1 = {name: str(folder) for name, folder in mounted.items() if _may_use(folder)}
    unified = ground.root / "unified"
    usable = (unified / "cgroup.controllers").exists() and _may_use(unified)
    if not v1:
        if not mounted and not usable:
            return nothing(f"no cgroups are mounted at {ground.root}", "mount them (any init system does)", ground=ground)
        folder = next(iter(mounted.values()), unified)
        return nothing(_why_closed(folder), _remedy(folder), ground=ground)
    v2 = frozenset((text(unified / "cgroup.controllers") or "").split()) & frozenset(V2_CONTROLLERS) if usable else frozenset()
    kernel = _kernel(ground)
    system = (
        sd.Systemd(manager="system", root=unified if usable else ground.root) if with_systemd and os.geteuid() == 0 else None
    )
    return HostIsolation(
        enforcement="hybrid" if usable else "v1",
        controllers=frozenset("io" if name == "blkio" else name for name in v1 if name != "cpuacct") | v2,
        can_kill="freezer" in v1 or (usable and kernel >= _CGROUP_FREEZE),
        reasons=_v1_reasons(ground, v1, usable, kernel),
        root=ground.root,
        parent=ground.parent,
        v1=v1,
        unified=unified if usable else None,
        v2_controllers=v2 - set(v1) - ({"io"} if "blkio" in v1 else set()),
        systemd=system,
        capacity=read_capacity(ground.proc, ground.sys, Path(v1["cpuset"]) if "cpuset" in v1 else None),
        io_weight_file=io_weight_file(ground.sys, None, version=1),
        dev=ground.dev,
    )


def _v1_reasons(ground: _Ground, v1: dict[str, str], usable: bool, kernel: tuple[int, int]) -> tuple[str, ...]:
    reasons = [f"the limits of {ground.root} are those of version 1"]
    if usable and kernel < _CGROUP_KILL:
        reasons.append("this kernel has no cgroup.kill: jobs are frozen, then killed")
    if not usable and "freezer" not in v1:
        reasons.append("there is no freezer: a job that forks fast may take several rounds to kill")
    if missing := sorted({"memory", "cpu", "cpuset", "pids"} - set(v1)):
        reasons.append(f"no {' and no '.join(missing)} controller is mounted that this user may write")
    return tuple(reasons)


def _v1_folders(root: Path) -> dict[str, Path]:
    """Controller -> the folder of its hierarchy; `cpu` and `cpuacct` often share one."""
    found: dict[str, Path] = {}
    for entry in sorted(root.iterdir()) if root.is_dir() else ():
        for name in entry.name.split(","):
            if name in V1_CONTROLLERS and (entry / "cgroup.procs").exists():
                found[name] = Path(os.path.realpath(entry))
    return {name: found[name] for name in V1_CONTROLLERS if name in found}


def _own_group(ground: _Ground) -> Path | None:
    """The group that this process is in, where it can be seen below the mounted root."""
    for line in (text(ground.proc / "self/cgroup") or "").splitlines():
        if line.startswith("0::/") and "/.." not in line:
            folder = ground.root / line[len("0::/") :]
            return folder if folder.is_dir() else None
    return None


def _may_use(folder: Path) -> bool:
    """Whether this user may make groups there and move processes in; a read-only mount says no to root too."""
    return os.access(folder, os.W_OK | os.X_OK) and os.access(folder / "cgroup.procs", os.W_OK)


def _why_closed(folder: Path) -> str:
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return f"the cgroups at {folder} are mounted read-only, as in a container"
    return f"user {os.geteuid()} may not make cgroups in {folder}"


def _remedy(folder: Path) -> str:
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "run the agent on the host itself, or give the container its cgroups to write (a private cgroup namespace)"
    return _RUN_AS_ROOT


def _kernel(ground: _Ground) -> tuple[int, int]:
    release = text(ground.proc / "sys/kernel/osrelease") or os.uname().release
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    return int(major), int(minor)
