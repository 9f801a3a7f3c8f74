"""Real processes for half the price: one process imports what they need, and forks each of them.

For tests that start the same program dozens of times, where what a start imports is not the question. Invariant: each child
is a process of its own session, without a thread or file of another, that lives and is killed as any process is.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

ROOT = Path(__file__).parents[2]


class Child:
    """As much of `subprocess.Popen` as the tests use. The code with which it ended is not known: 0 stands for any."""

    def __init__(self, pid: int, pidfd: int, stdout: BinaryIO) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None
        self._pidfd = pidfd

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return 0

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            if poller.poll(None if seconds is None else seconds * 1000):
                os.close(self._pidfd)
                self.returncode = 0
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Forks children that call `main(arguments)` of a module; `preload` are the modules whose import each would pay."""

    def __init__(self, module: str, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.nursery", str(theirs.fileno()), module, *preload],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self._socket = ours

    def start(self, *arguments: str, stderr: BinaryIO) -> subprocess.Popen[bytes]:
        """What it says on stdout is read from the child's `stdout`."""
        reads, writes = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(arguments).encode()], [writes, stderr.fileno()])
        finally:
            os.close(writes)
        pid, (pidfd,), *_ = socket.recv_fds(self._socket, 64, 1)
        return cast("subprocess.Popen[bytes]", Child(int(pid), pidfd, os.fdopen(reads, "rb", buffering=0)))

    def close(self) -> None:
        """Its children live on."""
        self._socket.close()
        self._process.wait()


def main(number: str, module: str, *preload: str) -> None:
    """Serves until the test closes its end."""
    target = importlib.import_module(module)
    for name in preload:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel takes them away: who waits for them has a pidfd
    with socket.socket(fileno=int(number)) as requests:
        while True:
            words, files, *_ = socket.recv_fds(requests, 65536, 2)
            if not words:
                return
            pid = os.fork()
            if pid == 0:
                requests.close()
                _become(files, target.main, json.loads(words))
            files.append(pidfd := os.pidfd_open(pid))
            socket.send_fds(requests, [str(pid).encode()], [pidfd])
            for file in files:
                os.close(file)


def _become(files: Sequence[int], program: object, arguments: Sequence[str]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    assert callable(program)
    sys.exit(program(list(arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
