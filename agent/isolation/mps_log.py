"""control.log of a control daemon: read on from where we were, and what its lines say about the servers.

Invariant: reading never blocks and never takes more than a megabyte at a time; a log that was cut, replaced or removed is
read from its new beginning. A server that fails is known by `exited with status` alone, since the daemon stays up.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

_CHUNK = 1 << 20
KEEP_BYTES = 4 << 20
LOOP_EXITS, LOOP_WINDOW = 3, timedelta(seconds=60)
QUICK = timedelta(seconds=5)
"""A server that ends so soon after its start never served anybody."""
_LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) +\w+ +\d+\] (.*)", re.ASCII)
_STARTED = re.compile(r"Starting new server (\d+) for user (\d+)")
_READY = re.compile(r"NEW SERVER (\d+): Ready")
_EXITED = re.compile(r"Server (\d+) exited with status (-?\d+)")
_FATAL = "Server encountered a fatal exception"


class LogTail:
    """New whole lines of a growing file. `from_end`: how much of what is there already is read first (bytes)."""

    def __init__(self, path: Path, *, from_end: int = 0) -> None:
        self._path = path
        self._offset: int | None = None
        self._from_end = from_end
        self._inode: int | None = None
        self._rest = b""

    def read(self) -> list[str]:
        """Lines since the last call; empty where there is no log."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._offset, self._rest = 0, b""  # one that comes is new as a whole, though it may get the same inode
            return []
        try:
            return self._read(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int) -> list[str]:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return []
        if self._offset is None:
            self._offset = max(0, status.st_size - self._from_end)
        elif status.st_ino != self._inode or status.st_size < self._offset:
            self._offset, self._rest = 0, b""
        self._inode = status.st_ino
        data = os.pread(descriptor, _CHUNK, self._offset)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in lines]


def cut(path: Path) -> None:
    """Empties a log of the daemon that has grown past `KEEP_BYTES` (each command is four lines; it appends, so it goes on)."""
    try:
        if os.stat(path, follow_symlinks=False).st_size > KEEP_BYTES:
            os.truncate(path, 0)
    except OSError:
        pass


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class _Exit(NamedTuple):
    at: datetime
    server: int
    status: int
    quick: bool


class ServerHistory:
    """What the lines say: starts, ends and faults of servers. Times are the log's own, local and without a zone."""

    def __init__(self) -> None:
        self._started: dict[int, datetime] = {}
        self._exits: deque[_Exit] = deque(maxlen=100)
        self.fault_at: datetime | None = None

    def take(self, lines: list[str]) -> None:
        """Reads lines in their order; those that say nothing of a server are skipped."""
        for line in lines:
            found = _LINE.search(line)
            if found and (at := _time(found[1])) is not None:
                self._take(at, found[2])

    def _take(self, at: datetime, text: str) -> None:
        if text.startswith("Starting control daemon"):
            self._forget()
        elif found := _STARTED.match(text):
            self._started[int(found[1])] = at
        elif found := _READY.match(text):
            self._started.pop(int(found[1]), None)
            self.fault_at = None
        elif found := _EXITED.match(text):
            self._ended(at, int(found[1]), int(found[2]))
        elif text.startswith(_FATAL):
            self.fault_at = at

    def _forget(self) -> None:
        # servers of the daemon before are of the past
        self._started.clear()
        self._exits.clear()
        self.fault_at = None

    def _ended(self, at: datetime, server: int, status: int) -> None:
        started = self._started.pop(server, None)
        if status:
            self._exits.append(_Exit(at, server, status, started is not None and at - started < QUICK))

    def crash_loop(self, now: datetime) -> str | None:
        """A sentence when servers fail again and again: three in a minute, or the last two right after their start."""
        recent = [gone for gone in self._exits if now - gone.at < LOOP_WINDOW]
        if not recent:
            return None
        last = recent[-1]
        if len(recent) >= LOOP_EXITS:
            return (
                f"MPS servers crash-loop: {len(recent)} ended with an error in the last minute"
                f" (the last, {last.server}, with status {last.status}); look into server.log and dmesg"
            )
        if len(recent) >= 2 and all(gone.quick for gone in recent[-2:]):
            return (
                f"MPS servers end right after each start (the last, {last.server}, with status {last.status});"
                " look into server.log and dmesg"
            )
        return None
