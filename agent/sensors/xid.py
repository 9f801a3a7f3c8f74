"""XID errors of the GPUs, counted by code in a thread of its own.

Invariant: every event that the driver delivers is counted once, and a second one of the same code is seen:
the driver's own gauge of the last code cannot tell one error from two.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pynvml

from agent.sensors.lane import Lane

WAIT_SECONDS = 1.0
"""How long one wait blocks in the driver; `stop` takes as long."""
_CRITICAL = pynvml.nvmlEventTypeXidCriticalError


class XidRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU reported since the agent started: code -> count, and the newest code with its moment (UTC)."""

    counts: dict[str, int] = {}
    last: int | None = None
    last_at: datetime | None = None

    def plus(self, code: int, at: datetime) -> XidRecord:
        """The record after one more event."""
        counts = {**self.counts, str(code): self.counts.get(str(code), 0) + 1}
        return XidRecord(counts=counts, last=code, last_at=at)


NONE_SEEN = XidRecord()


def address_of(handle: Any) -> int:
    """The number behind an NVML device handle; events name their GPU by it."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class XidWatcher:
    """Waits for XID events of the GPUs that were given to `watch`. Records survive `stop` and a new `start`.

    NVML must be initialised between `start` and `stop`. GPUs are named by their index.
    """

    def __init__(self, wait_seconds: float = WAIT_SECONDS, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._wait_milliseconds = round(wait_seconds * 1000)
        self._now = now
        self._lock = threading.Lock()
        self._pending: list[tuple[int, Any]] = []
        self._indexes: dict[int, int] = {}
        self._records: dict[int, XidRecord] = {}
        self._unsupported: set[int] = set()
        self._lane = Lane("xid", "driver (XID events)")

    def watch(self, index: int, handle: Any) -> None:
        """Counts this GPU's events: from `start` on, or from the next wait when the thread already runs."""
        with self._lock:
            self._pending.append((index, handle))

    def record(self, index: int) -> XidRecord:
        """What was seen of that GPU; an empty record when nothing was."""
        return self._records.get(index, NONE_SEEN)

    def supported(self, index: int) -> bool:
        """False when the driver refused to report this GPU's XIDs."""
        return index not in self._unsupported

    def start(self) -> None:
        """Registers the GPUs and starts the waiting thread, once."""
        if self._lane.started:
            return
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            self._refuse_all()
            return
        self._register(events)
        self._lane.start(partial(self._run, events))

    def stop(self, timeout_seconds: float = 2.5) -> bool:
        """Ends the thread; False when the driver still holds it, and then NVML must not be shut down."""
        ended = self._lane.stop(timeout_seconds)
        with self._lock:
            self._pending, self._indexes = [], {}
        return ended

    def _run(self, events: Any, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self._wait(events, stop)
                self._register(events)
        finally:
            _free(events)

    def _refuse_all(self) -> None:
        with self._lock:
            self._unsupported.update(index for index, _ in self._pending)
            self._pending = []

    def _register(self, events: Any) -> None:
        with self._lock:
            pending, self._pending = self._pending, []
        for index, handle in pending:
            self._register_one(events, index, handle)

    def _register_one(self, events: Any, index: int, handle: Any) -> None:
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, _CRITICAL, events)
        except pynvml.NVMLError:
            self._unsupported.add(index)
        else:
            self._unsupported.discard(index)
            self._indexes[address_of(handle)] = index

    def _wait(self, events: Any, stop: threading.Event) -> None:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, self._wait_milliseconds)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:
                stop.wait(1.0)  # a lost GPU makes every wait fail at once: no busy loop on it
            return
        if event.eventType & _CRITICAL:
            self._count(event)

    def _count(self, event: Any) -> None:
        index = self._indexes.get(address_of(event.device))
        if index is not None:
            self._records[index] = self.record(index).plus(int(event.eventData), self._now())


def _free(events: Any) -> None:
    try:
        pynvml.nvmlEventSetFree(events)
    except pynvml.NVMLError:
        pass  # the driver is gone: nothing is left to free
