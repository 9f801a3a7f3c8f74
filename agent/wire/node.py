"""A node, its GPUs and its host: identity and readings.

Sizes in bytes, power in watts, ratios 0-1, times UTC.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

from agent.wire.base import WIRE_VERSION, Message
from agent.wire.orders import AlertPause, Drain


Purchase = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y", "capacity_block"]
PURCHASES: tuple[str, ...] = Purchase.__args__
GpuState = Literal["ok", "lost", "unsupported", "error"]


class GpuInventory(Message, kw_only=True):
    """What does not change while the driver is loaded. Sizes in bytes, power in watts."""

    index: int
    uuid: str
    model: str | None = None
    memory_total_bytes: int | None = None
    power_limit_watts: float | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    compute_capability: str | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    mig_enabled: bool | None = None
    clock_sm_max_hertz: int | None = None
    clock_memory_max_hertz: int | None = None
    persistence_enabled: bool | None = None
    """Whether the driver stays loaded while no program uses the GPU."""
    display_active: bool | None = None
    compute_mode: str | None = None
    """`default`, `prohibited`, `exclusive_process`."""


class OnPremises(Message, kw_only=True):
    """What a node that is owned costs: bought for `purchase_usd`, written off over `years`, fed with `power_usd_per_kwh`."""

    purchase_usd: Decimal
    years: Decimal
    power_watts: Decimal | None = None
    power_usd_per_kwh: Decimal | None = None


class NodeInfo(Message, kw_only=True):
    """Identity and inventory of a node: `GET /v1/node`, and the first event of every stream."""

    version: int = msgspec.field(default_factory=lambda: WIRE_VERSION)
    node: str
    agent_version: str | None = None
    started_at: datetime | None = None
    """When this agent process started."""
    boot_id: str | None = None
    cloud: str | None = None
    """`aws`, `gcp`, `azure`, `alibaba`, `on_premises`, another name, or not known."""
    region: str | None = None
    zone: str | None = None
    """The zone's stable id where the cloud has one (AWS: `use1-az1`), else its name."""
    instance_type: str | None = None
    purchase: Purchase | None = None
    usd_per_hour: str | None = None
    """The node's configured price, a decimal string; used where no catalog price exists."""
    on_premises: OnPremises | None = None
    identity_sources: dict[str, str] = {}
    """Field name -> where it came from: `configuration`, `ec2 metadata`, `hostname`, ..."""
    tags: dict[str, str] = {}
    os: str | None = None
    kernel: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    memory_total_bytes: int | None = None
    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[GpuInventory, ...]
    gpu_reason: str | None = None
    """One sentence: why there are no GPUs (no driver, mismatch, no permission) and what to do. None when GPUs are read."""
    simulated: bool = False
    drain: Drain | None = None
    """Set while the node starts no new job because somebody said so."""
    pauses: tuple[AlertPause, ...] = ()
    """Alerts that call nobody for a while."""


class Process(Message, kw_only=True):
    """One process on one GPU. `utilization_ratio` is its share of the SMs over the last second, 0-1."""

    pid: int
    user: str | None = None
    command: str | None = None
    """Control characters stripped, undecodable bytes replaced."""
    kind: Literal["compute", "graphics", "mps"] = "compute"
    memory_used_bytes: int | None = None
    utilization_ratio: float | None = None
    job: str | None = None
    project: str | None = None
    started_at: datetime | None = None
    visible: bool = True
    """False when the pid cannot be resolved here (another pid namespace, or it just ended): it must never be signalled."""
    mig_instance: str | None = None
    """UUID of the MIG instance in which it runs; None: no MIG, or the driver does not tell."""
    parent_pid: int | None = None
    """Its parent on the host; one that holds no GPU is among the sample's `ancestors` as far as it belongs to the work."""
    cpu_ratio: float | None = None
    """Of one CPU since the reading before: 1 is one CPU all the time."""
    host_memory_bytes: int | None = None
    """Resident memory on the host."""


class Ancestor(Message, kw_only=True):
    """A process that holds no GPU itself but started one that does: a launcher, a shell, a job's shim."""

    pid: int
    parent_pid: int | None = None
    user: str | None = None
    command: str | None = None
    job: str | None = None
    started_at: datetime | None = None


class MigInstance(Message, kw_only=True):
    """One MIG instance: a compute instance within a GPU instance."""

    uuid: str
    profile: str | None = None
    """`3g.20gb`, `1c.3g.20gb`."""
    gpu_instance: int
    compute_instance: int
    compute_slices: int
    memory_slices: int
    """Eighths of the GPU's memory that its GPU instance has."""
    share: Decimal
    """Of the whole GPU, six places: the mean of its part of the compute slices and of the memory."""


class GpuAllocation(Message, kw_only=True):
    """A job that has a GPU, or a share of it, whether or not a process of it uses it now."""

    job: str
    user: str | None = None
    project: str | None = None
    share: Decimal


class Gpu(Message, kw_only=True):
    """One GPU at one moment. A lost GPU keeps its index, uuid and model; its readings are absent and `reason` says why."""

    index: int
    uuid: str
    model: str | None = None
    state: GpuState
    reason: str | None = None
    utilization_ratio: float | None = None
    """0-1: part of the last sample period in which a kernel ran (NVML GetUtilizationRates.gpu)."""
    memory_utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    """Without the driver's reserve (NVML memory v2) where the driver tells it apart."""
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules_total: float | None = None
    temperature_celsius: float | None = None
    fan_ratio: float | None = None
    clock_sm_hertz: int | None = None
    clock_memory_hertz: int | None = None
    performance_state: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Names as in `THROTTLE_REASONS`; an empty tuple means not throttled, None means not known."""
    throttle_since: dict[str, datetime] = {}
    """Reason -> since when it holds, as far back as this agent saw; a break of a few seconds does not end it."""
    pcie_receive_bytes_per_second: float | None = None
    """Measured by the driver over 20 ms every ten seconds or so; `links_at` says when."""
    pcie_transmit_bytes_per_second: float | None = None
    nvlinks: int | None = None
    """How many NVLinks the GPU has; 0: none, None: the driver does not tell."""
    nvlinks_down: tuple[int, ...] = ()
    """Numbers of those that are not active."""
    nvlink_receive_bytes_per_second: float | None = None
    """Payload over all links, mean since the reading before."""
    nvlink_transmit_bytes_per_second: float | None = None
    links_at: datetime | None = None
    """When PCIe throughput and NVLinks were read."""
    encoder_utilization_ratio: float | None = None
    decoder_utilization_ratio: float | None = None
    ecc_corrected_total: int | None = None
    """Volatile: since the driver was loaded."""
    ecc_uncorrected_total: int | None = None
    xid_counts: dict[str, int] = {}
    """XID code -> how often it was seen since the agent started."""
    xid_last: int | None = None
    xid_last_at: datetime | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] | None = None
    """In MIG mode; None where MIG is off, or the driver does not tell. Their shares sum to at most 1."""
    processes: tuple[Process, ...] | None = None
    """None: the driver does not tell; an empty tuple: no process holds this GPU."""
    unsupported: tuple[str, ...] = ()
    """Names of fields that the driver says it does not support."""
    allocations: tuple[GpuAllocation, ...] = ()
    """Jobs of this agent that have it; together at most 1."""

    @property
    def held(self) -> bool | None:
        """Whether somebody has it: a process, or a job that it was given to; None: the driver does not tell."""
        if self.allocations:
            return True
        return None if self.processes is None else bool(self.processes)


THROTTLE_REASONS: dict[int, str] = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""nvmlClocksEventReasons bits (nvml.h) -> names."""


class Filesystem(Message, kw_only=True):
    """One local, writable file system. `used_bytes` + `available_bytes` can be less than `total_bytes` (root's reserve)."""

    mount: str
    total_bytes: int
    used_bytes: int
    available_bytes: int


class Host(Message, kw_only=True):
    """The machine at one moment. Rates are bytes per second since the reading before; ratios are 0-1 of all CPUs."""

    cpu_utilization_ratio: float | None = None
    cpu_count: int | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    network_receive_bytes_per_second: float | None = None
    network_transmit_bytes_per_second: float | None = None
    disk_read_bytes_per_second: float | None = None
    disk_write_bytes_per_second: float | None = None
    filesystems: tuple[Filesystem, ...] = ()
    boot_at: datetime | None = None


class SensorReport(Message, kw_only=True):
    """How one source of readings did: a sensor may fail or hang alone."""

    name: str
    ok: bool
    duration_seconds: float | None = None
    taken_at: datetime | None = None
    """When the reading that stands in the sample was taken; an old one is shown as old."""
    error: str | None = None


class Sample(Message, kw_only=True):
    """All readings of a node at one moment: `GET /v1/sample`."""

    version: int = msgspec.field(default_factory=lambda: WIRE_VERSION)
    node: str
    sequence: int
    """Counts up by one a sample since the agent started."""
    taken_at: datetime
    host: Host | None = None
    gpus: tuple[Gpu, ...]
    gpu_reason: str | None = None
    sensors: tuple[SensorReport, ...] = ()
    ancestors: tuple[Ancestor, ...] = ()
    """Processes above those that hold GPUs, each once, up to the job's shim or the shell."""


class HistoryPoint(Message, kw_only=True):
    """One GPU's past reading, for plots."""

    taken_at: datetime
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class History(Message, kw_only=True):
    """`GET /v1/history?seconds=N`: GPU uuid -> points, oldest first; `cpu` holds (taken_at, ratio) pairs of the host.

    Up to 15 minutes a point a second; an hour: ten seconds; a day: a minute; a week: ten minutes. Of a step above one second
    a point is the mean of the step that begins at `taken_at`.
    """

    node: str
    step_seconds: float
    gpus: dict[str, tuple[HistoryPoint, ...]] = {}
    cpu: tuple[tuple[datetime, float | None], ...] = ()
