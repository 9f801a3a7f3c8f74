"""What the kernel counted for a job: the evidence for its cause and its usage.

Invariant: a count that this host does not keep is None, never 0. Standard library alone, and light (see `kernel`).
"""

from __future__ import annotations

from agent.isolation.kernel import Kernel, table, tree


class Counters:
    """Reads the counters of a group, of version 1 where a controller is there and of version 2 otherwise."""

    def __init__(self, kernel: Kernel, leaves: dict[str, str]) -> None:
        self._kernel = kernel
        self._leaves = leaves

    def all(self) -> dict:
        memory = "memory" in self._leaves
        io_read, io_write = self._io()
        return {
            "oom_kills": self._oom_kills() if memory else self._entry("unified", "memory.events", "oom_kill"),
            "oom_events": None if memory else self._entry("unified", "memory.events", "oom"),
            "memory_peak_bytes": self._either("memory", "memory.max_usage_in_bytes", "memory.peak"),
            "memory_limit_bytes": _limit(self._either("memory", "memory.limit_in_bytes", "memory.max")),
            "cpu_seconds": self._cpu_seconds(),
            "throttled_seconds": self._throttled(),
            "io_read_bytes": io_read,
            "io_write_bytes": io_write,
            "pids_peak": self._either("pids", "pids.peak", "pids.peak"),
            "pids_refused": self._entry("pids" if "pids" in self._leaves else "unified", "pids.events", "max"),
        }

    def text(self, controller: str, name: str) -> str | None:
        folder = self._leaves.get(controller)
        try:
            return self._kernel.read(f"{folder}/{name}") if folder else None
        except OSError:
            return None

    def number(self, controller: str, name: str) -> int | None:
        text = self.text(controller, name)
        return int(text) if text and text.isdigit() else None

    def _either(self, controller: str, v1: str, v2: str) -> int | None:
        return self.number(controller, v1) if controller in self._leaves else self.number("unified", v2)

    def _entry(self, controller: str, name: str, key: str) -> int | None:
        return table(self.text(controller, name) or "").get(key)

    def _oom_kills(self) -> int | None:
        """Version 1 counts in the victim's own group alone, so the groups that the job made count too."""
        found = []
        for folder in tree(self._kernel, self._leaves["memory"]):
            try:
                found.append(table(self._kernel.read(f"{folder}/memory.oom_control")).get("oom_kill"))
            except OSError:
                continue
        known = [count for count in found if count is not None]
        return sum(known) if known else None

    def _cpu_seconds(self) -> float | None:
        used = self.number("cpuacct", "cpuacct.usage")
        if used is not None:
            return used / 1e9
        used = self._entry("unified", "cpu.stat", "usage_usec")
        return None if used is None else used / 1e6

    def _throttled(self) -> float | None:
        if "cpu" in self._leaves:
            waited = self._entry("cpu", "cpu.stat", "throttled_time")
            return None if waited is None else waited / 1e9
        waited = self._entry("unified", "cpu.stat", "throttled_usec")
        return None if waited is None else waited / 1e6

    def _io(self) -> tuple[int | None, int | None]:
        text = self.text("blkio", "blkio.throttle.io_service_bytes_recursive")
        if text is None:
            text = self.text("unified", "io.stat") if "blkio" not in self._leaves else None
        if text is None:
            return None, None
        words = text.replace("Read ", "rbytes=").replace("Write ", "wbytes=").split()
        return _sum(words, "rbytes="), _sum(words, "wbytes=")


def _sum(words: list[str], prefix: str) -> int:
    return sum(int(word[len(prefix) :]) for word in words if word.startswith(prefix))


def _limit(count: int | None) -> int | None:
    """Version 1 has a number of pages near 2^63 for no limit."""
    return None if count is None or count >= 1 << 62 else count
