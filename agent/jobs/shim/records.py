"""Small files of an attempt's directory, which is the working directory of the shim.

Invariant: a record is there whole and durable, or not at all; the place for the exit record is kept free from the start, so
that a full disk cannot lose it.
"""

from __future__ import annotations

import os
import time

SHIM_FILE, EXIT_FILE, STOP_FILE, LAUNCH_FILE = "shim.json", "exit.json", "stop.json", "launch.json"
_RESERVED = ".exit.reserved"
_RESERVED_BYTES = 8192
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def now_iso() -> str:
    """Now in UTC, to the millisecond."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds % 1 * 1000):03d}Z"


def boot_id() -> str:
    """Changes with every boot of the machine; empty where the kernel does not say."""
    try:
        return (read_file("/proc/sys/kernel/random/boot_id") or b"").decode("ascii", "replace").strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since boot: with the pid it names a process for good. None: it is gone."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields is not None else None


def stat_fields(pid: int) -> list[bytes] | None:
    """/proc/PID/stat from the third field on: state, ppid, pgrp, session, ..., start ticks at [19]. None: it is gone."""
    try:
        text = read_file(f"/proc/{pid}/stat")
    except OSError:  # ESRCH: it ended between open and read
        return None
    return text[text.rindex(b")") + 2 :].split() if text else None


def read_file(path: str) -> bytes | None:
    """The content, or None where there is no such file. Never follows a link. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        parts = []
        while sum(map(len, parts)) < _MAX_RECORD_BYTES and (part := os.read(descriptor, 65536)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def write_durably(name: str, data: bytes) -> None:
    """Puts `data` in the place of `name` in one step, on the disk before this returns. Raises OSError."""
    scratch = f".{name}.new"
    descriptor = os.open(scratch, _NEW | os.O_TRUNC, 0o600)
    _fill(descriptor, data)
    _publish(scratch, name)


def reserve_exit() -> None:
    """Keeps the blocks for the exit record. Where there is no room even now the job goes before: we try at its end."""
    try:
        descriptor = os.open(_RESERVED, _NEW, 0o600)
    except OSError:
        return
    try:
        os.posix_fallocate(descriptor, 0, _RESERVED_BYTES)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def write_exit(data: bytes) -> None:
    """Tries until the exit record is on the disk, or until the directory itself is no longer there."""
    tries = 0
    while True:
        try:
            _fill(os.open(_RESERVED, _NEW, 0o600), data)
            return _publish(_RESERVED, EXIT_FILE)
        except OSError:
            if os.stat(".").st_nlink == 0:
                return
        time.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        tries += 1


def remove(name: str) -> None:
    try:
        os.unlink(name)
    except OSError:
        pass


def _fill(descriptor: int, data: bytes) -> None:
    """Over what is there, then cut: a reserved block is used, never given back first."""
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(descriptor, data[done:], done)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _publish(scratch: str, name: str) -> None:
    os.rename(scratch, name)
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
