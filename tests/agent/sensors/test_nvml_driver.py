"""Without a driver, or with a broken one, the GPU sensor says one sentence with the cause and the remedy, and looks again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.fake_nvml.state import PRESETS
from tests.support.nvml import FakeNvml, fake_nvml  # noqa: F401  (a fixture)


def pci_device(sys_root: Path, name: str, status: str, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    """A PCI device of /sys with its runtime power status."""
    device = sys_root / "bus/pci/devices" / name
    (device / "power").mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(kind + "\n")
    (device / "power/runtime_status").write_text(status + "\n")


@pytest.mark.parametrize(
    ("code", "cause", "remedy"),
    [
        (9, "not loaded", "modprobe nvidia"),
        (18, "different versions", "reboot"),
        (4, "may not use", "/dev/nvidia"),
        (999, "Unknown Error", "restart"),
        (20, "cannot be initialised", "dmesg"),
    ],
)
def test_a_failing_start_of_the_driver_is_one_sentence(fake_nvml: FakeNvml, code: int, cause: str, remedy: str) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    fake_nvml.state["fault.nvmlInit"] = code
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        reading = sensor.read()
    assert reading.gpus == () and reading.host is None
    assert cause in (reading.gpu_reason or "") and remedy in (reading.gpu_reason or "")
    assert "\n" not in (reading.gpu_reason or "")


def test_no_library_at_all_is_said_with_its_remedy(fake_nvml: FakeNvml) -> None:
    environment = {**fake_nvml.environment(), "LD_LIBRARY_PATH": ""}
    with fake_nvml.sensor(environment=environment) as sensor:
        assert "no NVIDIA driver is installed" in (sensor.read().gpu_reason or "")


def test_a_node_without_nvidia_hardware_is_told_from_one_without_driver(fake_nvml: FakeNvml) -> None:
    environment = {**fake_nvml.environment(), "LD_LIBRARY_PATH": ""}
    pci_device(fake_nvml.sys_root, "0000:00:1f.0", "active", vendor="0x8086")
    with fake_nvml.sensor(environment=environment) as sensor:
        assert "no NVIDIA GPU on its PCI bus" in (sensor.read().gpu_reason or "")
    pci_device(fake_nvml.sys_root, "0000:3b:00.0", "active")
    with fake_nvml.sensor(environment=environment) as sensor:
        assert "no NVIDIA driver is installed" in (sensor.read().gpu_reason or "")


def test_a_driver_without_gpus_is_said(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["4xT4"]())
    state["count"] = 0
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        reading = sensor.read()
        assert reading.gpus == () and "shows no GPU" in (reading.gpu_reason or "")
        state["count"] = 4
        fake_nvml.write()
        reading = sensor.read(5)
    assert len(reading.gpus or ()) == 4 and reading.gpu_reason is None


def test_a_driver_that_appears_is_found_after_thirty_seconds_and_not_asked_before(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    with fake_nvml.sensor(environment=fake_nvml.environment(FAKE_NVML_LOG=str(log))) as sensor:
        assert sensor.read().gpus == ()
        fake_nvml.use(PRESETS["4xT4"]())
        assert sensor.read(1).gpus == () and sensor.read(28).gpus == ()
        assert log.read_text().split().count("nvmlInit") == 1
        reading = sensor.read(1)
    assert [gpu.state for gpu in reading.gpus or ()] == ["ok"] * 4
    assert reading.gpu_reason is None and sensor.driver_version == "535.183.01"


def test_a_driver_that_is_unloaded_keeps_the_gpus_as_lost_until_it_is_back(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["4xT4"]())
    with fake_nvml.sensor() as sensor:
        uuids = [gpu.uuid for gpu in sensor.gpus()]
        state["fault.*.nvmlDeviceGetUtilizationRates"] = 1
        fake_nvml.write()
        reading = sensor.read(1)
        assert [(gpu.uuid, gpu.state) for gpu in reading.gpus or ()] == [(uuid, "lost") for uuid in uuids]
        assert "not loaded" in (reading.gpu_reason or "")
        del state["fault.*.nvmlDeviceGetUtilizationRates"]
        fake_nvml.write()
        assert {gpu.state for gpu in sensor.gpus(29)} == {"lost"}
        back = sensor.gpus(1)
    assert [(gpu.uuid, gpu.state) for gpu in back] == [(uuid, "ok") for uuid in uuids]


def test_sleeping_gpus_are_not_woken_to_be_measured(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    log = tmp_path / "calls"
    fake_nvml.use(PRESETS["4xT4"]())
    pci_device(fake_nvml.sys_root, "0000:01:00.0", "suspended")
    pci_device(fake_nvml.sys_root, "0000:01:00.1", "active", kind="0x040300")  # its sound function
    with fake_nvml.sensor(environment=fake_nvml.environment(FAKE_NVML_LOG=str(log))) as sensor:
        reading = sensor.read()
        assert reading.gpus == () and "powered down" in (reading.gpu_reason or "")
        assert not log.exists()
        (fake_nvml.sys_root / "bus/pci/devices/0000:01:00.0/power/runtime_status").write_text("active\n")
        assert len(sensor.gpus(30)) == 4


def test_one_gpu_that_is_awake_is_reason_enough_to_read(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["4xT4"]())
    pci_device(fake_nvml.sys_root, "0000:01:00.0", "suspended")
    pci_device(fake_nvml.sys_root, "0000:02:00.0", "active")
    with fake_nvml.sensor() as sensor:
        assert len(sensor.gpus()) == 4


def test_the_numa_node_comes_from_sys_where_the_driver_is_silent(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["4xT4"]())
    for gpu in range(4):
        del state[f"{gpu}.numa"]
    fake_nvml.write()
    for gpu, node in ((0, "1"), (1, "-1")):
        name = str(state[f"{gpu}.pci"])[4:].lower()
        pci_device(fake_nvml.sys_root, name, "active")
        (fake_nvml.sys_root / "bus/pci/devices" / name / "numa_node").write_text(node)
    with fake_nvml.sensor() as sensor:
        sensor.read()
    assert [gpu.numa_node for gpu in sensor.inventory] == [1, None, None, None]


def test_the_stand_in_is_not_in_this_process() -> None:
    assert "rackrate-fake-nvml" not in Path(f"/proc/{os.getpid()}/maps").read_text()
