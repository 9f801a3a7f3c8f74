"""A hundred short jobs through the queue leave nothing behind (`make explore` runs more, `make bench` a thousand)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.examples import EXPLORE
from tests.support.job_agent import JobAgent
from tests.support.many_jobs import left_by, run_many, settled


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JobAgent]:
    if os.geteuid() != 0:
        pytest.skip("needs root (cgroups)")
    with JobAgent(tmp_path / "agent") as agent:
        yield agent


def test_a_hundred_jobs_leave_no_group_process_descriptor_or_socket(agent: JobAgent) -> None:
    run_many(agent, 20)  # what the first jobs open for good
    before = left_by(agent)
    assert (before.groups, before.shims, before.processes, before.children) == (0, 0, 0, 0)
    run_many(agent, 400 if EXPLORE else 100)
    after = settled(agent, before)
    assert after.descriptors <= before.descriptors
    assert after.sockets <= before.sockets
