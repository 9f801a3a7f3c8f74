"""What a trial has started: found by what its environment says, whatever session it is in (torchrun gives each rank its own).

Invariant: a signal goes to the very process that was looked at, by its pidfd; a pid that may be another's by now is not hit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

KILL_SECONDS = 5.0
"""Processes that start others faster than they are found, or that the kernel does not let go, are given up after this."""


def end_left(name: str, value: str, soft_seconds: float = 0.0) -> None:
    """Ends all that live with NAME=VALUE in their environment: told to save where there is time for it, then killed."""
    if soft_seconds and signalled(name, value, signal.SIGTERM):
        _wait(name, value, soft_seconds)
    limit = time.monotonic() + KILL_SECONDS
    while signalled(name, value, signal.SIGKILL) and time.monotonic() < limit:
        time.sleep(0.02)


def _wait(name: str, value: str, seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and signalled(name, value, 0):
        time.sleep(0.05)


def signalled(name: str, value: str, number: int) -> int:
    """How many processes were sent the signal; this one never is, and a zombie has no environment."""
    wanted = f"{name}={value}".encode()
    return sum(sent(pid, number, lambda pid=pid: wanted in _environment(pid)) for pid in _pids() if wanted in _environment(pid))


def sent(pid: int, number: int, meant: Callable[[], bool]) -> bool:
    """Whether the signal was sent; `meant` looks at the pid once more, when it can be no other's than the descriptor's."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if meant():
            signal.pidfd_send_signal(descriptor, number)
            return True
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
    return False


def _pids() -> Iterator[int]:
    own = os.getpid()
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own)


def _environment(pid: int) -> list[bytes]:
    """Nothing of a zombie, or of another person's process."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
