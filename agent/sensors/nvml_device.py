"""One GPU: its identity, its two lanes of readings, its processes, and what becomes of it when it is lost.

Invariant: a GPU never disappears from the sample. What the driver refuses becomes None (and `unsupported` where the
driver says so); a GPU that it cannot reach keeps index, uuid and model, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from agent import wire
from agent.sensors import mig as mig_instances
from agent.sensors import nvml_calls as calls
from agent.sensors import nvml_facts
from agent.sensors.links import LinkWatcher
from agent.sensors.processes import LABEL_LENGTH, ProcessTable, clean_text
from agent.sensors.xid import XidWatcher

_DRIVER_GONE = frozenset((pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
_MEMORY_FIELDS = ("memory_used_bytes", "memory_total_bytes", "memory_reserved_bytes")
_MIG_BLIND = ("utilization_ratio", "memory_utilization_ratio", "encoder_utilization_ratio", "decoder_utilization_ratio")
_UNIFIED_MODELS = ("GB10", "Thor", "Orin", "Xavier", "Tegra")


class DriverGone(Exception):
    """NVML as a whole no longer answers: the driver was unloaded under the agent. `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GpuUnreachable(Exception):
    """The driver cannot use this GPU now; `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Shared(msgspec.Struct, kw_only=True):
    """What the GPUs of one driver have in common: who describes processes, which functions the driver has."""

    table: ProcessTable
    xids: XidWatcher
    links: LinkWatcher
    host_memory_bytes: int | None
    sys_root: Path
    fast: tuple[calls.Query, ...] = msgspec.field(default_factory=calls.fast_queries)
    slow: tuple[calls.Query, ...] = msgspec.field(default_factory=calls.slow_queries)
    lists: calls.ProcessLists | None = None
    """Chosen with the first GPU that answers: it takes a handle to tell the driver's layout."""


class GpuReader:
    """Reads GPU `index`. `read(slow=True)` asks everything, otherwise only what changes from second to second."""

    def __init__(self, index: int, shared: Shared) -> None:
        self._shared = shared
        self._handle: Any = None
        self._load = calls.ProcessLoad()
        self._unsupported: set[str] = set()
        self._slow: dict[str, Any] = {}
        self._state: wire.GpuState = "ok"
        self._reason: str | None = None
        self._code = pynvml.NVML_SUCCESS
        self._unified = False
        self._instances: tuple[wire.MigInstance, ...] | None = None
        self.identity = wire.GpuInventory(index=index, uuid=f"lost-index-{index}")

    def read(self, *, slow: bool) -> wire.Gpu:
        """The GPU now. Raises `DriverGone` when the whole driver is."""
        try:
            if self._handle is None:
                self._reopen(slow)
            return self._read(slow)
        except GpuUnreachable as fault:
            self._lose(fault.code)
        return self._absent()

    def absent(self, reason: str) -> wire.Gpu:
        """This GPU without readings, when the driver as a whole does not answer."""
        return wire.Gpu(index=self.identity.index, uuid=self.identity.uuid, model=self.identity.model, state="lost", reason=reason)

    def _absent(self) -> wire.Gpu:
        return msgspec.structs.replace(self.absent(self._reason or ""), state=self._state, **self._xid_fields())

    def close(self) -> None:
        """Forgets the handle (NVML is being shut down) and keeps the identity."""
        self._handle, self._code = None, pynvml.NVML_SUCCESS

    def _lose(self, code: int) -> None:
        if code in _DRIVER_GONE:
            raise DriverGone(code)
        self._handle, self._code = None, code
        self._shared.links.forget(self.identity.index)
        self._state, self._reason = unreachable(self.identity.index, code)

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _reopen(self, slow: bool) -> None:
        if self._code and not slow:
            raise GpuUnreachable(self._code)  # a lost GPU is looked for again in the slow lane only
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.identity.index)
            uuid = clean_text(calls.text_of(pynvml.nvmlDeviceGetUUID, handle), LABEL_LENGTH)
        except pynvml.NVMLError as error:
            raise GpuUnreachable(error.value) from error
        self.identity = self._static_facts(handle, uuid)
        self._handle = handle
        self._shared.xids.watch(self.identity.index, handle)
        self._shared.links.watch(self.identity.index, handle)

    def _static_facts(self, handle: Any, uuid: str) -> wire.GpuInventory:
        bus = _or_none(_bus_id, handle)
        return wire.GpuInventory(
            index=self.identity.index,
            uuid=uuid,
            model=_text(pynvml.nvmlDeviceGetName, handle),
            pci_bus_id=bus,
            serial=_text(pynvml.nvmlDeviceGetSerial, handle),
            compute_capability=_or_none(_compute_capability, handle),
            pcie_generation_max=_or_none(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            pcie_width_max=_or_none(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            numa_node=_numa_node(handle, bus, self._shared.sys_root),
            clock_sm_max_hertz=_or_none(nvml_facts.clock_max(pynvml.NVML_CLOCK_SM), handle),
            clock_memory_max_hertz=_or_none(nvml_facts.clock_max(pynvml.NVML_CLOCK_MEM), handle),
        )

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _read(self, slow: bool) -> wire.Gpu:
        values = self._values(slow)
        mig = bool(values.get("mig_enabled"))
        if mig:
            self._blind(values)
        if slow:
            self._read_instances(mig, values.get("memory_total_bytes"))
        values["processes"] = self._processes(mig, values.get("memory_total_bytes"))
        values["mig_instances"] = self._instances
        if slow:
            self._unified = self._is_unified(values)
        if self._unified:
            self._unify(values)
        if slow:
            self._note(values)
        links = self._shared.links.record(self.identity.index)
        if links is not None:
            values.update(links.values)
            self._unsupported.update(links.unsupported)
        if values.get("memory_total_bytes") is not None and values["memory_reserved_bytes"] is None:
            self._unsupported.add("memory_reserved_bytes")  # a driver before R510 counts its reserve as used
        if not self._shared.xids.supported(self.identity.index):
            self._unsupported.add("xid_counts")
        self._code = pynvml.NVML_SUCCESS
        return self._gpu(values)

    def _gpu(self, values: dict[str, Any]) -> wire.Gpu:
        identity = self.identity
        return wire.Gpu(
            index=identity.index, uuid=identity.uuid, model=identity.model, state="ok",
            unsupported=tuple(sorted(self._unsupported)), **self._xid_fields(), **values,
        )  # fmt: skip

    def _values(self, slow: bool) -> dict[str, Any]:
        queries: Sequence[calls.Query] = self._shared.fast
        if slow:
            self._unsupported = set()
            queries = (*queries, *self._shared.slow)
        values = dict(self._slow)
        asked = [query for query in queries if query.fields[0] not in self._unsupported]
        failures: list[int] = []
        for query in asked:
            self._ask(query, values, failures)
        if failures and len(failures) == len(asked):
            raise GpuUnreachable(failures[0])
        if slow:
            self._slow = {name: values[name] for query in self._shared.slow for name in query.fields if name in values}
        return values

    def _ask(self, query: calls.Query, values: dict[str, Any], failures: list[int]) -> None:
        try:
            values.update(zip(query.fields, query.read(self._handle)))
        except pynvml.NVMLError as error:
            self._refused(query.fields, error.value)
            if error.value not in calls.NOT_SUPPORTED:
                failures.append(error.value)

    def _refused(self, fields: tuple[str, ...], code: int) -> None:
        if code == pynvml.NVML_ERROR_GPU_IS_LOST or code in _DRIVER_GONE:
            raise GpuUnreachable(code)
        if code in calls.NOT_SUPPORTED:
            self._unsupported.update(fields)

    def _blind(self, values: dict[str, Any]) -> None:
        # NVML has no utilisation of a MIG parent: whatever it answers, a busy instance would look idle
        for name in _MIG_BLIND:
            values[name] = None
        self._unsupported.update(_MIG_BLIND)

    def _note(self, values: dict[str, Any]) -> None:
        self.identity = msgspec.structs.replace(
            self.identity,
            memory_total_bytes=values.get("memory_total_bytes") or self.identity.memory_total_bytes,
            power_limit_watts=values.get("power_limit_watts"),
            mig_enabled=values.get("mig_enabled"),
            persistence_enabled=_or_none(nvml_facts.persistence, self._handle),
            display_active=_or_none(nvml_facts.display_active, self._handle),
            compute_mode=_or_none(nvml_facts.compute_mode, self._handle),
        )

    def _xid_fields(self) -> dict[str, Any]:
        record = self._shared.xids.record(self.identity.index)
        return {"xid_counts": record.counts, "xid_last": record.last, "xid_last_at": record.last_at} if record.counts else {}

    # ---- unified memory --------------------------------------------------------------------------------------------

    def _is_unified(self, values: dict[str, Any]) -> bool:
        model, total, host = self.identity.model or "", values.get("memory_total_bytes"), self._shared.host_memory_bytes
        if any(name in model for name in _UNIFIED_MODELS) or "memory_total_bytes" in self._unsupported:
            return True
        # a T4 of 16 GB on a node of 16 GB looks alike, but an integrated GPU has no power limit of its own
        return bool(total and host) and abs(total - host) <= host // 50 and "power_limit_watts" in self._unsupported

    def _unify(self, values: dict[str, Any]) -> None:
        used = [process.memory_used_bytes for process in values["processes"] or ()]
        known = values["processes"] is not None and None not in used
        values.update(memory_used_bytes=sum(filter(None, used)) if known else None, memory_total_bytes=None, memory_reserved_bytes=None)
        self._unsupported.update(_MEMORY_FIELDS)

    # ---- processes -------------------------------------------------------------------------------------------------

    def _processes(self, mig: bool, memory_bytes: int | None) -> tuple[wire.Process, ...] | None:
        if self._shared.lists is None:
            self._shared.lists = calls.ProcessLists(v3=not calls.has_535_layout(self._handle))
        try:
            rows = self._shared.lists.read(self._handle, mig=mig)
        except pynvml.NVMLError as error:
            self._refused(("processes",), error.value)
            return None
        if not rows:
            return ()
        facts, shares = self._shared.table.describe(rows), self._shares(mig)
        known = self._known_instances(rows, memory_bytes) if mig else {}
        return tuple(_process(pid, rows[pid], facts[pid], shares, known) for pid in sorted(rows))

    # ---- MIG -------------------------------------------------------------------------------------------------------

    def _read_instances(self, mig: bool, memory_bytes: int | None) -> None:
        self._instances = None
        if not mig:
            return
        try:
            self._instances = mig_instances.read(self._handle, memory_bytes)
        except pynvml.NVMLError as error:
            self._refused(("mig_instances",), error.value)

    def _known_instances(self, rows: dict[int, calls.Row], memory_bytes: int | None) -> dict[tuple[int, int] | None, str]:
        """(GPU instance, compute instance) -> UUID; looked up anew when a process runs in one that was just made."""
        known = self._uuids()
        if any(row.instance is not None and row.instance not in known for row in rows.values()):
            self._read_instances(True, memory_bytes)
            known = self._uuids()
        return known

    def _uuids(self) -> dict[tuple[int, int] | None, str]:
        return {(one.gpu_instance, one.compute_instance): one.uuid for one in self._instances or ()}

    def _shares(self, mig: bool) -> dict[int, float] | None:
        if mig:
            return None
        try:
            return self._load.read(self._handle)
        except pynvml.NVMLError as error:
            self._refused(("processes.utilization_ratio",), error.value)
            return None


def unreachable(index: int, code: int) -> tuple[wire.GpuState, str]:
    """State and sentence for a GPU that answers with `code`."""
    if code == pynvml.NVML_ERROR_GPU_IS_LOST:
        return "lost", (
            f"the driver cannot reach GPU {index} any more (NVML: GPU is lost; look for an XID in dmesg);"
            " drain the node, then reset the GPU or reboot"
        )
    if code == pynvml.NVML_ERROR_UNKNOWN:
        return "lost", (
            f"the driver answers 'Unknown Error' for GPU {index}: look for an XID in dmesg;"
            " in a container restart it, since its access to the devices may have been taken away"
        )
    if code == pynvml.NVML_ERROR_RESET_REQUIRED:
        return "error", f"GPU {index} needs a reset: stop its programs, then run `nvidia-smi --gpu-reset -i {index}` or reboot"
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        return "error", f"the agent may not open GPU {index}: give it access to /dev/nvidia{index}, or run it as root"
    return "error", f"the driver refuses GPU {index}: {str(pynvml.NVMLError(code)).rstrip('.')} (NVML error {code}); look into dmesg"


def _process(
    pid: int, row: calls.Row, facts: Any, shares: dict[int, float] | None, instances: dict[tuple[int, int] | None, str]
) -> wire.Process:
    return wire.Process(
        pid=pid, user=facts.user, command=facts.command, kind=row.kind, memory_used_bytes=row.memory_used_bytes,
        utilization_ratio=None if shares is None else shares.get(pid, 0.0),
        job=facts.job, project=facts.project, started_at=facts.started_at, visible=facts.visible,
        mig_instance=instances.get(row.instance), parent_pid=facts.parent_pid, cpu_ratio=facts.cpu_ratio,
        host_memory_bytes=facts.host_memory_bytes,
    )  # fmt: skip


def _or_none(call: Callable[[Any], Any], handle: Any) -> Any:
    try:
        return call(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise GpuUnreachable(error.value) from error
        return None


def _text(call: Callable[[Any], str], handle: Any) -> str | None:
    raw = _or_none(lambda h: calls.text_of(call, h), handle)
    return (clean_text(raw, LABEL_LENGTH) or None) if raw else None


def _bus_id(handle: Any) -> str:
    raw = pynvml.nvmlDeviceGetPciInfo_v3(handle).busId
    return raw.decode("ascii", errors="replace") if isinstance(raw, bytes) else raw


def _compute_capability(handle: Any) -> str:
    return ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle)))


def _numa_node(handle: Any, bus: str | None, sys_root: Path) -> int | None:
    """NVML's answer (driver 530+), else the PCI device's in /sys; a node of -1 is none."""
    node = _or_none(pynvml.nvmlDeviceGetNumaNodeId, handle)
    if node is not None or bus is None:
        return node
    try:
        node = int((sys_root / "bus/pci/devices" / bus[4:].lower() / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
