"""An agent that comes back: what ran on, what ended meanwhile, what never began, a reboot, a lost shim, leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agent.jobs.rows import JobRow
from agent.wire import JobSpec
from tests.support.job_node import HAS_CGROUPS, NODE, PARENT, JobNode, job_node, python, sh

needs_cgroups = pytest.mark.skipif(not HAS_CGROUPS, reason="no cgroups can be made here")
holders = pytest.mark.parametrize("cgroups", [False, pytest.param(True, marks=needs_cgroups)], ids=["none", "cgroup"])


def attempt(node: JobNode, job: str, number: int = 1) -> Path:
    return node.folder / "state/jobs" / job / str(number)


async def asleep(condition) -> None:  # type: ignore[no-untyped-def]
    """Waits without an agent."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


@holders
async def test_jobs_run_on_without_an_agent_and_their_ends_are_known(cgroups: bool) -> None:
    async with job_node(1, cgroups=cgroups) as node:
        runs = node.submit(sh("echo ready; while [ ! -e go ]; do sleep 0.02; done; exit 4"), workdir=str(node.folder), gpus=1)
        short = node.submit(sh("echo ready; while [ ! -e over ]; do sleep 0.02; done; exit 6"), workdir=str(node.folder))
        waits = node.submit(sh("true"), gpus=1)
        await node.begun(runs)
        await node.begun(short)
        node.close()
        (node.folder / "over").touch()
        await asleep(lambda: (attempt(node, short) / "exit.json").exists())
        node.open()
        assert node.jobs.job(runs).state == "running" and node.jobs.claims()
        assert (await node.until(short)).cause == "exit:6"
        assert node.jobs.job(waits).state == "queued"
        node.close()
        node.open()
        (node.folder / "go").touch()
        assert (await node.until(runs)).cause == "exit:4" and (await node.until(waits)).cause == "exit:0"
        assert node.jobs.job(runs).attempt == 1 and node.jobs.log(runs).text == "ready\n"
        assert not node.left() and not node.groups()


async def test_an_adopted_job_is_stopped_as_any_other_and_its_cost_goes_on() -> None:
    async with job_node(1) as node:
        job = node.submit(sh("trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done"), gpus=1)
        before = (await node.begun(job)).cost
        node.close()
        node.open()
        node.jobs.cancel(job, NODE)
        ended = await node.until(job)
        assert (ended.cause, ended.exit_code) == ("cancelled", 3)
        assert ended.cost is not None and before is not None and ended.cost > before


async def test_a_stop_that_was_only_written_down_is_done_by_the_next_agent() -> None:
    async with job_node() as node:
        job = node.submit(sh("echo ready; sleep 600"))
        await node.begun(job)
        node.jobs._store.want_stop(job, "cancelled", datetime.now(UTC), evidence="cancelled by node")
        node.close()
        node.open()
        assert (await node.until(job)).cause == "cancelled" and not node.left()


async def test_an_attempt_that_never_began_is_given_up_and_begun_anew_once() -> None:
    async with job_node() as node:
        jobs = node.jobs
        row = JobRow(
            id=jobs._context.ids.new(),
            spec=JobSpec(command=sh("echo $RACKRATE_ATTEMPT")),
            user="root",
            submitted_at=datetime.now(UTC),
        )
        jobs._store.add(row)
        jobs._store.begin_attempt(row.id, (), (), datetime.now(UTC), boot_id=jobs._context.boot_id)
        node.close()  # between the decision and the shim
        node.open()
        ended = await node.until(row.id)
        assert [one.cause for one in ended.attempts] == ["lost", "exit:0"] and ended.retries == 0
        assert node.jobs.log(row.id).text == "2\n"


def sleeping(node: JobNode) -> list[int]:
    """Those of its jobs' processes that have become `sleep`."""
    found = []
    for pid in node.left():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep\0"):
                found.append(pid)
    return found


async def test_a_shim_that_comes_late_runs_nothing() -> None:
    async with job_node() as node:
        job = node.submit(sh("echo ready; sleep 600"), retries=0)
        while (live := node.jobs._lives.all.get(job)) is None or not live.spawned:
            await asyncio.sleep(0)
        node.close()  # before the shim has done anything
        await asyncio.sleep(0.05)
        node.open()
        await node.begun(job)
        await node.when(lambda: sleeping(node))
        assert len(sleeping(node)) == 1


def killed(node: JobNode) -> list[int]:
    """What of its jobs still lived, and is killed now."""
    left = node.left()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


async def test_after_a_reboot_nothing_is_taken_for_what_ran_before() -> None:
    async with job_node(1) as node:
        job = node.submit(sh("echo ready; sleep 600"), gpus=1, retries=1, retry_on=("node_reboot",))
        await node.begun(job)
        node.jobs._rounds._due["note"] = 0
        node.step()
        noted = node.jobs._store.get(job).cost
        shim = msgspec.json.decode((attempt(node, job) / "shim.json").read_bytes())
        node.close()
        os.kill(shim["shim_pid"], signal.SIGKILL)  # the power goes
        await asleep(lambda: not killed(node))
        node.boot_id = "11111111-2222-3333-4444-555555555555"
        node.open()
        back = await node.until(job, "queued")
        assert (back.cause, back.retries) == ("node_reboot", 1) and back.cost == noted


@holders
async def test_a_job_whose_shim_was_killed_is_lost_and_nothing_of_it_stays(cgroups: bool) -> None:
    async with job_node(cgroups=cgroups) as node:
        job = node.submit(python("import os, time\nos.fork()\nprint('ready', flush=True)\ntime.sleep(600)"), retry_on=())
        await node.begun(job)
        os.kill(msgspec.json.decode((attempt(node, job) / "shim.json").read_bytes())["shim_pid"], signal.SIGKILL)
        ended = await node.until(job)
        assert ended.cause == "lost" and not node.left() and not node.groups()


@needs_cgroups
async def test_groups_and_folders_that_nobody_knows_are_swept_and_those_of_jobs_are_not() -> None:
    async with job_node(cgroups=True) as node:
        job = node.submit(sh("echo ready; sleep 600"))
        await node.begun(job)
        mine = [Path(path) for path in node.groups()]
        node.close()
        stray = mine[0].parent / "job-000000000000-1"
        stray.mkdir()
        (node.folder / "run/job-000000000000-1/secrets").mkdir(parents=True)
        node.open()
        await node.when(lambda: not stray.exists() and not (node.folder / "run/job-000000000000-1").exists())
        assert [Path(path) for path in node.groups()] == mine and node.jobs.job(job).state == "running"


async def test_one_job_that_makes_trouble_is_said_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    async with job_node() as node:
        bad = node.submit(sh("echo ready; sleep 600"))
        await node.begun(bad)
        (attempt(node, bad) / "exit.json").write_text("{")
        node.jobs.cancel(bad, NODE, force=True)
        await node.when(lambda: node.jobs.problem or node.jobs.job(bad).state == "ended")
        assert (await node.run(sh("true"))).cause == "exit:0"
        shown = node.jobs.job(bad)
        assert shown.state == "ended" or (shown.warnings and bad in (node.jobs.problem or ""))
    assert "Traceback" not in capsys.readouterr().err


async def test_what_a_killed_agent_left_half_done_is_put_in_order() -> None:
    async with job_node() as node:
        ended = await node.run(sh("true"), secrets={"k": "v"})
        node.close()
        half, done = node.folder / "state/jobs/0123456789ab", node.folder / "state/jobs" / ended.id
        for folder in (half, done):  # handed in but not kept; ended but its secrets not yet gone
            (folder / "secrets").mkdir(parents=True)
            (folder / "secrets/k").write_text("v")
        node.open()
        assert not half.exists() and not (done / "secrets").exists() and done.exists()


async def test_an_agent_that_ends_with_nothing_running_leaves_no_group_and_no_run_time_folder() -> None:
    async with job_node(cgroups=HAS_CGROUPS) as node:
        await node.run(sh("true"))
        assert (node.folder / "run").exists()
        node.close()
        assert not (node.folder / "run").exists() and not list(Path("/sys/fs/cgroup").glob(f"*/{PARENT}"))
