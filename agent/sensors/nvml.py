"""The GPUs of this node, read through NVIDIA's own binding of NVML.

Invariant: without a driver this sensor reports no GPUs and one sentence why; it never raises for that, and it looks
again every 30 s. NVML stays initialised once between failures, and is never initialised only to find GPUs asleep.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pynvml

from agent import wire
from agent.sensors import Reading
from agent.sensors.links import EVERY_SECONDS, LinkWatcher
from agent.sensors.nvml_device import DriverGone, GpuReader, Shared
from agent.sensors.processes import ProcessTable, clean_text
from agent.sensors.xid import WAIT_SECONDS, XidWatcher

log = logging.getLogger(__name__)

SLOW_SECONDS = 5.0
RETRY_SECONDS = 30.0

_NO_DRIVER = (
    "no NVIDIA driver is installed (libnvidia-ml.so.1 was not found): install one,"
    " or start the agent's container with the NVIDIA runtime"
)
_NO_HARDWARE = (
    "this node has no NVIDIA GPU on its PCI bus and no NVIDIA driver; if it should have one, check `lspci` and the instance type"
)
_ASLEEP = (
    "the NVIDIA GPUs of this node are powered down (runtime suspend) and are not woken to be measured;"
    " they appear when a program uses one"
)
_NOT_LOADED = "the NVIDIA kernel driver is not loaded: run `modprobe nvidia` as root, and look into dmesg if that fails"
_INIT_REASONS = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: _NOT_LOADED,
    pynvml.NVML_ERROR_UNINITIALIZED: _NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA library and the loaded kernel driver have different versions:"
    " reboot, or reload the nvidia kernel modules, then restart the agent",
    pynvml.NVML_ERROR_NO_PERMISSION: "the agent may not use the NVIDIA driver: run it as root,"
    " or give its user access to /dev/nvidia*",
    pynvml.NVML_ERROR_UNKNOWN: "the NVIDIA driver answers 'Unknown Error': look into dmesg;"
    " in a container restart it, since its access to the devices may have been taken away",
}


class NvmlSensor:
    """A `Sensor` of GPUs: fast fields at each `read`, slow ones every five seconds, static facts once.

    `sys_root` is where /sys is mounted; `clock` is a monotonic clock in seconds; `host_memory_bytes` is what a GPU with
    unified memory would show as its own (default: this host's); `close` may take `xid_wait_seconds`. Links are read each
    `link_seconds`, by a thread of their own.
    """

    name = "nvml"
    subject = "driver"
    remedy = ": look into dmesg, and reboot the node if it stays so"
    measures_gpus = True
    interval_seconds = 1.0

    def __init__(
        self,
        *,
        processes: ProcessTable | None = None,
        sys_root: str | Path = "/sys",
        host_memory_bytes: int | None = None,
        xid_wait_seconds: float = WAIT_SECONDS,
        link_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._sys_root = Path(sys_root)
        self._shared = Shared(
            table=processes or ProcessTable(),
            xids=XidWatcher(xid_wait_seconds),
            links=LinkWatcher(link_seconds),
            host_memory_bytes=host_memory_bytes or psutil.virtual_memory().total,
            sys_root=self._sys_root,
        )
        self._readers: list[GpuReader] = []
        self._open = False
        self._slow_at = self._retry_at = float("-inf")
        self._ancestors: tuple[wire.Ancestor, ...] = ()
        self.driver_version: str | None = None
        self.cuda_version: str | None = None
        self.gpu_reason: str | None = None

    def inventory(self) -> tuple[wire.GpuInventory, ...]:
        """Static facts of each GPU, by index; empty before the first `read`. Asks the driver nothing, so it never blocks."""
        return tuple(reader.identity for reader in self._readers)

    def read(self) -> Reading:
        """All GPUs now. May block as long as the driver does."""
        now = self._clock()
        if not self._open and now >= self._retry_at:
            self._try_open()
            self._retry_at = now + RETRY_SECONDS
        if not self._open:
            return self._without_driver()
        slow = now >= self._slow_at
        if slow:
            self._slow_at = now + SLOW_SECONDS
        try:
            gpus = self._read(slow)
            if slow:
                self._ancestors = self._shared.table.ancestors({one.pid for gpu in gpus for one in gpu.processes or ()})
            return Reading(gpus=gpus, gpu_reason=self.gpu_reason, ancestors=self._ancestors)
        except DriverGone as fault:
            return self._lose_driver(now, fault.code)

    def close(self) -> None:
        """Stops counting XIDs and reading links, and shuts NVML down, unless a thread of ours still hangs in it."""
        ended = all([self._shared.links.stop(), self._shared.xids.stop()])
        if self._open and ended:
            _shutdown()
        self._open = False

    def _read(self, slow: bool) -> tuple[wire.Gpu, ...]:
        if slow:
            self._fit(_count())
            self.gpu_reason = None if self._readers else self._no_gpu()
        gpus = tuple(reader.read(slow=slow) for reader in self._readers)
        if slow:
            self._shared.xids.start()
            self._shared.links.start()
        return gpus

    def _fit(self, count: int) -> None:
        """As many readers as the driver has GPUs; those that stay keep their identity."""
        for reader in self._readers[count:]:
            reader.close()
        kept = self._readers[:count]
        self._readers = kept + [GpuReader(index, self._shared) for index in range(len(kept), count)]

    def _no_gpu(self) -> str:
        return (
            "the NVIDIA driver is loaded but shows no GPU: check `lspci` and dmesg;"
            " in a container check which GPUs it was given (NVIDIA_VISIBLE_DEVICES)"
        )

    def _without_driver(self) -> Reading:
        reason = self.gpu_reason or _NO_DRIVER
        return Reading(gpus=tuple(reader.absent(reason) for reader in self._readers), gpu_reason=reason)

    def _lose_driver(self, now: float, code: int) -> Reading:
        log.warning("the NVIDIA driver went away (NVML error %d); the agent looks for it every %d s", code, RETRY_SECONDS)
        for reader in self._readers:
            reader.close()
        self.close()
        self.gpu_reason = self._reason(code, has_hardware=True)
        self._retry_at = now + RETRY_SECONDS
        return self._without_driver()

    def _try_open(self) -> None:
        states = list(runtime_states(self._sys_root))
        if states and all(state == "suspended" for state in states):
            self.gpu_reason = _ASLEEP
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self.gpu_reason = self._reason(error.value, bool(states))
            return
        self._open, self._slow_at, self.gpu_reason = True, float("-inf"), None
        self.driver_version, self.cuda_version = _driver_version(), _cuda_version()

    def _reason(self, code: int, has_hardware: bool) -> str:
        if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            has_bus = (self._sys_root / "bus/pci/devices").is_dir()
            return _NO_HARDWARE if has_bus and not has_hardware else _NO_DRIVER
        text = str(pynvml.NVMLError(code)).rstrip(".")
        return _INIT_REASONS.get(code) or f"NVML cannot be initialised: {text} (NVML error {code}); look into dmesg"


def runtime_states(sys_root: Path) -> Iterator[str]:
    """Power states (`active`, `suspended`, ...) of the NVIDIA display devices: a suspended one would be woken by nvmlInit."""
    for device in sorted((sys_root / "bus/pci/devices").glob("*")):
        if _line(device / "vendor") == "0x10de" and _line(device / "class").startswith("0x03"):
            yield _line(device / "power/runtime_status") or "active"


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _count() -> int:
    try:
        return pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise DriverGone(error.value) from error


def _driver_version() -> str | None:
    try:
        return clean_text(pynvml.nvmlSystemGetDriverVersion())
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def _cuda_version() -> str | None:
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion()
    except pynvml.NVMLError:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"


def _shutdown() -> None:
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        pass  # the driver went first
