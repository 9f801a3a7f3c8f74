"""The agent's state directory: made private, checked for space, and held by one agent at a time.

Invariant: while a `StateLock` is held no other agent can hold one for the same directory; the kernel lets go of it when
the process ends, however it ends. A directory that we did not make and that is not ours is never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from pathlib import Path
from types import TracebackType

from agent.errors import StateDirectoryError, StateFull, StateLocked

LOCK_FILE = "lock"
MINIMUM_FREE_BYTES = 16 * 1024 * 1024
_LOCK_TRIES = 4
_LOCK_PAUSE_SECONDS = 0.05
_OURS = (LOCK_FILE, "token", "usage.db")


def claim(path: Path | str) -> StateLock:
    """Makes the directory, checks it and its space, and takes its lock.

    Raises StateDirectoryError, StateFull or StateLocked.
    """
    directory = prepare(path)
    check_space(directory)
    return StateLock.acquire(directory)


def prepare(path: Path | str) -> Path:
    """The directory, made with mode 0700 if it is not there; it is ours, writable, and closed to others."""
    directory = Path(path).absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(directory)
        _tighten(directory)
    except OSError as error:
        raise worded(error, directory, "cannot be made or read") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise StateDirectoryError(
            f"the state directory {directory} cannot be written by this user; "
            f"give it to them with `chown {os.geteuid()} {directory}`, or name another one with --state-dir"
        )
    return directory


def check_space(directory: Path, minimum_bytes: int = MINIMUM_FREE_BYTES) -> int:
    """Bytes that are free for us where the directory is. Raises StateFull below `minimum_bytes`."""
    free = free_bytes(directory)
    if free < minimum_bytes:
        raise StateFull(
            f"only {free / 1e6:.0f} MB are free where the state directory {directory} is, and the agent needs "
            f"{minimum_bytes / 1e6:.0f} MB to keep the usage record; free some space, or name another one with --state-dir"
        )
    return free


def free_bytes(directory: Path) -> int:
    values = os.statvfs(directory)
    return values.f_bavail * values.f_frsize


def worded(error: OSError, path: Path, what: str) -> StateDirectoryError:
    """An OSError about the state directory, as the sentence that tells what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StateFull(f"no space is left on the device of {path}; free some space, or name another one with --state-dir")
    reason = error.strerror or str(error)
    return StateDirectoryError(f"the state directory {path} {what} ({reason}); name another one with --state-dir")


def lock_holder(directory: Path) -> int | None:
    """The pid of the agent that runs on this directory now (0: its pid is not known), or None where none runs."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(descriptor) or 0
    finally:
        os.close(descriptor)
    return None


class StateLock:
    """The exclusive use of a state directory; a context manager."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor: int | None = descriptor

    @classmethod
    def acquire(cls, directory: Path) -> StateLock:
        """Raises StateLocked, which names the directory and the pid of the agent that holds it."""
        path = directory / LOCK_FILE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise worded(error, directory, "cannot be locked") from None
        try:
            _lock(descriptor, directory)
            _write_pid(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise worded(error, directory, "cannot be locked") from None
        except StateLocked:
            os.close(descriptor)
            raise
        return cls(directory, descriptor)

    def release(self) -> None:
        """Lets go; a second call does nothing. The file stays: to remove it would let two agents in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> StateLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def _lock(descriptor: int, directory: Path) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)  # `lock_holder` of somebody who only looks holds it for a moment
    pid = _pid_in(descriptor)
    who = f"process {pid}" if pid else "another process"
    raise StateLocked(
        f"another agent ({who}) runs on the state directory {directory}; "
        "stop that one, or give this one a directory of its own with --state-dir"
    )


def _write_pid(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _pid_in(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _check_owner(directory: Path) -> None:
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateDirectoryError(f"the state directory {directory} is a file; name a folder with --state-dir")
    if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
        raise StateDirectoryError(
            f"the state directory {directory} belongs to user {status.st_uid}, not to this one ({os.geteuid()}); "
            "run the agent as its owner, or name another one with --state-dir"
        )


def _tighten(directory: Path) -> None:
    """0700 where the directory is empty or already the agent's; a folder of somebody else's things keeps its mode.

    One that others may pass through, but not list, stays so: jobs of other users run below it.
    """
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & 0o066 or not os.access(directory, os.R_OK | os.X_OK):
        return
    names = os.listdir(directory)
    if not names or any(name in _OURS for name in names):
        directory.chmod(0o700)
    elif mode & 0o022:
        raise StateDirectoryError(
            f"other users can write into the state directory {directory}, which holds other things too; "
            "name an empty one with --state-dir"
        )
