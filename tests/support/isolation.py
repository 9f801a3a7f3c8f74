"""Real cgroups for tests: what this host offers, a group made as a shim makes it, jobs that run in it, and no trace after.

The same checks run on a hybrid or version 1 host and, inside `make test-vm`, on a real version 2 kernel.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agent.isolation.group import Group, clear, sweep
from agent.isolation.host import HostIsolation, detect
from agent.isolation.limits import Limits
from agent.isolation.plan import GroupPlan, plan

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("isolation_child.py")
PARENT = f"rackrate-test-{os.getpid()}"
_NUMBERS = itertools.count(1)


def modes() -> list[str]:
    """What can be tried here: `v2` on such a host; `hybrid` and `v1` on a hybrid one."""
    found = detect(systemd=False, parent=PARENT).enforcement
    return {"hybrid": ["hybrid", "v1"]}.get(found, [found])


def host_in(mode: str, folder: Path) -> HostIsolation:
    """The host in one of its `modes`; `v1` is a hybrid one seen through a folder that leaves out the unified tree."""
    host = detect(systemd=False, parent=PARENT)
    if mode == host.enforcement:
        return host
    for name, path in host.v1.items():
        (folder / name).symlink_to(path)
    return detect(folder, systemd=False, parent=PARENT)


def new_unit() -> str:
    return f"job-{next(_NUMBERS):012d}-1"


class Held(msgspec.Struct):
    """A group that a shim has made."""

    plan: GroupPlan
    group: Group
    applied: dict[str, str]
    failed: list[dict[str, Any]]
    steps: list[list[Any]]
    jobs: list[subprocess.Popen[bytes]] = []

    def run(self, code: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Python code as the job's first process."""
        argv = [sys.executable, "-c", code, *arguments]
        self.jobs.append(subprocess.Popen(argv, preexec_fn=self.group.enter, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        return self.jobs[-1]


def prepared(host: HostIsolation, limits: Limits, unit: str | None = None) -> Held:
    """A group made by a process of its own, as `python -I -S` with the standard library alone."""
    made = plan(host, unit or new_unit(), limits)
    answer = child("prepare", made.to_dict())
    return Held(made, Group(made.to_dict()), answer["applied"], answer["failed"], answer["steps"])


def child(task: str, *values: Any) -> dict[str, Any]:
    """What `isolation_child.py` answers."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CHILD), str(ROOT), task], input=json.dumps(values).encode(), stdout=subprocess.PIPE
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def held(host: HostIsolation, limits: Limits) -> Iterator[Held]:
    """A prepared group that is killed and removed at the end."""
    one = prepared(host, limits)
    try:
        yield one
    finally:
        one.group.kill()
        wait(one.group.empty)
        for job in one.jobs:
            job.wait()
            if job.stdout is not None:
                job.stdout.close()
        assert one.group.remove(60.0)


def wait(condition: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def clean(host: HostIsolation) -> None:
    """Nothing of these tests stays."""
    sweep(str(host.root), host.parent, set())
    assert wait(lambda: clear(str(host.root), host.parent))


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None: there is no such process, or it is dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields
