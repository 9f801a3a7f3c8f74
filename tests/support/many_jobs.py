"""Many short jobs through one agent's queue, and what is left afterwards that was not there before."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from agent.config import load
from agent.jobs.context import default_runtime
from tests.support.job_agent import JobAgent, wait_for


class Left(NamedTuple):
    """What there is of an agent beside itself. `descriptors` and `sockets` are the agent's own open ones."""

    groups: int
    shims: int
    processes: int
    children: int
    descriptors: int
    sockets: int
    runtime_folders: int


def left_by(agent: JobAgent) -> Left:
    assert agent.process is not None
    pid = agent.process.pid
    targets = [_target(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return Left(
        groups=len(agent.groups()),
        shims=len(agent.shims()),
        processes=len(agent.processes()),
        children=len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()),
        descriptors=len(targets),
        sockets=sum(target.startswith("socket:") for target in targets),
        runtime_folders=len(list(_runtime(agent).glob("job-*"))),
    )


def _runtime(agent: JobAgent) -> Path:
    """Where this agent, and no other, keeps what its jobs need while they run."""
    root = default_runtime(load(agent.config, {}, state_dir=agent.state))
    assert root is not None
    return root


def _target(entry: Path) -> str:
    try:
        return os.readlink(entry)
    except OSError:
        return ""


def run_many(agent: JobAgent, number: int) -> float:
    """Runs an array of that many jobs to its end; seconds."""
    begin = time.monotonic()
    array = agent.submit("/bin/true", array=list(range(number)), pids=64)
    job = agent.ended(array, seconds=600)
    assert job["array_counts"] == {"ended": number}, job
    return time.monotonic() - begin


def settled(agent: JobAgent, before: Left) -> Left:
    """What is left once nothing changes any more."""
    wait_for(lambda: left_by(agent)._replace(descriptors=0, sockets=0) == before._replace(descriptors=0, sockets=0), 30,
             lambda: f"{before} became {left_by(agent)}")  # fmt: skip
    return left_by(agent)
