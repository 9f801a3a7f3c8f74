"""Every message that an agent sends or takes, as msgspec structs; JSON keys are the field names.

Invariant: a value that is not known is `None` and is left out of the JSON; it is never 0.
Times are UTC, encoded as ISO 8601; usage intervals are half-open and whole milliseconds.
Money appears only as decimal strings (`usd_per_hour`), and only as the node's own configuration said it.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import msgspec

WIRE_VERSION = 1
"""Raised when a field changes its meaning; a new field that may be absent does not raise it."""

Purchase = Literal[
    "on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y", "capacity_block"
]
PURCHASES: tuple[str, ...] = Purchase.__args__
GpuState = Literal["ok", "lost", "unsupported", "error"]
UsageKind = Literal["held", "idle", "lost", "down", "host"]
EnergySource = Literal["counter", "integrated"]
Severity = Literal["warning", "critical"]


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The common shape: frozen, keyword-only, absent means not known. Unknown keys of a newer agent are ignored.

    Fields that a reader must always find (`version`, `state`, `gpus`) have no plain default, so they are never left out.
    """


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
    processes: tuple[Process, ...] | None = None
    """None: the driver does not tell; an empty tuple: no process holds this GPU."""
    unsupported: tuple[str, ...] = ()
    """Names of fields that the driver says it does not support."""


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


class Alert(Message, kw_only=True):
    """One condition that holds or held. `key` (rule + subject) is stable, so a client keeps one row for it."""

    key: str
    rule: str
    """`gpu_idle_held`, `gpu_lost`, `gpu_hot`, `gpu_throttled`, `gpu_xid`, `disk_full`, `node_silent`."""
    severity: Severity
    node: str
    gpu: str | None = None
    """The GPU's uuid where the alert is about one."""
    message: str
    """A sentence a person can act on."""
    reading: str | None = None
    """The reading that fired it, with its unit: `91 °C`, `12 %`."""
    threshold: str | None = None
    since: datetime
    """When the condition began to hold."""
    fired_at: datetime
    ended_at: datetime | None = None
    """None while it is active."""
    holders: tuple[str, ...] = ()
    usd_per_hour: str | None = None
    """What goes to waste per hour while it lasts; the client fills it in from its prices."""


class UsageRow(Message, kw_only=True):
    """Who held which GPU from `starts_at` (inclusive) to `ends_at` (exclusive), and how busy it was.

    For one GPU the rows of each moment have shares that sum to exactly 1, over the agent's whole life:
    `held` and `idle` while it was measured, `lost` while the driver could not reach it, `down` while nothing measured
    (agent not running, stalled, clock stepped: `reason` says which). A node without GPUs has rows of kind `host`
    with `gpu` None. Rows are immutable; (`node`, `meter`, `sequence`) names one for ever.
    """

    node: str
    sequence: int
    """From 1, without holes, in the order in which the rows were written."""
    starts_at: datetime
    ends_at: datetime
    gpu: str | None = None
    kind: UsageKind
    reason: str | None = None
    share: Decimal
    """Of one GPU, six places: 0.333333."""
    user: str | None = None
    project: str | None = None
    job: str | None = None
    gpu_seconds: Decimal
    """share x length, exact."""
    utilization_ratio: float | None = None
    """Time-weighted mean over the part that was measured; None if the driver never told."""
    energy_joules: float | None = None
    energy_source: EnergySource | None = None
    placement: int
    """Id of the `Placement` in force."""


class Placement(Message, kw_only=True):
    """What the node was, for pricing its rows. A change of any field makes a new one; ids count up per meter."""

    id: int
    node: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: Purchase | None = None
    usd_per_hour: str | None = None
    on_premises: OnPremises | None = None
    gpu_count: int
    """GPUs that share the node's price; 0 for a node without."""
    gpu_model: str | None = None
    tags: dict[str, str] = {}


class UsagePage(Message, kw_only=True):
    """`GET /v1/usage?after=SEQ&limit=N`: rows with a sequence above `after`, in order, and the placements they name."""

    node: str
    meter: str
    """Random name of this usage record; a wiped state directory gets a new one, and sequences start again."""
    rows: tuple[UsageRow, ...]
    placements: tuple[Placement, ...]
    last_sequence: int
    """The newest row that exists now; equal to the last row's sequence when the page is complete. 0: no row yet."""
    first_sequence: int = 1
    """The oldest row that is still kept."""


class HistoryPoint(Message, kw_only=True):
    """One GPU's past reading, for plots."""

    taken_at: datetime
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class History(Message, kw_only=True):
    """`GET /v1/history?seconds=N`: GPU uuid -> points, oldest first; `cpu` holds (taken_at, ratio) pairs of the host."""

    node: str
    step_seconds: float
    gpus: dict[str, tuple[HistoryPoint, ...]] = {}
    cpu: tuple[tuple[datetime, float | None], ...] = ()


class AlertList(Message, kw_only=True):
    """`GET /v1/alerts`: active ones first, then those that ended within the last hour."""

    node: str
    alerts: tuple[Alert, ...]


class Problem(Message, kw_only=True):
    """Body of every answer that is not 2xx: a sentence a person can act on."""

    error: str
    status: int


class NodeEvent(Message, kw_only=True, tag="node", tag_field="event"):
    """First in every stream, and again when identity or inventory change."""

    node: NodeInfo


class SampleEvent(Message, kw_only=True, tag="sample", tag_field="event"):
    sample: Sample


class AlertEvent(Message, kw_only=True, tag="alert", tag_field="event"):
    """An alert fired, changed or ended. Those active when the stream opens are sent after the node event."""

    alert: Alert


Event = NodeEvent | SampleEvent | AlertEvent
"""One line of `GET /v1/stream` (NDJSON, `application/x-ndjson`)."""

encoder = msgspec.json.Encoder()
event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """One NDJSON line, with its newline."""
    return encoder.encode(event) + b"\n"
