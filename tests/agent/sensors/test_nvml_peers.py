"""Our readings next to those of nvitop and gpustat for the same state, field by field."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from tests.support.fake_nvml.state import PRESETS, G, M, State
from tests.support.nvml import FakeNvml, fake_nvml  # noqa: F401  (a fixture)

GPUSTAT = Path(sys.executable).parent / "gpustat"


@pytest.fixture
def pids() -> Iterator[list[int]]:
    """Pids of eight programs that live as long as the test."""
    children = [subprocess.Popen(["sleep", "120"]) for _ in range(8)]
    yield [child.pid for child in children]
    for child in children:
        child.kill()
        child.wait()


def node(pids: list[int]) -> State:
    """Eight H100s with a program each (two on GPU 3), no two figures alike."""
    state = PRESETS["8xH100"]()
    for gpu, pid in enumerate(pids):
        state.busy(gpu, (pid, (10 + gpu) * G, 50 + gpu, 10), utilization=60 + gpu)
        state.gpu(gpu, fan=40 + gpu, power=300_000 + 1000 * gpu, power__limit=650_000 + 1000 * gpu, clock__1=1200 + gpu)
        state.gpu(gpu, power__enforced=650_000 + 1000 * gpu)
    return state.busy(3, (pids[3], 13 * G, 53, 10), (pids[0], 2 * G, 7, 1), utilization=63)


def ours(fake: FakeNvml) -> tuple[wire.Gpu, ...]:
    with fake.sensor() as sensor:
        return sensor.gpus()


def nvitop(fake: FakeNvml) -> dict[int, dict[str, Any]]:
    rows = json.loads(fake.run([sys.executable, "-m", "tests.support.nvitop_reads"]))
    return {row["index"]: {key: value for key, value in row.items() if key != "shown"} for row in rows}


def gpustat(fake: FakeNvml) -> dict[int, dict[str, Any]]:
    return {row["index"]: row for row in json.loads(fake.run([str(GPUSTAT), "--json"]))["gpus"]}


def times(value: float | None, factor: float) -> int | None:
    """A figure in the peer's unit."""
    return None if value is None else round(value * factor)


def as_nvitop(gpu: wire.Gpu) -> dict[str, Any]:
    processes = [
        {"pid": p.pid, "memory": p.memory_used_bytes, "sm": times(p.utilization_ratio, 100), "user": p.user} for p in gpu.processes or ()
    ]
    return {
        "index": gpu.index, "name": gpu.model, "uuid": gpu.uuid, "utilization": times(gpu.utilization_ratio, 100),
        "memory_used": gpu.memory_used_bytes, "memory_total": gpu.memory_total_bytes, "power": times(gpu.power_watts, 1000),
        "limit": times(gpu.power_limit_watts, 1000), "temperature": gpu.temperature_celsius, "fan": times(gpu.fan_ratio, 100),
        "sm_clock": times(gpu.clock_sm_hertz, 1e-6), "processes": processes,
    }  # fmt: skip


def as_gpustat(gpu: wire.Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index, "name": gpu.model, "uuid": gpu.uuid, "utilization.gpu": times(gpu.utilization_ratio, 100),
        "memory.used": gpu.memory_used_bytes and gpu.memory_used_bytes // M,
        "memory.total": gpu.memory_total_bytes and gpu.memory_total_bytes // M,
        "power.draw": gpu.power_watts and int(gpu.power_watts),  # gpustat cuts the fraction off
        "enforced.power.limit": gpu.power_limit_watts and int(gpu.power_limit_watts),
        "temperature.gpu": gpu.temperature_celsius, "fan.speed": times(gpu.fan_ratio, 100),
        "utilization.enc": times(gpu.encoder_utilization_ratio, 100), "utilization.dec": times(gpu.decoder_utilization_ratio, 100),
    }  # fmt: skip


def gpustat_processes(row: dict[str, Any]) -> list[tuple[int, str, int | None]]:
    return sorted((process["pid"], process["username"], process["gpu_memory_usage"]) for process in row["processes"])


def our_processes(gpu: wire.Gpu) -> list[tuple[int, str | None, int | None]]:
    return [(p.pid, p.user, p.memory_used_bytes and p.memory_used_bytes // M) for p in gpu.processes or ()]


def test_nvitop_says_the_same_of_eight_busy_gpus(fake_nvml: FakeNvml, pids: list[int]) -> None:
    fake_nvml.use(node(pids))
    theirs, gpus = nvitop(fake_nvml), ours(fake_nvml)
    assert len(theirs) == len(gpus) == 8
    for gpu in gpus:
        assert as_nvitop(gpu) == theirs[gpu.index]


def test_gpustat_says_the_same_of_eight_busy_gpus(fake_nvml: FakeNvml, pids: list[int]) -> None:
    fake_nvml.use(node(pids))
    theirs, gpus = gpustat(fake_nvml), ours(fake_nvml)
    assert len(theirs) == len(gpus) == 8
    for gpu in gpus:
        row = theirs[gpu.index]
        assert as_gpustat(gpu) == {key: row[key] for key in as_gpustat(gpu)}
        assert our_processes(gpu) == gpustat_processes(row)


def test_with_a_lost_gpu_the_others_equal_the_peers(fake_nvml: FakeNvml, pids: list[int]) -> None:
    fake_nvml.use(node(pids).lost(5))
    theirs, stat, gpus = nvitop(fake_nvml), gpustat(fake_nvml), ours(fake_nvml)
    assert "lost" in stat[5]["name"].lower()
    assert (gpus[5].state, gpus[5].processes) == ("lost", None)
    for gpu in gpus:
        if gpu.index != 5:
            assert as_nvitop(gpu) == theirs[gpu.index]
            assert as_gpustat(gpu) == {key: stat[gpu.index][key] for key in as_gpustat(gpu)}


def test_memory_of_processes_that_the_driver_hides_is_unknown_to_all(fake_nvml: FakeNvml, pids: list[int]) -> None:
    fake_nvml.use(node(pids).busy(2, (pids[2], "na", 52, 10), utilization=62))
    fake_nvml.state.gpu(2, power=302_000)
    fake_nvml.write()
    theirs, stat, gpus = nvitop(fake_nvml), gpustat(fake_nvml), ours(fake_nvml)
    assert [process.memory_used_bytes for process in gpus[2].processes or ()] == [None]
    assert as_nvitop(gpus[2]) == theirs[2]
    assert our_processes(gpus[2]) == gpustat_processes(stat[2])


def test_an_h100_without_fan_has_none_for_all(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    theirs, stat, gpus = nvitop(fake_nvml), gpustat(fake_nvml), ours(fake_nvml)
    assert gpus[0].fan_ratio is theirs[0]["fan"] is stat[0]["fan.speed"] is None


def test_a_mig_parent_equals_nvitop(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    theirs = nvitop(fake_nvml)
    for gpu in ours(fake_nvml):
        assert as_nvitop(gpu) == theirs[gpu.index]
