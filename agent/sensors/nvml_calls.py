"""Single questions to NVML, through nvidia-ml-py: what each answer means in the units of the wire.

Invariant: a sentinel or a value out of its range becomes None here, so no caller ever sums one or shows one.
Each function takes a device handle and raises `pynvml.NVMLError` when the driver refuses.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import pynvml

from agent.wire import THROTTLE_REASONS

NOT_SUPPORTED = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    )
)
"""What the driver answers when a field does not exist on this GPU, or the function not in this driver."""
_MISSING_FUNCTION = frozenset((pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH))
_MISSING_U32 = 0xFFFFFFFF
_MISSING_U64 = 0xFFFFFFFFFFFFFFFF
_MOST_WATTS = 20_000.0
MOST_MEGAHERTZ = 100_000
_MOST_BYTES = 1 << 60
_MICROSECONDS = 1_000_000

Answer = tuple[Any, ...]
Read = Callable[[Any], Answer]
ProcessKind = Literal["compute", "graphics", "mps"]


class Query(NamedTuple):
    """Names of `wire.Gpu` fields, and the call that answers them in that order."""

    fields: tuple[str, ...]
    read: Read


class Row(NamedTuple):
    """One process on one GPU as NVML lists it; bytes, or None where the driver does not tell."""

    kind: ProcessKind
    memory_used_bytes: int | None
    instance: tuple[int, int] | None = None
    """(GPU instance, compute instance) of MIG; None: not told, or no MIG."""


def first_of(*reads: Read) -> Read:
    """Asks the newest function that this driver has, and remembers which one that is."""
    left = list(reads)

    def read(handle: Any) -> Answer:
        while True:
            try:
                return left[0](handle)
            except pynvml.NVMLError as error:
                if error.value not in _MISSING_FUNCTION or len(left) == 1:
                    raise
                left.pop(0)

    return read


def percent(value: int) -> float | None:
    """0-100 -> 0-1; anything above is a driver's garbage."""
    return value / 100 if 0 <= value <= 100 else None


def within(value: float, lowest: float, highest: float) -> Any:
    """`value`, or None when it is out of its range."""
    return value if lowest <= value <= highest else None


def text_of(call: Callable[[Any], str], handle: Any) -> str:
    """A string of NVML; bytes that are not UTF-8 (seen on R555 under WSL) are replaced."""
    try:
        return call(handle)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", errors="replace")


def _utilization(handle: Any) -> Answer:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return percent(rates.gpu), percent(rates.memory)


def memory_bytes(used: int, total: int, reserved: int | None) -> Answer:
    """(used, total, reserved) in bytes; all None where the total is a sentinel, zero or below what is used."""
    if not 0 < total < _MOST_BYTES:
        return None, None, None
    if reserved is not None and reserved > total:
        reserved = None
    return (used if used <= total else None), total, reserved


def _memory_v2(handle: Any) -> Answer:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return memory_bytes(memory.used, memory.total, memory.reserved)


def _memory_v1(handle: Any) -> Answer:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return memory_bytes(memory.used, memory.total, None)


def _power(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000, 0, _MOST_WATTS),)


def _enforced_limit(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000, 0.001, _MOST_WATTS),)


def _configured_limit(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1000, 0.001, _MOST_WATTS),)


def _energy(handle: Any) -> Answer:
    millijoules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    return (None if millijoules == _MISSING_U64 else millijoules / 1000,)


def _temperature(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU), -100, 250),)


def _temperature_v(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU), -100, 250),)


def _clock(kind: int) -> Read:
    def read(handle: Any) -> Answer:
        megahertz = pynvml.nvmlDeviceGetClockInfo(handle, kind)
        return (megahertz * 1_000_000 if megahertz <= MOST_MEGAHERTZ else None,)

    return read


def throttle_names(bits: int) -> tuple[str, ...] | None:
    """Names of the set bits, lowest first; a bit that nvml.h did not know keeps its number. None for the sentinel."""
    if bits == _MISSING_U64:
        return None
    return tuple(THROTTLE_REASONS.get(1 << n, f"unknown_{1 << n:#x}") for n in range(bits.bit_length()) if bits >> n & 1)


def _event_reasons(handle: Any) -> Answer:
    return (throttle_names(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),)


def _throttle_reasons(handle: Any) -> Answer:
    return (throttle_names(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),)


def _encoder(handle: Any) -> Answer:
    return (percent(pynvml.nvmlDeviceGetEncoderUtilization(handle)[0]),)


def _decoder(handle: Any) -> Answer:
    return (percent(pynvml.nvmlDeviceGetDecoderUtilization(handle)[0]),)


def _fan(handle: Any) -> Answer:
    # nvml.h: "may exceed 100 % in certain cases"
    return (within(pynvml.nvmlDeviceGetFanSpeed(handle) / 100, 0, 2),)


def _performance_state(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetPerformanceState(handle), 0, 15),)


def _pcie_generation(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), 1, 16),)


def _pcie_width(handle: Any) -> Answer:
    return (within(pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle), 1, 64),)


def _ecc(kind: int) -> Read:
    def read(handle: Any) -> Answer:
        count = pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC)
        return (None if count in (_MISSING_U32, _MISSING_U64) else count,)

    return read


def _mig_mode(handle: Any) -> Answer:
    return (pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE,)


def fast_queries() -> tuple[Query, ...]:
    """What changes from second to second. PcieThroughput is not among them: each call samples for 20 ms."""
    return (
        Query(("utilization_ratio", "memory_utilization_ratio"), _utilization),
        Query(("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes"), first_of(_memory_v2, _memory_v1)),
        Query(("power_watts",), _power),
        Query(("energy_joules_total",), _energy),
        Query(("temperature_celsius",), first_of(_temperature, _temperature_v)),
        Query(("clock_sm_hertz",), _clock(pynvml.NVML_CLOCK_SM)),
        Query(("clock_memory_hertz",), _clock(pynvml.NVML_CLOCK_MEM)),
        Query(("throttle_reasons",), first_of(_event_reasons, _throttle_reasons)),
        Query(("encoder_utilization_ratio",), _encoder),
        Query(("decoder_utilization_ratio",), _decoder),
    )


def slow_queries() -> tuple[Query, ...]:
    """What is asked every five seconds."""
    return (
        Query(("mig_enabled",), _mig_mode),
        Query(("power_limit_watts",), first_of(_enforced_limit, _configured_limit)),
        Query(("fan_ratio",), _fan),
        Query(("performance_state",), _performance_state),
        Query(("pcie_generation",), _pcie_generation),
        Query(("pcie_width",), _pcie_width),
        Query(("ecc_corrected_total",), _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
        Query(("ecc_uncorrected_total",), _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)),
    )


# ---- processes ----------------------------------------------------------------------------------------------------


class _OldRow(ctypes.Structure):
    """nvmlProcessInfo_v1_t, which nvidia-ml-py no longer reads."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def _old_rows(name: str) -> Read:
    """The unversioned function of drivers before R460, in NVML's own way: ask for the size, then for the rows."""

    def read(handle: Any) -> Answer:
        function = getattr(ctypes.CDLL("libnvidia-ml.so.1"), name, None)
        if function is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        count = ctypes.c_uint(0)
        status = function(handle, ctypes.byref(count), None)
        if status != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            return () if status == pynvml.NVML_SUCCESS else _fail(status)
        count = ctypes.c_uint(2 * count.value + 5)
        rows = (_OldRow * count.value)()
        status = function(handle, ctypes.byref(count), rows)
        return tuple(rows[: count.value]) if status == pynvml.NVML_SUCCESS else _fail(status)

    return read


def _fail(status: int) -> Answer:
    raise pynvml.NVMLError(status)


def has_535_layout(handle: Any) -> bool:
    """Drivers 535.43 to 535.98 changed the row behind the _v3 functions: pids and sizes would come out swapped.

    They are told by their symbols, as the version number alone is not enough: the one function came with the change,
    the other with its repair.
    """
    return _exists(pynvml.nvmlDeviceGetConfComputeMemSizeInfo, handle) and not _exists(
        pynvml.nvmlDeviceGetRunningProcessDetailList, handle, 0, pynvml.NVML_PROCESS_MODE_COMPUTE
    )


def _exists(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    return True


def _lists(stem: str, v3: bool) -> Read:
    versions = ("_v3", "_v2") if v3 else ("_v2",)
    return first_of(*(getattr(pynvml, stem + version) for version in versions), _old_rows(stem))


class ProcessLists:
    """The three lists of processes that NVML keeps for a GPU, as one row per pid."""

    def __init__(self, *, v3: bool = True) -> None:
        self._compute = _lists("nvmlDeviceGetComputeRunningProcesses", v3)
        self._others: tuple[tuple[ProcessKind, Read], ...] = (
            ("graphics", _lists("nvmlDeviceGetGraphicsRunningProcesses", v3)),
            ("mps", _lists("nvmlDeviceGetMPSComputeRunningProcesses", v3)),
        )

    def read(self, handle: Any, *, mig: bool = False) -> dict[int, Row]:
        """pid -> row. A pid in several lists or MIG instances keeps its largest memory figure: the lists overlap."""
        try:
            rows = self._read_one(handle)
        except pynvml.NVMLError:
            if not mig:
                raise
            return self._by_instance(handle)
        if mig and any(row.instance is None for row in rows.values()):
            try:
                return {**rows, **self._by_instance(handle)}
            except pynvml.NVMLError:
                pass  # the parent's own list stands, without instances
        return rows

    def _by_instance(self, handle: Any) -> dict[int, Row]:
        rows: dict[int, Row] = {}
        for instance in mig_devices(handle):
            ids = pynvml.nvmlDeviceGetGpuInstanceId(instance), pynvml.nvmlDeviceGetComputeInstanceId(instance)
            for pid, row in self._read_one(instance).items():
                rows[pid] = _merged(rows.get(pid), row._replace(instance=ids))
        return rows

    def _read_one(self, handle: Any) -> dict[int, Row]:
        rows: dict[int, Row] = {}
        _add(rows, "compute", self._compute(handle))
        for kind, read in self._others:
            try:
                _add(rows, kind, read(handle))
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                    raise
        return rows


def _add(rows: dict[int, Row], kind: ProcessKind, found: Answer) -> None:
    for process in found:
        if process.pid != _MISSING_U32:
            row = Row(kind, process.usedGpuMemory, _instance(process))
            rows[process.pid] = _merged(rows.get(process.pid), row)


def _instance(process: Any) -> tuple[int, int] | None:
    """The oldest rows have no such fields, and without MIG they hold the sentinel."""
    ids = getattr(process, "gpuInstanceId", _MISSING_U32), getattr(process, "computeInstanceId", _MISSING_U32)
    return None if _MISSING_U32 in ids else ids


def _merged(before: Row | None, row: Row) -> Row:
    if row.memory_used_bytes is not None and row.memory_used_bytes >= _MOST_BYTES:
        row = row._replace(memory_used_bytes=None)
    if before is None:
        return row
    known = [figure for figure in (before.memory_used_bytes, row.memory_used_bytes) if figure is not None]
    # a compute program that also draws is compute; one that MPS lists is its client, whatever the other lists say
    kind = "mps" if "mps" in (row.kind, before.kind) else before.kind
    return Row(kind, max(known) if known else None, before.instance or row.instance)


def mig_devices(handle: Any) -> Iterator[Any]:
    """Handles of the MIG instances of a GPU."""
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            if error.value not in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
                raise


class ProcessLoad:
    """SM share of each process of one GPU since the reading before.

    Keeps the driver's newest time stamp for this GPU: from 0 the driver answers with old samples.
    """

    def __init__(self, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._newest = 0

    def read(self, handle: Any) -> dict[int, float]:
        """pid -> 0-1. A pid without a sample did nothing. Raises NVMLError where the driver does not measure it."""
        now = int(self._wall_clock() * _MICROSECONDS)
        if not now - 60 * _MICROSECONDS <= self._newest <= now + _MICROSECONDS:
            self._newest = now - _MICROSECONDS  # the first reading, or the clock was set
        return self._accept(_samples(handle, self._newest))

    def _accept(self, samples: list[Any]) -> dict[int, float]:
        after, shares = self._newest, {}
        for sample in sorted(samples, key=lambda sample: sample.timeStamp):
            share = percent(sample.smUtil)
            if share is not None and sample.timeStamp > after:
                shares[sample.pid] = share
                self._newest = sample.timeStamp
        return shares


def _samples(handle: Any, after: int) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetProcessUtilization(handle, after))
    except pynvml.NVMLError as error:
        # nvidia-ml-py raises the code of a success when the driver has nothing new
        if error.value in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS):
            return []
        raise
