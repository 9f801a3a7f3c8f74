"""`audit.jsonl`: who did what to which job, one JSON object a line, each bound to the one before by its SHA-256.

Invariant: a line that `write` returned from is on the disk; a line that was changed, taken out or put in is found by
`verify`. Nothing secret goes in: callers give names and ids, never values.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


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

    @classmethod
    def open(cls, path: str | Path) -> Audit:
        """Opens or makes it (0600). A last line that a crash cut short is noted and gone on from."""
        raise NotImplementedError

    def write(self, actor: str, peer: str | None, action: str, object: str, result: str) -> int:
        """Appends a line, durably; its sequence. StateFull, StateDirectoryError: nothing of it is left in the file."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def verify(path: str | Path) -> Checked:
    """Reads the whole file; `problem` names the first broken line."""
    raise NotImplementedError
