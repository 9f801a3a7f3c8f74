"""MIG instances as the driver tells them: profile, slices, and their part of the GPU."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sensors.mig import WHOLE, Slices, parts
from tests.support.fake_nvml.state import PRESETS, G
from tests.support.nvml import FakeNvml, fake_nvml  # noqa: F401  (a fixture)

PROFILES = {"1g.5gb": Slices(1, 1, 1), "1g.10gb": Slices(1, 1, 2), "2g.10gb": Slices(2, 2, 2), "3g.20gb": Slices(3, 3, 4),
            "4g.20gb": Slices(4, 4, 4), "7g.40gb": Slices(7, 7, 8), "1c.3g.20gb": Slices(1, 3, 4)}  # fmt: skip


@given(st.lists(st.sampled_from(sorted(PROFILES)), max_size=12))
def test_the_parts_of_one_gpu_never_exceed_it_even_where_a_driver_tells_more_than_there_is(names: list[str]) -> None:
    assert sum(parts([PROFILES[name] for name in names], 7)) <= WHOLE


def test_parts_by_hand() -> None:
    def of(*names: str) -> list[int]:
        return parts([PROFILES[name] for name in names], 7)

    assert of("7g.40gb") == [WHOLE] and of() == []
    assert of("4g.20gb", "3g.20gb") == [535_714, 464_286]  # (4/7 + 4/8) / 2 and (3/7 + 4/8) / 2
    assert WHOLE - sum(of(*["1g.5gb"] * 7)) == 62_500  # an eighth of the memory is in no instance
    assert of("1c.3g.20gb", "1c.3g.20gb", "1c.3g.20gb") == [154_761, 154_762, 154_762]  # thirds of a 3g.20gb
    assert parts([Slices(1, 1, 2)] * 4, 4) == [250_000] * 4  # an A30


def test_each_instance_has_its_profile_and_share(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    with fake_nvml.sensor() as sensor:
        mixed, seven = sensor.gpus()
    assert [one.profile for one in mixed.mig_instances or ()] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
    assert [(one.compute_slices, one.memory_slices) for one in mixed.mig_instances or ()] == [(3, 4), (2, 2), (1, 1), (1, 1)]
    assert (mixed.mig_instances or ())[0].share == Decimal("0.464285")
    assert sum(one.share for one in seven.mig_instances or ()) == Decimal("0.9375")


@pytest.mark.parametrize("parent", ["lists all", "lists without instances", "may not list"])
def test_a_process_is_told_with_the_instance_in_which_it_runs(fake_nvml: FakeNvml, parent: str) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    fake_nvml.state.update({"0.mig.0.procs": f"1:{G}", "0.mig.2.procs": f"2:{G}"})
    if parent == "may not list":
        fake_nvml.state["0.procs"] = "!4"
    fake_nvml.write()
    hidden = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"]
    with fake_nvml.sensor(hidden if parent == "lists without instances" else ()) as sensor:
        gpu = sensor.gpus()[0]
    uuids = [one.uuid for one in gpu.mig_instances or ()]
    assert {process.pid: process.mig_instance for process in gpu.processes or ()} == {1: uuids[0], 2: uuids[2]}


def test_an_instance_that_was_made_since_the_last_look_is_known_when_a_process_runs_in_it(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["2xA100-mig"]())
    made = {key: state.pop(key) for key in [key for key in state if key.startswith("0.mig.3.")]}
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        assert len(sensor.gpus()[0].mig_instances or ()) == 3
        state.update({**made, "0.mig.3.procs": f"1:{G}"})
        fake_nvml.write()
        gpu = sensor.gpus(1)[0]
    assert len(gpu.mig_instances or ()) == 4
    assert [process.mig_instance for process in gpu.processes or ()] == [(gpu.mig_instances or ())[3].uuid]


def test_a_driver_that_does_not_tell_its_instances_leaves_the_rest_as_it_is(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["2xA100-mig"]())
    state["fault.0.nvmlDeviceGetMigDeviceHandleByIndex"] = 4
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        gpu = sensor.gpus()[0]
    assert gpu.state == "ok" and gpu.mig_instances is None and gpu.mig_enabled
