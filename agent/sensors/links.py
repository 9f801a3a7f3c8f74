"""PCIe throughput and NVLinks of the GPUs, in a thread of its own at a slow pace.

Invariant: nothing here is ever asked in the path of the one-second sample: each PCIe figure makes the driver measure for
20 ms. A counter that went down, and a reading that is too old, is not known; a driver that hangs here hangs alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pynvml

from agent.sensors import nvml_calls as calls
from agent.sensors.lane import Lane

EVERY_SECONDS = 10.0
"""From one round over all GPUs to the next. In one go: to wake for each GPU alone costs five times the CPU."""
STATES_EVERY = 6
"""Whether each link is up is asked in every so-manieth round: a call a link, and links seldom fall."""
STALE_AFTER = 3
"""A reading older than so many rounds is not told any more."""
_KIB = 1024
_MOST_LINKS = 64
_ALL_LINKS = 0xFFFFFFFF
"""The scope of a field value that asks for the sum over all links (nvml.h)."""
_RATES = ("nvlink_receive_bytes_per_second", "nvlink_transmit_bytes_per_second")
_PCIE = ("pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second")
_COUNTERS = (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one GPU at one moment; names as in `wire.Gpu`."""

    values: dict[str, Any] = {}
    unsupported: tuple[str, ...] = ()
    taken_clock: float = 0.0


class _Counters(msgspec.Struct, frozen=True):
    """KiB received and sent over all links, at a moment of the monotonic clock."""

    clock: float
    kib: tuple[int | None, int | None] = (None, None)


class _States(msgspec.Struct):
    """Which links are down, as of so many rounds ago."""

    down: tuple[int, ...]
    rounds: int = 0


class LinkWatcher:
    """Reads the GPUs that were given to `watch`. NVML must be initialised between `start` and `stop`."""

    def __init__(
        self,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._every = every_seconds
        self._clock = clock
        self._now = now
        self._handles: dict[int, Any] = {}
        self._records: dict[int, LinkRecord] = {}
        self._before: dict[int, _Counters] = {}
        self._states: dict[int, _States] = {}
        self._lane = Lane("links", "driver (PCIe and NVLink)")

    def watch(self, index: int, handle: Any) -> None:
        """Reads this GPU from now on."""
        self._before.pop(index, None)
        self._states.pop(index, None)
        self._handles = {**self._handles, index: handle}

    def forget(self, index: int) -> None:
        """This GPU cannot be reached now: its readings are not told any more."""
        self._handles = {key: handle for key, handle in self._handles.items() if key != index}
        self._records.pop(index, None)

    def record(self, index: int) -> LinkRecord | None:
        """The newest reading of a GPU; None before the first, and when it is too old."""
        found = self._records.get(index)
        return found if found and self._clock() - found.taken_clock <= STALE_AFTER * self._every else None

    def start(self) -> None:
        """Starts the thread, once."""
        self._lane.start(self._run)

    def stop(self, timeout_seconds: float = 1.0) -> bool:
        """Ends the thread; False when the driver still holds it, and then NVML must not be shut down."""
        ended = self._lane.stop(timeout_seconds)
        self._handles, self._records, self._before, self._states = {}, {}, {}, {}
        return ended

    def _run(self, stop: threading.Event) -> None:
        """All GPUs one after the other, then a rest; a short one after the first round: rates need two."""
        rest = self._every / 4
        while not stop.is_set():
            for index, handle in self._handles.items():
                if stop.is_set():
                    return
                self._read(index, handle)
            stop.wait(rest)
            rest = self._every

    def _read(self, index: int, handle: Any) -> None:
        values: dict[str, Any] = {}
        unsupported: list[str] = []
        for fields, read in ((_PCIE, _pcie), (("nvlinks", *_RATES), _nvlinks)):
            try:
                values.update(zip(fields, read(handle), strict=True))
            except pynvml.NVMLError as error:
                if error.value in calls.NOT_SUPPORTED:
                    unsupported += fields
        if values.get("nvlinks"):
            self._rates(index, values, unsupported)
            try:
                values["nvlinks_down"] = self._down(index, handle, values["nvlinks"])
            except pynvml.NVMLError:
                return  # it is being lost: the sample says so
        if self._handles.get(index) is handle:
            values["links_at"] = self._now()
            self._records[index] = LinkRecord(values=values, unsupported=tuple(unsupported), taken_clock=self._clock())

    def _rates(self, index: int, values: dict[str, Any], unsupported: list[str]) -> None:
        """Makes rates of the counters that stand in their place."""
        received, sent = (values.pop(name) for name in _RATES)
        newest, before = _Counters(self._clock(), (received, sent)), self._before.get(index)
        self._before[index] = newest
        for place, name in enumerate(_RATES):
            if newest.kib[place] is None:
                unsupported.append(name)
            elif before is not None:
                values[name] = _rate(before, newest, place)

    def _down(self, index: int, handle: Any, links: int) -> tuple[int, ...]:
        known = self._states.get(index)
        if known is None or known.rounds + 1 >= STATES_EVERY:
            down = tuple(link for link in range(links) if not _is_up(handle, link))
            known = self._states[index] = _States(down)
        else:
            known.rounds += 1
        return known.down


def _rate(before: _Counters, newest: _Counters, place: int) -> float | None:
    """Bytes per second; None where the counter was reset."""
    was, is_now, seconds = before.kib[place], newest.kib[place], newest.clock - before.clock
    if was is None or is_now is None or is_now < was or seconds <= 0:
        return None
    return (is_now - was) * _KIB / seconds


def _pcie(handle: Any) -> tuple[float | None, ...]:
    """(received, sent) bytes per second: NVML tells KB/s over the last 20 ms."""
    return tuple(
        calls.within(pynvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1000.0, 0, 1e12)
        for counter in (pynvml.NVML_PCIE_UTIL_RX_BYTES, pynvml.NVML_PCIE_UTIL_TX_BYTES)
    )


def _nvlinks(handle: Any) -> tuple[int, int | None, int | None]:
    """How many NVLinks there are, and KiB of payload (received, sent) over all of them since the driver was loaded."""
    asked = [(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0), *((field, _ALL_LINKS) for field in _COUNTERS)]
    count, *totals = pynvml.nvmlDeviceGetFieldValues(handle, asked)
    if count.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(count.nvmlReturn)
    links = min(count.value.uiVal, _MOST_LINKS)
    if links and any(field.nvmlReturn != pynvml.NVML_SUCCESS for field in totals):
        return links, *_summed(handle, links)
    received, sent = (int(field.value.ullVal) if field.nvmlReturn == pynvml.NVML_SUCCESS else None for field in totals)
    return links, received, sent


def _is_up(handle: Any, link: int) -> bool:
    try:
        return pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            return False
        raise


def _summed(handle: Any, links: int) -> tuple[int | None, int | None]:
    """The same link by link, where the driver does not sum; None where no link tells."""
    asked = [(field, link) for field in _COUNTERS for link in range(links)]
    found = pynvml.nvmlDeviceGetFieldValues(handle, asked)
    return _sum(found[:links]), _sum(found[links:])


def _sum(fields: Any) -> int | None:
    known = [int(field.value.ullVal) for field in fields if field.nvmlReturn == pynvml.NVML_SUCCESS]
    return sum(known) if known else None
