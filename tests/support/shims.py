"""Real shims for tests: an attempt's directory with its launch.json, the process, and a look for what is left.

Invariant: whatever a test does, no shim and no process of its job outlives it: each job's processes carry a mark in their
environment, by which they are found wherever they have gone.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.isolation.group import clear, sweep
from agent.isolation.host import detect
from agent.isolation.limits import Limits
from agent.isolation.plan import plan
from agent.jobs.attempt_dir import AttemptDir, ExitRecord, StopOrder, boot_id, shim_argv

PATH = os.environ.get("PATH", os.defpath)
PARENT = f"rackrate-test-{os.getpid()}"
NONE = {"enforcement": "none", "steps": []}
HAS_CGROUPS = os.geteuid() == 0 and detect(parent=PARENT).enforcement != "none"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or mount a small disk")
holders = pytest.mark.parametrize(
    "holder",
    ["none", pytest.param("cgroup", marks=pytest.mark.skipif(not HAS_CGROUPS, reason="no cgroups can be made here"))],
)


def python(code: str, *arguments: str) -> list[str]:
    """The command of a small Python job."""
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Fails the test where it does not come true: a hang, not a slow machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


class Shim:
    """One attempt; `start` begins its shim."""

    def __init__(
        self, folder: Path, argv: list[str], *, holder: str = "none", limits: Limits | None = None, **launch: Any
    ) -> None:
        self.mark = secrets.token_hex(8)
        self.job = f"{secrets.randbelow(10**12):012d}"
        self.dir = AttemptDir(folder / self.job / "1")
        unit = f"job-{self.job}-1"
        group = NONE if holder == "none" else plan(detect(parent=PARENT), unit, limits or Limits()).to_dict()
        self.launch = {
            "version": 1, "job": self.job, "attempt": 1, "unit": unit, "argv": argv, "environment": {"PATH": PATH, "MARK": self.mark},
            "directory": "/", "user": None, "umask": 0o27, "no_new_privs": True, "group": group,
            "stop": {"signal": 15, "grace_seconds": 0.3, "kill_wait_seconds": 60.0, "before_kill": []}, "time_limit_seconds": None,
            "log": {"rotate_bytes": 1 << 20, "quota_bytes": 1 << 24, "free_floor_bytes": 0}, "boot_id": boot_id(), **launch,
        }  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def path(self) -> Path:
        return self.dir.path

    def start(self, **popen: Any) -> Shim:
        if not (self.path / "launch.json").exists():
            self.dir.prepare(self.launch)
        self.process = subprocess.Popen(shim_argv(self.path), start_new_session=True, **popen)
        return self

    def begun(self) -> Shim:
        """Waits until the job's program runs."""
        until(lambda: self.dir.shim() or self.dir.exit())
        assert self.dir.shim() is not None, self.dir.exit()
        return self

    def wrote(self, text: str) -> Shim:
        """Waits until the job has written this."""
        until(lambda: text in self.log())
        return self

    def stop(self, grace_seconds: float = 0.3, cause: str = "cancelled", number: int = 15) -> bool:
        order = StopOrder(cause=cause, signal=number, grace_seconds=grace_seconds, requested_at=datetime.now(UTC))
        return self.dir.stop(order)

    def end(self) -> ExitRecord:
        """Waits for the shim to end well."""
        assert self.process is not None
        assert self.process.wait(120) == 0
        record = self.dir.exit()
        assert record is not None
        return record

    def log(self) -> str:
        files = sorted(self.path.glob("log.*"), key=lambda path: int(path.suffix[1:]))
        return b"".join(path.read_bytes() for path in [*files, self.path / "log"] if path.exists()).decode()

    def left(self) -> list[int]:
        """Living processes of the job, wherever they are."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if f"MARK={self.mark}".encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
        return found

    def clear(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for _ in range(2000):
            if not (left := self.left()):
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.005)


class Shims:
    """Makes shims below one folder, and takes them away."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Shim] = []

    def __call__(self, argv: list[str], *, folder: Path | None = None, **launch: Any) -> Shim:
        self._made.append(Shim(folder or self._folder, argv, **launch))
        return self._made[-1]

    def clear(self) -> None:
        for shim in self._made:
            shim.clear()
        if HAS_CGROUPS:
            root = str(detect(parent=PARENT).root)
            sweep(root, PARENT, set())
            clear(root, PARENT)


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of that size (root only)."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=755", "rackrate-test", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Takes all the space that a disk has."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
