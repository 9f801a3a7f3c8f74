"""`agent.metrics`: parsed by prometheus-client's own parsers, and held to the rules of the format."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from agent import wire
from agent.errors import StateFull
from agent.metrics import render
from agent.runtime import NodeAgent
from agent.security import OWNER
from tests.support.agents import START, FakeAlerts, FakeMeter, alert, gpu, node_agent, sample
from tests.support.job_service import JobService

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def busy_agent() -> NodeAgent:
    agent = node_agent(alerts=(alerts := FakeAlerts()))
    alerts.fire(alert())
    process = wire.Process(
        pid=42, user="alice", command='train "x"\\\n\x1b[31m', memory_used_bytes=5_000, utilization_ratio=0.5, job="j-1"
    )
    first = gpu(
        utilization_ratio=0.97,
        memory_used_bytes=41_000_000_000,
        power_watts=653.25,
        energy_joules_total=1.5e9,
        temperature_celsius=61.0,
        throttle_reasons=("sw_power_cap",),
        xid_counts={"79": 2},
        pcie_receive_bytes_per_second=2.5e9,
        pcie_transmit_bytes_per_second=1.5e9,
        nvlinks=18,
        nvlinks_down=(3, 7),
        nvlink_receive_bytes_per_second=3e10,
        processes=(process, msgspec.structs.replace(process, kind="graphics", job=None), process),
        unsupported=("fan_ratio",),
    )
    lost = gpu(1, state="lost", reason="fell off the bus")
    agent.step(
        sample(
            7,
            first,
            lost,
            taken_at=datetime.now(timezone.utc),
            host=wire.Host(
                cpu_utilization_ratio=0.25,
                cpu_count=96,
                memory_total_bytes=64,
                boot_at=START,
                filesystems=(wire.Filesystem(mount="/", total_bytes=10, used_bytes=4, available_bytes=5),),
            ),
            sensors=(
                wire.SensorReport(name="nvml", ok=True, duration_seconds=0.004, taken_at=START),
                wire.SensorReport(name="host", ok=False, error="driver unresponsive for 7 s"),
            ),
        )
    )
    agent.jobs = busy_service()
    return agent


def busy_service() -> JobService:
    jobs = JobService(usd_per_hour=Decimal("2.5"))
    for name in ("fine-tune", 'x"\n', "waits", "over"):
        id = jobs.submit(wire.JobSpec(command=("train",), name=name, user="ada", gpus=2), OWNER).id
    jobs.end(id, left_behind=("the cgroup is still there",))
    jobs.taken = "waits for 2 GPUs"
    jobs.submit(wire.JobSpec(command=("train",)), OWNER)
    first = next(iter(jobs.kept))
    jobs.change(first, usage=wire.JobUsage(memory_peak_bytes=7_000, memory_limit_bytes=9_000))
    return jobs


def test_jobs_are_counted_by_state_and_running_ones_described() -> None:
    series = series_of(busy_agent())
    assert value(series, "rackrate_jobs", node="n1", state="running") == 3
    assert value(series, "rackrate_jobs", state="queued") == 1 and value(series, "rackrate_jobs", state="ended") == 1
    assert value(series, "rackrate_jobs", state="stopping") == 0
    assert value(series, "rackrate_jobs_left_behind", node="n1") == 1
    first = {"rackrate_job": "100000000001"}
    described = {"name": "fine-tune", "user": "ada", "state": "running", **first}
    assert [value for (one, have), value in series.items() if one == "rackrate_job_info" and described.items() <= dict(have).items()] == [1]
    assert value(series, "rackrate_job_gpus", **first) == 2 and value(series, "rackrate_job_cost_usd", **first) == 1.25
    assert value(series, "rackrate_job_memory_peak_bytes", **first) == 7_000
    assert value(series, "rackrate_job_memory_peak_bytes", rackrate_job="100000000002") is None
    assert value(series, "rackrate_job_gpus", rackrate_job="100000000004") is None, "it is over"
    assert not [name for name, _ in series_of(node_agent()) if name.startswith("rackrate_job")]


def series_of(agent: NodeAgent) -> Series:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in parse_text(render(agent).decode())
        for one in family.samples
    }


def find(series: Series, name: str, **labels: str) -> Iterator[float]:
    return (value for (one, have), value in series.items() if one == name and labels.items() <= dict(have).items())


def value(series: Series, name: str, **labels: str) -> float | None:
    return next(find(series, name, **labels), None)


def test_readings_appear_under_their_units() -> None:
    series = series_of(busy_agent())
    labels = {"node": "n1", "gpu_uuid": "GPU-0", "gpu": "0"}
    assert value(series, "rackrate_gpu_utilization_ratio", **labels) == 0.97
    assert value(series, "rackrate_gpu_memory_used_bytes", **labels) == 41_000_000_000
    assert value(series, "rackrate_gpu_power_watts", **labels) == 653.25
    assert value(series, "rackrate_gpu_energy_joules_total", **labels) == 1.5e9
    assert value(series, "rackrate_gpu_temperature_celsius", **labels) == 61
    assert value(series, "rackrate_gpu_xid_errors_total", xid="79", **labels) == 2
    assert value(series, "rackrate_gpu_info", model="NVIDIA T4", driver_version="550.54", **labels) == 1
    assert value(series, "rackrate_gpu_state", state="ok", **labels) == 1
    assert value(series, "rackrate_gpu_state", state="lost", **labels) == 0
    assert value(series, "rackrate_gpu_throttle_reason", reason="sw_power_cap", **labels) == 1
    assert value(series, "rackrate_gpu_throttle_reason", reason="hw_slowdown", **labels) == 0
    assert value(series, "rackrate_gpu_pcie_receive_bytes_per_second", **labels) == 2.5e9
    assert value(series, "rackrate_gpu_pcie_transmit_bytes_per_second", **labels) == 1.5e9
    assert value(series, "rackrate_gpu_nvlinks", **labels) == 18
    assert value(series, "rackrate_gpu_nvlinks_down", **labels) == 2
    assert value(series, "rackrate_gpu_nvlink_receive_bytes_per_second", **labels) == 3e10
    assert value(series, "rackrate_gpu_nvlink_transmit_bytes_per_second", **labels) is None
    assert value(series, "rackrate_gpu_nvlinks", gpu="1") is None
    assert value(series, "rackrate_host_cpu_utilization_ratio", node="n1") == 0.25
    assert value(series, "rackrate_host_filesystem_available_bytes", mount="/") == 5
    assert value(series, "rackrate_sensor_success", sensor="nvml") == 1
    assert value(series, "rackrate_sensor_success", sensor="host") == 0
    assert value(series, "rackrate_sensor_duration_seconds", sensor="nvml") == 0.004
    assert value(series, "rackrate_alert_active", rule="gpu_hot") == 1
    assert value(series, "rackrate_up") == 1
    assert value(series, "rackrate_build_info", version="0.1.0") == 1
    assert (value(series, "rackrate_agent_cpu_seconds_total") or 0) > 0
    assert (value(series, "rackrate_agent_memory_bytes") or 0) > 1_000_000


def test_processes_carry_the_job_under_a_label_of_our_own() -> None:
    series = series_of(busy_agent())
    assert value(series, "rackrate_process_memory_used_bytes", pid="42", user="alice", rackrate_job="j-1") == 5_000
    assert value(series, "rackrate_process_utilization_ratio", pid="42", kind="graphics", rackrate_job="") == 0.5
    assert value(series, "rackrate_gpu_processes", gpu="0") == 3


def test_what_is_not_known_is_absent() -> None:
    series = series_of(busy_agent())
    assert value(series, "rackrate_gpu_power_watts", gpu="1") is None
    assert value(series, "rackrate_gpu_fan_ratio") is None
    assert value(series, "rackrate_gpu_throttle_reason", gpu="1") is None
    assert value(series, "rackrate_gpu_processes", gpu="1") is None
    assert value(series, "rackrate_sensor_duration_seconds", sensor="host") is None
    assert value(series, "rackrate_gpu_field_supported", gpu="0", field="fan_ratio") == 0
    assert value(series, "rackrate_gpu_field_supported", gpu="0", field="power_watts") == 1
    assert value(series, "rackrate_gpu_field_supported", gpu="0", field="pcie_width") is None
    assert value(series, "rackrate_gpu_field_supported", gpu="1") is None
    assert value(series, "rackrate_gpu_state", gpu="1", state="lost") == 1


def test_no_family_is_empty_when_nothing_is_known() -> None:
    agent = node_agent()
    text = render(agent).decode()
    assert all(family.samples for family in parse_text(text))
    assert "rackrate_up" in text and "rackrate_gpu_utilization_ratio" not in text
    assert value(series_of(agent), "rackrate_up") == 0


@pytest.mark.parametrize("openmetrics", [False, True])
def test_each_family_has_one_help_and_type_and_stands_together(openmetrics: bool) -> None:
    text = render(busy_agent(), openmetrics=openmetrics).decode()
    order, helps, types = [], [], []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helps.append(line.split()[2])
        elif line.startswith("# TYPE "):
            types.append(line.split()[2])
            order.append(line.split()[2])
        elif not line.startswith("#"):
            assert line.startswith(order[-1].removesuffix("_total")), line
    assert helps == types and len(set(types)) == len(types)


def test_names_labels_and_types_follow_the_rules() -> None:
    for family in parse_text(render(busy_agent()).decode()):
        assert family.name.startswith("rackrate_") and family.documentation.endswith(".")
        for one in family.samples:
            assert one.name.endswith("_total") == (family.type == "counter"), one.name
            assert "node" in one.labels and not {"instance", "job"} & set(one.labels)
            assert not one.name.endswith(("_percent", "_mb", "_mhz", "_ms"))


def test_no_series_appears_twice() -> None:
    lines = [line.rsplit(" ", 1)[0] for line in render(busy_agent()).decode().splitlines() if not line.startswith("#")]
    assert len(set(lines)) == len(lines)


def test_openmetrics_is_valid_and_says_the_same() -> None:
    agent = busy_agent()
    text = render(agent, openmetrics=True).decode()
    assert text.endswith("# EOF\n")
    ours = {one.name for family in parse_openmetrics(text) for one in family.samples}
    plain = {one.name for family in parse_text(render(agent).decode()) for one in family.samples}
    assert ours == plain


def test_outside_text_is_escaped_and_cannot_add_lines() -> None:
    agent = busy_agent()
    assert agent.sample is not None
    nasty = wire.Process(pid=1, user='"} 1\nrackrate_up 0\n', command="\x00\udcff" + "x" * 5000, memory_used_bytes=1)
    agent.step(sample(8, gpu(processes=(nasty,))))
    text = render(agent).decode()
    assert "\nrackrate_up 0" not in text and "\x00" not in text
    assert max(map(len, text.splitlines())) < 600
    assert value(series_of(agent), "rackrate_process_memory_used_bytes", pid="1") == 1


def test_a_meter_that_cannot_write_shows(capsys: pytest.CaptureFixture[str]) -> None:
    meter = FakeMeter()
    agent = node_agent(meter=meter)
    meter.fault = StateFull("no space")
    agent.step(sample(1))
    series = series_of(agent)
    assert value(series, "rackrate_meter_success") == 0 and value(series, "rackrate_sensor_success", sensor="meter") == 0
    capsys.readouterr()


def test_no_gauge_ends_like_a_histogram() -> None:
    """promtool's rule: `_count`, `_sum` and `_bucket` belong to histograms and summaries."""
    text = render(busy_agent()).decode()
    gauges = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE") and line.endswith(" gauge")]
    assert "rackrate_host_cpus" in gauges
    assert not [name for name in gauges if name.endswith(("_count", "_sum", "_bucket"))]
