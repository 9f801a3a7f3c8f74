"""What a start will do to the host's cgroups, step by step, before anything is done.

Invariant: `Group.prepare` and `Group.enter` do these steps in this order and nothing else, so a dry run is exact; every
limit that was asked for is either in a step or in a sentence of `not_enforced`.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import msgspec

from agent import wire
from agent.errors import IsolationFault
from agent.isolation import systemd as sd
from agent.isolation.check import check as check
from agent.isolation.host import HostIsolation
from agent.isolation.limits import Limits, ranges
from agent.isolation.names import is_unit
from agent.isolation.settings import Setting, Write, quota, settings

_COUNTED_V1 = ("memory", "cpu", "cpuacct", "pids", "blkio")  # joined also without a limit, for their counters
_COUNTED_V2 = ("memory", "cpu", "pids", "io")
_SHIMS = "shims"


class Step(msgspec.Struct, frozen=True):
    """One call: `mkdir` a group, `write` a file, `enter` (write 0 to cgroup.procs)."""

    kind: Literal["mkdir", "write", "enter"]
    path: str
    text: str | None = None
    required: bool = True
    limit: str | None = None
    """Which limit it serves; None: it is only needed for the ones after it."""


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a shim needs to make, find again and remove the groups of one attempt."""

    enforcement: wire.Enforcement
    unit: str
    steps: tuple[Step, ...] = ()
    not_enforced: tuple[str, ...] = ()
    """Sentences: what this host cannot enforce, and why."""
    unmet: tuple[str, ...] = ()
    """Those of them that are about a limit that was asked for: what a strict job is refused for."""
    limits: dict[str, str] = {}
    """What is enforced: `memory` -> `64.0 GiB`."""
    launcher: tuple[str, ...] = ()
    """argv to put before the shim's."""
    leaves: dict[str, str] = {}
    """Hierarchy (`unified`, or a controller of version 1) -> the job's own group in it."""
    shim_leaf: str | None = None
    """Where the shim goes, outside the limits; None: it stays where it is."""

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> GroupPlan:
        """Raises IsolationFault."""
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as error:
            raise IsolationFault(f"this is no plan of cgroups ({error})") from None


def plan(host: HostIsolation, unit: str, limits: Limits) -> GroupPlan:
    """Raises IsolationFault for a unit that is not `job-<id>-<attempt>`."""
    if not is_unit(unit):
        raise IsolationFault(f"{unit!r} is no name of a job's attempt (job-<id>-<attempt>)")
    return _Draft(host, unit, limits).finished()


class _Draft:
    """A plan in the making."""

    def __init__(self, host: HostIsolation, unit: str, limits: Limits) -> None:
        self._host = host
        self._unit = unit
        self._limits = limits
        self._not_enforced: list[str] = []
        self._unmet: list[str] = []
        self._settings = self._possible(settings(host, limits))
        self._steps: list[Step] = []
        self._leaves: dict[str, str] = {}
        self._shim_leaf: str | None = None

    def finished(self) -> GroupPlan:
        host = self._host
        if host.enforcement != "none":
            for name in self._v1_used():
                self._v1_leaf(name)
            if host.unified is not None:
                self._unified_leaf()
            self._steps += [Step("enter", f"{path}/cgroup.procs", "0") for path in dict.fromkeys(self._leaves.values())]
            self._tell_what_lacks()
        return GroupPlan(
            enforcement=host.enforcement,
            unit=self._unit,
            steps=tuple(self._steps),
            not_enforced=tuple(self._not_enforced),
            unmet=tuple(self._unmet),
            limits={setting.limit: setting.human for setting in self._settings},
            launcher=self._launcher(),
            leaves=self._leaves,
            shim_leaf=self._shim_leaf,
        )

    def _launcher(self) -> tuple[str, ...]:
        host = self._host
        if host.systemd is None or host.enforcement == "none":
            return ()
        return sd.launcher(host.systemd, host.parent, self._unit, delegate=host.enforcement == "systemd")

    def _possible(self, wanted: list[Setting]) -> list[Setting]:
        """Those that this host can hold; the others become sentences, and pinning becomes a quota."""
        kept: list[Setting] = []
        for setting in wanted:
            if problem := self._problem(setting):
                self._lacks(f"{setting.wanted} is not enforced: {problem}", unmet=setting.limit != "gpus")
            elif setting.v1 or setting.v2:
                kept.append(setting)
        names = {setting.limit for setting in kept}
        if self._limits.cpu_ids and not names & {"cpus", "cpu_quota"} and self._has("cpu"):
            count = len(self._limits.cpu_ids)
            kept.append(quota(self._limits.cpus or Decimal(count)))
            self._not_enforced.append(
                f"instead of being pinned, the job is held to {kept[-1].human} (a quota, which throttles)"
            )
        return kept

    def _problem(self, setting: Setting) -> str | None:
        host = self._host
        if host.enforcement == "none":
            return "; ".join(host.reasons) or "nothing holds jobs here"
        if setting.limit == "gpus" and "devices" not in host.v1:
            return "cgroups version 2 has no files for devices, so a job that ignores CUDA_VISIBLE_DEVICES can reach all GPUs"
        if setting.limit == "io_weight" and host.io_weight_file is None:
            return "no disk of this node heeds weights (choose the scheduler bfq in /sys/block/DISK/queue/scheduler)"
        if not self._has(setting.controller):
            return f"this host has no {setting.controller} controller for jobs"
        return None

    def _has(self, controller: str) -> bool:
        return controller in self._host.v1 or _v2_name(controller) in self._host.v2_controllers

    def _lacks(self, sentence: str, *, unmet: bool) -> None:
        self._not_enforced.append(sentence)
        if unmet:
            self._unmet.append(sentence)

    def _tell_what_lacks(self) -> None:
        """What a memory limit of version 1 does not do."""
        if self._limits.memory_bytes is None or "memory" not in self._host.v1:
            return
        self._lacks("when memory runs out the kernel kills one process of the job, not all (cgroups version 1)", unmet=False)
        if self._swap_uncounted() and self._host.capacity.swap_bytes:
            self._lacks("the job may swap beyond its memory limit: boot with swapaccount=1", unmet=True)

    def _swap_uncounted(self) -> bool:
        return not (self._mount("memory") / "memory.memsw.limit_in_bytes").exists()

    def _mount(self, controller: str) -> Path:
        return Path(self._host.v1[controller])

    def _of(self, controller: str) -> list[Setting]:
        return [setting for setting in self._settings if setting.controller == controller]

    def _v1_used(self) -> list[str]:
        """Controllers of version 1 to join. The freezer only where nothing better kills."""
        host = self._host
        used = [name for name in host.v1 if name in _COUNTED_V1 or self._of(name)]
        return used + (["freezer"] if host.unified is None and "freezer" in host.v1 else [])

    def _v1_leaf(self, name: str) -> None:
        parent = f"{self._host.v1[name]}/{self._host.parent}"
        leaf = f"{parent}/{self._unit}"
        if leaf not in self._leaves.values():
            self._make(parent)
            self._v1_parent(name, parent)
            self._make(leaf)
        elif name in ("memory", "cpuset"):
            self._v1_parent(name, parent)
        self._leaves[name] = leaf
        for setting in self._of(name):
            self._write_all(leaf, setting, self._v1_writes(setting))

    def _v1_parent(self, name: str, parent: str) -> None:
        """A parent counts its children's memory (old kernels ask for it), and has CPUs to give."""
        if name == "memory" and (self._mount(name) / "memory.use_hierarchy").exists():
            self._steps.append(Step("write", f"{parent}/memory.use_hierarchy", "1", required=False))
        if name == "cpuset":
            self._steps.append(Step("write", f"{parent}/cpuset.mems", ranges(self._host.capacity.numa_nodes)))
            self._steps.append(Step("write", f"{parent}/cpuset.cpus", ranges(self._host.capacity.cpu_ids)))

    def _v1_writes(self, setting: Setting) -> tuple[Write, ...]:
        if setting.limit == "memory" and self._swap_uncounted():
            return tuple(write for write in setting.v1 if ".memsw." not in write.file)
        return setting.v1

    def _unified_leaf(self) -> None:
        """Version 2: from the top down, the shim out of the way before its group may have groups with limits."""
        host = self._host
        used = [name for name in ("cpuset", *_COUNTED_V2) if name in host.v2_controllers and self._v2_wanted(name)]
        if host.enforcement == "systemd" and host.systemd is not None:
            scope = sd.scope_folder(host.systemd, host.parent, self._unit)
            self._shim_leaf, leaf = f"{scope}/sup", f"{scope}/job"
            self._shim(required=True)
            self._enable(scope, used)
        else:
            parent = f"{host.unified}/{host.parent}"
            leaf = f"{parent}/{self._unit}"
            self._enable(str(host.unified), used)
            self._make(parent)
            self._enable(parent, used)
            if host.systemd is None:
                self._shim_leaf = f"{parent}/{_SHIMS}"
                self._shim(required=False)
        self._make(leaf)
        self._leaves["unified"] = leaf
        for name in used:
            for setting in self._of("blkio" if name == "io" else name):
                self._write_all(leaf, setting, setting.v2)

    def _v2_wanted(self, name: str) -> bool:
        return name in _COUNTED_V2 or bool(self._of(name))

    def _shim(self, *, required: bool) -> None:
        self._steps.append(Step("mkdir", str(self._shim_leaf), required=required))
        self._steps.append(Step("enter", f"{self._shim_leaf}/cgroup.procs", "0", required=required))

    def _enable(self, folder: str, controllers: list[str]) -> None:
        """One by one: a list is taken as a whole or not at all."""
        for name in controllers:
            held = self._of("blkio" if name == "io" else name)
            required = any(write.required for setting in held for write in setting.v2)
            self._steps.append(Step("write", f"{folder}/cgroup.subtree_control", f"+{name}", required=required))

    def _make(self, folder: str) -> None:
        self._steps.append(Step("mkdir", folder))

    def _write_all(self, leaf: str, setting: Setting, writes: tuple[Write, ...]) -> None:
        for write in writes:
            self._steps.append(Step("write", f"{leaf}/{write.file}", write.text, write.required, setting.limit))


def _v2_name(controller: str) -> str:
    return "io" if controller == "blkio" else controller
