"""What a drive needs to be taken up again: its options and its progress, in one file of the data directory.

Invariant: a file is replaced whole or not at all, is readable by its owner alone, and one driver at a time holds it.
Secrets are not in it: they are read again from their files.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec

from tui.errors import Failed, WrongUsage
from tui.spot_drive import Progress

FOLDER = "drives"


class Saved(msgspec.Struct, kw_only=True):
    """`options`, `command` and `file` are what was written on the command line in `folder`."""

    options: dict[str, Any]
    command: list[str]
    file: str | None
    folder: str
    look_seconds: float
    progress: Progress


class DriveFile:
    """Held (by an flock) from `open` to `close`."""

    def __init__(self, path: Path, saved: Saved, lock: int) -> None:
        self.path, self.saved, self._lock = path, saved, lock

    @classmethod
    def make(cls, data_dir: Path, saved: Saved) -> DriveFile:
        """A new one."""
        path = _path(data_dir, saved.progress.id)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = cls(path, saved, _held(path))
        made.write()
        return made

    @classmethod
    def open(cls, data_dir: Path, id: str) -> DriveFile:
        """One that is there. Raises `WrongUsage`, or `Failed` where another driver has it."""
        path = _path(data_dir, id)
        known = sorted(file.stem for file in path.parent.glob("*.json")) if path.parent.is_dir() else []
        if id not in known:
            there = f"there are {', '.join(known[-5:])}" if known else "there is none"
            raise WrongUsage(f"--resume {id}: there is no such run under a spot policy; {there}.")
        lock = _held(path)
        try:
            return cls(path, msgspec.json.decode(path.read_bytes(), type=Saved), lock)
        except (msgspec.DecodeError, OSError) as error:
            os.close(lock)
            raise Failed(f"{path} cannot be read ({error}); its jobs go on where they are: see `rackrate jobs`.") from None

    def write(self) -> None:
        """What stands now, safe over a crash."""
        draft = self.path.with_suffix(".tmp")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(self.saved))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)

    def close(self, *, remove: bool = False) -> None:
        if remove:
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(".lock").unlink(missing_ok=True)
        os.close(self._lock)


def _path(data_dir: Path, id: str) -> Path:
    if not id.isascii() or not id.isalnum():
        raise WrongUsage(f"--resume {id!r}: that is no id of a run.")
    return data_dir / FOLDER / f"{id}.json"


def _held(path: Path) -> int:
    lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise Failed(f"run {path.stem} is driven by another rackrate now.") from None
    return lock
