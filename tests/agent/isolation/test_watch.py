"""`agent.isolation.watch`: which changes are drift, and in which order and way they are put back (files in a folder)."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import IsolationFault
from agent.isolation.host import nothing
from agent.isolation.limits import Limits
from agent.isolation.plan import plan
from agent.isolation.watch import Drift, drifted, repair
from tests.support.fake_kernel import FakeKernel


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_what_reads_as_before_is_no_drift(tmp_path: Path) -> None:
    applied = {
        file(tmp_path, "memory.max", "100\n"): "100",
        file(tmp_path, "io.weight", "default 200\n"): "200",
        file(tmp_path, "cgroup.subtree_control", "cpu io memory\n"): "cpu memory",
        str(tmp_path / "gone/pids.max"): "5",
    }
    assert drifted(applied) == []


def test_each_file_tells_its_limit(tmp_path: Path) -> None:
    limits = {
        "memory.max": "memory",
        "memory.oom.group": "memory",
        "cpuset.cpus": "cpus",
        "cpu.weight": "cpu_weight",
        "cpu.shares": "cpu_weight",
        "cpu.max": "cpu_quota",
        "cpu.cfs_quota_us": "cpu_quota",
        "pids.max": "pids",
        "io.bfq.weight": "io_weight",
        "blkio.bfq.weight": "io_weight",
        "cgroup.subtree_control": "controllers",
    }
    applied = {file(tmp_path, name, "1") if name != "pids.max" else str(tmp_path / name): "2" for name in limits}
    found = drifted(applied)
    assert {Path(drift.path).name: drift.limit for drift in found} == limits
    assert next(drift for drift in found if drift.limit == "pids").found is None


def test_controllers_that_were_taken_away_are_enabled_again(tmp_path: Path) -> None:
    path = file(tmp_path, "cgroup.subtree_control", "cpu\n")
    written: list[tuple[str, str]] = []

    class Recording(FakeKernel):
        def write(self, path: str, text: str) -> None:
            written.append((path, text))

    for drift in drifted({path: "cpu memory"}):
        repair(drift, Recording())
    assert written == [(path, "+cpu +memory")]


def test_a_limit_below_what_is_used_is_not_set_back(tmp_path: Path) -> None:
    path = file(tmp_path, "memory.max", "max")
    file(tmp_path, "memory.current", "101")
    with pytest.raises(IsolationFault, match="was set to max and the job uses 101 bytes now"):
        repair(Drift(path, "100", "max", "memory"))
    assert Path(path).read_text() == "max"
    file(tmp_path, "memory.current", "99")
    repair(Drift(path, "100", "max", "memory"))
    assert Path(path).read_text() == "100"


def test_what_cannot_be_put_back_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(IsolationFault, match=r"pids\.max cannot be set back to '5' \(No such file or directory\)"):
        repair(Drift(str(tmp_path / "pids.max"), "5", None, "pids"))


def test_a_plan_without_groups_has_nothing_that_drifts() -> None:
    assert plan(nothing("a test"), "job-0123456789ab-1", Limits(pids=5)).steps == ()
    assert drifted({}) == []
