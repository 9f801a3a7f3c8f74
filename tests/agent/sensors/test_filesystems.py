"""File systems: each local device once, and never a wait for one that hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psutil
import pytest

from agent.sensors import filesystems as module
from agent.sensors.filesystems import FilesystemLane, filesystems


class Mount(NamedTuple):
    """One row of psutil's list of partitions."""

    device: str
    mountpoint: str
    fstype: str
    opts: str


TABLE = [
    Mount("overlay", "/", "overlay", "rw"),
    Mount("tmpfs", "/dev/shm", "tmpfs", "rw"),
    Mount("server:/home", "/home", "nfs4", "rw"),
    Mount("/dev/sda1", "/data/long/bind", "ext4", "rw"),
    Mount("/dev/sda1", "/data", "ext4", "rw"),
    Mount("/dev/sda1", "/etc/hosts", "ext4", "rw"),
    Mount("/dev/sdb1", "/media", "iso9660", "rw"),
    Mount("/dev/sdc1", "/frozen", "xfs", "ro,noatime"),
    Mount("/dev/sdd1", "/scratch", "xfs", "rw"),
]
VIRTUAL = ("overlay", "tmpfs", "nfs4")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A mount table with everything in it; collects the mounts that were asked for their size."""
    asked: list[str] = []

    def partitions(all: bool = False) -> list[Mount]:
        return [mount for mount in TABLE if all or mount.fstype not in VIRTUAL]

    def statvfs(path: str) -> Any:
        asked.append(path)
        return os.statvfs_result((4096, 4096, 1000, 300, 200, 0, 0, 0, 0, 255))

    monkeypatch.setattr(psutil, "disk_partitions", partitions)
    monkeypatch.setattr(module.os.path, "isdir", lambda path: path != "/etc/hosts")
    monkeypatch.setattr(module.os, "statvfs", statvfs)
    return asked


def test_each_local_writable_device_is_listed_once_under_its_shortest_mount(asked: list[str]) -> None:
    found = filesystems()
    assert [filesystem.mount for filesystem in found] == ["/", "/data", "/scratch"] == asked
    assert (found[1].total_bytes, found[1].used_bytes, found[1].available_bytes) == (1000 * 4096, 700 * 4096, 200 * 4096)


def test_remote_file_systems_are_never_asked(asked: list[str]) -> None:
    filesystems()
    assert "/home" not in asked


class Hanging:
    """A file system whose answer comes when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = 0

    def __call__(self) -> tuple[Any, ...]:
        self.asked += 1
        self.let_go.wait(600)
        return ()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(module, "filesystems", hanging)
    yield hanging
    hanging.let_go.set()


def test_a_file_system_that_hangs_is_not_waited_for_and_asked_once(hanging: Hanging) -> None:
    lane = FilesystemLane()
    lane.latest()
    begin = time.monotonic()
    while not hanging.asked:
        assert time.monotonic() - begin < 60
        time.sleep(0.005)
    assert [lane.latest() for _ in range(50)] == [()] * 50
    assert time.monotonic() - begin < 60 and hanging.asked == 1
    lane.close()


def test_a_look_that_fails_leaves_the_lane_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[Any, ...]:
        raise RuntimeError("no table")

    monkeypatch.setattr(module, "filesystems", fail)
    lane, before = FilesystemLane(), threading.enumerate()
    assert lane.latest() == ()
    (thread,) = (one for one in threading.enumerate() if one.name == "filesystems" and one not in before)
    assert thread.is_alive()
    lane.close()
    thread.join(60)
    assert not thread.is_alive()
