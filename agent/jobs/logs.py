"""A job's log, read by offset: `log` with the full files before it (`log.1` is the oldest) as one stream of bytes.

Invariant: a byte keeps its offset for ever, also when older files go or the newest is turned while we read. All full files
are of one length, so a file's place in the stream is its number times that length. No link is followed.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from agent import wire
from agent.errors import StateDirectoryError
from agent.jobs.attempt_dir import AttemptDir
from agent.jobs.shim.log_writer import LOG_FILE
from agent.state import worded

_T = TypeVar("_T")
MOST_BYTES = 1024 * 1024
_LEAST_BYTES = 4
"""A page of this many bytes always has room for a whole character."""
_FULL_NAME = re.compile(rf"{LOG_FILE}\.([1-9][0-9]{{0,9}})")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_TRIES = 20


class Stretch(NamedTuple):
    """The bytes of the stream that are kept: from `first` up to `end`."""

    first: int
    end: int


def read_log(
    attempt_dir: AttemptDir | Path, offset: int, limit: int, *, job: str, attempt: int, ended: bool | None = None
) -> wire.LogPage:
    """The page at `offset`, at most `limit` bytes (and 1 MiB) of it; an offset beyond the end means the end.

    `ended`: whether the job's log can grow no more; None: it can until there is an exit record. Give True for an attempt
    that is lost. Raises StateDirectoryError where the log cannot be read.
    """
    folder = attempt_dir if isinstance(attempt_dir, AttemptDir) else AttemptDir(attempt_dir)
    record = folder.exit()  # before the log: with a record it is known to be whole
    over = record is not None if ended is None else ended
    stretch, start, data = _read(folder.path, max(0, offset), min(max(limit, _LEAST_BYTES), MOST_BYTES))
    at_end = over and start + len(data) >= stretch.end
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, at_end)
    next_offset = start + len(data) - len(decoder.getstate()[0])
    return wire.LogPage(
        job=job, attempt=attempt, first_offset=stretch.first, offset=start, next_offset=next_offset, text=text, ended=at_end,
        dropped_lines=record.log_dropped_lines if record is not None else 0,
    )  # fmt: skip


def read_bytes(attempt_dir: AttemptDir | Path, offset: int, limit: int) -> tuple[int, int, bytes]:
    """(oldest byte that is kept, end of the stream, up to `limit` bytes from `offset` or that oldest one on)."""
    folder = attempt_dir.path if isinstance(attempt_dir, AttemptDir) else attempt_dir
    stretch, _, data = _read(folder, max(0, offset), min(max(limit, 1), MOST_BYTES))
    return stretch.first, stretch.end, data


def log_size(attempt_dir: AttemptDir | Path) -> int:
    """The offset after the last byte: it only grows. Cheap enough to be asked many times a second."""
    folder = attempt_dir.path if isinstance(attempt_dir, AttemptDir) else attempt_dir
    return _undisturbed(folder, lambda files: files.end)


class _Files:
    """The files of a log as they are at one moment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        numbers = _numbers(folder)
        self.newest = max(numbers, default=0)
        self._full_size = self._size(f"{LOG_FILE}.{self.newest}") if numbers else 0
        if numbers and not self._full_size:
            raise StateDirectoryError(f"the log in {folder} is damaged: its file {LOG_FILE}.{self.newest} is empty")
        self.first = (min(numbers, default=1) - 1) * self._full_size
        try:
            current = self._size(LOG_FILE)
        except FileNotFoundError:  # not begun, or just turned
            current = 0
        self.end = self.newest * self._full_size + current

    def read(self, start: int, size: int) -> bytes:
        """Up to `size` bytes; the range is within what is kept."""
        parts = []
        while size > 0:
            name, place = self._place(start)
            part = _pread(self._folder / name, min(size, self._full_size or size), place)
            if not part:
                break
            parts.append(part)
            start += len(part)
            size -= len(part)
        return b"".join(parts)

    def _place(self, offset: int) -> tuple[str, int]:
        number, place = divmod(offset, self._full_size) if self._full_size else (0, offset)
        if number >= self.newest:
            return LOG_FILE, offset - self.newest * self._full_size
        return f"{LOG_FILE}.{number + 1}", place

    def _size(self, name: str) -> int:
        return (self._folder / name).lstat().st_size


def _read(folder: Path, offset: int, limit: int) -> tuple[Stretch, int, bytes]:
    def once(files: _Files) -> tuple[Stretch, int, bytes]:
        start = min(max(offset, files.first), files.end)
        return Stretch(files.first, files.end), start, files.read(start, min(limit, files.end - start))

    return _undisturbed(folder, once)


def _undisturbed(folder: Path, action: Callable[[_Files], _T]) -> _T:
    """What `action` gives while no file is turned or removed under it."""
    try:
        for _ in range(_TRIES):
            try:
                files = _Files(folder)
                result = action(files)
            except FileNotFoundError:
                continue
            if max(_numbers(folder), default=0) == files.newest:
                return result
    except OSError as error:
        raise worded(error, folder, "has a log that cannot be read") from None
    raise StateDirectoryError(f"the log in {folder} is turned faster than it can be read; ask again")


def _numbers(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [int(match[1]) for match in map(_FULL_NAME.fullmatch, names) if match]


def _pread(path: Path, size: int, place: int) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        return os.pread(descriptor, size, place)
    finally:
        os.close(descriptor)
