"""Where no cgroup holds a job: its processes are the descendants of the shim, which is a subreaper.

Invariant: an orphan becomes our child, so as long as we have no child at all nothing is left, however it forks or daemonises;
and only descendants are ever signalled, a recycled pid never.
"""

from __future__ import annotations

import os
import signal
import time

from agent.jobs.shim.records import stat_fields

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COUNTERS = (
    "oom_kills", "oom_events", "memory_peak_bytes", "memory_limit_bytes", "cpu_seconds", "throttled_seconds",
    "io_read_bytes", "io_write_bytes", "pids_peak", "pids_refused",
)  # fmt: skip
_KILL_SECONDS = 0.5
_QUIET_PASSES = 3


class TreeGroup:
    """The interface of `agent.isolation.group.Group`. It knows a job only in the process that called `enter_shim`."""

    def __init__(self, plan: dict[str, Any] | None = None) -> None:
        self._shim: int | None = None
        self.reap: Callable[[], object] = lambda: None
        """Called between the passes of a kill: takes away what has ended, so that passes stay short."""

    def prepare(self) -> tuple[dict[str, str], list[dict[str, Any]], list[list[str]]]:
        return {}, [], []

    def enter_shim(self) -> None:
        self._shim = os.getpid()

    def enter(self) -> None:
        """The child of the shim belongs to it by its birth."""

    def pids(self) -> list[int]:
        """Descendants that have not ended."""
        return [pid for pid, (_, state) in self._walk().items() if state not in (b"Z", b"X")]

    def empty(self) -> bool:
        """Whether the shim has no child, dead or alive: reap first."""
        if self._shim is None:
            return True
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def kill(self) -> None:
        """Stops them all until no new one appears, then SIGKILL; not longer than half a second, so that the log goes on."""
        deadline = time.monotonic() + _KILL_SECONDS
        known: dict[int, int] = {}
        quiet = 0
        while quiet < _QUIET_PASSES and time.monotonic() < deadline:
            self.reap()
            quiet = 0 if self._stop_new(known) else quiet + 1
        for pid, ticks in known.items():
            _signal(pid, ticks, signal.SIGKILL)

    def counters(self) -> dict[str, float | int | None]:
        """Nothing is counted without a cgroup."""
        return dict.fromkeys(COUNTERS)

    def remove(self) -> bool:
        return True

    def _stop_new(self, known: dict[int, int]) -> bool:
        """One pass; whether there was anybody new. A process is stopped as soon as it is seen: its children stay fewer."""
        new = False
        for pid, (ticks, state) in self._walk(lambda pid, ticks: _signal(pid, ticks, signal.SIGSTOP)).items():
            if known.get(pid) != ticks and state not in (b"Z", b"X"):
                known[pid] = ticks
                new = True
        return new

    def _walk(self, seen: Callable[[int, int], object] | None = None) -> dict[int, tuple[int, bytes]]:
        """pid -> (start ticks, state) of all descendants, parents first."""
        if self._shim is None:
            return {}
        found: dict[int, tuple[int, bytes]] = {}
        family = None if _children(self._shim) is not None else _family()
        waiting = [self._shim]
        while waiting:
            parent = waiting.pop()
            children = family.get(parent, ()) if family is not None else _children(parent)
            for pid in children or ():
                fields = stat_fields(pid)
                if fields is None or pid in found or int(fields[1]) not in (parent, self._shim):
                    continue  # ended, or another process has its pid now
                found[pid] = (int(fields[19]), fields[0])
                if seen is not None and fields[0] not in (b"T", b"Z", b"X"):
                    seen(pid, int(fields[19]))
                waiting.append(pid)
        return found


def _children(pid: int) -> list[int] | None:
    """Of all its threads; None where this kernel does not list them (CONFIG_PROC_CHILDREN), or it is gone."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            try:
                while part := os.read(descriptor, 1 << 20):
                    found.extend(map(int, part.split()))
            finally:
                os.close(descriptor)
    except OSError:
        return found or None
    return found


def _family() -> dict[int, list[int]]:
    """Parent -> children, of the whole machine."""
    family: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))) is not None:
            family.setdefault(int(fields[1]), []).append(int(name))
    return family


def _signal(pid: int, ticks: int, number: int) -> None:
    """To this very process: what took its pid after its end is not hit."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return
    try:
        fields = stat_fields(pid)
        if fields is not None and int(fields[19]) == ticks:
            signal.pidfd_send_signal(descriptor, number)
    except OSError:
        pass
    finally:
        os.close(descriptor)
