"""The host's readings: rates between two readings, nothing twice, unknown rather than 0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent import wire
from agent.sensors import host as host_module
from agent.sensors.host import HostSensor, physical_disks, physical_interfaces

CPU = "cpu {user} 0 {system} {idle} {iowait} 0 0 0 0 0\ncpu0 {user} 0 {system} {idle} {iowait} 0 0 0 0 0\nbtime 1700000000\n"


class Machine:
    """A made-up /proc and /sys, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "sys/kernel/random").mkdir(parents=True)
        (self.proc / "loadavg").write_text("0.50 1.25 2.00 1/100 4711\n")
        (self.proc / "sys/kernel/random/boot_id").write_text("a-boot\n")
        (self.proc / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A CPU\x1b[31m of ours\n")
        (self.proc / "meminfo").write_text(
            "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 0 kB\nCached: 0 kB\nShmem: 0 kB\n"
            "Active: 0 kB\nInactive: 0 kB\nSReclaimable: 0 kB\nSlab: 0 kB\nSwapTotal: 200 kB\nSwapFree: 150 kB\n"
        )
        (self.proc / "vmstat").write_text("pswpin 0\npswpout 0\n")
        self.seconds = 0.0
        self.counters(user=100, idle=900)

    def counters(self, *, user: int = 0, idle: int = 0, iowait: int = 0, network: dict[str, int] | None = None, disks: dict[str, int] | None = None) -> None:
        """Sets the counters: jiffies; bytes received (sent: twice that); sectors read (written: twice that)."""
        (self.proc / "stat").write_text(CPU.format(user=user, system=0, idle=idle, iowait=iowait))
        rows = "".join(f"{name}: {n} 0 0 0 0 0 0 0 {2 * n} 0 0 0 0 0 0 0\n" for name, n in (network or {}).items())
        (self.proc / "net/dev").write_text("Inter-| Receive\n face |bytes\n" + rows)
        rows = "".join(f"8 0 {name} 1 0 {n} 0 1 0 {2 * n} 0 0 0 0 0 0 0 0 0\n" for name, n in (disks or {}).items())
        (self.proc / "diskstats").write_text(rows)

    def device(self, path: str) -> None:
        """Gives an interface or a disk a device of its own."""
        (self.sys / path / "device").mkdir(parents=True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(psutil, "PROCFS_PATH", psutil.PROCFS_PATH)
    psutil.net_io_counters.cache_clear()
    psutil.disk_io_counters.cache_clear()
    return Machine(tmp_path)


@pytest.fixture
def read(machine: Machine) -> Iterator[Callable[[], wire.Host]]:
    sensor = HostSensor(proc_root=machine.proc, sys_root=machine.sys, clock=lambda: machine.seconds)

    def read() -> wire.Host:
        host = sensor.read().host
        assert host is not None
        return host

    yield read
    sensor.close()


def test_the_first_reading_has_no_rates(machine: Machine, read: Callable[[], wire.Host]) -> None:
    machine.device("class/net/eth0")
    machine.counters(user=1, idle=1, network={"eth0": 1000}, disks={"sda": 8})
    host = read()
    assert host.cpu_utilization_ratio is None
    assert host.network_receive_bytes_per_second is host.disk_read_bytes_per_second is None


def test_memory_load_and_swap_are_what_proc_says(machine: Machine, read: Callable[[], wire.Host]) -> None:
    host = read()
    assert (host.memory_total_bytes, host.memory_available_bytes, host.memory_used_bytes) == (1000 * 1024, 600 * 1024, 400 * 1024)
    assert (host.swap_total_bytes, host.swap_used_bytes) == (200 * 1024, 50 * 1024)
    assert (host.load_1m, host.load_5m, host.load_15m) == (0.5, 1.25, 2.0)
    assert host.boot_at is not None and host.boot_at.timestamp() == 1_700_000_000


def test_cpu_is_the_busy_part_and_waiting_for_a_disk_is_not_busy(machine: Machine, read: Callable[[], wire.Host]) -> None:
    machine.counters(user=100, idle=900, iowait=0)
    read()
    machine.counters(user=125, idle=950, iowait=25)
    assert read().cpu_utilization_ratio == pytest.approx(0.25)


def test_rates_are_bytes_per_second_of_whole_devices_once(machine: Machine, read: Callable[[], wire.Host]) -> None:
    for path in ("class/net/eth0", "class/net/eth1", "block/nvme0n1"):
        machine.device(path)
    before = {"eth0": 1000, "eth1": 0, "lo": 0, "bond0": 1000, "docker0": 0}
    machine.counters(network=before, disks={"nvme0n1": 0, "nvme0n1p1": 0, "dm-0": 0, "loop0": 0})
    read()
    machine.seconds += 2
    after = {"eth0": 3000, "eth1": 500, "lo": 9999, "bond0": 3500, "docker0": 9999}
    machine.counters(network=after, disks={"nvme0n1": 40, "nvme0n1p1": 40, "dm-0": 40, "loop0": 40})
    host = read()
    assert (host.network_receive_bytes_per_second, host.network_transmit_bytes_per_second) == (1250, 2500)
    assert (host.disk_read_bytes_per_second, host.disk_write_bytes_per_second) == (40 * 512 / 2, 80 * 512 / 2)


def test_an_interface_that_appears_counts_from_its_second_reading(machine: Machine, read: Callable[[], wire.Host]) -> None:
    for name in ("eth0", "eth1"):
        machine.device(f"class/net/{name}")
    machine.counters(network={"eth0": 1000})
    read()
    machine.seconds += 1
    machine.counters(network={"eth0": 1100, "eth1": 10**9})
    assert read().network_receive_bytes_per_second == 100
    machine.seconds += 1
    machine.counters(network={"eth0": 1100, "eth1": 10**9 + 50})
    assert read().network_receive_bytes_per_second == 50


def test_a_host_without_disks_has_no_disk_rate(machine: Machine, read: Callable[[], wire.Host]) -> None:
    read()
    machine.seconds += 1
    host = read()
    assert host.disk_read_bytes_per_second is None and host.network_receive_bytes_per_second is None


def test_a_virtual_function_under_its_synthetic_interface_is_counted_once(machine: Machine) -> None:
    machine.device("class/net/eth0")
    machine.device("class/net/enP1")
    (machine.sys / "class/net/enP1/master").symlink_to("../eth0")
    assert physical_interfaces(["lo", "eth0", "enP1"], machine.sys) == ["eth0"]


def test_in_a_container_all_but_virtual_interfaces_count(tmp_path: Path) -> None:
    assert physical_interfaces(["lo", "eth0", "veth12", "docker0"], tmp_path) == ["eth0"]
    assert physical_disks(["sda", "loop0"], tmp_path) == []


def test_a_source_that_fails_does_not_take_the_others_with_it(
    machine: Machine, read: Callable[[], wire.Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("no")

    for name in ("net_io_counters", "disk_io_counters", "cpu_times", "virtual_memory", "boot_time"):
        monkeypatch.setattr(host_module.psutil, name, fail)
    host = read()
    assert (host.memory_total_bytes, host.boot_at, host.cpu_utilization_ratio) == (None, None, None)
    assert host.load_1m == 0.5


def test_static_facts_are_named_as_in_node_info(machine: Machine) -> None:
    sensor = HostSensor(proc_root=machine.proc, sys_root=machine.sys)
    facts = sensor.describe()
    wire.NodeInfo(node="n", gpus=(), **facts)
    assert (facts["boot_id"], facts["cpu_model"], facts["memory_total_bytes"]) == ("a-boot", "A CPU[31m of ours", 1000 * 1024)
    assert facts["kernel"] == os.uname().release and "os" in facts


def test_the_real_host_is_read() -> None:
    sensor = HostSensor()
    host = sensor.read().host
    sensor.close()
    assert host is not None and host.memory_total_bytes == psutil.virtual_memory().total
    assert any(filesystem.mount == "/" for filesystem in host.filesystems)
    assert host.swap_total_bytes == psutil.swap_memory().total
