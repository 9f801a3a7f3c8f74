"""The agent is killed with SIGKILL at twenty points of its own code while ten jobs start, run, are stopped and end."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.job_agent import JobAgent, usage_rows, wait_for
from tests.support.nvml import compiler

JOBS = 10
LINES = 25
POINTS = [
    f"{function}:{side}:{number}"
    for function, number in (
        ("agent.jobs.store:JobStore.add", 4),
        ("agent.jobs.store:JobStore.begin_attempt", 4),
        ("agent.jobs.attempt_dir:AttemptDir.prepare", 4),
        ("agent.jobs.starter:spawn", 4),
        ("agent.jobs.store:JobStore.mark_running", 4),
        ("agent.jobs.store:JobStore.want_stop", 1),
        ("agent.jobs.attempt_dir:AttemptDir.stop", 1),
        ("agent.jobs.attempt_dir:AttemptDir.exit", 3),
        ("agent.jobs.store:JobStore.end_attempt", 3),
        ("agent.jobs.starter:clean_up", 3),
        ("agent.meter:Meter.claim", 6),
        ("agent.jobs.manager_life:Lives.adopt", 1),
    )
    for side in ("before", "after")
]
NODES = 4
"""Each is killed at its part of the points, so that the parts may run beside each other."""
SCRIPT = 'echo $$ >> "$1"; i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); sleep 0.04; done; exit $2' % LINES
STUBBORN = 'echo $$ >> "$1"; trap "exit 9" TERM; while :; do sleep 0.05; done'


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JobAgent]:
    if os.geteuid() != 0 or compiler() is None:
        pytest.skip("needs root (cgroups, other users) and a C compiler (the stand-in NVML)")
    agent = JobAgent(tmp_path / "agent", gpus=16, many_starts=True)
    yield agent
    agent.close()


class Round:
    """Ten jobs that write into files of their own, and one that ends only when it is cancelled."""

    def __init__(self, agent: JobAgent, folder: Path) -> None:
        self.agent, self.folder = agent, folder
        folder.mkdir()
        self.codes: dict[str, int] = {}
        self.cancelled: str | None = None

    def shell(self, script: str, name: str, *rest: str) -> str:
        return self.agent.submit("/bin/sh", "-c", script, "sh", str(self.folder / name), *rest, gpus=1, name=name)

    def disturb(self) -> None:
        """Submits and cancels until the agent is gone (or all was done)."""
        try:
            self.cancelled = stubborn = self.shell(STUBBORN, "stubborn")
            for number in range(JOBS):
                self.codes[self.shell(SCRIPT, f"job{number}", str(number))] = number
            self.agent.until(stubborn, "running", "ended")
            self.cancel()
        except httpx.HTTPError:
            return

    def cancel(self) -> None:
        answer = self.agent.http.delete(f"/v1/jobs/{self.cancelled}")
        assert answer.status_code in (200, 409), answer.text

    def check(self) -> None:
        """After a restart: each job ended as it should, ran once, and its log is whole."""
        for id, code in self.codes.items():
            job = self.agent.ended(id)
            assert (job["cause"], job.get("exit_code")) == (f"exit:{code}", code), job
            assert self.agent.text(id).splitlines() == [f"line {number}" for number in range(LINES)]
        if self.cancelled is not None:
            self.agent.until(self.cancelled, "running", "ended")
            self.cancel()
            assert self.agent.ended(self.cancelled)["cause"] == "cancelled"
        for path in self.folder.iterdir():
            assert len(started(path)) == 1, f"{path.name} started {len(started(path))} times"


def started(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("node", range(NODES))
def test_no_job_is_lost_or_started_twice_whenever_the_agent_is_killed(node: int, agent: JobAgent, tmp_path: Path) -> None:
    assert len(POINTS) >= 20
    points = POINTS[node::NODES]
    agent.start().end()
    for number, point in enumerate(points):
        a_round = Round(agent, tmp_path / f"round{number}")
        if point.split(":")[1].startswith("Lives.adopt"):
            agent.start()
            a_round.disturb()
            agent.kill()
            agent.start(point)
            agent.gone()
        else:
            agent.start(point)
            a_round.disturb()
            wait_for(lambda: agent.process is not None and agent.process.poll() is not None, 30, lambda p=point: f"{p} was not reached")
            agent.gone()
        agent.start()
        a_round.check()
        if number < len(points) - 1:
            wait_for(lambda: all(job["state"] == "ended" for job in agent.jobs()), 30, lambda: str(agent.jobs(0)))
            agent.kill()
    wait_for(lambda: all(job["state"] == "ended" for job in agent.jobs()), 30, lambda: str(agent.jobs(0)))
    wait_for(lambda: not agent.shims() and not agent.processes() and not agent.groups(), 60)
    check_usage(agent, len(points))


def check_usage(agent: JobAgent, rounds: int) -> None:
    """The rows of each GPU tile the time with shares of 1, and the jobs are their holders."""
    agent.end()
    agent.start()  # the orderly end wrote the open rows
    rows = usage_rows(agent)
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    by_gpu: dict[Any, dict[tuple[datetime, datetime], Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in rows:
        span = datetime.fromisoformat(row["starts_at"]), datetime.fromisoformat(row["ends_at"])
        by_gpu[row["gpu"]][span] += Decimal(str(row["share"]))
    assert len(by_gpu) == 16
    for spans in by_gpu.values():
        assert set(spans.values()) == {Decimal(1)}
        ordered = sorted(spans)
        assert [(before, after) for before, after in pairwise(ordered) if before[1] != after[0]] == []
    holders = Counter(row.get("job") for row in rows if row["kind"] == "held")
    assert len(holders) > rounds
