"""`agent.isolation.group` on the real kernel: limits hold, kills reach everybody, nothing stays.

Runs in every way that this host offers; `make test-vm` runs the same on a version 2 kernel.
"""

from __future__ import annotations

import json
import os
import stat as stat_module
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent.errors import IsolationFault
from agent.isolation.group import Group, sweep
from agent.isolation.host import HostIsolation
from agent.isolation.limits import Limits
from agent.isolation.plan import plan
from agent.isolation.watch import drifted, events, repair
from tests.support.isolation import PARENT, child, clean, held, host_in, modes, new_unit, prepared, stat, wait

MIB = 1024 * 1024
STORM_SIZE = 120 if "RACKRATE_VM" in os.environ else 300  # user-mode Linux forks ten times slower
MODES = modes()
pytestmark = pytest.mark.skipif(MODES == ["none"], reason="no cgroup can be made here (needs root, and cgroups to write)")

EAT = "b = bytearray({} << 20); b[::4096] = b'x' * len(b[::4096])"
SWALLOW = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {EAT.format(300)!r}])"
STORM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    for _ in range(int(sys.argv[1])):
        try:
            if os.fork() == 0:
                if os.getpid() % 3 == 0:
                    os.setsid()
                break
        except OSError:
            time.sleep(0.01)
print("on", flush=True)
while True:
    time.sleep(0.1)
    try:
        if os.fork() == 0:
            os._exit(0)
        os.waitpid(-1, os.WNOHANG)
    except OSError:
        pass
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.close(1)
        time.sleep(600)
"""


@pytest.fixture(params=MODES)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostIsolation]:
    found = host_in(request.param, tmp_path)
    assert found.enforcement == request.param
    yield found
    clean(found)


def everywhere(host: HostIsolation) -> list[Path]:
    """The folders of our parent, in each hierarchy."""
    tops = [Path(folder) for folder in host.v1.values()] + ([host.unified] if host.unified else [])
    return [top / PARENT for top in tops if (top / PARENT).is_dir()]


def test_an_out_of_memory_kill_that_the_job_swallows_is_counted(host: HostIsolation) -> None:
    with held(host, Limits(memory_bytes=64 * MIB)) as job:
        assert not [failure for failure in job.failed if failure["limit"] != "memory"]
        first = job.run(SWALLOW)
        first.communicate()
        counters = job.group.counters()
    assert counters["oom_kills"] >= 1
    assert counters["memory_limit_bytes"] == 64 * MIB
    assert 32 * MIB < counters["memory_peak_bytes"] <= 65 * MIB
    assert first.returncode == (-9 if host.enforcement == "v2" else 0)  # version 2 kills the whole group


def test_a_job_within_its_memory_is_left_alone_and_counted(host: HostIsolation) -> None:
    with held(host, Limits(memory_bytes=128 * MIB)) as job:
        first = job.run(EAT.format(30))
        first.communicate()
        counters = job.group.counters()
    assert (first.returncode, counters["oom_kills"], counters["pids_refused"]) == (
        0,
        0,
        None if counters["pids_refused"] is None else 0,
    )
    assert counters["cpu_seconds"] > 0
    assert counters["io_read_bytes"] is not None


def test_an_out_of_memory_kill_in_a_group_of_the_jobs_own_is_counted(host: HostIsolation) -> None:
    with held(host, Limits(memory_bytes=64 * MIB)) as job:
        nested = Path(job.group.leaves.get("memory", job.group.leaves.get("unified", ""))) / "its own"
        nested.mkdir()
        code = f"import os; open({str(nested / 'cgroup.procs')!r}, 'w').write('0'); {EAT.format(300)}"
        first = job.run(code)
        first.communicate()
        assert first.returncode == -9
        assert job.group.counters()["oom_kills"] >= 1
        assert wait(job.group.empty)


def test_a_job_is_pinned_to_its_cpus_or_told_that_it_is_not(host: HostIsolation) -> None:
    cpu = host.capacity.cpu_ids[-1]
    with held(host, Limits(cpu_ids=(cpu,), numa_nodes=host.capacity.numa_nodes)) as job:
        first = job.run("import os; print(sorted(os.sched_getaffinity(0)))")
        out = first.communicate()[0].decode().strip()
        if "cpuset" in host.controllers:
            assert (out, job.plan.unmet) == (f"[{cpu}]", ())
        else:
            assert "no cpuset controller" in job.plan.unmet[0]
            assert "held to 1 CPUs of time" in job.plan.not_enforced[-1]
            assert "100000 100000" in job.applied.values()


def test_a_gpu_that_is_not_the_jobs_cannot_be_opened_where_devices_are_held(host: HostIsolation, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    for number, minor in enumerate((7, 5)):  # /dev/full and /dev/zero play two GPUs
        os.mknod(dev / f"nvidia{number}", 0o666 | stat_module.S_IFCHR, os.makedev(1, minor))
    limits = Limits(device_paths=(str(dev / "nvidia1"),))
    code = "import sys\nfor path in sys.argv[1:]:\n  try: open(path); print('open')\n  except PermissionError: print('denied')"
    with held(msgspec.structs.replace(host, dev=dev), limits) as job:
        first = job.run(code, str(dev / "nvidia0"), str(dev / "nvidia1"))
        out = first.communicate()[0].split()
        assert out == [b"denied" if "devices" in host.controllers else b"open", b"open"]
        assert ("CUDA_VISIBLE_DEVICES" in "".join(job.plan.not_enforced)) == ("devices" not in host.controllers)
        assert job.plan.unmet == ()


def test_a_fork_beyond_the_limit_fails_and_is_counted(host: HostIsolation) -> None:
    code = (
        "import os, time\nfor _ in range(9):\n  try:\n    if not os.fork(): time.sleep(600)\n"
        "  except OSError as e: os._exit(e.errno)"
    )
    with held(host, Limits(pids=4)) as job:
        first = job.run(code)
        assert first.wait(60) == 11
        assert len(job.group.pids()) == 3
        assert job.group.counters()["pids_refused"] >= 1
        assert events(job.plan.to_dict())["pids"] == 3
        job.group.kill()
        first.communicate()


def test_a_quota_throttles_and_is_counted(host: HostIsolation) -> None:
    with held(host, Limits(cpus=Decimal("0.2"), cpu_quota=True)) as job:
        first = job.run("while True: pass")
        assert wait(lambda: (job.group.counters()["throttled_seconds"] or 0) > 0.1)
        job.group.kill()
        first.communicate()
        assert job.plan.limits == {"cpu_weight": "20", "cpu_quota": "0.2 CPUs of time"}


def test_a_fork_storm_that_ignores_signals_is_dead_after_one_kill(host: HostIsolation) -> None:
    with held(host, Limits(pids=600)) as job:
        first = job.run(STORM, str(STORM_SIZE))
        assert wait(lambda: len(job.group.pids()) >= STORM_SIZE, 120)
        before = job.group.pids()
        job.group.kill()
        assert wait(job.group.empty)
        assert job.group.pids() == []
        first.communicate()
        assert not wait(job.group.pids, 0.2)  # nobody slipped and goes on
        assert wait(lambda: not [pid for pid in before if stat(pid)])  # out of the group a moment before it is dead
        assert job.group.counters()["pids_peak"] in (None, *range(STORM_SIZE, 601))


def test_a_daemon_in_a_session_of_its_own_is_found_and_killed(host: HostIsolation) -> None:
    with held(host, Limits()) as job:
        first = job.run(DAEMON)
        daemon = int(first.communicate()[0])
        assert first.returncode == 0
        assert wait(lambda: job.group.pids() == [daemon])
        assert not job.group.empty()
        assert not job.group.remove(0.05)
        job.group.kill()
        assert wait(job.group.empty)
        assert wait(lambda: stat(daemon) is None)
        assert job.group.remove()
        assert job.group.empty()
        assert set(job.group.counters().values()) <= {None, 0}


def test_groups_that_a_job_made_below_its_own_die_and_go_with_it(host: HostIsolation) -> None:
    with held(host, Limits(memory_bytes=64 * MIB)) as job:
        deep = Path(job.group.leaves.get("unified") or job.group.leaves["freezer"])
        for _ in range(30):
            deep = deep / "n"
            deep.mkdir()
        first = job.run(
            f"open({str(deep / 'cgroup.procs')!r}, 'w').write('0'); print(1, flush=True); import time; time.sleep(600)"
        )
        assert first.stdout is not None and first.stdout.readline() == b"1\n"
        assert job.group.pids() == [first.pid]
        job.group.kill()
        first.communicate()
        assert first.returncode == -9
        assert wait(job.group.empty)
        assert job.group.remove()
        assert not any(os.path.exists(leaf) for leaf in job.group.leaves.values())


def test_a_frozen_job_can_be_killed(host: HostIsolation) -> None:
    with held(host, Limits()) as job:
        first = job.run("print(1, flush=True); import time; time.sleep(600)")
        assert first.stdout is not None and first.stdout.readline() == b"1\n"
        v2 = host.unified is not None
        file = (
            Path(job.group.leaves["unified"]) / "cgroup.freeze" if v2 else Path(job.group.leaves["freezer"]) / "freezer.state"
        )
        file.write_text("1" if v2 else "FROZEN")
        job.group.kill()
        first.communicate()
        assert first.returncode == -9


def test_without_cgroup_kill_a_storm_is_frozen_and_killed(host: HostIsolation, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(host, Limits(pids=300)) as job:
        first = job.run(STORM, "100")
        assert wait(lambda: len(job.group.pids()) > 80, 60)
        kernel = job.group._kernel
        real = kernel.write

        def old_kernel(path: str, text: str) -> None:
            if path.endswith("cgroup.kill"):
                raise FileNotFoundError(2, "no such file")
            real(path, text)

        monkeypatch.setattr(kernel, "write", old_kernel)
        job.group.kill()
        assert wait(job.group.empty)
        first.communicate()


def test_what_is_done_is_what_was_planned(host: HostIsolation) -> None:
    limits = Limits(
        memory_bytes=100 * MIB + 5, cpu_ids=(0,), cpus=Decimal("1.5"), cpu_quota=True, pids=77, io_weight=250, device_paths=()
    )
    with held(host, limits) as job:
        planned = [[step.kind, step.path, step.text] for step in job.plan.steps]
        entries = [f"{leaf}/cgroup.procs" for leaf in dict.fromkeys(job.group.leaves.values())]
        skipped = [[one["path"], one["text"]] for one in job.failed]
        done = [step for step in planned if step[0] != "enter" or step[1] not in entries]
        assert job.steps == [step for step in done if step[1:] not in skipped]
        assert planned[-len(entries) :] == [["enter", path, "0"] for path in entries]
        for path, value in job.applied.items():
            assert set(value.split()) <= set(Path(path).read_text().split())
        first = job.run("print(1, flush=True); import time; time.sleep(600)")
        assert first.stdout is not None and first.stdout.readline() == b"1\n"
        for path in entries:
            assert Path(path).read_text().split() == [str(first.pid)]
        assert all(failure["limit"] == "memory" for failure in job.failed)
        job.group.kill()
        first.communicate()


def test_a_change_behind_our_back_is_seen_and_put_back(host: HostIsolation) -> None:
    limits = Limits(memory_bytes=64 * MIB, cpu_weight=200, cpus=Decimal(1), cpu_quota=True, pids=50)
    with held(host, limits) as job:
        assert drifted(job.applied) == []
        v1 = bool(host.v1)
        changes = {
            "memory.memsw.limit_in_bytes" if v1 else "memory.max": str(90 * MIB),
            "memory.limit_in_bytes" if v1 else "memory.swap.max": str(80 * MIB),
            "pids.max": "max",
            "cpu.shares" if v1 else "cpu.weight": "33",
        }
        found = {path.rpartition("/")[2]: path for path in job.applied}
        changed = {found[name]: text for name, text in changes.items() if name in found}
        for path, text in changed.items():
            Path(path).write_text(text)
        drifts = drifted(job.applied)
        assert {(drift.path, drift.found) for drift in drifts} == set(changed.items())
        assert {drift.limit for drift in drifts} == {"memory", "pids", "cpu_weight"}
        for drift in drifts:
            repair(drift)
        assert drifted(job.applied) == []
        if v1:  # lowered: the limit cannot go above that of memory and swap together
            Path(found["memory.limit_in_bytes"]).write_text(str(32 * MIB))
            Path(found["memory.memsw.limit_in_bytes"]).write_text(str(32 * MIB))
        else:
            Path(found["memory.max"]).write_text(str(32 * MIB))
        for drift in drifted(job.applied):
            repair(drift)
        assert drifted(job.applied) == []
    assert drifted(job.applied) == []  # a group that is gone has no drift


def test_a_repair_that_would_kill_the_job_is_refused(host: HostIsolation) -> None:
    with held(host, Limits(memory_bytes=64 * MIB)) as job:
        lifted = [path for path in job.applied if path.endswith(("memsw.limit_in_bytes", "memory.max"))]
        lifted += [path for path in job.applied if path.endswith("memory.limit_in_bytes")]
        for path in lifted:
            Path(path).write_text(str(512 * MIB))
        first = job.run(EAT.format(100) + "; print(1, flush=True); import time; time.sleep(600)")
        assert first.stdout is not None and first.stdout.readline() == b"1\n"
        drift = next(one for one in drifted(job.applied) if one.path == lifted[-1])
        with pytest.raises(IsolationFault, match="would kill it"):
            repair(drift)
        assert first.poll() is None
        job.group.kill()
        first.communicate()


def test_a_sweep_takes_unknown_units_and_spares_everything_else(host: HostIsolation) -> None:
    known, unknown = prepared(host, Limits()), prepared(host, Limits(memory_bytes=64 * MIB))
    jobs = [known.run(DAEMON), unknown.run(DAEMON)]
    daemons = [int(job.communicate()[0]) for job in jobs]
    names = ["job-x-1", "job-000000000000-1-2", "shims", "JOB-000000000000-1", "job-00000000000a", "other"]
    strangers = [folder / name for folder in everywhere(host) for name in names]
    for folder in strangers:
        folder.mkdir(exist_ok=True)
    beside = [folder.with_name(f"{PARENT}-beside") for folder in everywhere(host)]
    for folder in beside:
        (folder / "job-000000000009-1").mkdir(parents=True)
    try:
        assert sweep(str(host.root), PARENT, {known.plan.unit}) == [unknown.plan.unit]
        assert wait(lambda: stat(daemons[1]) is None) and stat(daemons[0]) is not None
        assert all(folder.is_dir() for folder in [*strangers, *beside])
        assert not any(os.path.exists(leaf) for leaf in unknown.group.leaves.values())
        assert all(os.path.exists(leaf) for leaf in known.group.leaves.values())
        assert sweep(str(host.root), PARENT, set()) == [known.plan.unit]
        assert wait(lambda: stat(daemons[0]) is None)
    finally:
        for folder in beside:
            (folder / "job-000000000009-1").rmdir()
            folder.rmdir()


def test_many_groups_made_and_removed_leave_none(host: HostIsolation) -> None:
    one = plan(host, new_unit(), Limits(memory_bytes=64 * MIB, cpu_ids=(0,), pids=10, cpus=Decimal(1)))
    answer = child("churn", one.to_dict(), one.unit, 1000 if host.enforcement == "hybrid" else 100)
    assert answer["left"] == []
    assert [entry for folder in everywhere(host) for entry in folder.glob("job-*")] == []


def test_a_leftover_of_the_same_name_is_replaced_or_refused(host: HostIsolation) -> None:
    first = prepared(host, Limits(memory_bytes=64 * MIB))
    again = child("prepare", first.plan.to_dict())
    assert again["steps"] == first.steps
    job = first.run(DAEMON)
    job.communicate()
    refused = child("prepare", first.plan.to_dict())
    assert "cannot be made" in refused["error"]
    assert len(first.group.pids()) == 1


def test_a_required_step_that_fails_leaves_nothing(host: HostIsolation) -> None:
    bad = plan(host, new_unit(), Limits(pids=5)).to_dict()
    wrong = next(step for step in bad["steps"] if step["path"].endswith("pids.max"))
    wrong["text"] = "several"
    answer = child("prepare", bad)
    assert "pids.max cannot be set to 'several' (Invalid argument)" in answer["error"]
    assert not any(os.path.exists(leaf) for leaf in Group(bad).leaves.values())


def test_the_shim_is_in_a_leaf_of_its_own(host: HostIsolation) -> None:
    made = plan(host, new_unit(), Limits(memory_bytes=64 * MIB)).to_dict()
    if made["shim_leaf"] is None:
        assert host.unified is None
        return
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\nfrom agent.isolation.group import Group\n"
        "group = Group(json.load(sys.stdin)); group.enter_shim(); group.prepare(); group.enter_shim()\n"
        "print(open('/proc/self/cgroup').read())\nassert group.empty() and group.remove()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(Path(__file__).parents[3])],
        input=json.dumps(made).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    assert f"0::/{PARENT}/shims" in done.stdout.decode().splitlines()


def test_the_group_is_light_and_needs_the_standard_library_alone() -> None:
    answer = child("weigh")
    assert answer["pss_bytes"] < 8_000_000
    heavy = {"re", "typing", "msgspec", "subprocess", "enum", "pathlib", "asyncio", "agent.errors", "agent.wire"}
    assert heavy & set(answer["modules"]) == set()
