"""What the job writes, into files: `log`, and before it `log.1` (the oldest), `log.2`, ... each exactly `rotate_bytes` long.

Invariant: writing never waits for space and never fails: what cannot be kept is dropped and counted, and the log says so as
soon as it can. As full files are all of one length, a byte's place is known from the number of its file.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from collections.abc import Callable

LOG_FILE = "log"
_LEAST_ROTATE_BYTES = 4096
_CHECK_SECONDS, _CHECK_BYTES = 0.5, 8 * 1024 * 1024
_RETRY_SECONDS = 1.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEWLINE = 10


class LogWriter:
    """In the working directory. `total`: bytes that were kept, also those that rotation removed since."""

    def __init__(
        self, rotate_bytes: int, quota_bytes: int, free_floor_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rotate = max(rotate_bytes, _LEAST_ROTATE_BYTES)
        self._most_files = max(quota_bytes // self._rotate, 2)
        self._floor = free_floor_bytes
        self._clock = clock
        self._descriptor: int | None = None
        self._size = 0
        self._oldest, self._newest = 1, 0  # numbers of the full files
        self._at_line_start = True
        self._fault: str | None = None
        self._retry_at = self._check_at = 0.0
        self._unchecked_bytes = 0
        self._lost_lines = self._lost_bytes = 0  # since the last note in the log
        self._lost_mid_line = False
        self.total = self.dropped_lines = 0

    def begin(self) -> None:
        """Makes the first file. Raises FileExistsError where an earlier shim has begun this attempt; OSError."""
        self._descriptor = os.open(LOG_FILE, _NEW, 0o600)

    def write(self, data: memoryview) -> None:
        """Keeps `data`, or counts it as dropped."""
        if self._fault is not None or not self._has_room():
            data = self._try_again(data)
        self._keep(data)

    def close(self) -> None:
        """Says what was dropped, if it still can, and lets go of the file."""
        if self._fault is not None:
            self._note()
        if self._fault is not None:
            self._count_lost()
        if self._descriptor is not None:
            try:
                os.close(self._descriptor)
            except OSError:  # a late error of the disk; what is lost by it cannot be known
                pass
            self._descriptor = None

    def _keep(self, data: memoryview) -> None:
        while data:
            try:
                written = self._put(data)
            except OSError as error:
                self._begin_fault(os.strerror(error.errno or errno.EIO))
                return self._drop(data)
            data = data[written:]

    def _put(self, data: memoryview) -> int:
        """Writes into the current file as much as still fits in."""
        if self._size == self._rotate:
            self._turn()
        if self._descriptor is None:
            self._descriptor = os.open(LOG_FILE, _NEW, 0o600)
        written = os.write(self._descriptor, data[: self._rotate - self._size])
        self._size += written
        self.total += written
        self._unchecked_bytes += written
        self._at_line_start = data[written - 1] == _NEWLINE
        return written

    def _turn(self) -> None:
        """The full file gets its number; the oldest ones beyond the quota go."""
        os.rename(LOG_FILE, f"{LOG_FILE}.{self._newest + 1}")
        self._newest += 1
        self._size = 0
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        while self._newest - self._oldest + 2 > self._most_files:
            os.unlink(f"{LOG_FILE}.{self._oldest}")
            self._oldest += 1

    def _has_room(self) -> bool:
        """Whether the disk has more than the floor; asked now and then only."""
        now = self._clock()
        if now < self._check_at and self._unchecked_bytes < _CHECK_BYTES:
            return True
        self._check_at, self._unchecked_bytes = now + _CHECK_SECONDS, 0
        try:
            values = os.statvfs(".")
        except OSError:
            return True
        if values.f_bavail * values.f_frsize >= self._floor:
            return True
        self._begin_fault(f"less than {self._floor} bytes are free on the disk")
        return False

    def _begin_fault(self, reason: str) -> None:
        if self._fault is None:
            self._fault = reason
        self._retry_at = self._clock() + _RETRY_SECONDS

    def _try_again(self, data: memoryview) -> memoryview:
        """What of `data` is to be kept: all from the next line on if the disk has room again, else nothing."""
        if self._clock() < self._retry_at:
            return self._drop(data)
        self._check_at = 0.0
        if not self._has_room():
            return self._drop(data)
        if self._lost_mid_line:
            cut = bytes(data).find(b"\n") + 1
            self._drop(data[:cut])
            data = data[cut:]
        self._note()
        return data if self._fault is None else self._drop(data)

    def _note(self) -> None:
        """A line in the log about what is missing before it; ends the fault if it can be written."""
        lost_lines, lost_bytes = self._lost_lines + self._lost_mid_line, self._lost_bytes
        start = "" if self._at_line_start else "\n"
        text = f"{start}[rackrate: {lost_lines} lines ({lost_bytes} bytes) of the log were dropped here: {self._fault}]\n"
        data = memoryview(text.encode())
        try:
            while data:
                data = data[self._put(data) :]
        except OSError:
            self._retry_at = self._clock() + _RETRY_SECONDS
            return
        self._fault = None
        self._count_lost()

    def _count_lost(self) -> None:
        self.dropped_lines += self._lost_lines + self._lost_mid_line
        self._lost_lines = self._lost_bytes = 0
        self._lost_mid_line = False

    def _drop(self, data: memoryview) -> memoryview:
        if data:
            self._lost_lines += bytes(data).count(b"\n")
            self._lost_bytes += len(data)
            self._lost_mid_line = data[-1] != _NEWLINE
        return data[:0]
