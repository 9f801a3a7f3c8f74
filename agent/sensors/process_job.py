"""Which of our jobs a process belongs to, from its cgroup.

Invariant: only a group directly below our parent (or in our systemd slice) says so, and only root can put a process
there. A group of the same name elsewhere, which a user may make in his own session, says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.isolation.names import slice_path, unit_in

PARENT = "rackrate"


class JobGroups:
    """`parent`: the name of our cgroup, as in the configuration. `proc_root` is where /proc is mounted."""

    def __init__(self, proc_root: str | Path = "/proc", parent: str = PARENT) -> None:
        self._parent = parent
        self._mountinfo = Path(proc_root) / "self/mountinfo"
        self._places: tuple[str, ...] | None = None

    def job_of(self, cgroup: bytes) -> str | None:
        """The job's id in the text of /proc/PID/cgroup (version 1, 2 or both); None: not one of ours."""
        for line in cgroup.decode("utf-8", "replace").splitlines():
            path = line.split(":", 2)[-1]
            for place in self._known_places():
                if path.startswith(place):
                    unit = unit_in(path[len(place) :].partition("/")[0], self._parent)
                    if unit is not None:
                        return unit.split("-")[1]
        return None

    def _known_places(self) -> tuple[str, ...]:
        if self._places is None:
            roots = sorted({"", *_mount_roots(self._mountinfo)})
            names = (self._parent, slice_path(self._parent))
            self._places = tuple(f"{root}/{name}/" for root in roots for name in names)
        return self._places


def _mount_roots(mountinfo: Path) -> Iterable[str]:
    """What of each hierarchy is mounted here: in a container that shares the host's names it is a part of it."""
    try:
        lines = mountinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        before, dash, after = line.partition(" - ")
        if dash and after.partition(" ")[0] in ("cgroup", "cgroup2"):
            yield before.split(" ")[3].rstrip("/")
