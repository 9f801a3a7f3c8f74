"""The stand-in control daemon, run by this Python, for tests: short folders, recorded commands, nothing left at the end.

Invariant: every daemon, server and client that was started below a rig's folder has ended when the fixture ends.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.isolation.mps import MpsGpu
from agent.isolation.mps_modes import ModeRefused

FOLDER = Path(__file__).parent
PROGRAM = FOLDER / "nvidia-cuda-mps-control"


class FakeMode:
    """Compute modes in memory. `refused` makes every change fail; `asked` lists the changes."""

    def __init__(self, mode: str = "default") -> None:
        self.mode = mode
        self.refused = False
        self.asked: list[str] = []

    def get(self, uuid: str) -> str:
        return self.mode

    def set(self, uuid: str, mode: str) -> None:
        if self.refused:
            raise ModeRefused(
                f"the compute mode of {uuid} cannot be set (Insufficient Permissions, NVML error 4): run the agent as root"
            )
        self.asked.append(mode)
        self.mode = mode


class FakeMps:
    """A folder (short: sockets have 107 bytes) with a control program in it. `gpu()` makes an MpsGpu that uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "run"
        self.control = write_program(folder / "nvidia-cuda-mps-control")
        self.mode = FakeMode()
        self.uuid = f"GPU-{uuid.uuid4()}"
        self._children: list[subprocess.Popen[bytes]] = []

    def gpu(self, version: str = "550", **options: Any) -> MpsGpu:
        """As an agent would make it; `environment` goes to the daemon (FAKE_MPS_...)."""
        environment = {"FAKE_MPS_VERSION": version, **options.pop("environment", {})}
        options = {
            "control": str(self.control), "compute_mode": self.mode, "memory_total_bytes": 16 << 30,
            "compute_capability": "9.0", "cuda_version": "12.4", "answer_seconds": 30.0, **options,
        }  # fmt: skip
        return MpsGpu(self.uuid, self.runtime, environment=environment, **options)

    @property
    def root(self) -> Path:
        """Folder of the GPU's daemon."""
        (found,) = self.runtime.glob("mps-*")
        return found

    @property
    def pipe(self) -> Path:
        return self.root / "pipe"

    def ask(self, command: str) -> str:
        """What the daemon answers to a person."""
        environment = {"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        return subprocess.run(
            [self.control], input=command + "\n", env=environment, check=True, capture_output=True, text=True, timeout=60
        ).stdout  # fmt: skip

    def commands(self) -> list[str]:
        """Commands that reached the daemon, in order, and `x_gone PID` for a client's process that ended."""
        text = (self.root / "logs/control.log").read_text()
        return [found[1] for found in re.finditer(r"\] (?:Cmd:)?((?<=Cmd:).*|x_gone \d+)$", text, re.MULTILINE)]

    def start_server(self, uid: int | None = None) -> int:
        """A server, as the first client would bring it up; its pid."""
        self.ask(f"start_server -uid {os.geteuid() if uid is None else uid}")
        return int(self.ask("get_server_list").split()[-1])

    def start_server_unseen(self) -> int:
        """As `start_server`, for a daemon whose list may break the connection."""
        self.ask(f"start_server -uid {os.geteuid()}")
        (daemon,) = [pid for pid in self.processes() if not Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"infinity\0")]
        (server,) = [pid for pid in self.processes() if pid != daemon]
        return server

    def client(self, server: int, job: str) -> subprocess.Popen[bytes]:
        """A process that uses the GPU as a client of this server."""
        child = subprocess.Popen(["/bin/sleep", "600"], env={"RACKRATE_JOB": job})
        self._children.append(child)
        self.ask(f"x_client {server} {child.pid} {self.uuid}")
        return child

    def hang(self, command: str) -> None:
        """Somebody asks what FAKE_MPS_HANG names: from here on the daemon answers nobody, however long one waits."""
        environment = {"PATH": os.environ["PATH"], "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        child = subprocess.Popen([self.control], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
        self._children.append(child)
        assert child.stdin is not None
        with child.stdin as pipe:
            pipe.write(command.encode() + b"\n")
        deadline = time.monotonic() + 60
        while command not in self.commands():
            assert time.monotonic() < deadline, f"`{command}` does not reach the daemon"
            time.sleep(0.02)

    def processes(self) -> list[int]:
        """Daemons and servers of this folder that still run."""
        found = []
        for entry in filter(str.isdecimal, os.listdir("/proc")):
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
                running = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            except OSError:
                continue
            if running and f"CUDA_MPS_PIPE_DIRECTORY={self.folder}/".encode() in environment:
                found.append(int(entry))
        return found

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(60)
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def write_program(path: Path) -> Path:
    """The stand-in under its own name, run by this Python without site packages (another user may not reach it)."""
    path.write_text(f'#!/bin/sh\nP={sys.executable}\n[ -x "$P" ] || P=python3\nexec "$P" -I -S {PROGRAM} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_mps() -> Iterator[FakeMps]:
    """One GPU's worth of it."""
    folder = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    folder.chmod(stat.S_IRWXU | stat.S_IXGRP | stat.S_IXOTH)
    rig = FakeMps(folder)
    try:
        yield rig
    finally:
        rig.close()
        shutil.rmtree(folder)
