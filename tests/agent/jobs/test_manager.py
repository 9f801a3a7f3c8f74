"""The manager with real shims: how jobs end, how they are stopped, what is told, what is left."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from agent import wire
from agent.errors import JobConflict, JobUnknown
from agent.jobs import costs
from agent.jobs.context import boottime_ms
from tests.support.job_node import HAS_CGROUPS, NODE, JobNode, job_node, python, sh

needs_cgroups = pytest.mark.skipif(not HAS_CGROUPS, reason="no cgroups can be made here")
holders = pytest.mark.parametrize("cgroups", [False, pytest.param(True, marks=needs_cgroups)], ids=["none", "cgroup"])

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
time.sleep(600)
"""
SWALLOWS_OOM = """
import os
if os.fork() == 0:
    block = bytearray(200 << 20)
    for at in range(0, len(block), 4096): block[at] = 1
    os._exit(0)
os.wait()
"""


@holders
async def test_each_end_has_its_cause_its_figures_and_its_log(cgroups: bool) -> None:
    async with job_node(cgroups=cgroups) as node:
        good = node.submit(sh("echo $RACKRATE_JOB $RACKRATE_ATTEMPT; exit 0"), name="good")
        bad = node.submit(sh("echo broken; exit 7"), name="bad")
        killed = node.submit(sh("echo ready; kill -9 $$"))
        absent = node.submit(("no-such-program-at-all",))
        ended = {id: await node.until(id) for id in (good, bad, killed, absent)}
        assert [job.cause for job in ended.values()] == ["exit:0", "exit:7", "signal:9", "start_error"]
        assert ended[bad].exit_code == 7 and ended[killed].signal == 9
        assert "no-such-program-at-all" in (ended[absent].evidence or "")
        assert node.jobs.log(good).text == f"{good} 1\n" and node.jobs.log(good).ended
        assert ended[good].log_bytes == len(f"{good} 1\n")
        assert len(ended[good].attempts) == 1 and ended[good].attempts[0].started_at is not None
        if cgroups:
            assert ended[good].usage is not None and (ended[good].usage.cpu_seconds or 0) > 0
            assert ended[good].enforcement in ("v1", "hybrid", "v2") and ended[good].limits["pids"] == "16384"
        assert [job.left_behind for job in ended.values()] == [()] * 4
        assert not node.left() and not node.groups()
        assert node.jobs.problem is None and node.jobs.counts() == wire.JobCounts(ended=4)
        states = [job.state for job in node.told if job.id == bad]
        assert states[0] in ("queued", "starting") and states[-1] == "ended" and states == sorted(states, key=_ORDER.index)


_ORDER = ("queued", "starting", "running", "stopping", "ended")


@needs_cgroups
async def test_a_job_that_swallows_its_childs_oom_kill_ends_as_oom() -> None:
    async with job_node(cgroups=True) as node:
        job = await node.run(python(SWALLOWS_OOM), memory_bytes=64 << 20)
        assert job.cause == "oom"
        assert job.exit_code == 0 or job.signal == 9, "version 2 kills the whole group, whose exit code nobody can swallow"
        assert "64 MiB" in (job.evidence or "")
        assert job.usage is not None and (job.usage.memory_peak_bytes or 0) > 32 << 20


@holders
async def test_a_cancelled_job_that_ignores_the_signal_and_hides_is_gone_with_all_its_processes(cgroups: bool) -> None:
    async with job_node(cgroups=cgroups) as node:
        job = node.submit(python(STUBBORN), grace_seconds=0.2)
        await node.begun(job)
        assert node.jobs.cancel(job, NODE).state == "stopping"
        ended = await node.until(job)
        assert (ended.cause, ended.signal, ended.stopping) == ("cancelled", 9, None)
        assert "cancelled by node" in (ended.evidence or "")
        assert not node.left() and not node.groups()
        with pytest.raises(JobConflict, match="has ended already"):
            node.jobs.cancel(job, NODE)


async def test_what_torch_elastic_says_of_a_failure_is_in_the_evidence_and_a_trap_in_its_place_holds_nobody_up() -> None:
    says = """echo '{"message": {"message": "ValueError: no \\u001b[31msuch data"}}' > $TORCHELASTIC_ERROR_FILE; exit 1"""
    async with job_node() as node:
        job = await node.run(sh(says))
        evidence = job.evidence or ""
        assert job.cause == "exit:1" and "ValueError: no" in evidence and "such data" in evidence and "\x1b" not in evidence
        assert (await node.run(sh("mkfifo $TORCHELASTIC_ERROR_FILE; exit 2"))).cause == "exit:2"


async def test_jobs_that_ended_long_ago_go_with_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    async with job_node(keep_days=1) as node:
        job = await node.run(sh("true"))
        folder = node.folder / "state/jobs" / job.id
        await node.jobs._rounds._prune()
        assert folder.is_dir() and node.jobs.job(job.id)
        monkeypatch.setattr("agent.jobs.manager_round.now", lambda: datetime.now(UTC) + timedelta(days=2))
        await node.jobs._rounds._prune()
        assert not folder.exists() and node.jobs.problem is None
        with pytest.raises(JobUnknown):
            node.jobs.job(job.id)


async def test_an_outside_kill_is_told_from_our_own() -> None:
    async with job_node() as node:
        job = node.submit(python("import os, time; print('ready', os.getpid(), flush=True); time.sleep(600)"))
        await node.begun(job)
        os.kill(int(node.jobs.log(job).text.split()[1]), signal.SIGKILL)
        assert (await node.until(job)).cause == "signal:9"


async def test_a_soft_stop_lets_the_job_save_and_force_does_not() -> None:
    saves = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"
    async with job_node() as node:
        soft, hard = node.submit(sh(saves)), node.submit(sh(saves))
        await node.begun(soft)
        await node.begun(hard)
        node.jobs.cancel(soft, NODE)
        node.jobs.cancel(hard, NODE, force=True)
        assert (await node.until(soft)).exit_code == 0 and "saved" in node.jobs.log(soft).text
        killed = await node.until(hard)
        assert (killed.cause, killed.signal) == ("cancelled", 9) and "saved" not in node.jobs.log(hard).text


async def test_a_job_can_be_cancelled_in_every_state_and_never_runs_after() -> None:
    async with job_node() as node:
        queued = node.submit(sh("echo ran"))
        assert node.jobs.job(queued).state == "queued"
        assert node.jobs.cancel(queued, NODE).state == "ended"

        starting = node.submit(sh("echo ran; sleep 600"))
        while node.jobs.job(starting).state == "queued":
            await asyncio.sleep(0)
        assert node.jobs.job(starting).state == "starting"
        node.jobs.cancel(starting, NODE)
        ended = await node.until(starting)
        assert ended.cause == "cancelled"

        twice = node.submit(sh("trap '' TERM; echo ready; while :; do sleep 0.05; done"), grace_seconds=600.0)
        await node.begun(twice)
        assert node.jobs.cancel(twice, NODE).stopping == "cancelled"
        node.jobs.cancel(twice, NODE, force=True)
        assert (await node.until(twice)).signal == 9
        assert node.jobs.job(queued).attempt == 0 and node.jobs.log(queued).text == ""
        assert not node.left()


CATCHES = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done"


async def test_a_time_limit_stops_softly() -> None:
    async with job_node(1) as node:
        for limit in (0.3, 3.0, 30.0):  # it counts from the program's first instruction, and a slow one has not got far by then
            limited = await node.run(sh(CATCHES), time_limit_seconds=limit)
            if node.jobs.log(limited.id).text:
                break
        assert (limited.cause, limited.exit_code) == ("time_limit", 3)


async def test_a_budget_stops_softly_one_grace_before_the_money_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with job_node(1) as node:
        job = node.submit(sh(CATCHES), gpus=1, budget_usd=Decimal("0.8"), grace_seconds=300.0)
        await node.begun(job)
        due_ms = node.jobs._lives.all[job].begun_ms + 500_000  # 3.60 an hour are 0.001 a second: 0.8 last for 800 s
        monkeypatch.setattr("agent.jobs.stopper.boottime_ms", lambda: due_ms - 1)
        node.step()
        assert node.jobs.job(job).state == "running"
        monkeypatch.setattr("agent.jobs.stopper.boottime_ms", lambda: due_ms)
        node.step()
        spent = await node.until(job)
        assert (spent.cause, spent.exit_code) == ("budget", 3)
        assert spent.cost is not None and 0 < spent.cost, spent.cost
        assert "0.5000 of its 0.8 USD" in (spent.evidence or "") and str(spent.usd_per_hour) == "3.6"


async def test_a_job_that_has_cost_its_budget_already_is_not_begun_again() -> None:
    async with job_node(1) as node:
        job = node.submit(sh("exit 1"), gpus=1, budget_usd=Decimal(1), retries=5)
        await _tried(node, job)
        node.jobs._store.change(job, not_before=datetime.now(UTC), cost=Decimal("1.5"))
        node.jobs._queue.kick()
        ended = await node.until(job)
        assert (ended.cause, ended.attempt) == ("budget", 1) and "1.5000 of its 1 USD" in (ended.evidence or "")


async def test_a_job_whose_gpus_do_nothing_is_warned_and_then_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async with job_node(1) as node:
        job = node.submit(sh("echo ready; sleep 600"), gpus=1, idle_stop_seconds=60.0)
        await node.begun(job)
        node.utilization = 0.0
        await _pass_seconds(node, 70, monkeypatch)
        ended = await node.until(job)
        assert ended.cause == "idle_stop" and "did nothing" in (ended.evidence or "")
        warned = [one for one in node.told if one.id == job and one.state == "running" and one.warnings]
        assert warned and "have done nothing" in warned[0].warnings[0]

        node.utilization = None
        waits = sh("echo ready; while [ ! -e go ]; do sleep 0.02; done")
        unknown = node.submit(waits, gpus=1, idle_stop_seconds=60.0, workdir=str(node.folder))
        await node.begun(unknown)
        await _pass_seconds(node, 70, monkeypatch)
        (node.folder / "go").touch()
        assert (await node.until(unknown)).cause == "exit:0", "what is not known is not idle"


async def _pass_seconds(node: JobNode, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step each, by the clock that the timers of a job see."""
    for at_ms in range(boottime_ms(), boottime_ms() + 1000 * count, 1000):
        for module in ("manager_round", "stopper"):
            monkeypatch.setattr(f"agent.jobs.{module}.boottime_ms", lambda now=at_ms: now)
        node.step()
        await asyncio.sleep(0)
    monkeypatch.undo()


async def test_a_failed_job_is_tried_again_after_a_pause_as_often_as_it_may() -> None:
    async with job_node() as node:
        job = node.submit(sh('[ "$RACKRATE_ATTEMPT" = 2 ] || exit 5'), retries=3)
        waiting = await _tried(node, job)
        assert (waiting.cause, waiting.retries, waiting.attempt) == ("exit:5", 1, 1)
        assert waiting.not_before is not None and "before it is tried again" in (waiting.reason or "")
        node.jobs._store.change(job, not_before=datetime.now(UTC))  # not to wait for the real pause
        node.jobs._queue.kick()
        ended = await node.until(job)
        assert (ended.cause, ended.attempt, [one.exit_code for one in ended.attempts]) == ("exit:0", 2, [5, 0])
        assert node.jobs.log(job, attempt=1).ended and Path(node.folder / "state/jobs" / job / "checkpoint").is_dir()
        with pytest.raises(JobUnknown, match="has no attempt 3"):
            node.jobs.log(job, attempt=3)


async def _tried(node, job: str) -> wire.Job:  # type: ignore[no-untyped-def]
    """Once it waits again, and the queue has looked at it."""
    await node.when(
        lambda: (one := node.jobs.job(job)).attempt == 1 and one.state == "queued" and one.reason != "is looked at next"
    )
    return node.jobs.job(job)


async def test_dependencies_start_in_order_and_end_what_can_never_start() -> None:
    async with job_node() as node:
        first = node.submit(sh("while [ ! -e go ]; do sleep 0.02; done"), workdir=str(node.folder))
        after = node.submit(sh("true"), after=(first,))
        never = node.submit(sh("echo ran"), after=(f"notok:{first}",))
        await node.when(lambda: node.jobs.job(after).reason not in (None, "is looked at next"))
        assert node.jobs.job(after).reason == f"waits for job {first} to end well"
        (node.folder / "go").touch()
        assert (await node.until(after)).cause == "exit:0"
        refused = await node.until(never)
        assert refused.cause == "cancelled" and "should have failed" in (refused.evidence or "") and refused.attempt == 0


async def test_an_array_runs_so_many_at_once_and_is_cancelled_as_one() -> None:
    async with job_node() as node:
        array = node.submit(sh("echo $RACKRATE_ARRAY_INDEX of $RACKRATE_ARRAY_COUNT"), array=(1, 5, 9), array_at_once=2)
        ended = await node.until(array)
        assert ended.cause == "exit:0" and ended.array_counts == {"ended": 3}
        assert node.jobs.log(f"{array}_5").text == "5 of 3\n"
        with pytest.raises(JobConflict, match="each of its tasks has a log"):
            node.jobs.log(array)

        long = node.submit(sh("sleep 600"), array=tuple(range(6)), array_at_once=2)
        await node.when(lambda: node.jobs.job(long).array_counts.get("running") == 2)
        assert "2 of 2 tasks run already" in (node.jobs.job(f"{long}_5").reason or "")
        node.jobs.cancel(long, NODE)
        assert (await node.until(long)).cause == "cancelled"
        assert {node.jobs.job(f"{long}_{index}").cause for index in range(6)} == {"cancelled"}
        assert not node.left()


async def test_a_signal_reaches_the_first_process_once() -> None:
    async with job_node() as node:
        job = node.submit(sh("trap 'echo got' USR1; echo ready; while :; do sleep 0.02; done"))
        with pytest.raises(JobConflict, match="it is queued"):
            node.jobs.signal(job, "USR1", NODE)
        await node.begun(job)
        node.jobs.signal(job, "USR1", NODE)
        await node.when(lambda: "got" in node.jobs.log(job).text)
        node.jobs.cancel(job, NODE, force=True)
        await node.until(job)
        assert node.jobs.log(job).text.count("got") == 1


async def test_who_waits_for_the_log_is_woken_when_it_grows_and_when_it_ends() -> None:
    async with job_node() as node:
        job = node.submit(sh("sleep 0.2; echo one; sleep 0.2"))
        await node.jobs.log_grew(job, None, 0, 60.0)
        assert node.jobs.log(job).text == "one\n"
        await node.jobs.log_grew(job, None, 4, 60.0)
        assert node.jobs.job(job).state == "ended"


@needs_cgroups
async def test_a_limit_that_was_changed_behind_our_back_is_said_and_put_right() -> None:
    async with job_node(cgroups=True) as node:
        job = node.submit(sh("echo ready; sleep 600"), pids=100)
        await node.begun(job)
        (file,) = Path("/sys/fs/cgroup").glob(f"*/*/job-{job}-1/pids.max")
        file.write_text("max")
        node.jobs._rounds._due["drift"] = 0
        node.step()
        (warning,) = node.jobs.job(job).warnings
        assert str(file) in warning and "from 100 to max; it was put back" in warning
        assert file.read_text().strip() == "100"
        node.jobs.cancel(job, NODE, force=True)
        assert (await node.until(job)).warnings == (warning,)


async def test_secrets_are_in_no_file_log_or_answer_but_their_own_and_only_while_the_job_runs() -> None:
    secret = "s3cr3t-value-4711"
    async with job_node() as node:
        show = "cat $CREDENTIALS_DIRECTORY/token | wc -c; stat -c %a $CREDENTIALS_DIRECTORY/token; echo ready; sleep 600"
        job = node.submit(sh(show), secrets={"token": secret}, retries=1)
        running = await node.begun(job)
        assert node.jobs.log(job).text.split() == [str(len(secret)), "600", "ready"]
        assert running.secrets == ("token",) and secret not in repr(node.jobs.jobs()) + repr(node.told)
        holding = [path for path in node.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert {path.name for path in holding} == {"token"} and len(holding) == 2
        assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}
        node.jobs.cancel(job, NODE)
        await node.until(job)
        assert not [path for path in node.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


async def test_a_reservation_starts_when_told_and_ends_by_itself() -> None:
    gang = wire.Gang(id="run-1", nodes=2, least_nodes=2, host_here=True)
    async with job_node(2) as node:
        launcher = node.folder / "torchrun"
        launcher.write_text('#!/bin/sh\necho "$@"\n')
        launcher.chmod(0o755)
        spec = wire.JobSpec(command=(str(launcher), "train.py"), gpus=2, gang=gang)
        held = node.jobs.reserve(spec, NODE)
        assert held.state == "queued" and len(held.gpus) == 2 and held.held_until is not None
        assert "reserved" in (held.reason or "") and len(node.jobs.claims()) == 2
        with pytest.raises(JobConflict, match="waits for 2 GPUs|GPUs"):
            node.jobs.reserve(spec, NODE)
        started = node.jobs.start_reserved(held.id, "127.0.0.1:29400", NODE)
        assert started.state == "starting"
        await node.until(held.id)
        words = node.jobs.log(held.id).text.split()
        assert {"127.0.0.1:29400", "c10d", "run-1", "2:2"} <= set(words) and words[-1] == "train.py"

        late = node.jobs.reserve(spec, NODE)
        node.jobs._store.note({late.id: {"held_until": datetime.now(UTC) - timedelta(seconds=1)}})
        with pytest.raises(JobConflict, match="reservation"):
            node.jobs.start_reserved(late.id, "127.0.0.1:29400", NODE)
        assert (await node.until(late.id)).cause == "cancelled" and not node.jobs.claims()


@pytest.mark.parametrize("how", ["cancelled", "in time"])
async def test_a_place_that_was_held_and_never_used_has_cost_what_its_time_costs(how: str) -> None:
    spec = wire.JobSpec(
        command=("torchrun", "train.py"), gpus=2, gang=wire.Gang(id="run-1", nodes=2, least_nodes=2), node_usd_per_hour=Decimal(3600)
    )
    async with job_node(4) as node:
        held = node.jobs.reserve(spec, NODE)
        store = node.jobs._store
        began = int(store.get(held.id).notes[costs.HELD]) - 2000
        store.note({held.id: {"notes": {**store.get(held.id).notes, costs.HELD: str(began)}}})
        if how == "cancelled":
            node.jobs.cancel(held.id, NODE)
        else:
            store.note({held.id: {"held_until": datetime.now(UTC) - timedelta(seconds=1)}})
        ended = await node.until(held.id)
        assert (ended.cause, ended.attempt) == ("cancelled", 0) and how in (ended.evidence or "")
        assert ended.cost is not None and ended.cost >= 1, "two of four GPUs at a dollar a second, for more than two seconds"
        without = node.jobs.reserve(msgspec.structs.replace(spec, gpus=0), NODE)
        assert node.jobs.cancel(without.id, NODE).cost is None, "a job without a GPU has its cost in reports"


async def test_many_short_jobs_leave_nothing() -> None:
    async with job_node() as node:
        await node.run(sh("true"))
        descriptors = len(os.listdir("/proc/self/fd"))
        jobs = [node.submit(sh("true")) for _ in range(30)]
        for job in jobs:
            assert (await node.until(job)).cause == "exit:0"
        assert len(os.listdir("/proc/self/fd")) == descriptors and not node.left()
        assert not list((node.folder / "run").glob("job-*"))
