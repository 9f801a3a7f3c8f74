"""One attempt's cgroups as its shim uses them: made, entered, killed, counted, removed. Standard library alone.

Invariant: `prepare` does the plan's steps and nothing else; a kill reaches every process below the group however fast it
forks; what is removed is the group and what the job made below it, never anything beside it.
This file is loaded by a process that must stay below 8 MB: no import here that can be avoided.
"""

from __future__ import annotations

import os

from agent.isolation.counters import Counters
from agent.isolation.kernel import GONE, Kernel, kill_tree, remove_trees, table, tree_pids, wait_empty
from agent.isolation.names import slice_path, unit_in

_BLIND = ("cgroup.procs", "devices.allow", "devices.deny")  # cannot be read, or say something else than was written
_TRACKERS = ("unified", "freezer", "pids", "memory", "cpu", "cpuacct", "cpuset", "blkio", "devices")
_CONTROL = "cgroup.subtree_control"
_SWEEP_SECONDS = 5.0


class GroupError(Exception):
    """A step that the job needs did not work; `str()` is a sentence for a person."""


class Group:
    """The cgroups of one attempt: one folder in version 2, one per controller in version 1, both on a hybrid host."""

    def __init__(self, plan: dict, kernel: Kernel | None = None) -> None:
        self._kernel = kernel or Kernel()
        self._steps: list[dict] = list(plan["steps"])
        self._shim_procs = f"{plan['shim_leaf']}/cgroup.procs" if plan.get("shim_leaf") else None
        self._shim_entered = False
        self.leaves: dict[str, str] = dict(plan["leaves"])
        self._unified = self.leaves.get("unified")
        self._tracker = next((self.leaves[name] for name in _TRACKERS if name in self.leaves), None)

    def prepare(self) -> tuple[dict[str, str], list[dict], list[list]]:
        """Makes the groups and writes the limits; moves the caller (the shim) into its own leaf on the way.

        Gives what the files read now, the steps that did not work, and the steps that were done, in order.
        Raises GroupError, with nothing left, where one of the required steps does not work.
        """
        applied: dict[str, str] = {}
        failed: list[dict] = []
        done: list[list] = []
        for step in self._steps:
            kind, path, text = step["kind"], step["path"], step.get("text")
            if kind == "enter" and path != self._shim_procs:
                continue
            try:
                self._do(kind, path, text)
            except OSError as error:
                self._failed(step, error, failed)
                continue
            done.append([kind, path, text])
            if kind == "write" and path.rpartition("/")[2] not in _BLIND:
                self._read_back(step, applied, failed)
        return applied, failed, done

    def enter_shim(self) -> None:
        """Moves the caller into the leaf of the shims, outside the job's limits; `prepare` does it too."""
        if self._shim_entered or self._shim_procs is None:
            return
        folder = self._shim_procs.rpartition("/")[0]
        for step in self._steps:
            if step["kind"] == "mkdir" and (folder + "/").startswith(step["path"] + "/"):
                self._make(step["path"])
        self._kernel.write(self._shim_procs, "0")
        self._shim_entered = True

    def enter(self) -> None:
        """Moves the caller, the child that will become the job, into all of the job's groups. Raises GroupError."""
        for step in self._steps:
            if step["kind"] == "enter" and step["path"] != self._shim_procs:
                try:
                    self._kernel.write(step["path"], "0")
                except OSError as error:
                    if step.get("required", True):
                        raise GroupError(_sentence(step, error)) from None

    def pids(self) -> list[int]:
        """Processes of the job, also in groups that it made itself."""
        return tree_pids(self._kernel, self._tracker) if self._tracker else []

    def empty(self) -> bool:
        """Whether no process of the job is left; a zombie is none."""
        if self._unified is None:
            return not self.pids()
        try:
            return table(self._kernel.read(f"{self._unified}/cgroup.events")).get("populated") != 1
        except OSError as error:
            return error.errno in GONE

    def kill(self) -> None:
        """SIGKILL for every process, race-free; returns when it is sent to all. What is dead shows in `empty`."""
        if self._tracker:
            kill_tree(self._kernel, self._tracker, self._unified is not None)

    def counters(self) -> dict:
        """What the kernel counted so far; None: this host does not say. Read it before `remove`."""
        return Counters(self._kernel, self.leaves).all()

    def remove(self, seconds: float = 2.0) -> bool:
        """Removes the job's groups, depth first, trying again while the kernel says busy. True: all are gone."""
        return remove_trees(self._kernel, list(self.leaves.values()), seconds)

    def _do(self, kind: str, path: str, text: str | None) -> None:
        if kind == "mkdir":
            self._make(path)
        elif kind == "enter":
            if not self._shim_entered:
                self._kernel.write(path, text or "0")
                self._shim_entered = True
        else:
            self._kernel.write(path, text or "")

    def _make(self, path: str) -> None:
        try:
            self._kernel.mkdir(path)
        except FileExistsError:
            if path in self.leaves.values():  # somebody's leftover: its counters would be taken for the job's
                self._kernel.rmdir(path)
                self._kernel.mkdir(path)

    def _failed(self, step: dict, error: OSError, failed: list[dict]) -> None:
        if step.get("required", True):
            self.remove(0.5)
            raise GroupError(_sentence(step, error))
        failed.append(_failure(step, error.strerror or str(error)))

    def _read_back(self, step: dict, applied: dict[str, str], failed: list[dict]) -> None:
        path, text = step["path"], step["text"]
        try:
            value = self._kernel.read(path)
        except OSError as error:
            failed.append(_failure(step, f"cannot be read back ({error.strerror})"))
            return
        applied[path] = _enabled(applied.get(path, ""), text, value) if path.endswith(_CONTROL) else value
        if not agrees(path, text, value):
            failed.append(_failure(step, f"reads back as {value!r}"))


def group_for(plan: dict, kernel: Kernel | None = None) -> Group:
    """The group of a plan; where nothing is enforced, one that follows the tree of processes instead."""
    if plan["enforcement"] == "none":
        from agent.jobs.shim.tree import TreeGroup

        return TreeGroup(plan)
    return Group(plan, kernel)


def sweep(host_root: str, parent: str, known_units: set[str], kernel: Kernel | None = None) -> list[str]:
    """Kills and removes the groups of units that nobody knows; gives their names.

    Looked at: groups right below `<hierarchy>/<parent>` and scopes of the slice of that name. What is not called as a
    unit is left alone, whatever it holds.
    """
    kernel = kernel or Kernel()
    found: dict[str, list[str]] = {}
    for folder in _homes(str(host_root), parent):
        for path in kernel.folders(folder):
            unit = unit_in(path.rpartition("/")[2], parent)
            if unit is not None and unit not in known_units:
                found.setdefault(unit, []).append(path)
    for paths in found.values():
        for path in sorted(paths, key=_kills_best):
            kill_tree(kernel, path, os.path.exists(f"{path}/cgroup.events"))
            wait_empty(kernel, path, _SWEEP_SECONDS)
        remove_trees(kernel, paths, _SWEEP_SECONDS)
    return sorted(found)


def clear(host_root: str, parent: str, kernel: Kernel | None = None) -> bool:
    """Removes our own parent with all that is empty below it (uninstalling, tests). True: nothing of it is left."""
    kernel = kernel or Kernel()
    folders = [path for path in _homes(str(host_root), parent) if not path.endswith(".slice")]
    return remove_trees(kernel, folders, 2.0)


def _homes(root: str, parent: str) -> list[str]:
    """Folders that our units are right below, in each hierarchy once (`cpu` may be a link to `cpu,cpuacct`)."""
    candidates = [f"{root}/{slice_path(parent)}", f"{root}/{parent}"]
    if not os.path.exists(f"{root}/cgroup.controllers"):
        candidates = [f"{root}/{name}/{parent}" for name in sorted(os.listdir(root))]
        candidates.append(f"{root}/unified/{slice_path(parent)}")
    return list(dict.fromkeys(path for path in map(os.path.realpath, candidates) if os.path.isdir(path)))


def _kills_best(path: str) -> int:
    return 0 if os.path.exists(f"{path}/cgroup.events") else 1 if os.path.exists(f"{path}/freezer.state") else 2


def agrees(path: str, text: str, value: str) -> bool:
    """Whether a file that reads `value` is set to `text`."""
    if path.endswith(_CONTROL):
        return {part.lstrip("+") for part in text.split()} <= set(value.split())
    return value in (text, f"default {text}")


def _enabled(before: str, text: str, value: str) -> str:
    """The controllers that we enabled and that are; what others enable there beside ours may come and go."""
    ours = [*before.split(), text.lstrip("+")]
    return " ".join(name for name in value.split() if name in ours)


def _sentence(step: dict, error: OSError) -> str:
    what = {"mkdir": "made", "enter": "entered"}.get(step["kind"], f"set to {step.get('text')!r}")
    return f"the cgroup file {step['path']} cannot be {what} ({error.strerror or error}); see `rackrate-agent doctor`"


def _failure(step: dict, error: str) -> dict:
    return {"path": step["path"], "text": step.get("text"), "limit": step.get("limit"), "error": error}
