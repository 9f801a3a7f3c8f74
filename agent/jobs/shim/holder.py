"""All that belongs to a job: what its group holds, and what has escaped from the group but still descends from the shim.

Invariant: a fault of a cgroup file never ends the shim; what cannot be known counts as still there.
"""

from __future__ import annotations

import os
import resource

from agent.jobs.shim.launch import StartError
from agent.jobs.shim.tree import COUNTERS, TreeGroup

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Holder:
    """The group of a plan, with the tree of processes beside it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._tree = TreeGroup()
        self._group = self._tree if plan.get("enforcement") == "none" else _cgroup(plan)
        self.applied: dict[str, str] = {}
        self.failed: list[dict[str, Any]] = []
        self.steps: list[list[Any]] = []

    def prepare(self, reap: Callable[[], object]) -> None:
        """Makes the groups and takes the shim out of the limits. Raises StartError, with nothing left behind."""
        self._tree.reap = reap
        self._tree.enter_shim()
        try:
            self.applied, self.failed, self.steps = self._group.prepare()
            self._group.enter_shim()
        except Exception as error:  # noqa: BLE001 - whatever it is, the job must not run without its limits
            self.remove()
            raise StartError(str(error) or repr(error)) from None

    def enter(self) -> None:
        """In the child."""
        self._group.enter()

    def pids(self) -> list[int]:
        try:
            inside = self._group.pids()
        except Exception:  # noqa: BLE001
            inside = []
        return inside if self._group is self._tree else list(dict.fromkeys([*inside, *self._tree.pids()]))

    def empty(self) -> bool:
        """Reap first. True: nothing of the job lives."""
        try:
            return self._group.empty() and self._tree.empty()
        except Exception:  # noqa: BLE001
            return False

    def kill(self) -> None:
        """SIGKILL to all of the group, or once that is empty, to what has escaped from it. Call it until `empty`."""
        try:
            if self._group is self._tree or not self._group.empty():
                return self._group.kill()
        except Exception:  # noqa: BLE001 - the tree is still there
            pass
        self._tree.kill()

    def counters(self) -> dict[str, Any]:
        """Read it before `remove`."""
        try:
            counted = {**dict.fromkeys(COUNTERS), **self._group.counters()}
        except Exception:  # noqa: BLE001
            counted = dict.fromkeys(COUNTERS)
        if counted["cpu_seconds"] is None:
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            counted["cpu_seconds"] = round(used.ru_utime + used.ru_stime, 6)
        return counted

    def remove(self) -> bool:
        try:
            return bool(self._group.remove())
        except Exception:  # noqa: BLE001
            return False


def _cgroup(plan: dict[str, Any]) -> Any:
    from agent.isolation.group import group_for

    try:
        return group_for(plan)
    except Exception as error:  # noqa: BLE001
        raise StartError(f"the plan of the job's limits cannot be used ({error!r})") from None


def forget(pid: int) -> None:
    """Takes away a dead child that nobody asks after."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        pass
