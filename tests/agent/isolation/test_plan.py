"""`agent.isolation.plan`: a plan is exactly what is done, on every kind of host (a folder in the kernel's place)."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent.errors import IsolationFault
from agent.isolation.group import Group, GroupError
from agent.isolation.host import HostIsolation, detect, nothing
from agent.isolation.limits import Limits, numbers, ranges, size, v1_shares
from agent.isolation.plan import GroupPlan, check, plan
from tests.support.fake_kernel import FakeKernel, legacy, machine, unified

UNIT = "job-0123456789ab_7-2"
GIB = 1 << 30
ALL = Limits(
    memory_bytes=8 * GIB + 1,
    cpu_ids=(4, 5, 6),
    numa_nodes=(1,),
    cpus=Decimal(3),
    cpu_quota=True,
    pids=4096,
    io_weight=200,
)
V2_WRITES = [
    ("cpuset.mems", "1"),
    ("cpuset.cpus", "4-6"),
    ("memory.max", str(8 * GIB)),
    ("memory.swap.max", "0"),
    ("memory.oom.group", "1"),
    ("cpu.weight", "300"),
    ("cpu.max", "300000 100000"),
    ("pids.max", "4096"),
    ("io.bfq.weight", "200"),
]


def look(folder: Path, *, systemd: bool = False) -> HostIsolation:
    places = {"proc": folder / "proc", "sys": folder / "sys", "dev": folder / "dev", "run": folder / "run"}
    return detect(folder / "cgroup", systemd=systemd, parent="rackrate-test", **places)


@pytest.fixture
def v2(tmp_path: Path) -> HostIsolation:
    machine(tmp_path)
    unified(tmp_path / "cgroup")
    return look(tmp_path)


@pytest.fixture
def hybrid(tmp_path: Path) -> HostIsolation:
    machine(tmp_path)
    legacy(tmp_path / "cgroup", "memory", "cpu,cpuacct", "cpuset", "pids", "blkio", "devices", "freezer")
    unified(tmp_path / "cgroup/unified", "hugetlb")
    return look(tmp_path)


@pytest.fixture
def systemd(tmp_path: Path) -> HostIsolation:
    machine(tmp_path)
    unified(tmp_path / "cgroup")
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    host = look(tmp_path, systemd=True)
    if host.enforcement == "none":
        pytest.skip(f"systemd-run is needed for its path: {host.reasons}")
    return host


def done_by(made: GroupPlan) -> list[list[str | None]]:
    """Every call that a start makes."""
    kernel = FakeKernel()
    group = Group(msgspec.json.decode(msgspec.json.encode(made.to_dict())), kernel)
    _, failed, steps = group.prepare()
    assert failed == []
    assert steps == kernel.calls
    group.enter()
    return kernel.calls


def planned(made: GroupPlan) -> list[list[str | None]]:
    return [[step.kind, step.path, step.text] for step in made.steps]


def leaf_writes(made: GroupPlan, leaf: str) -> list[tuple[str, str | None]]:
    return [
        (os.path.basename(step.path), step.text)
        for step in made.steps
        if step.kind == "write" and os.path.dirname(step.path) == leaf
    ]


def test_on_version_2_a_start_does_what_was_planned_in_an_order_that_the_kernel_takes(v2: HostIsolation) -> None:
    made = plan(v2, UNIT, ALL)
    assert done_by(made) == planned(made)
    leaf = f"{v2.root}/rackrate-test/{UNIT}"
    assert made.leaves == {"unified": leaf}
    assert leaf_writes(made, leaf) == V2_WRITES
    assert (made.not_enforced, made.unmet, made.launcher) == ((), (), ())
    assert made.limits == {
        "memory": "8.0 GiB",
        "cpus": "CPUs 4-6 and memory of NUMA node 1",
        "cpu_weight": "300",
        "cpu_quota": "3 CPUs of time",
        "pids": "4096",
        "io_weight": "200",
    }
    assert all(path.startswith("/") for _, path, _ in planned(made) if path)


def test_on_a_hybrid_host_limits_are_of_version_1_and_the_tree_of_version_2(hybrid: HostIsolation) -> None:
    made = plan(hybrid, UNIT, msgspec.structs.replace(ALL, device_paths=()))
    assert hybrid.enforcement == "hybrid"
    assert done_by(made) == planned(made)
    assert leaf_writes(made, made.leaves["memory"])[:2] == [
        ("memory.limit_in_bytes", str(8 * GIB)),
        ("memory.memsw.limit_in_bytes", str(8 * GIB)),
    ]
    assert made.leaves["cpu"] == made.leaves["cpuacct"] == f"{hybrid.root}/cpu,cpuacct/rackrate-test/{UNIT}"
    assert leaf_writes(made, made.leaves["cpu"]) == [
        ("cpu.shares", "3072"),
        ("cpu.cfs_period_us", "100000"),
        ("cpu.cfs_quota_us", "300000"),
    ]
    assert leaf_writes(made, made.leaves["blkio"]) == [("blkio.bfq.weight", "200")]
    assert "freezer" not in made.leaves
    assert [sentence for sentence in made.not_enforced if "kills one process" not in sentence] == []
    assert made.unmet == ()


def test_without_the_unified_tree_the_freezer_is_joined(tmp_path: Path) -> None:
    machine(tmp_path)
    legacy(tmp_path / "cgroup", "memory", "cpuset", "pids", "freezer")
    host = look(tmp_path)
    made = plan(host, UNIT, ALL)
    assert (host.enforcement, host.can_kill, made.shim_leaf) == ("v1", True, None)
    assert done_by(made) == planned(made)
    assert "freezer" in made.leaves
    assert len(made.unmet) == 3
    assert "the CPU weight of 300 is not enforced: this host has no cpu controller for jobs" in made.unmet


def test_a_scope_of_systemd_has_a_leaf_for_the_shim_and_one_for_the_job(systemd: HostIsolation) -> None:
    made = plan(systemd, UNIT, ALL)
    scope = f"{systemd.root}/rackrate.slice/rackrate-test.slice/rackrate-test-{UNIT}.scope"
    assert made.launcher[1:] == (
        "--scope",
        "--quiet",
        "--collect",
        f"--unit=rackrate-test-{UNIT}.scope",
        "--slice=rackrate-test.slice",
        "--property=Delegate=yes",
        "--property=TasksMax=infinity",
        "--",
    )
    assert made.launcher[0].endswith("systemd-run")
    assert (made.shim_leaf, made.leaves) == (f"{scope}/sup", {"unified": f"{scope}/job"})
    with pytest.raises(GroupError, match="cannot be made"):  # nobody made the scope
        done_by(made)
    unified(Path(scope), real_root=False)
    assert done_by(made) == planned(made)
    assert [path for kind, path, _ in planned(made) if kind == "enter"] == [
        f"{scope}/{leaf}/cgroup.procs" for leaf in ("sup", "job")
    ]
    assert leaf_writes(made, f"{scope}/job") == V2_WRITES
    assert not any((path or "").startswith(f"{systemd.root}/cgroup.") for _, path, _ in planned(made))


def test_a_controller_that_lacks_is_told_and_pinning_becomes_a_quota(tmp_path: Path) -> None:
    machine(tmp_path, bfq=False)
    unified(tmp_path / "cgroup", "cpu memory")
    made = plan(look(tmp_path), UNIT, Limits(cpu_ids=(1, 2), pids=100, io_weight=10, device_paths=("/dev/null",)))
    assert done_by(made) == planned(made)
    assert leaf_writes(made, made.leaves["unified"]) == [("cpu.max", "200000 100000")]
    assert made.unmet == (
        "the pinning to CPUs 1-2 is not enforced: this host has no cpuset controller for jobs",
        "the limit of 100 processes is not enforced: this host has no pids controller for jobs",
        "the I/O weight of 10 is not enforced: no disk of this node heeds weights "
        "(choose the scheduler bfq in /sys/block/DISK/queue/scheduler)",
    )
    assert "CUDA_VISIBLE_DEVICES" in made.not_enforced[3]
    assert "held to 2 CPUs of time" in made.not_enforced[4]


def test_swap_that_version_1_does_not_count_is_told(tmp_path: Path) -> None:
    machine(tmp_path, swap_kib=1 << 20)
    legacy(tmp_path / "cgroup")
    (tmp_path / "cgroup/memory/memory.memsw.limit_in_bytes").unlink()
    made = plan(look(tmp_path), UNIT, Limits(memory_bytes=GIB))
    assert done_by(made) == planned(made)
    assert made.unmet == ("the job may swap beyond its memory limit: boot with swapaccount=1",)


def test_without_limits_a_job_is_still_held_and_counted(v2: HostIsolation) -> None:
    made = plan(v2, UNIT, Limits())
    assert done_by(made) == planned(made)
    assert leaf_writes(made, made.leaves["unified"]) == []
    assert {step.text for step in made.steps if step.path.endswith("subtree_control")} == {"+cpu", "+memory", "+pids", "+io"}
    assert not any(step.required for step in made.steps if step.path.endswith("subtree_control"))


def test_where_nothing_is_enforced_each_limit_is_a_sentence() -> None:
    made = plan(nothing("this is a container"), UNIT, ALL)
    assert (made.enforcement, made.steps, made.leaves, made.limits, made.launcher) == ("none", (), {}, {}, ())
    assert len(made.unmet) == 6
    assert made.unmet[0] == "the memory limit of 8.0 GiB is not enforced: this is a container"


@pytest.mark.skipif(os.geteuid() != 0, reason="device files are made by root")
def test_other_gpus_are_denied_by_their_own_numbers(tmp_path: Path) -> None:
    machine(tmp_path)
    legacy(tmp_path / "cgroup", "devices", "memory")
    for number in range(2):
        (tmp_path / f"dev/nvidia{number}").unlink()
        os.mknod(tmp_path / f"dev/nvidia{number}", 0o666 | 0o020000, os.makedev(195, number))
    made = plan(look(tmp_path), UNIT, Limits(device_paths=(str(tmp_path / "dev/nvidia1"),)))
    assert leaf_writes(made, made.leaves["devices"]) == [("devices.deny", "c 195:0 rwm")]
    assert made.limits == {"gpus": "nvidia1"}


def test_a_plan_comes_back_whole_from_json(hybrid: HostIsolation) -> None:
    made = plan(hybrid, UNIT, ALL)
    assert GroupPlan.from_dict(msgspec.json.decode(msgspec.json.encode(made.to_dict()))) == made
    with pytest.raises(IsolationFault, match="no plan of cgroups"):
        GroupPlan.from_dict({"enforcement": "magic"})


@pytest.mark.parametrize(
    "unit", ["", "job-1-1", "../job-0123456789ab-1", "job-0123456789ab-", "job-0123456789AB-1", "job-0123456789ab-1/x"]
)
def test_a_unit_that_is_no_job_becomes_no_path(v2: HostIsolation, unit: str) -> None:
    with pytest.raises(IsolationFault, match="no name of a job's attempt"):
        plan(v2, unit, Limits())


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(memory_bytes=65 << 30), "a memory limit of 65.0 GiB is above the node's memory, 64.0 GiB"),
        (Limits(memory_bytes=100), "too small for any process to start"),
        (Limits(cpu_ids=(7, 8, 9)), "there is no CPU 8-9 for jobs here; there are 0-7"),
        (Limits(numa_nodes=(2,)), "there is no NUMA node 2 for jobs here; there are 0-1"),
        (Limits(cpus=Decimal("8.5")), "8.5 CPUs are more than the 8 that the node has for jobs"),
        (Limits(cpus=Decimal("0.001")), "0.001 CPUs is too little; the least is 0.01"),
        (Limits(pids=0), "a limit of 0 processes lets nothing start"),
        (Limits(pids=1 << 30), "above the kernel's own, 4194304"),
        (Limits(cpu_weight=0), "CPU weights go from 1 to 10000, so 0 is none"),
        (Limits(io_weight=10_001), "I/O weights go from 1 to 10000, so 10001 is none"),
        (Limits(device_paths=("/dev/nvidia77",)), "there is no device file /dev/nvidia77"),
    ],
)
def test_what_the_machine_does_not_have_is_refused(v2: HostIsolation, limits: Limits, words: str) -> None:
    found = check(v2, limits)
    assert len(found) == 1
    assert words in found[0]


def test_what_the_machine_has_is_good(v2: HostIsolation) -> None:
    assert check(v2, ALL) == []


def test_lists_of_cpus_are_written_as_the_kernel_writes_them() -> None:
    assert ranges((0, 3, 2, 1, 8, 10, 11)) == "0-3,8,10-11"
    assert numbers("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert (ranges(()), numbers("\n")) == ("", ())


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (64 << 30, "64.0 GiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_told_in_binary_units(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("weight", "shares"), [(100, 1024), (1, 10), (10_000, 102_400)])
def test_weights_become_shares(weight: int, shares: int) -> None:
    assert v1_shares(weight) == shares
