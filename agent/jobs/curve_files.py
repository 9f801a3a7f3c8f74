"""TensorBoard's event files of a job: found in its checkpoint folder, and read as they grow.

Invariant: no link is followed, nothing but regular files below the folder is opened, and one reading takes a bounded part of
what is there: the folder is the job's, who may put anything into it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from agent.jobs.curve_lines import LARGEST_STEP, clean_text
from agent.jobs.series import Series
from agent.jobs.tfevents import Event, read_events

MARK = "events.out.tfevents."
MOST_ENTRIES = 5000
MOST_FILES = 64
DEEPEST = 6
PLAIN = ("", "tensorboard")
"""Folders whose name says nothing of what is in them."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _File(NamedTuple):
    offset: int = 0
    damage: str | None = None


class EventFiles:
    """Of one job. `series`: by name, as far as they were read."""

    def __init__(self, folder: Path, most_names: int) -> None:
        self._folder = folder
        self._most_names = most_names
        self._files: dict[tuple[int, int], _File] = {}
        self.series: dict[str, Series] = {}
        self.names_left_out: set[str] = set()
        self.values = 0
        self.problems: dict[str, str] = {}
        self._entries, self._found = MOST_ENTRIES, MOST_FILES

    @property
    def count(self) -> int:
        return len(self._files)

    def read(self, most_bytes: int) -> bool:
        """Reads on; False: there is more than `most_bytes`."""
        try:
            return self._read(most_bytes)
        except OSError as error:
            self.problems["folder"] = f"its checkpoint folder cannot be read: {error.strerror}"
            return True

    def _read(self, most_bytes: int) -> bool:
        for folder, name, descriptor in self._opened():
            try:
                taken, ended = self._read_on(folder, name, descriptor, most_bytes)
            finally:
                os.close(descriptor)
            most_bytes -= taken
            if not ended:
                return False
        return True

    def _opened(self) -> Iterator[tuple[str, str, int]]:
        """(folder below ours, name, descriptor) of each, the oldest of a folder first: their names begin with their time."""
        try:
            top = os.open(self._folder, _OPEN | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        self._entries, self._found = MOST_ENTRIES, MOST_FILES
        yield from self._walk(top, "", 0)

    def _walk(self, folder: int, name: str, depth: int) -> Iterator[tuple[str, str, int]]:
        """Closes `folder`. Of a folder with very many entries some are not looked at."""
        try:
            with os.scandir(folder) as listed:
                entries = sorted(islice(listed, self._entries), key=lambda entry: entry.name)
            self._entries -= len(entries)
            for entry in entries:
                if MARK in entry.name and self._found > 0 and (descriptor := _open(entry.name, folder)) is not None:
                    self._found -= 1
                    yield name, entry.name, descriptor
            for entry in entries:
                if depth < DEEPEST and self._entries > 0 and entry.is_dir(follow_symlinks=False):
                    with suppress(OSError):  # it went, or became something else
                        yield from self._walk(os.open(entry.name, _OPEN | os.O_DIRECTORY, dir_fd=folder), entry.name, depth + 1)
        finally:
            os.close(folder)

    def _read_on(self, folder: str, name: str, descriptor: int, most_bytes: int) -> tuple[int, bool]:
        """(bytes read, whether it was read to its end)."""
        status = os.fstat(descriptor)
        key = status.st_dev, status.st_ino
        known = self._files.get(key, _File())
        if known.damage or status.st_size <= known.offset:
            self._files[key] = known
            return 0, True
        with os.fdopen(os.dup(descriptor), "rb") as file:
            read = read_events(file, known.offset, most_bytes)
        for event in read.events:
            self._take(folder, event)
        self._files[key] = _File(read.offset, read.damage)
        if read.damage:
            self.problems[name] = f"{name[:80]}: {read.damage}; what comes after it is not read"
        taken = read.offset - known.offset
        return taken, taken < most_bytes

    def _take(self, folder: str, event: Event) -> None:
        prefix = "" if folder in PLAIN else f"{clean_text(folder)}/"
        if not 0 <= event.step <= LARGEST_STEP:
            return
        if event.restarts:
            for name, series in self.series.items():
                if name.startswith(prefix):
                    series.cut(event.step)
        for scalar in event.scalars:
            name = prefix + scalar.name
            series = self.series.get(name)
            if series is None:
                if len(self.series) >= self._most_names:
                    self.names_left_out.add(name) if len(self.names_left_out) < self._most_names else None
                    continue
                series = self.series[name] = Series()
            self.values += 1
            series.add(event.step, scalar.value, event.wall_time)


def _open(name: str, folder: int) -> int | None:
    try:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor
