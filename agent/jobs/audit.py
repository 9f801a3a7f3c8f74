"""`audit.jsonl`: who did what to which job, one JSON object a line, each bound to the one before by its SHA-256.

Invariant: a line that `write` returned from is on the disk; a line that was changed, taken out or put in is found by
`verify`. Nothing secret goes in: callers give names and ids, never values.

A line: {"seq", "at", "actor", "peer", "action", "object", "result", "prev"}; `prev` is the hash of the bytes of the line
before, without its line feed (64 zeros in the first). A line that a crash cut short stays as it is, and the next one has
the action `torn`; its `prev` is the hash of the last whole line and of all that follows it. So nothing is ever rewritten.
What is cut off at the end leaves a shorter file that is whole: only a copy of `Checked.last_hash` kept elsewhere shows it.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agent.errors import StateDirectoryError, StateFull

FIRST = "0" * 64
TORN = "torn"
_LONGEST_FIELD = 500
_READ_BACK = 128 * 1024
"""More than a few of the longest lines."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found. `problem` None: every line is whole and in its place."""

    lines: int
    torn: int
    """Lines that a crash cut short, each noted by the line after it."""
    last_sequence: int
    last_hash: str
    """Of the last line: keep it elsewhere to notice a file that was cut at its end."""
    problem: str | None = None


class Audit:
    """The open file; not thread-safe."""

    def __init__(self, descriptor: int, path: str, sequence: int, last: str, clock: Callable[[], datetime]) -> None:
        self._descriptor: int | None = descriptor
        self._path = path
        self._sequence = sequence
        self._last = last
        self._clock = clock

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Audit:
        """Opens or makes it (0600). A last line that a crash cut short is noted and gone on from."""
        name = str(path)
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _worded(error, name) from None
        try:
            return cls._continued(descriptor, name, clock)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise _worded(error, name) from None
            raise

    @classmethod
    def _continued(cls, descriptor: int, name: str, clock: Callable[[], datetime]) -> Audit:
        tail = _tail(descriptor, name)
        audit = cls(descriptor, name, tail.sequence, tail.last, clock)
        if tail.torn is not None:
            text = f"the line before was cut short by a crash; {tail.torn} bytes are left of it"
            audit._note("agent", None, TORN, "audit", text, start=b"\n" if tail.open else b"")
        elif tail.open:
            audit._append(b"\n")
        return audit

    def write(self, actor: str, peer: str | None, action: str, object: str, result: str) -> int:
        """Appends a line, durably; its sequence. StateFull, StateDirectoryError: nothing of it is left in the file."""
        return self._note(actor, peer, action, object, result)

    def _note(self, actor: str, peer: str | None, action: str, object: str, result: str, *, start: bytes = b"") -> int:
        entry = {
            "seq": self._sequence + 1,
            "at": self._clock().isoformat(timespec="milliseconds"),
            "actor": _short(actor),
            "peer": None if peer is None else _short(peer),
            "action": _short(action),
            "object": _short(object),
            "result": _short(result),
            "prev": self._last,
        }
        line = msgspec.json.encode(entry)
        self._append(start + line + b"\n")
        self._sequence += 1
        self._last = _hash(line)
        return self._sequence

    def _append(self, data: bytes) -> None:
        if self._descriptor is None:
            raise StateDirectoryError(f"{self._path} is closed already")
        before = os.fstat(self._descriptor).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise _worded(error, self._path) from None

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def verify(path: str | Path) -> Checked:
    """Reads the whole file; `problem` names the first broken line. StateDirectoryError: it cannot be read."""
    chain = _Chain()
    try:
        with open(path, "rb") as file:
            for raw in file:
                chain.take(raw)
                if chain.problem is not None:
                    break
    except OSError as error:
        raise _worded(error, str(path)) from None
    if chain.problem is None and chain.broken:
        chain.problem = f"line {chain.number} was cut short, and the agent has not gone on since"
    return Checked(
        lines=chain.number, torn=chain.torn, last_sequence=chain.sequence, last_hash=_hash(chain.whole), problem=chain.problem
    )


class _Chain:
    """A file read line by line, as far as it is whole."""

    def __init__(self) -> None:
        self.number = self.torn = self.sequence = 0
        self.whole = b""
        """The last line that was in its place."""
        self.broken = b""
        """What stands after it and is no line."""
        self.problem: str | None = None

    def take(self, raw: bytes) -> None:
        self.number += 1
        line = raw.removesuffix(b"\n")
        entry = _entry(line)
        if entry is None:
            self.broken += raw
            return
        if self.broken and entry["action"] != TORN:
            self.problem = f"line {self.number - 1} is no line of an audit"
        elif entry["prev"] != self._expected():
            self.problem = (
                f"line {self.number} does not follow the one before it: one of them was changed, or one between them taken out"
            )
        elif entry["seq"] != self.sequence + 1:
            self.problem = f"line {self.number} has the number {entry['seq']} where {self.sequence + 1} has to be"
        else:
            self.torn += bool(self.broken)
            self.whole, self.broken, self.sequence = line, b"", entry["seq"]

    def _expected(self) -> str:
        if self.broken:
            return _torn_hash(self.whole, self.broken.removesuffix(b"\n"))
        return _hash(self.whole) if self.whole else FIRST


def _entry(line: bytes) -> dict[str, Any] | None:
    """The line as an object with what a line has; None for anything else."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    whole = isinstance(found, dict) and all(
        name in found for name in ("seq", "at", "actor", "action", "object", "result", "prev")
    )
    return found if whole and isinstance(found["seq"], int) else None


class _Tail(NamedTuple):
    """Where an existing file ends."""

    sequence: int
    last: str
    """For the `prev` of what is written next."""
    torn: int | None
    """Bytes that a crash left of a line; None: the last line is whole."""
    open: bool
    """The last line has no line feed."""


def _tail(descriptor: int, name: str) -> _Tail:
    end = os.fstat(descriptor).st_size
    data = os.pread(descriptor, _READ_BACK, max(0, end - _READ_BACK))
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    count = next((place for place in range(len(lines), 0, -1) if _entry(lines[place - 1]) is not None), 0)
    if not count and end > _READ_BACK:
        raise StateDirectoryError(f"{name} is damaged: its end is none of an audit; move it away to begin a new one")
    whole, broken = lines[count - 1] if count else b"", b"\n".join(lines[count:])
    entry = _entry(whole)
    cut = count < len(lines)
    last = _torn_hash(whole, broken) if cut else _hash(whole) if count else FIRST
    return _Tail(entry["seq"] if entry else 0, last, len(broken) if cut else None, bool(data) and not data.endswith(b"\n"))


def _torn_hash(whole: bytes, broken: bytes) -> str:
    return _hash(whole + b"\n" + broken)


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_FIELD else text[:_LONGEST_FIELD] + "…"


def _worded(error: OSError, path: str) -> StateDirectoryError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StateFull(f"no space is left to write {path}; free some on that file system")
    reason = error.strerror or str(error)
    return StateDirectoryError(f"{path} cannot be used ({reason}); check the disk and the rights on its folder")
