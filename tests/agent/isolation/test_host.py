"""`agent.isolation.host`: what holds jobs here, and, where nothing does, why and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.isolation import systemd as sd
from agent.isolation.host import HostIsolation, describe, detect, settle
from tests.support.fake_kernel import legacy, machine, unified
from tests.support.isolation import ROOT

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="what root may and others may not")


def look(folder: Path, *, systemd: bool | None = False, parent: str = "rackrate") -> HostIsolation:
    places = {"proc": folder / "proc", "sys": folder / "sys", "dev": folder / "dev", "run": folder / "run"}
    return detect(folder / "cgroup", systemd=systemd, parent=parent, **places)


def with_systemd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(sd.shutil, "which", lambda name: f"/usr/bin/{name}")


def test_version_2_with_all_controllers(tmp_path: Path) -> None:
    machine(tmp_path)
    host = look(_unified(tmp_path))
    assert (host.enforcement, host.can_kill, host.crowded, host.reasons) == ("v2", True, False, ())
    assert host.controllers == {"cpu", "cpuset", "io", "memory", "pids"}
    assert (host.capacity.memory_bytes, host.capacity.cpu_ids, host.capacity.numa_nodes) == (64 << 30, tuple(range(8)), (0, 1))
    assert describe(host) == "cgroups version 2: cpu, cpuset, io, memory, pids"


def _unified(folder: Path, controllers: str = "cpuset cpu io memory pids", **more: object) -> Path:
    unified(folder / "cgroup", controllers, **more)  # type: ignore[arg-type]
    return folder


def test_a_controller_that_lacks_is_a_reason(tmp_path: Path) -> None:
    machine(tmp_path)
    host = look(_unified(tmp_path, "cpu memory"))
    assert "gives no cpuset and no io and no pids controller" in describe(host)


def test_systemd_is_used_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path)
    _unified(tmp_path)
    assert look(tmp_path, systemd=None).enforcement == "v2"
    with_systemd(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    host = look(tmp_path, systemd=None)
    assert (host.enforcement, host.systemd) == ("systemd", sd.Systemd(manager="system", root=tmp_path / "cgroup"))
    assert look(tmp_path, systemd=False).enforcement == "v2"


def test_a_user_gets_scopes_of_his_own_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path)
    _unified(tmp_path)
    with_systemd(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_: False)
    host = look(tmp_path, systemd=None)
    assert host.enforcement == "none"
    assert "loginctl enable-linger 1000" in describe(host)
    (tmp_path / "run/user/1000/systemd").mkdir(parents=True)
    (tmp_path / "run/user/1000/systemd/private").touch()
    folder = unified(tmp_path / "cgroup/user.slice/user-1000.slice/user@1000.service", "memory pids", real_root=False)
    host = look(tmp_path, systemd=None)
    assert (host.enforcement, host.root, host.controllers) == ("systemd", folder, {"memory", "pids"})
    assert host.systemd is not None
    argv = sd.launcher(host.systemd, "rackrate", "job-0123456789ab-1", delegate=True)
    assert argv[:4] == ("/usr/bin/env", f"XDG_RUNTIME_DIR={tmp_path}/run/user/1000", "/usr/bin/systemd-run", "--user")


def test_systemd_that_is_asked_for_and_does_not_run_is_told(tmp_path: Path) -> None:
    machine(tmp_path)
    host = look(_unified(tmp_path), systemd=True)
    assert (host.enforcement, host.reasons) == ("none", ("systemd does not run this machine",))
    assert 'isolation = "auto"' in (host.remedy or "")


def test_a_hybrid_host(tmp_path: Path) -> None:
    machine(tmp_path, kernel="5.4.0")
    legacy(tmp_path / "cgroup", "memory", "cpu,cpuacct", "pids", "freezer")
    unified(tmp_path / "cgroup/unified", "")
    host = look(tmp_path)
    assert (host.enforcement, host.can_kill) == ("hybrid", True)
    assert host.v1["cpu"] == host.v1["cpuacct"] == str(tmp_path / "cgroup/cpu,cpuacct")
    assert "no cpuset controller" in describe(host)
    assert "no cgroup.kill" in describe(host)


def test_a_hybrid_host_under_systemd_starts_shims_in_scopes_for_their_life_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent.isolation.limits import Limits
    from agent.isolation.plan import plan

    machine(tmp_path)
    legacy(tmp_path / "cgroup")
    unified(tmp_path / "cgroup/unified", "")
    with_systemd(tmp_path, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    host = look(tmp_path, systemd=None)
    made = plan(host, "job-0123456789ab-1", Limits(pids=9))
    assert (host.enforcement, made.shim_leaf) == ("hybrid", None)
    assert "--scope" in made.launcher
    assert not any("Delegate" in word for word in made.launcher)


def test_nothing_mounted_is_told(tmp_path: Path) -> None:
    machine(tmp_path)
    host = look(tmp_path)
    assert (host.enforcement, host.reasons) == ("none", (f"no cgroups are mounted at {tmp_path}/cgroup",))
    assert host.capacity.memory_bytes == 64 << 30


@pytest.mark.parametrize("parent", ["", "../x", "a/b", "-x", "a b"])
def test_a_parent_that_is_a_path_is_no_parent(tmp_path: Path, parent: str) -> None:
    machine(tmp_path)
    host = look(_unified(tmp_path), parent=parent)
    assert (host.enforcement, "is no name for a cgroup" in host.reasons[0]) == ("none", True)


def test_a_crowded_group_is_settled_by_moving_its_processes_to_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path)
    host = look(_unified(tmp_path, real_root=False, procs="1\n77\n"))
    assert host.crowded
    procs, leaf = tmp_path / "cgroup/cgroup.procs", tmp_path / "cgroup/rackrate-agent"
    moved: list[str] = []
    real = Path.write_text

    def write(path: Path, text: str, *more: object, **named: object) -> int:
        if path == leaf / "cgroup.procs":
            moved.append(text)
            return real(procs, "" if len(moved) == 2 else "77\n")
        return real(path, text, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", write)
    settled = settle(host)
    assert (settled.enforcement, settled.crowded, moved) == ("v2", False, ["1", "77"])
    assert settle(settled) is settled


def test_a_crowded_group_that_cannot_be_settled_is_none(tmp_path: Path) -> None:
    machine(tmp_path)
    host = settle(look(_unified(tmp_path, real_root=False, procs="1\n")))
    assert (host.enforcement, host.can_kill) == ("none", False)
    assert "do not leave it" in describe(host)
    assert host.remedy


def test_a_group_that_was_delegated_to_the_agent_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(tmp_path)
    _unified(tmp_path)
    own = unified(tmp_path / "cgroup/own", "memory pids", real_root=False)
    (tmp_path / "proc/self/cgroup").write_text("0::/own\n")
    monkeypatch.setattr(os, "access", lambda path, _: "/own" in str(path))
    host = look(tmp_path)
    assert (host.enforcement, host.root, host.controllers) == ("v2", own, {"memory", "pids"})


@as_root
def test_who_is_not_root_may_make_no_groups_and_is_told_what_to_do() -> None:
    code = (
        "import json, os, sys; sys.path.insert(0, sys.argv[1]); from agent.isolation.host import describe, detect\n"
        "os.setgid(65534); os.setuid(65534); host = detect(systemd=False)\n"
        "print(json.dumps([host.enforcement, describe(host), host.remedy]))"
    )
    found = json.loads(subprocess.run([sys.executable, "-c", code, str(ROOT)], stdout=subprocess.PIPE, check=True).stdout)
    assert found[0] == "none"
    assert "user 65534 may not make cgroups" in found[1]
    assert "run the agent as root" in found[2]


@as_root
def test_cgroups_that_are_mounted_read_only_are_told_as_such(tmp_path: Path) -> None:
    machine(tmp_path)
    _unified(tmp_path)
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from agent.isolation.host import describe, detect\n"
        "host = detect(sys.argv[2], systemd=False); print(json.dumps([host.enforcement, describe(host), host.remedy]))"
    )
    folder = tmp_path / "cgroup"
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, "-c", code, str(ROOT), str(folder)],
        stdout=subprocess.PIPE,
        check=True,
    )
    enforcement, text, remedy = json.loads(done.stdout)
    assert (enforcement, "mounted read-only, as in a container" in text) == ("none", True)
    assert "give the container its cgroups to write" in remedy


def test_this_host_can_be_described() -> None:
    host = detect()
    assert describe(host)
    assert host.remedy or host.enforcement != "none"
