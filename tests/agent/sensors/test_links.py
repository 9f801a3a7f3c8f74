"""PCIe throughput and NVLinks: read in a thread of their own, told with their moment, unsupported where they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from agent import wire
from tests.support.fake_nvml.state import PRESETS
from tests.support.nvml import FakeNvml, RemoteSensor, fake_nvml  # noqa: F401  (a fixture)

KIB = 1024


def until(sensor: RemoteSensor, index: int, holds, change: Callable[[], object] = lambda: None) -> wire.Gpu:
    """Reads until the slow lane has brought what is waited for.

    `change` goes before each look: a counter that moved once shows in one round alone, which a busy machine may not see.
    """
    deadline = time.monotonic() + 60
    while True:
        change()
        gpu = sensor.gpus()[index]
        if holds(gpu) or time.monotonic() > deadline:
            return gpu
        time.sleep(0.02)


def test_throughput_and_links_come_from_the_slow_lane_with_their_moment(fake_nvml: FakeNvml) -> None:
    state = PRESETS["8xH100"]()
    state.gpu(2, pcie__0=1_500, pcie__1=2_500).nvlink(2, 18, received_kib=0, sent_kib=0, down=(3, 7))
    fake_nvml.use(state)
    with fake_nvml.sensor(link_seconds=0.4) as sensor:
        gpu = until(sensor, 2, lambda gpu: gpu.nvlink_receive_bytes_per_second is not None)
        assert (gpu.pcie_receive_bytes_per_second, gpu.pcie_transmit_bytes_per_second) == (2_500_000, 1_500_000)
        assert (gpu.nvlinks, gpu.nvlinks_down, gpu.nvlink_receive_bytes_per_second) == (18, (3, 7), 0)
        assert gpu.links_at is not None and gpu.unsupported == ("fan_ratio",)
        for link in range(18):
            state[f"2.nvlink.{link}.state"] = int(link != 3)
        steps = count(1)

        def more() -> None:
            step = next(steps)
            fake_nvml.use(state.nvlink(2, 18, received_kib=step * 18 * 4000, sent_kib=step * 18 * 1000, down=(3,)))

        gpu = until(sensor, 2, lambda gpu: gpu.nvlink_receive_bytes_per_second, more)
        received, sent = gpu.nvlink_receive_bytes_per_second, gpu.nvlink_transmit_bytes_per_second
        assert received and sent and received == 4 * sent and 18 * 4000 * KIB / 30 < received, "per second since the reading before"
        assert until(sensor, 2, lambda gpu: gpu.nvlinks_down == (3,)).nvlinks_down == (3,), "asked again after six rounds"
        falling = count(18 * 3999, -18)
        less = lambda: fake_nvml.use(state.nvlink(2, 18, received_kib=next(falling)))  # noqa: E731
        gpu = until(sensor, 2, lambda gpu: gpu.nvlink_receive_bytes_per_second is None, less)
        assert gpu.nvlink_receive_bytes_per_second is None, "a counter that went down tells nothing"


def test_a_driver_that_does_not_sum_is_asked_link_by_link(fake_nvml: FakeNvml) -> None:
    state = PRESETS["8xA100"]()
    state.nvlink(0, 12)
    state.update({f"0.field.{field}.{2**32 - 1}": "!3" for field in (138, 139)})
    fake_nvml.use(state)
    with fake_nvml.sensor(link_seconds=0.3) as sensor:
        until(sensor, 0, lambda gpu: gpu.nvlink_receive_bytes_per_second == 0)
        steps = count(5000, 5000)

        def more() -> None:
            state.update(dict.fromkeys((f"0.field.139.{link}" for link in range(12)), next(steps)))
            fake_nvml.use(state)

        gpu = until(sensor, 0, lambda gpu: gpu.nvlink_receive_bytes_per_second, more)
    assert gpu.nvlink_receive_bytes_per_second and gpu.nvlink_transmit_bytes_per_second == 0


def test_a_gpu_without_links_and_without_the_functions_says_so(fake_nvml: FakeNvml) -> None:
    state = PRESETS["4xT4"]()
    state.update({f"1.pcie.{way}": "!3" for way in (0, 1)})
    state["2.field.91"] = 0
    fake_nvml.use(state)
    with fake_nvml.sensor(link_seconds=0.2) as sensor:
        gpu = until(sensor, 1, lambda gpu: "nvlinks" in gpu.unsupported)
        assert {"nvlinks", "nvlink_receive_bytes_per_second", "pcie_receive_bytes_per_second", "pcie_transmit_bytes_per_second"} <= set(gpu.unsupported)
        assert gpu.nvlinks is None and gpu.pcie_receive_bytes_per_second is None and gpu.state == "ok"
        none = until(sensor, 2, lambda gpu: gpu.nvlinks is not None)
        assert none.nvlinks == 0 and "nvlinks" not in none.unsupported


def test_a_driver_that_takes_long_for_pcie_delays_no_sample(fake_nvml: FakeNvml) -> None:
    state = PRESETS["8xH100"]()
    state["delay.nvmlDeviceGetPcieThroughput"] = 400_000
    fake_nvml.use(state)
    with fake_nvml.sensor(link_seconds=3600) as sensor:
        assert all(gpu.state == "ok" for gpu in sensor.gpus())
        assert sensor.gpus(1)[7].links_at is None, "the first round takes seconds, and nobody waits for it"
        lost = fake_nvml.use(state.lost(0))
        assert lost and sensor.gpus(1)[0].state == "lost" and sensor.gpus()[0].nvlinks is None
