"""The node as Prometheus metrics: prefix `rackrate_`, base units, one HELP and TYPE a family, no `instance` or `job` label.

Invariant: a reading that is not known has no series; `rackrate_gpu_field_supported` 0 tells it apart from a gap.
Escaping is left to prometheus-client; outside text is stripped of control characters and cut to `LONGEST_LABEL`.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import exposition
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_exposition

from agent import wire
from agent.metrics_jobs import job_families
from agent.runtime import NodeAgent

TEXT_TYPE = "text/plain; version=0.0.4"
"""The framework adds the charset to text."""
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
LONGEST_LABEL = 128
FRESH_SECONDS = 10.0
GPU_STATES = ("ok", "lost", "unsupported", "error")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_GPU_LABELS = ("node", "gpu_uuid", "gpu")
_PROCESS_LABELS = (*_GPU_LABELS, "pid", "kind", "user", "command", "rackrate_job")

_GPU_GAUGES = (
    ("utilization_ratio", "Part of the last sample period in which a kernel ran, 0 to 1."),
    ("memory_utilization_ratio", "Part of the last sample period in which memory was read or written, 0 to 1."),
    ("memory_used_bytes", "Memory in use, without the driver's reserve where it is told apart."),
    ("memory_total_bytes", "Memory of the GPU."),
    ("memory_reserved_bytes", "Memory that the driver keeps for itself."),
    ("power_watts", "Power that is drawn."),
    ("power_limit_watts", "Power limit in force."),
    ("temperature_celsius", "Temperature of the GPU."),
    ("fan_ratio", "Fan speed, 0 to 1 of the greatest."),
    ("clock_sm_hertz", "Clock of the streaming multiprocessors."),
    ("clock_memory_hertz", "Clock of the memory."),
    ("performance_state", "Performance state, 0 (most) to 15."),
    ("pcie_generation", "PCIe generation of the link now."),
    ("pcie_width", "PCIe lanes of the link now."),
    ("encoder_utilization_ratio", "Use of the video encoder, 0 to 1."),
    ("decoder_utilization_ratio", "Use of the video decoder, 0 to 1."),
    ("pcie_receive_bytes_per_second", "Bytes received over PCIe per second, measured over 20 ms about every ten seconds."),
    ("pcie_transmit_bytes_per_second", "Bytes sent over PCIe per second, measured over 20 ms about every ten seconds."),
    ("nvlinks", "NVLinks that the GPU has."),
    ("nvlink_receive_bytes_per_second", "Payload received over all NVLinks per second."),
    ("nvlink_transmit_bytes_per_second", "Payload sent over all NVLinks per second."),
)
_GPU_COUNTERS = (
    ("energy_joules_total", "Energy used since the driver was loaded."),
    ("ecc_corrected_total", "ECC errors corrected since the driver was loaded."),
    ("ecc_uncorrected_total", "ECC errors not corrected since the driver was loaded."),
)
_HOST_GAUGES = (
    ("cpu_utilization_ratio", "Use of all CPUs together, 0 to 1."),
    ("cpu_count", "Logical CPUs."),
    ("load_1m", "Load average of one minute."),
    ("load_5m", "Load average of five minutes."),
    ("load_15m", "Load average of fifteen minutes."),
    ("memory_total_bytes", "Memory of the machine."),
    ("memory_used_bytes", "Memory in use."),
    ("memory_available_bytes", "Memory that can be given to programs without swapping."),
    ("swap_total_bytes", "Swap space."),
    ("swap_used_bytes", "Swap space in use."),
    ("network_receive_bytes_per_second", "Bytes received per second, all physical interfaces."),
    ("network_transmit_bytes_per_second", "Bytes sent per second, all physical interfaces."),
    ("disk_read_bytes_per_second", "Bytes read from disks per second."),
    ("disk_write_bytes_per_second", "Bytes written to disks per second."),
)


def render(agent: NodeAgent, *, openmetrics: bool = False) -> bytes:
    """The exposition of one node: text format 0.0.4, or OpenMetrics 1.0."""
    write: Callable[[_Families], bytes] = openmetrics_exposition.generate_latest if openmetrics else exposition.generate_latest
    return write(_Families(agent))


class _Families:
    """What prometheus-client calls a registry: something with `collect`."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        return (family for family in _all_families(self._agent) if family.samples)


def _all_families(agent: NodeAgent) -> Iterator[Metric]:
    node = _label(agent.info.node)
    yield from _agent_families(agent, node)
    yield from _inventory_families(agent.info, node)
    yield from _alert_families(agent, node)
    yield from job_families(agent, node, _label)
    if agent.sample is None:
        return
    yield from _sensor_families(agent.sample, node)
    yield from _gpu_families(agent.sample, node)
    yield from _process_families(agent.sample, node)
    if agent.sample.host is not None:
        yield from _host_families(agent.sample.host, node)


def _agent_families(agent: NodeAgent, node: str) -> Iterator[Metric]:
    age = agent.sample_age_seconds
    fresh = float(age is not None and age < FRESH_SECONDS)
    yield _gauge("rackrate_up", "1 while the newest reading is less than ten seconds old.", {"node": node}, fresh)
    build = InfoMetricFamily("rackrate_build", "Version of the agent.", labels=("node",))
    version = agent.info.agent_version
    build.add_metric((node,), {"version": _label(version or ""), "python": platform.python_version()})
    yield build
    if agent.sample is not None:
        at = agent.sample.taken_at.timestamp()
        yield _gauge("rackrate_sample_timestamp_seconds", "When the newest reading was taken.", {"node": node}, at)
    meter_ok = float(agent.meter_error is None)
    yield _gauge("rackrate_meter_success", "1 while usage rows can be written.", {"node": node}, meter_ok)
    yield _gauge("rackrate_stream_listeners", "Open event streams.", {"node": node}, agent.listeners)
    cpu = CounterMetricFamily("rackrate_agent_cpu_seconds", "CPU time of the agent's process.", labels=("node",))
    cpu.add_metric((node,), time.process_time())
    yield cpu
    if (memory := _resident_bytes()) is not None:
        yield _gauge("rackrate_agent_memory_bytes", "Resident memory of the agent's process.", {"node": node}, memory)


def _inventory_families(info: wire.NodeInfo, node: str) -> Iterator[Metric]:
    placement = InfoMetricFamily("rackrate_node", "What the node is.", labels=("node",))
    facts = {
        name: _label(value)
        for name in ("cloud", "region", "zone", "instance_type", "purchase", "driver_version", "cuda_version", "kernel")
        if (value := getattr(info, name)) is not None
    }
    placement.add_metric((node,), facts)
    yield placement
    gpus = InfoMetricFamily("rackrate_gpu", "What the GPU is.", labels=_GPU_LABELS)
    for gpu in info.gpus:
        names = {"model": gpu.model, "pci_bus_id": gpu.pci_bus_id, "driver_version": info.driver_version}
        known = {name: _label(value) for name, value in names.items() if value is not None}
        gpus.add_metric(_gpu_labels(node, gpu), known)
    yield gpus


def _alert_families(agent: NodeAgent, node: str) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "rackrate_alert_active", "1 for each alert that holds and is not paused.", labels=("node", "rule", "severity", "gpu_uuid", "alert")
    )
    paused = GaugeMetricFamily(
        "rackrate_alert_paused", "1 for each alert that holds and is paused.", labels=("node", "rule", "severity", "gpu_uuid", "alert")
    )
    for alert in agent.active_alerts():
        labels = (node, _label(alert.rule), alert.severity, _label(alert.gpu or ""), _label(alert.key))
        (family if alert.paused_until is None else paused).add_metric(labels, 1)
    yield family
    yield paused
    yield _gauge("rackrate_node_drained", "1 while the node starts no new job.", {"node": node}, float(agent.info.drain is not None))


def _sensor_families(sample: wire.Sample, node: str) -> Iterator[Metric]:
    labels = ("node", "sensor")
    success = GaugeMetricFamily("rackrate_sensor_success", "1 if the source's last reading came off.", labels=labels)
    duration = GaugeMetricFamily("rackrate_sensor_duration_seconds", "How long its last reading took.", labels=labels)
    taken = GaugeMetricFamily("rackrate_sensor_timestamp_seconds", "When its reading in use was taken.", labels=labels)
    for sensor in {sensor.name: sensor for sensor in sample.sensors}.values():
        name = (node, _label(sensor.name))
        success.add_metric(name, float(sensor.ok))
        _add(duration, name, sensor.duration_seconds)
        _add(taken, name, sensor.taken_at.timestamp() if sensor.taken_at else None)
    yield from (success, duration, taken)


def _gpu_families(sample: wire.Sample, node: str) -> Iterator[Metric]:
    gpus = [(_gpu_labels(node, gpu), gpu) for gpu in sample.gpus]
    for field, text in _GPU_GAUGES:
        yield _fill(GaugeMetricFamily(f"rackrate_gpu_{field}", text, labels=_GPU_LABELS), gpus, field)
    for field, text in _GPU_COUNTERS:
        name = f"rackrate_gpu_{field.removesuffix('_total')}"
        yield _fill(CounterMetricFamily(name, text, labels=_GPU_LABELS), gpus, field)
    yield _xids(gpus)
    yield _states(gpus)
    yield _throttling(gpus)
    yield _links_down(gpus)
    yield _support(gpus)
    yield _holders(gpus)


_Family = GaugeMetricFamily | CounterMetricFamily
_Labelled = list[tuple[tuple[str, ...], wire.Gpu]]


def _xids(gpus: _Labelled) -> Metric:
    family = CounterMetricFamily("rackrate_gpu_xid_errors", "XID errors since the agent started.", labels=(*_GPU_LABELS, "xid"))
    for labels, gpu in gpus:
        for code, count in gpu.xid_counts.items():
            family.add_metric((*labels, _label(code)), count)
    return family


def _states(gpus: _Labelled) -> Metric:
    family = GaugeMetricFamily("rackrate_gpu_state", "1 for the state that the GPU is in.", labels=(*_GPU_LABELS, "state"))
    for labels, gpu in gpus:
        for state in GPU_STATES:
            family.add_metric((*labels, state), float(gpu.state == state))
    return family


def _throttling(gpus: _Labelled) -> Metric:
    family = GaugeMetricFamily(
        "rackrate_gpu_throttle_reason", "1 for each reason that holds the clocks down now.", labels=(*_GPU_LABELS, "reason")
    )
    for labels, gpu in gpus:
        if gpu.throttle_reasons is None:
            continue
        for reason in wire.THROTTLE_REASONS.values():
            family.add_metric((*labels, reason), float(reason in gpu.throttle_reasons))
    return family


def _links_down(gpus: _Labelled) -> Metric:
    family = GaugeMetricFamily("rackrate_gpu_nvlinks_down", "NVLinks that are not active.", labels=_GPU_LABELS)
    for labels, gpu in gpus:
        _add(family, labels, None if gpu.nvlinks is None else len(gpu.nvlinks_down))
    return family


def _support(gpus: _Labelled) -> Metric:
    family = GaugeMetricFamily(
        "rackrate_gpu_field_supported", "0 where the driver says that it does not tell this field.", labels=(*_GPU_LABELS, "field")
    )
    fields = [field for field, _ in (*_GPU_GAUGES, *_GPU_COUNTERS)]
    for labels, gpu in gpus:
        if gpu.state != "ok":
            continue
        missing = {_label(field) for field in gpu.unsupported}
        for field in dict.fromkeys((*fields, *sorted(missing))):
            if field in missing or getattr(gpu, field, None) is not None:
                family.add_metric((*labels, field), float(field not in missing))
    return family


def _holders(gpus: _Labelled) -> Metric:
    family = GaugeMetricFamily("rackrate_gpu_processes", "Processes that hold the GPU.", labels=_GPU_LABELS)
    for labels, gpu in gpus:
        _add(family, labels, None if gpu.processes is None else len(gpu.processes))
    return family


def _process_families(sample: wire.Sample, node: str) -> Iterator[Metric]:
    found = {
        (*_gpu_labels(node, gpu), *_process_labels(process)): process
        for gpu in sample.gpus
        for process in gpu.processes or ()
    }
    for field, text in (
        ("memory_used_bytes", "GPU memory of the process."),
        ("utilization_ratio", "Share of the SMs that the process had over the last second, 0 to 1."),
    ):
        yield _fill(GaugeMetricFamily(f"rackrate_process_{field}", text, labels=_PROCESS_LABELS), found.items(), field)


def _process_labels(process: wire.Process) -> tuple[str, ...]:
    texts = (process.user, process.command, process.job)
    return (str(process.pid), process.kind, *(_label(text or "") for text in texts))


def _host_families(host: wire.Host, node: str) -> Iterator[Metric]:
    for field, text in _HOST_GAUGES:
        name = "rackrate_host_cpus" if field == "cpu_count" else f"rackrate_host_{field}"  # `_count` is a histogram's
        yield _fill(GaugeMetricFamily(name, text, labels=("node",)), [((node,), host)], field)
    if host.boot_at is not None:
        yield _gauge("rackrate_host_boot_time_seconds", "When the machine started.", {"node": node}, host.boot_at.timestamp())
    mounts = {(node, _label(filesystem.mount)): filesystem for filesystem in host.filesystems}
    for field, text in (
        ("total_bytes", "Size of the file system."),
        ("used_bytes", "Bytes in use."),
        ("available_bytes", "Bytes that a user may still write."),
    ):
        name = f"rackrate_host_filesystem_{field}"
        yield _fill(GaugeMetricFamily(name, text, labels=("node", "mount")), mounts.items(), field)


def _fill(family: _Family, things: Iterable[tuple[tuple[str, ...], object]], field: str) -> Metric:
    for labels, thing in things:
        _add(family, labels, getattr(thing, field))
    return family


def _add(family: _Family, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, float(value))


def _gauge(name: str, text: str, labels: dict[str, str], value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def _gpu_labels(node: str, gpu: wire.Gpu | wire.GpuInventory) -> tuple[str, ...]:
    return (node, _label(gpu.uuid), str(gpu.index))


def _label(text: str) -> str:
    """Outside text as a label's value: no control characters, valid UTF-8, not endless."""
    cleaned = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return cleaned[:LONGEST_LABEL]


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
