"""The GPUs of the stand-in driver, read through unmodified nvidia-ml-py, equal what its state file says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agent import wire
from tests.support.fake_nvml.state import PRESETS, G, M, State
from tests.support.nvml import FakeNvml, RemoteSensor, fake_nvml  # noqa: F401  (a fixture)

H100 = "NVIDIA H100 80GB HBM3"


def busy_node() -> State:
    """Eight H100s, each with figures of its own, so that no two GPUs can be confused."""
    state = PRESETS["8xH100"]()
    for gpu in range(8):
        state.gpu(gpu, util=10 * gpu, util__mem=5 * gpu, mem__used=(gpu + 1) * G, power=100_500 + gpu, power__enforced=650_000 + gpu)
        state.gpu(gpu, temp=40 + gpu, energy=123_456_789 * (gpu + 1), clock__1=1000 + gpu, clock__2=2600 + gpu, pstate=gpu % 4)
        state.gpu(gpu, fan=30 + gpu, pcie__gen=3 + gpu % 3, pcie__width=8 + gpu % 2 * 8, enc=gpu, dec=2 * gpu, throttle=1 << gpu)
        state.gpu(gpu, ecc__0__0=gpu, ecc__1__0=2 * gpu)
    return state


def by_index(gpus: tuple[wire.Gpu, ...]) -> dict[int, wire.Gpu]:
    return {gpu.index: gpu for gpu in gpus}


def test_every_field_of_eight_gpus_is_what_the_state_says(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(busy_node())
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    assert [gpu.index for gpu in gpus] == list(range(8))
    for n, gpu in enumerate(gpus):
        value = lambda key: state[f"{n}.{key}"]  # noqa: E731
        assert (gpu.uuid, gpu.model, gpu.state, gpu.reason) == (value("uuid"), H100, "ok", None)
        assert (gpu.utilization_ratio, gpu.memory_utilization_ratio) == (value("util") / 100, value("util.mem") / 100)
        assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (value("mem.used"), value("mem.total"))
        assert gpu.memory_reserved_bytes == value("mem.reserved")
        assert (gpu.power_watts, gpu.power_limit_watts) == (value("power") / 1000, value("power.enforced") / 1000)
        assert gpu.energy_joules_total == value("energy") / 1000
        assert (gpu.temperature_celsius, gpu.fan_ratio) == (value("temp"), value("fan") / 100)
        assert (gpu.clock_sm_hertz, gpu.clock_memory_hertz) == (value("clock.1") * 10**6, value("clock.2") * 10**6)
        assert (gpu.performance_state, gpu.pcie_generation, gpu.pcie_width) == (value("pstate"), value("pcie.gen"), value("pcie.width"))
        assert (gpu.encoder_utilization_ratio, gpu.decoder_utilization_ratio) == (value("enc") / 100, value("dec") / 100)
        assert gpu.throttle_reasons == (wire.THROTTLE_REASONS[1 << n],)
        assert (gpu.ecc_corrected_total, gpu.ecc_uncorrected_total) == (n, 2 * n)
        assert (gpu.mig_enabled, gpu.processes, gpu.unsupported, gpu.xid_counts) == (False, (), (), {})


def test_the_inventory_has_the_static_facts(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    with fake_nvml.sensor() as sensor:
        sensor.read()
    assert (sensor.driver_version, sensor.cuda_version) == ("550.90.07", "12.4")
    assert sensor.inventory[5] == wire.GpuInventory(
        index=5, uuid=state["5.uuid"], model=H100, memory_total_bytes=81559 * M, power_limit_watts=700.0,
        pci_bus_id=state["5.pci"], serial=str(state["5.serial"]), compute_capability="9.0",
        pcie_generation_max=5, pcie_width_max=16, numa_node=1, mig_enabled=False, clock_sm_max_hertz=1_980_000_000,
        clock_memory_max_hertz=2_619_000_000, persistence_enabled=True, display_active=False, compute_mode="default",
    )  # fmt: skip


def test_fast_fields_follow_each_second_and_slow_ones_each_five(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    with fake_nvml.sensor() as sensor:
        sensor.read()
        fake_nvml.use(state.gpu(3, util=97, ecc__1__0=4, power__enforced=500_000))
        after_one, after_five = sensor.gpus(1)[3], sensor.gpus(4)[3]
    assert (after_one.utilization_ratio, after_one.ecc_uncorrected_total, after_one.power_limit_watts) == (0.97, 0, 700)
    assert (after_five.utilization_ratio, after_five.ecc_uncorrected_total, after_five.power_limit_watts) == (0.97, 4, 500)


def test_static_facts_are_asked_once_and_pcie_throughput_not_with_them(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.use(PRESETS["4xT4"]())
    log = tmp_path / "calls"
    with fake_nvml.sensor(environment=fake_nvml.environment(FAKE_NVML_LOG=str(log)), link_seconds=3600) as sensor:
        for _ in range(12):
            sensor.read(1)
    called = log.read_text().split("\n")
    assert called.count("nvmlDeviceGetUUID 2") == called.count("nvmlDeviceGetSerial 2") == 1
    assert called.count("nvmlDeviceGetUtilizationRates 2") == 12
    assert called.count("nvmlDeviceGetTotalEccErrors 2") == 2 * 3
    assert called.count("nvmlDeviceGetPcieThroughput 2") == 2, "once each way, by the slow lane's own thread"
    assert called.count("nvmlInit") == called.count("nvmlShutdown") == 1


def test_a_gpu_whose_handle_is_lost_from_the_first_moment_has_a_placeholder_uuid(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100-lost"]())
    with fake_nvml.sensor() as sensor:
        gpus = by_index(sensor.gpus())
    assert (gpus[5].state, gpus[5].uuid, gpus[5].processes) == ("lost", "lost-index-5", None)
    assert "GPU is lost" in (gpus[5].reason or "")
    assert all(gpus[n].state == "ok" and gpus[n].utilization_ratio == 0 for n in range(8) if n != 5)


@pytest.mark.parametrize("code", [15, 999])
def test_a_lost_gpu_keeps_its_uuid_and_comes_back(fake_nvml: FakeNvml, code: int) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    with fake_nvml.sensor() as sensor:
        before = sensor.gpus()[5]
        fake_nvml.use(state.lost(5, code))
        lost, still_lost = sensor.gpus(1), sensor.gpus(1)
        del state["fault.5.*"]
        fake_nvml.use(state)
        unlooked, back = sensor.gpus(1)[5], sensor.gpus(5)[5]
    for gpu in (lost[5], still_lost[5], unlooked):
        assert (gpu.state, gpu.index, gpu.uuid, gpu.model) == ("lost", 5, before.uuid, H100)
        assert gpu.reason and gpu.utilization_ratio is gpu.power_watts is gpu.processes is None
    assert [gpu.state for gpu in lost].count("ok") == 7
    assert (back.state, back.reason, back.uuid, back.utilization_ratio) == ("ok", None, before.uuid, 0)
    assert sensor.inventory[5].uuid == before.uuid


def test_a_call_that_says_lost_is_enough_to_lose_the_gpu(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    with fake_nvml.sensor() as sensor:
        sensor.read()
        state["fault.2.nvmlDeviceGetComputeRunningProcesses"] = 15
        fake_nvml.write()
        assert [gpu.state for gpu in sensor.gpus(1)] == ["ok", "ok", "lost", "ok", "ok", "ok", "ok", "ok"]


@pytest.mark.parametrize(("code", "word"), [(16, "reset"), (17, "blocked"), (4, "/dev/nvidia3")])
def test_a_gpu_that_is_refused_for_another_reason_is_in_error_with_the_remedy(fake_nvml: FakeNvml, code: int, word: str) -> None:
    fake_nvml.use(PRESETS["8xH100"]().lost(3, code))
    with fake_nvml.sensor() as sensor:
        gpu = sensor.gpus()[3]
    assert gpu.state == "error" and word in (gpu.reason or "")


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", ("utilization_ratio", "memory_utilization_ratio")),
        ("nvmlDeviceGetPowerUsage", ("power_watts",)),
        ("nvmlDeviceGetTotalEnergyConsumption", ("energy_joules_total",)),
        ("nvmlDeviceGetTemperature", ("temperature_celsius",)),
        ("nvmlDeviceGetComputeRunningProcesses", ("processes",)),
        ("nvmlDeviceGetCurrentClocksEventReasons", ("throttle_reasons",)),
        ("nvmlDeviceGetTotalEccErrors", ("ecc_corrected_total", "ecc_uncorrected_total")),
        ("nvmlDeviceGetMigMode", ("mig_enabled",)),
    ],
)
def test_one_unsupported_field_is_none_and_named_and_the_rest_lives(
    fake_nvml: FakeNvml, function: str, fields: tuple[str, ...]
) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    fake_nvml.state[f"fault.1.{function}"] = 3
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        for gpus in (sensor.gpus(), sensor.gpus(1), sensor.gpus(5)):
            assert gpus[1].state == "ok"
            assert all(getattr(gpus[1], field) is None for field in fields)
            assert set(fields) <= set(gpus[1].unsupported)
            assert not set(fields) & set(gpus[0].unsupported)
            assert gpus[1].memory_total_bytes == 81559 * M


def test_a_field_that_fails_for_another_reason_is_unknown_but_not_unsupported(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    fake_nvml.state["fault.1.nvmlDeviceGetPowerUsage"] = 999
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        gpu = sensor.gpus()[1]
    assert (gpu.state, gpu.power_watts, "power_watts" in gpu.unsupported) == ("ok", None, False)


def test_sentinels_and_garbage_become_none(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]())
    garbage = dict(util=4294967295, util__mem=101, power="na", energy="na", temp=100_000, fan=4294967295, clock__1=4294967295)
    fake_nvml.state.gpu(0, **garbage, enc=255, pstate=32, pcie__gen=0, ecc__0__0="na", throttle="na", mem__total="na", mem__used="na")
    fake_nvml.state.gpu(1, mem__used="na")
    fake_nvml.state.gpu(2, mem__total=0)
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    names = (
        "utilization_ratio", "memory_utilization_ratio", "power_watts", "energy_joules_total", "temperature_celsius", "fan_ratio",
        "clock_sm_hertz", "encoder_utilization_ratio", "performance_state", "pcie_generation", "ecc_corrected_total",
        "throttle_reasons", "memory_total_bytes", "memory_used_bytes",
    )  # fmt: skip
    assert {name: getattr(gpus[0], name) for name in names} == dict.fromkeys(names)
    assert (gpus[1].memory_used_bytes, gpus[1].memory_total_bytes) == (None, 81559 * M)
    assert (gpus[2].memory_used_bytes, gpus[2].memory_total_bytes) == (None, None)
    assert all(gpu.state == "ok" for gpu in gpus)


def test_a_mig_parent_has_no_utilisation_rather_than_none_at_work(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["2xA100-mig"]())
    fake_nvml.state.gpu(1, util=0, util__mem=0)  # a driver that answers 0 for the parent
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    for gpu in gpus:
        assert gpu.mig_enabled is True and gpu.state == "ok"
        assert gpu.utilization_ratio is None and gpu.memory_utilization_ratio is None
        assert "utilization_ratio" in gpu.unsupported
        assert gpu.power_watts == 40


@pytest.mark.parametrize("total", [None, "host"])
def test_unified_memory_is_never_the_hosts(fake_nvml: FakeNvml, total: str | None) -> None:
    host = 128 * G
    state = fake_nvml.use(PRESETS["1xGB10"]())
    state["0.procs"] = f"1:{3 * G}:10:0 2:{2 * G}:10:0"
    if total:
        state.gpu(0, name="A GPU of tomorrow", mem__total=host - G, mem__used=100 * G)
    fake_nvml.write()
    with fake_nvml.sensor(host_memory_bytes=host) as sensor:
        for gpu in (sensor.gpus()[0], sensor.gpus(1)[0]):
            assert (gpu.memory_used_bytes, gpu.memory_total_bytes, gpu.memory_reserved_bytes) == (5 * G, None, None)
            assert {"memory_total_bytes", "memory_used_bytes"} <= set(gpu.unsupported)
            assert (gpu.state, gpu.utilization_ratio) == ("ok", 0)
    assert sensor.inventory[0].memory_total_bytes is None


def test_a_t4_on_a_node_of_the_same_size_is_not_unified(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["4xT4"]())
    with fake_nvml.sensor(host_memory_bytes=15360 * M + 1) as sensor:
        assert sensor.gpus()[0].memory_total_bytes == 15360 * M


OLD = {
    "no memory v2": ["nvmlDeviceGetMemoryInfo_v2"],
    "no lists v3": [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")],
    "no lists v2": [f"nvmlDeviceGet{kind}RunningProcesses_v{n}" for kind in ("Compute", "Graphics", "MPSCompute") for n in (2, 3)],
    "no event reasons": ["nvmlDeviceGetCurrentClocksEventReasons"],
    "no energy, no MIG": ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMigMode", "nvmlDeviceGetNumaNodeId"],
}


@pytest.mark.parametrize("hide", OLD.values(), ids=OLD.keys())
def test_an_old_driver_without_newer_functions_is_read(fake_nvml: FakeNvml, hide: list[str]) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(2, (1, 40 * G, 95, 40), (2, "na", 1, 0)))
    fake_nvml.state.gpu(2, procs__mps=f"3:{G}")
    fake_nvml.write()
    with fake_nvml.sensor(hide=hide) as sensor:
        gpu = sensor.gpus()[2]
    assert gpu.state == "ok" and gpu.utilization_ratio == 0.97
    assert [(p.pid, p.kind, p.memory_used_bytes) for p in gpu.processes or ()] == [
        (1, "compute", 40 * G), (2, "compute", None), (3, "mps", G),
    ]  # fmt: skip
    old_memory = "nvmlDeviceGetMemoryInfo_v2" in hide
    assert gpu.memory_used_bytes == 40 * G + 4 * M + (551 * M if old_memory else 0)
    assert gpu.memory_reserved_bytes == (None if old_memory else 551 * M)
    assert ("memory_reserved_bytes" in gpu.unsupported) == old_memory
    assert gpu.throttle_reasons == ()
    no_energy = "nvmlDeviceGetTotalEnergyConsumption" in hide
    assert ("energy_joules_total" in gpu.unsupported, gpu.energy_joules_total is None) == (no_energy, no_energy)


def test_the_process_rows_of_driver_535_are_not_swapped(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["8xH100"]().busy(0, (1, G, 5, 1), (2, 2 * G, 5, 1)))
    fake_nvml.state["layout"] = "535"
    fake_nvml.write()
    with fake_nvml.sensor(hide=["nvmlDeviceGetRunningProcessDetailList"]) as sensor:
        processes = sensor.gpus()[0].processes or ()
    assert [(process.pid, process.memory_used_bytes) for process in processes] == [(1, G), (2, 2 * G)]


def test_a_name_that_is_not_utf_8_is_read_with_replacement(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["4xT4"]())
    raw = str(state).encode().replace(b"1.name=Tesla T4", b"1.name=Tesla \xff\x1b[31mT4")
    fake_nvml.path.write_bytes(raw)
    with fake_nvml.sensor() as sensor:
        gpus = sensor.gpus()
    assert [gpu.model for gpu in gpus[:2]] == ["Tesla T4", "Tesla \ufffd[31mT4"]


def wait_for_xids(sensor: RemoteSensor, index: int, counts: dict[str, int]) -> wire.Gpu:
    deadline = time.monotonic() + 60
    while True:
        gpu = sensor.gpus()[index]
        if gpu.xid_counts == counts or time.monotonic() > deadline:
            return gpu
        time.sleep(0.02)


def test_every_xid_is_counted_also_the_same_one_again(fake_nvml: FakeNvml) -> None:
    state = fake_nvml.use(PRESETS["8xH100"]())
    with fake_nvml.sensor() as sensor:
        sensor.read()
        for sequence, code, expected in ((1, 79, {"79": 1}), (2, 79, {"79": 2}), (3, 13, {"79": 2, "13": 1})):
            fake_nvml.use(state.gpu(4, xid=f"{sequence}:{code}"))
            gpu = wait_for_xids(sensor, 4, expected)
            assert (gpu.xid_counts, gpu.xid_last) == (expected, code) and gpu.xid_last_at is not None
        assert sensor.gpus()[3].xid_counts == {}
        fake_nvml.use(state.lost(4))
        lost = sensor.gpus(1)[4]
    assert (lost.state, lost.xid_counts, lost.xid_last) == ("lost", {"79": 2, "13": 1}, 13)


def test_a_driver_that_reports_no_xids_says_so(fake_nvml: FakeNvml) -> None:
    fake_nvml.use(PRESETS["4xT4"]())
    fake_nvml.state["fault.1.nvmlDeviceRegisterEvents"] = 3
    fake_nvml.write()
    with fake_nvml.sensor() as sensor:
        sensor.read()
        gpus = sensor.gpus(5)
    assert "xid_counts" in gpus[1].unsupported and "xid_counts" not in gpus[0].unsupported
