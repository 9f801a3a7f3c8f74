"""GPUs: who gets which, who is on them, sharing, preemption, notices, and what is left on them after an end."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import wire
from agent.errors import JobRefused
from agent.isolation.mps import MpsGpu
from agent.jobs.context import standing
from agent.meter import Meter
from agent.meter_cpu import CpuClaim
from tests.support.fake_mps.rig import FakeMps, fake_mps
from tests.support.job_node import NODE, JobNode, job_node, sh
from tests.support.metering import INFO, all_rows

__all__ = ["fake_mps"]

SAVES = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done"


def process(pid: int, **fields: Any) -> wire.Process:
    return wire.Process(pid=pid, user=fields.pop("user", "ann"), command=fields.pop("command", "python train.py"), **fields)


async def test_gpus_are_given_whole_by_uuid_and_never_twice() -> None:
    async with job_node(3) as node:
        shows = sh("echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER; echo ready; sleep 600")
        two, one, waits = (node.submit(shows, gpus=count) for count in (2, 1, 1))
        await node.begun(two)
        await node.begun(one)
        held = [set(node.jobs.job(id).gpus) for id in (two, one)]
        assert not held[0] & held[1] and len(held[0] | held[1]) == 3
        assert node.jobs.log(two).text.split()[:2] == [",".join(node.jobs.job(two).gpus), "PCI_BUS_ID"]
        assert "GPU" in (node.jobs.job(waits).reason or "")
        assert {claim.job: claim.share for claims in node.jobs.claims().values() for claim in claims} == {
            two: 10**6,
            one: 10**6,
        }
        node.jobs.cancel(one, NODE)
        await node.begun(waits)
        assert set(node.jobs.job(waits).gpus) == held[1]
        assert node.jobs.job(one).usage is not None and (node.jobs.job(one).usage or wire.JobUsage()).energy_joules is not None

        none = await node.run(sh("echo [$CUDA_VISIBLE_DEVICES]"))
        assert node.jobs.log(none.id).text == "[]\n", "a job without GPUs sees none"


async def test_a_gpu_with_a_foreign_process_is_not_given_until_it_has_gone() -> None:
    async with job_node(1) as node:
        uuid = node.gpus[0].uuid
        node.processes[uuid] = [process(4711)]
        node.step()
        job = node.submit(sh("true"), gpus=1)
        await node.when(lambda: "4711" in (node.jobs.job(job).reason or ""))
        node.processes[uuid] = [process(4712, kind="graphics", command="Xorg")]
        assert (await node.until(job)).cause == "exit:0", "what only draws is no stranger"


async def test_nothing_gets_a_gpu_before_the_driver_was_heard() -> None:
    async with job_node(0) as node:
        node.gpus = (wire.GpuInventory(index=0, uuid="GPU-unheard"),)
        job = node.submit(sh("true"), gpus=1)
        await asyncio.sleep(0.05)
        assert node.jobs.job(job).state == "queued"


async def test_a_job_whose_process_stays_on_its_gpu_is_unkillable_and_the_gpu_is_drained_until_it_has_gone() -> None:
    async with job_node(2, kill_wait_seconds=4.0) as node:
        job = node.submit(sh("echo ready; sleep 600"), gpus=1)
        await node.begun(job)
        (uuid,) = node.jobs.job(job).gpus
        node.processes[uuid] = [process(4_000_001, job=job)]
        node.step()
        node.jobs.cancel(job, NODE, force=True)
        await node.when(lambda: not node.left())
        assert node.jobs.job(job).state == "stopping", "its GPU is not free, so it has not ended"
        ended = await node.until(job)
        assert ended.cause == "unkillable" and "4000001" in ended.left_behind[0]
        assert job in (node.jobs.problem or "") and uuid in node.jobs.claims()
        other, waits = node.submit(sh("echo ready; sleep 600"), gpus=1), node.submit(sh("true"), gpus=1)
        await node.begun(other)
        assert node.jobs.job(other).gpus != (uuid,)
        node.close()
        node.open()  # the agent is restarted: it is remembered
        await node.when(lambda: "could not be killed" in (node.jobs.job(waits).reason or ""))
        node.processes[uuid] = []
        assert (await node.until(waits)).gpus == (uuid,)
        freed = node.jobs.job(job)
        assert freed.left_behind == () and node.jobs.problem is None
        assert freed.cost is not None and ended.cost is not None and freed.cost > ended.cost, "it had the GPU until now"


async def test_a_higher_job_preempts_an_interruptible_one_which_saves_and_comes_back() -> None:
    async with job_node(1) as node:
        low = node.submit(sh(SAVES), gpus=1, interruptible=True)
        await node.begun(low)
        high = node.submit(sh("true"), gpus=1, priority=10)
        assert (await node.until(high)).cause == "exit:0"
        await node.begun(low)
        again = node.jobs.job(low)
        assert (again.attempt, again.retries) == (2, 0) and again.attempts[0].cause == "preempted"
        assert "saved" in node.jobs.log(low, attempt=1).text
        assert again.cost is not None and again.cost > 0


async def test_a_spot_notice_stops_the_interruptible_within_what_is_left_and_lets_nothing_start() -> None:
    async with job_node(2) as node:
        soft = node.submit(sh(SAVES), gpus=1, interruptible=True, grace_seconds=60.0)
        hard = node.submit(sh("echo ready; sleep 600"), gpus=1)
        await node.begun(soft)
        await node.begun(hard)
        at = datetime.now(UTC) + timedelta(seconds=30)
        notice = wire.Notice(cloud="aws", kind="terminate", at=at, noticed_at=datetime.now(UTC), message="EC2 takes it in 30 s")
        node.jobs.notice(notice)
        await node.until(soft, "queued")
        waiting = node.jobs.job(soft)
        assert waiting.attempts[0].cause == "spot_reclaim" and "saved" in node.jobs.log(soft, attempt=1).text
        order = (node.folder / "state/jobs" / soft / "1/stop.json").read_text()
        assert 0 < msgspec.json.decode(order)["grace_seconds"] <= 25
        late = node.submit(sh("true"))
        await node.when(lambda: "aws takes this node away" in (node.jobs.job(late).reason or ""))
        assert node.jobs.job(hard).state == "running" and "EC2 takes it" in node.jobs.job(hard).warnings[0]
        node.jobs.notice(msgspec.structs.replace(notice, ended_at=datetime.now(UTC)))
        assert (await node.until(late)).cause == "exit:0"
        assert (await node.begun(soft)).attempt == 2 and not node.jobs.job(hard).warnings


class Sharer:
    """Makes each GPU's MPS with the stand-in control daemon."""

    def __init__(self, rig: FakeMps) -> None:
        self.rig = rig

    def __call__(self, gpu: wire.GpuInventory, folder: Path, context: object) -> MpsGpu:
        return MpsGpu(
            gpu.uuid, self.rig.runtime, control=str(self.rig.control), compute_mode=self.rig.mode,
            memory_total_bytes=gpu.memory_total_bytes, compute_capability="9.0", answer_seconds=60.0,
        )  # fmt: skip


async def sharing_node(rig: FakeMps) -> JobNode:
    node = JobNode(1, make_mps=Sharer(rig), mps_control=str(rig.control))
    node.open()
    return node


async def test_two_jobs_share_a_gpu_through_mps_and_it_is_given_back(fake_mps: FakeMps) -> None:
    node = await sharing_node(fake_mps)
    try:
        shows = sh("echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE [$CUDA_VISIBLE_DEVICES]; echo ready; sleep 600")
        half, third = (node.submit(shows, gpu_share=Decimal(share), gpu_memory_bytes=8 << 30) for share in ("0.5", "0.3"))
        await node.begun(half)
        await node.begun(third)
        uuid = node.gpus[0].uuid
        assert sorted(claim.share for claim in node.jobs.claims()[uuid]) == [300_000, 500_000]
        assert node.jobs.log(half).text.split()[:2] == ["50", "[]"] and str(node.jobs.job(half).usd_per_hour) == "1.8"
        state = await node.jobs.mps(uuid)
        assert state.shares == {half: Decimal("0.5"), third: Decimal("0.3")} and fake_mps.mode.mode == "exclusive_process"
        too_much = node.submit(sh("true"), gpu_share=Decimal("0.3"))
        await node.when(lambda: "GPU" in (node.jobs.job(too_much).reason or ""))
        node.close()
        node.open()  # sharing is adopted
        await node.when(lambda: not any(job.state == "starting" for job in node.jobs.jobs().jobs))
        assert (await node.jobs.mps(uuid)).shares == {half: Decimal("0.5"), third: Decimal("0.3")}
        node.jobs.cancel(third, NODE)
        assert (await node.until(too_much)).cause == "exit:0"
        launch = msgspec.json.decode((node.folder / "state/jobs" / half / "1/launch.json").read_bytes())
        assert "{cgroup_pids}" in launch["stop"]["before_kill"][0]["argv"]
        node.jobs.cancel(half, NODE)
        await node.until(half)
        assert fake_mps.mode.mode == "default" and not fake_mps.processes()
    finally:
        await node.clear()


async def test_a_share_that_mps_cannot_give_is_refused_with_the_reason() -> None:
    async with job_node(1, mps_control="/nonexistent/mps") as node:
        with pytest.raises(JobRefused, match="/nonexistent/mps"):
            node.submit(sh("true"), gpu_share=Decimal("0.5"))
        assert (await node.jobs.mps(node.gpus[0].uuid)).state == "refused"


async def test_a_dry_run_of_a_share_lists_what_mps_would_be_told(fake_mps: FakeMps) -> None:
    node = await sharing_node(fake_mps)
    try:
        plan = node.jobs.plan(wire.JobSpec(command=("true",), gpu_share=Decimal("0.25")), NODE)
        assert plan.starts_now and plan.gpus == (node.gpus[0].uuid,)
        assert [step.kind for step in plan.steps][:2] == ["mode", "run"] and "mps" in {step.kind for step in plan.steps}
        assert "CUDA_MPS_PIPE_DIRECTORY" in plan.environment and "CUDA_VISIBLE_DEVICES" not in plan.environment
        assert plan.usd_per_hour == Decimal("0.9") and not fake_mps.processes()
        assert not list((node.folder / "state/jobs").glob("*/spec.json")), "nothing is kept"
    finally:
        await node.clear()


async def test_the_meter_is_told_who_holds_what_at_once() -> None:
    told: list[dict[str, Any]] = []
    of_cpus: set[CpuClaim] = set()

    class Told:
        moment = staticmethod(standing)

        def claim(self, claims: dict[str, Any], cpu: tuple[CpuClaim, ...]) -> None:
            told.append(claims)
            of_cpus.update(cpu)

    node = JobNode(1)
    try:
        node.open(meter=Told())  # type: ignore[arg-type]
        job = await node.run(sh("true"), gpus=1, project="vision", user="root" if os.geteuid() == 0 else None)
        (uuid,) = job.gpus
        held = [claims for claims in told if claims]
        assert held and {(one.job, one.project, one.share) for one in held[0][uuid]} == {(job.id, "vision", 10**6)}
        assert told[-1] == {} and not of_cpus
        plain = await node.run(sh("true"), memory_bytes=64 << 20, user="root" if os.geteuid() == 0 else None)
        assert of_cpus == {CpuClaim(plain.user, None, plain.id, 500, 64 << 20)} and told[-1] == {}
    finally:
        await node.clear()


async def test_a_job_costs_what_its_rows_say_to_the_millisecond_also_while_its_place_is_only_held() -> None:
    node = JobNode(2)
    meter = Meter.open(":memory:", "n1", durable=False)
    step = node.step

    def measured() -> None:
        step()
        reports = (wire.SensorReport(name="nvml", ok=True, taken_at=datetime.now(UTC)),)
        gpus = tuple(wire.Gpu(index=gpu.index, uuid=gpu.uuid, state="ok", processes=()) for gpu in node.gpus)
        meter.observe(wire.Sample(node="n1", sequence=1, taken_at=datetime.now(UTC), gpus=gpus, sensors=reports), INFO)

    node.step = measured  # type: ignore[method-assign]
    try:
        node.open(meter=meter)
        plain = await node.run(sh("true"), gpus=1)
        launcher = node.folder / "torchrun"
        launcher.write_text("#!/bin/sh\n")
        launcher.chmod(0o755)
        gang = wire.Gang(id="run-1", nodes=2, least_nodes=2, host_here=True)
        held = node.jobs.reserve(wire.JobSpec(command=(str(launcher), "train.py"), gpus=2, gang=gang), NODE)
        await asyncio.sleep(0.1)
        node.jobs.start_reserved(held.id, "127.0.0.1:29400", NODE)
        part = await node.until(held.id)
        rows = [row for row in all_rows(meter)[0] if row.kind == "held"]
        for job in (plain, part):
            seconds = sum((row.gpu_seconds for row in rows if row.job == job.id), Decimal(0))
            assert job.cost == (seconds * Decimal("1.80") / 3600).quantize(Decimal("1e-9")), (job.id, seconds)
        assert part.cost is not None and part.cost > Decimal("0.1") * Decimal("3.60") / 3600
    finally:
        meter.close()
        await node.clear()


async def test_a_stranger_on_a_gpu_that_a_job_has_for_itself_is_told() -> None:
    async with job_node(1) as node:
        job = node.submit(sh("echo ready; sleep 600"), gpus=1)
        await node.begun(job)
        node.processes[node.gpus[0].uuid] = [process(4711, user="eve")]
        await node.when(lambda: node.jobs.job(job).warnings)
        assert node.jobs.job(job).warnings == ("python train.py (4711) of eve is on GPU 0, which this job has for itself",)
        node.processes[node.gpus[0].uuid] = []
        await node.when(lambda: not node.jobs.job(job).warnings)
        node.processes[node.gpus[0].uuid] = [process(4711, user="eve")]
        node.jobs.cancel(job, NODE, force=True)
        assert (await node.until(job)).cause == "cancelled", "a stranger's process is not the job's"
