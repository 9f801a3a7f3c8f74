"""TensorBoard's event files of a job: found in its checkpoint folder, and read as they grow.

Invariant: no link is followed, nothing but regular files below the folder is opened, and one reading takes a bounded part of
what is there: the folder is the job's, who may put anything into it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
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

    @property
    def count(self) -> int:
        return len(self._files)

    def read(self, most_bytes: int) -> bool:
        """Reads on; False: there is more than `most_bytes`."""
        whole = True
        for folder, name, descriptor in self._opened():
            try:
                taken, ended = self._read_on(folder, name, descriptor, most_bytes)
            finally:
                os.close(descriptor)
            most_bytes -= taken
            whole = whole and ended
            if most_bytes <= 0:
                return whole
        return whole

    def _opened(self) -> Iterator[tuple[str, str, int]]:
        """(folder below ours, name, descriptor) of each, the oldest first: their names begin with their time."""
        seen = found = 0
        try:
            for path, folders, names, at in os.fwalk(self._folder, follow_symlinks=False):
                below = os.path.relpath(path, self._folder)
                depth = 0 if below == os.curdir else below.count(os.sep) + 1
                seen += len(folders) + len(names)
                folders[:] = sorted(folders) if depth < DEEPEST and seen < MOST_ENTRIES else []
                for name in sorted(name for name in names if MARK in name):
                    if found >= MOST_FILES:
                        return
                    descriptor = _open(name, at)
                    if descriptor is not None:
                        found += 1
                        yield "" if depth == 0 else os.path.basename(path), name, descriptor
        except OSError as error:
            self.problems["folder"] = f"its checkpoint folder cannot be read: {error.strerror}"

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
        return taken, taken < most_bytes or read.offset >= status.st_size

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
