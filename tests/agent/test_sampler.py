"""The sampler never waits: a sensor that hangs or fails is reported, and the others stay live."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from agent import wire
from agent.sampler import Sampler
from agent.sensors import Reading
from tests.support.fake_nvml.state import PRESETS
from tests.support.nvml import ROOT, FakeNvml, fake_nvml  # noqa: F401  (a fixture)

GPU = wire.Gpu(index=0, uuid="GPU-1", model="H100", state="ok", utilization_ratio=0.5, processes=())


class FakeSensor:
    """A sensor whose next reading is told, which fails or hangs when told to."""

    interval_seconds = 0.01

    def __init__(self, name: str, reading: Reading, *, measures_gpus: bool = False) -> None:
        self.name = name
        self.subject = f"the {name}"
        self.measures_gpus = measures_gpus
        self.reading = reading
        self.fault: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.reads = self.closed = self.inside = self.most_inside = 0
        self.hangs = False

    def read(self) -> Reading:
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            self.hangs = not self.gate.is_set()
            self.gate.wait(600)
            self.hangs = False
            self.reads += 1
            if self.fault:
                raise self.fault
            return self.reading
        finally:
            self.inside -= 1

    def close(self) -> None:
        self.closed += 1


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


@contextmanager
def running(*sensors: FakeSensor, deadline_seconds: float = 5.0) -> Iterator[Sampler]:
    sampler = Sampler("n", sensors, deadline_seconds=deadline_seconds)
    sampler.start()
    yield sampler
    for sensor in sensors:
        sensor.gate.set()
    sampler.close()


@pytest.fixture
def host() -> FakeSensor:
    return FakeSensor("host", Reading(host=wire.Host(load_1m=1.0)))


@pytest.fixture
def gpus() -> FakeSensor:
    return FakeSensor("nvml", Reading(gpus=(GPU,)), measures_gpus=True)


def report(sample: wire.Sample, name: str) -> wire.SensorReport:
    return next(report for report in sample.sensors if report.name == name)


def test_a_sample_is_put_together_from_all_sensors(host: FakeSensor, gpus: FakeSensor) -> None:
    with running(host, gpus) as sampler:
        assert sampler.wait(60)
        sample = sampler.sample(7)
    assert (sample.node, sample.sequence, sample.gpus, sample.host) == ("n", 7, (GPU,), wire.Host(load_1m=1.0))
    assert [(r.name, r.ok, r.error) for r in sample.sensors] == [("host", True, None), ("nvml", True, None)]
    assert all(r.taken_at is not None and r.duration_seconds is not None for r in sample.sensors)


def test_before_the_first_reading_the_sample_says_so(host: FakeSensor, gpus: FakeSensor) -> None:
    sample = Sampler("n", [host, gpus]).sample(0)
    assert (sample.host, sample.gpus) == (None, ())
    assert sample.gpu_reason == "the nvml has not answered yet"
    assert [r.ok for r in sample.sensors] == [False, False]


def test_the_reason_for_no_gpus_reaches_the_sample(host: FakeSensor, gpus: FakeSensor) -> None:
    gpus.reading = Reading(gpus=(), gpu_reason="no driver")
    with running(host, gpus) as sampler:
        assert sampler.wait(60)
        sample = sampler.sample(1)
    assert (sample.gpus, sample.gpu_reason, report(sample, "nvml").ok) == ((), "no driver", True)


def test_a_sensor_that_fails_is_reported_alone_and_recovers(host: FakeSensor, gpus: FakeSensor) -> None:
    with running(host, gpus) as sampler:
        assert sampler.wait(60)
        gpus.fault = RuntimeError("it broke")
        until(lambda: not report(sampler.sample(1), "nvml").ok)
        sample = sampler.sample(2)
        assert report(sample, "nvml").error == "the nvml failed: it broke"
        assert report(sample, "host").ok and sample.host is not None
        gpus.fault = None
        until(lambda: report(sampler.sample(3), "nvml").ok)


def test_a_hanging_sensor_is_reported_never_waited_for_and_never_doubled(host: FakeSensor, gpus: FakeSensor) -> None:
    with running(host, gpus, deadline_seconds=0.1) as sampler:
        assert sampler.wait(60)
        gpus.gate.clear()
        until(lambda: "unresponsive for" in (report(sampler.sample(1), "nvml").error or ""))
        until(lambda: report(sample := sampler.sample(2), "host").ok and sample.host is not None)
        reads = host.reads
        until(lambda: host.reads > reads + 3)
        assert gpus.most_inside == 1
        gpus.gate.set()
        until(lambda: report(sampler.sample(3), "nvml").ok and sampler.sample(3).gpus == (GPU,))


def test_values_older_than_the_deadline_are_dropped_and_the_gpus_keep_their_identity(host: FakeSensor, gpus: FakeSensor) -> None:
    with running(host, gpus, deadline_seconds=0.1) as sampler:
        assert sampler.wait(60)
        gpus.gate.clear()
        host.gate.clear()
        until(lambda: "unresponsive" in (sampler.sample(1).gpus[0].reason or "") and sampler.sample(1).host is None)
        sample = sampler.sample(2)
    gpu = sample.gpus[0]
    assert (gpu.index, gpu.uuid, gpu.model, gpu.utilization_ratio, gpu.processes) == (0, "GPU-1", "H100", None, None)
    assert gpu.reason == sample.gpu_reason and "the nvml unresponsive for" in (gpu.reason or "")
    assert report(sample, "nvml").taken_at is not None


def test_a_failing_host_sensor_is_no_reason_about_gpus(host: FakeSensor) -> None:
    host.fault = OSError("no /proc")
    with running(host) as sampler:
        assert sampler.wait(60)
        assert sampler.sample(1).gpu_reason is None


def test_closing_closes_each_sensor_once_but_not_one_that_hangs(
    host: FakeSensor, gpus: FakeSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sampler._CLOSE_SECONDS", 3.0)
    sampler = Sampler("n", [host, gpus])
    sampler.start()
    assert sampler.wait(60)
    gpus.gate.clear()
    until(lambda: gpus.hangs)
    sampler.close()
    assert (host.closed, gpus.closed) == (1, 0)
    gpus.gate.set()


def test_a_sampler_that_never_started_can_be_closed(host: FakeSensor) -> None:
    Sampler("n", [host]).close()
    assert host.closed == 1


class Node:
    """The sampler's process, asked for samples."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child
        self.seconds: list[float] = []
        self.threads: list[int] = []

    def sample(self) -> wire.Sample:
        assert self._child.stdin is not None and self._child.stdout is not None
        print(file=self._child.stdin, flush=True)
        row = json.loads(self._child.stdout.readline())
        self.seconds.append(row["seconds"])
        self.threads.append(row["threads"])
        return msgspec.convert(row["sample"], wire.Sample)


def test_a_hanging_driver_call_leaves_the_host_live_and_is_reported(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hanging_node"],
        env=fake_nvml.environment(), cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with child:
        node = Node(child)
        until(lambda: len((sample := node.sample()).gpus) == 8 and sample.host is not None)  # all threads have begun
        threads = node.threads[-1]
        state["delay.nvmlDeviceGetPowerUsage"] = 600_000_000
        fake_nvml.write()
        until(lambda: "driver unresponsive for" in (report(node.sample(), "nvml").error or ""))
        until(lambda: {gpu.state for gpu in node.sample().gpus} == {"error"})
        first = report(node.sample(), "host").taken_at
        seen: list[wire.Sample] = []

        def host_is_live() -> bool:
            seen.append(node.sample())
            host = report(seen[-1], "host")
            return host.ok and host.taken_at not in (None, first)

        until(host_is_live)
        sample = seen[-1]
        assert sample.host is not None and sample.host.memory_total_bytes
        assert [gpu.uuid for gpu in sample.gpus] == [state[f"{n}.uuid"] for n in range(8)]
        assert "dmesg" in (sample.gpu_reason or "") and max(node.threads) <= threads
        assert statistics.median(node.seconds) < 0.4, "a sample never waits for it"
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(60) == 0
