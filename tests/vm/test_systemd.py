"""Scopes of a real systemd (process 1 in the machine of `make test-vm`): a shim in each, and the job below it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.isolation.group import Group, sweep
from agent.isolation.host import HostIsolation, describe, detect
from agent.isolation.limits import Limits
from agent.isolation.plan import GroupPlan, plan
from agent.isolation.watch import drifted
from tests.support.isolation import CHILD, ROOT, new_unit, wait

pytestmark = pytest.mark.skipif(
    os.environ.get("RACKRATE_VM") != "systemd", reason="a virtual machine with systemd is needed: make test-vm"
)

MIB = 1024 * 1024
LIMITS = Limits(memory_bytes=64 * MIB, cpu_weight=200, pids=50)
SWALLOW = "import subprocess, sys; subprocess.call([sys.executable, '-c', 'bytearray(300 << 20)'])"
DAEMON = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(600)"
SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def host() -> HostIsolation:
    return detect()


def started(made: GroupPlan, code: str) -> subprocess.Popen[bytes]:
    """A shim in its scope, with a job of Python code."""
    argv = [*made.launcher, sys.executable, "-I", "-S", str(CHILD), str(ROOT), "job"]
    shim = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shim.stdin is not None
    shim.stdin.write(json.dumps([made.to_dict(), code]).encode())
    shim.stdin.close()
    return shim


def answer(shim: subprocess.Popen[bytes]) -> dict[str, Any]:
    with shim:
        assert shim.stdout is not None
        found: dict[str, Any] = json.loads(shim.stdout.read())
    return found


def scope_of(made: GroupPlan) -> Path:
    return Path(made.leaves["unified"]).parent


def ran(made: GroupPlan, shim: subprocess.Popen[bytes]) -> bool:
    return bool(Group(made.to_dict()).pids()) or shim.poll() is not None


def test_systemd_is_found_and_used(host: HostIsolation) -> None:
    assert (host.enforcement, host.root) == ("systemd", Path("/sys/fs/cgroup"))
    assert {"cpu", "io", "memory", "pids"} <= host.controllers
    assert describe(host).startswith("a systemd scope for each job")


def test_a_job_in_a_scope_is_held_and_counted_and_its_scope_goes(host: HostIsolation) -> None:
    made = plan(host, new_unit(), LIMITS)
    done = answer(started(made, SWALLOW))
    assert [failure for failure in done["failed"] if failure["limit"] != "memory"] == []
    planned = [[step.kind, step.path, step.text] for step in made.steps]
    skipped = [[failure["path"], failure["text"]] for failure in done["failed"]]
    assert done["steps"] == [step for step in planned[:-1] if step[1:] not in skipped]
    assert done["shim"] == f"0::/rackrate.slice/rackrate-{made.unit}.scope/sup"
    assert done["counters"]["oom_kills"] >= 1
    assert done["status"] == 9  # all of the job's group, not only the child
    assert done["removed"]
    assert wait(lambda: not scope_of(made).exists())


def test_a_daemon_of_a_job_in_a_scope_is_found_and_killed(host: HostIsolation) -> None:
    made = plan(host, new_unit(), LIMITS)
    done = answer(started(made, DAEMON))
    assert (done["status"], len(done["left"]), done["removed"]) == (0, 1, True)
    assert wait(lambda: not scope_of(made).exists())


def test_limits_hold_when_systemd_reads_its_files_again_and_a_sweep_ends_shim_and_job(host: HostIsolation) -> None:
    known, unknown = (plan(host, new_unit(), LIMITS) for _ in range(2))
    shims = [started(one, SLEEP) for one in (known, unknown)]
    try:
        assert wait(lambda: all(ran(one, shim) for one, shim in zip((known, unknown), shims, strict=True)))
        applied = {step.path: step.text or "" for step in known.steps if step.kind == "write" and os.path.exists(step.path)}
        before = drifted(applied)
        subprocess.run(["systemctl", "daemon-reload"], check=True)
        assert drifted(applied) == before == []
        assert sweep(str(host.root), host.parent, {known.unit}) == [unknown.unit]
        assert shims[1].wait(20) == -9
        assert wait(lambda: not scope_of(unknown).exists())
        assert shims[0].poll() is None
    finally:
        Group(known.to_dict()).kill()
    assert answer(shims[0])["status"] == 9
    assert wait(lambda: not scope_of(known).exists())
    assert shims[1].stdout is not None
    shims[1].stdout.close()
