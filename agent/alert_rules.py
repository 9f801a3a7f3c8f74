"""The rules: what each looks at in a sample, and what it says to a person.

Invariant: a reading that is not known gives the level `UNKNOWN`, so no rule can fire on it.
A rule only judges one sample; how long a judgement must hold, and when it ends, is the engine's part (`agent.alerts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Annotated, Literal, NamedTuple

import msgspec

from agent.alert_xids import xid
from agent.meter_driver import GPU_SENSORS
from agent.meter_holders import claimants
from agent.wire import Filesystem, Gpu, Host, Process, SensorReport, Severity

RuleName = Literal["gpu_idle_held", "gpu_lost", "gpu_hot", "gpu_throttled", "gpu_xid", "disk_full", "memory_full", "sensor_failing"]
Ratio = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=604_800.0)]
Celsius = Annotated[float, msgspec.Meta(ge=30.0, le=150.0)]
Degrees = Annotated[float, msgspec.Meta(ge=0.0, le=50.0)]

MISSING_SECONDS = 10.0
"""A GPU that is no longer listed is lost after this long: a driver that is being reloaded lists none for a moment."""
_POWER = {"sw_power_cap", "hw_power_brake_slowdown"}
_HEAT = {"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown"}


class Thresholds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When alerts fire and end: the table `[alerts]` of agent.toml. Values out of range are refused when it is read."""

    held_idle_ratio: Ratio = 0.20
    """`gpu_idle_held`: held and busy for less than this part of the time ..."""
    held_idle_seconds: Seconds = 600.0
    """... for so long; ends at `held_idle_ratio` + `held_idle_hysteresis_ratio`."""
    held_idle_hysteresis_ratio: Ratio = 0.05
    gpu_lost_seconds: Seconds = 0.0
    gpu_hot_celsius: Celsius = 85.0
    gpu_hot_hysteresis_celsius: Degrees = 5.0
    gpu_hot_seconds: Seconds = 0.0
    throttle_seconds: Seconds = 60.0
    throttle_clear_seconds: Seconds = 30.0
    """Ends when it was not throttled for so long."""
    xid_hold_seconds: Seconds = 3600.0
    """How long an XID stays active after it was last seen."""
    disk_full_ratio: Ratio = 0.90
    """Used part of what programs without special rights can use, as `df` prints it."""
    disk_full_hysteresis_ratio: Ratio = 0.02
    disk_critical_ratio: Ratio = 0.98
    memory_full_ratio: Ratio = 0.95
    memory_full_hysteresis_ratio: Ratio = 0.03
    memory_full_seconds: Seconds = 60.0
    sensor_failing_seconds: Seconds = 60.0
    unknown_seconds: Seconds = 300.0
    """How long an alert stays active, and a wait to fire is kept, while its reading is not known."""
    disabled: tuple[RuleName, ...] = ()
    """Rules that never fire."""


class Level(Enum):
    """Where a reading stands: at or past its threshold, between that and where an alert ends, clear of both, not known."""

    ABOVE = "above"
    BETWEEN = "between"
    BELOW = "below"
    UNKNOWN = "unknown"


class Texts(NamedTuple):
    message: str
    reading: str | None
    threshold: str


class Finding(NamedTuple):
    """One rule's judgement of one subject in one sample. `describe` gets the seconds it has held, and is called to fire."""

    rule: RuleName
    subject: str
    level: Level
    describe: Callable[[float], Texts]
    severity: Severity = "warning"
    for_seconds: float = 0.0
    clear_seconds: float = 0.0
    gpu: str | None = None
    holders: tuple[str, ...] = ()
    follows_holders: bool = False
    """Another set of users is another case: the wait begins anew."""
    since: datetime | None = None
    """When it began, where the reading itself says so."""

    @property
    def key(self) -> str:
        return f"{self.rule}:{self.subject}"


def gpu_findings(gpu: Gpu, limits: Thresholds, holders: tuple[str, ...]) -> Iterator[Finding]:
    """All that can be said of one GPU from one sample; `holders`: who held it last."""
    yield lost(gpu, limits, holders)
    if gpu.state == "lost":
        return
    yield idle_held(gpu, limits)
    yield hot(gpu, limits, holders)
    yield throttled(gpu, limits, holders, "power")
    yield throttled(gpu, limits, holders, "heat")


def host_findings(host: Host, limits: Thresholds) -> Iterator[Finding]:
    for filesystem in host.filesystems:
        yield disk_full(filesystem, limits)
    yield memory_full(host, limits)


def users_of(gpu: Gpu) -> tuple[str, ...]:
    """The users whose processes or jobs hold the GPU; empty where the driver does not tell."""
    parties = (*claimants(gpu.processes or ()), *gpu.allocations)
    return tuple(sorted({one.user for one in parties if one.user is not None}))


def lost(gpu: Gpu, limits: Thresholds, holders: tuple[str, ...]) -> Finding:
    def describe(seconds: float) -> Texts:
        why = _sentence(gpu.reason or "the driver cannot reach it; drain the node, then reset the GPU or reboot")
        hit = f" What {_and(holders)} ran on it has failed." if holders else ""
        return Texts(
            f"{_name(gpu)} is lost: {why}{hit} It costs its price all the same.",
            "lost", f"not reachable for {_for(limits.gpu_lost_seconds)}" if limits.gpu_lost_seconds else "reachable",
        )  # fmt: skip

    level = Level.ABOVE if gpu.state == "lost" else Level.BELOW
    return Finding("gpu_lost", gpu.uuid, level, describe, "critical", limits.gpu_lost_seconds, gpu=gpu.uuid, holders=holders)


def missing(gpu: Gpu, limits: Thresholds, holders: tuple[str, ...], reason: str | None) -> Finding:
    """`gpu` as it was last seen; it is not in the sample any more."""
    gone = Gpu(index=gpu.index, uuid=gpu.uuid, model=gpu.model, state="lost", reason=reason or "the driver does not list it any more")
    return lost(gone, limits, holders)._replace(for_seconds=max(MISSING_SECONDS, limits.gpu_lost_seconds))


def idle_held(gpu: Gpu, limits: Thresholds) -> Finding:
    busy, users = gpu.utilization_ratio, users_of(gpu)
    workers = [one for one in gpu.processes or () if one.kind != "graphics"]

    def describe(seconds: float) -> Texts:
        who = _and(users) if users else "processes whose user is not known"
        return Texts(
            f"{_name(gpu)} is held by {who} ({_process(workers) if workers else _jobs(gpu)}) but was less than {_percent(limits.held_idle_ratio)} busy for "
            f"{_for(seconds)}: end what is not needed, or let others share the GPU.",
            _percent(busy), f"under {_percent(limits.held_idle_ratio)} for {_for(limits.held_idle_seconds)}",
        )  # fmt: skip

    return Finding(
        "gpu_idle_held", gpu.uuid, _idle_level(gpu, bool(workers or gpu.allocations), limits), describe, "warning", limits.held_idle_seconds,
        gpu=gpu.uuid, holders=users, follows_holders=True,
    )  # fmt: skip


def _jobs(gpu: Gpu) -> str:
    return "job " + ", ".join(one.job for one in gpu.allocations)


def _idle_level(gpu: Gpu, held: bool, limits: Thresholds) -> Level:
    """A display server alone does not hold a GPU for this rule."""
    if gpu.processes is not None and not held:
        return Level.BELOW
    if not held or gpu.utilization_ratio is None:
        return Level.UNKNOWN
    if gpu.utilization_ratio < limits.held_idle_ratio:
        return Level.ABOVE
    kept = gpu.utilization_ratio < limits.held_idle_ratio + limits.held_idle_hysteresis_ratio
    return Level.BETWEEN if kept else Level.BELOW


def hot(gpu: Gpu, limits: Thresholds, holders: tuple[str, ...]) -> Finding:
    degrees = gpu.temperature_celsius
    fire, end = limits.gpu_hot_celsius, limits.gpu_hot_celsius - limits.gpu_hot_hysteresis_celsius

    def describe(seconds: float) -> Texts:
        return Texts(
            f"{_name(gpu)} is at {degrees:g} °C: check the airflow and the fans, or lower its power limit (nvidia-smi -pl).",
            f"{degrees:g} °C", f"{fire:g} °C, until below {end:g} °C",
        )  # fmt: skip

    level = _level(degrees, fire, end)
    return Finding("gpu_hot", gpu.uuid, level, describe, "warning", limits.gpu_hot_seconds, gpu=gpu.uuid, holders=holders)


def throttled(gpu: Gpu, limits: Thresholds, holders: tuple[str, ...], cause: Literal["power", "heat"]) -> Finding:
    reasons = gpu.throttle_reasons
    found = sorted(set(reasons or ()) & (_POWER if cause == "power" else _HEAT))

    def describe(seconds: float) -> Texts:
        advice = _heat_advice(gpu) if cause == "heat" else _power_advice(gpu, found)
        return Texts(
            f"{_name(gpu)} runs slower than it could because of {cause}, for {_for(seconds)}: {advice}.",
            ", ".join(found), f"for {_for(limits.throttle_seconds)}",
        )  # fmt: skip

    level = Level.UNKNOWN if reasons is None else Level.ABOVE if found else Level.BELOW
    severe = "hw_thermal_slowdown" in found or "hw_power_brake_slowdown" in found
    return Finding(
        "gpu_throttled", f"{gpu.uuid}:{cause}", level, describe, "critical" if severe else "warning", limits.throttle_seconds,
        limits.throttle_clear_seconds, gpu=gpu.uuid, holders=holders,
    )  # fmt: skip


def _heat_advice(gpu: Gpu) -> str:
    at = "" if gpu.temperature_celsius is None else f"it is at {gpu.temperature_celsius:g} °C; "
    return f"{at}check the airflow, the fans and the heat sink"


def _power_advice(gpu: Gpu, found: list[str]) -> str:
    if "hw_power_brake_slowdown" in found:
        return "the power supply asks for it; check the supplies and cables of the node"
    limit = "its power limit" if gpu.power_limit_watts is None else f"its power limit of {gpu.power_limit_watts:g} W"
    return f"it is at {limit}, which is usual under full load; if the limit was lowered, raise it with nvidia-smi -pl"


def xid_seen(gpu: Gpu, code: int, count: int, limits: Thresholds, holders: tuple[str, ...], held: bool) -> Finding:
    """`held`: seen within the time that an XID stays active."""
    known = xid(code)

    def describe(seconds: float) -> Texts:
        times = "once" if count == 1 else f"{count} times"
        return Texts(
            f"{_name(gpu)} reported XID {code}, {known.meaning}, {times} since the agent started: {known.action}.",
            f"XID {code}, {times}", f"none in {_for(limits.xid_hold_seconds)}",
        )  # fmt: skip

    level = Level.ABOVE if held else Level.BELOW
    since = gpu.xid_last_at if gpu.xid_last == code else None
    return Finding("gpu_xid", f"{gpu.uuid}:{code}", level, describe, known.severity, gpu=gpu.uuid, holders=holders, since=since)


def disk_full(filesystem: Filesystem, limits: Thresholds) -> Finding:
    usable = filesystem.used_bytes + filesystem.available_bytes
    used = filesystem.used_bytes / usable if usable > 0 else None

    def describe(seconds: float) -> Texts:
        return Texts(
            f"The file system {filesystem.mount} is {_percent(used)} full, {_size(filesystem.available_bytes)} are left: "
            "delete old checkpoints, caches and logs, or enlarge it.",
            _percent(used), f"{_percent(limits.disk_full_ratio)} used",
        )  # fmt: skip

    level = _level(used, limits.disk_full_ratio, limits.disk_full_ratio - limits.disk_full_hysteresis_ratio)
    severe = used is not None and used >= limits.disk_critical_ratio
    return Finding("disk_full", filesystem.mount, level, describe, "critical" if severe else "warning")


def memory_full(host: Host, limits: Thresholds) -> Finding:
    total, available = host.memory_total_bytes, host.memory_available_bytes
    used = None if not total or available is None else 1 - available / total

    def describe(seconds: float) -> Texts:
        return Texts(
            f"The memory of the host is {_percent(used)} used, {_size(available or 0)} are left: the kernel may soon end a job; "
            "use fewer data-loader workers or smaller caches.",
            _percent(used), f"{_percent(limits.memory_full_ratio)} used for {_for(limits.memory_full_seconds)}",
        )  # fmt: skip

    level = _level(used, limits.memory_full_ratio, limits.memory_full_ratio - limits.memory_full_hysteresis_ratio)
    return Finding("memory_full", "host", level, describe, "critical", limits.memory_full_seconds)


def sensor_failing(report: SensorReport, limits: Thresholds) -> Finding:
    def describe(seconds: float) -> Texts:
        what = "The GPUs cannot be read" if report.name in GPU_SENSORS else f"{report.name} brings no readings"
        why = _sentence(report.error or "it gives no reason")
        hint = " Look into the kernel log (dmesg) for XID or NVRM lines." if report.name in GPU_SENSORS else ""
        return Texts(f"{what} for {_for(seconds)}: {why}{hint}", report.error, f"for {_for(limits.sensor_failing_seconds)}")

    level = Level.BELOW if report.ok else Level.ABOVE
    return Finding("sensor_failing", report.name, level, describe, "warning", limits.sensor_failing_seconds)


def _level(value: float | None, fire: float, end: float) -> Level:
    if value is None:
        return Level.UNKNOWN
    if value >= fire:
        return Level.ABOVE
    return Level.BETWEEN if value >= end else Level.BELOW


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}" if gpu.model is None else f"GPU {gpu.index} ({gpu.model})"


def _process(processes: list[Process]) -> str:
    if not processes:
        return "no process"
    first = processes[0]
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    command = f" {first.command[:60]}" if first.command else ""
    return f"pid {first.pid}{command}{more}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _and(names: tuple[str, ...]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio * 100:.0f} %"


def _size(count: int) -> str:
    gigabytes = count / 1e9
    return f"{gigabytes:,.0f} GB" if gigabytes >= 10 else f"{gigabytes:.1f} GB"


def _for(seconds: float) -> str:
    """`45 s`, `10 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
