"""The sensor of `run --simulate PRESET`."""

from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from agent.sensors.simulated import SimulatedSensor
from agent.simulation.boards import PRESETS

NOON = 1_790_596_800.0 + 43_200


@pytest.mark.parametrize(("preset", "model", "count", "gib", "watts"), [
    ("8xH100", "NVIDIA H100 80GB HBM3", 8, 80, 700), ("8xA100", "NVIDIA A100-SXM4-40GB", 8, 40, 400),
    ("4xT4", "Tesla T4", 4, 15, 70), ("8xV100", "Tesla V100-SXM2-16GB", 8, 16, 300), ("1xL4", "NVIDIA L4", 1, 22, 72),
])  # fmt: skip
def test_a_preset_has_its_boards(preset: str, model: str, count: int, gib: int, watts: float) -> None:
    sensor = SimulatedSensor(preset, clock=lambda: NOON)
    gpus = sensor.read().gpus
    assert len(gpus) == count == len(sensor.inventory()) == len({gpu.uuid for gpu in gpus})
    assert [gpu.index for gpu in gpus] == list(range(count))
    for gpu, fixed in zip(gpus, sensor.inventory(), strict=True):
        assert (gpu.model, gpu.uuid) == (fixed.model, fixed.uuid) == (model, fixed.uuid)
        assert round(gpu.memory_total_bytes / 2**30) == gib and gpu.power_limit_watts == watts
    assert sensor.gpu_reason is None and sensor.driver_version and sensor.cuda_version


def test_two_sensors_with_one_seed_read_the_same() -> None:
    one, two = (SimulatedSensor("8xH100", 9, host=True, clock=lambda: NOON) for _ in range(2))
    assert one.read() == two.read()
    assert one.read() != SimulatedSensor("8xH100", 10, host=True, clock=lambda: NOON).read()


def test_a_node_without_gpus_gives_the_reason() -> None:
    sensor = SimulatedSensor("none")
    reading = sensor.read()
    assert reading.gpus == () and reading.gpu_reason == sensor.gpu_reason is not None
    assert sensor.driver_version is None


def test_the_host_is_left_to_another_sensor_unless_asked_for() -> None:
    assert SimulatedSensor("1xL4").read().host is None
    assert SimulatedSensor("1xL4", host=True).read().host is not None


def test_an_unknown_preset_is_one_sentence_with_all_presets() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SimulatedSensor("9xK80")
    assert all(name in str(caught.value) for name in PRESETS) and "9xK80" in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_preset_is_busy_at_some_time_of_a_working_day() -> None:
    for preset, (board, _) in PRESETS.items():
        sensor = SimulatedSensor(preset)
        readings = [sensor.read_at(int((NOON + k * 1200) * 1000)).gpus for k in range(-36, 36)]
        assert any(gpu.processes for reading in readings for gpu in reading) == (board is not None)
    sensor.close()
