"""A job under a spot policy: on simulated nodes that come and go, one job at a time, never late, nothing run twice."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from agent import wire
from agent.client import AgentRefused, Unreachable
from pricing.spot import Policy
from pricing.spot_rules import Greedy, OnDemand, UniformProgress
from tui import job_nodes
from tui.commands.drive import TOGETHER_SECONDS, _Fleet
from tui.config import NodeConfig
from tui.job_nodes import Offer, Place
from tui.spot_drive import LOST_SECONDS, Drive, Kind, Progress

BEGIN = datetime(2026, 11, 30, tzinfo=UTC)
LOOK = 60.0
CHANGEOVER = 600.0


class World:
    """One spot node and one on-demand node; spot is there while `spot(minute)` says so. Time is `now`."""

    def __init__(self, spot: str, work_seconds: float) -> None:
        self.spot, self.work, self.now = spot, work_seconds, BEGIN
        self.done = 0.0
        self.jobs: dict[str, wire.Job] = {}
        self.cancelled: list[str] = []
        self.silent: set[str] = set()
        self.most_at_once = 0

    def available(self) -> bool:
        minute = int((self.now - BEGIN).total_seconds() // 60)
        return self.spot[min(minute, len(self.spot) - 1)] == "1"

    async def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        running = [job for job in self.jobs.values() if job.state == "running"]
        self.most_at_once = max(self.most_at_once, len(running))
        for job in running:
            assert job.started_at is not None
            self.done += min(seconds, max(0.0, (self.now - job.started_at).total_seconds() - CHANGEOVER))
            if self.done >= self.work:
                self._end(job, "exit:0", exit_code=0)
            elif job.node == "spot" and not self.available():
                self._end(job, "spot_reclaim", state="queued")

    def _end(self, job: wire.Job, cause: str, state: wire.JobState = "ended", exit_code: int | None = None) -> None:
        attempt = wire.Attempt(number=1, started_at=job.started_at, ended_at=self.now, cause=cause)
        self.jobs[job.id] = _job(
            job.id, job.node, job.submitted_at, state=state, cause=cause, exit_code=exit_code, attempts=(attempt,), attempt=1
        )

    async def offers(self, kind: Kind) -> Sequence[Offer]:
        if kind in self.silent or (kind == "spot" and not self.available()):
            return []
        price = Decimal("1") if kind == "spot" else Decimal("3")
        plan = wire.JobPlan(
            node=kind, starts_now=True, reason="", argv=(), environment=(), user="u", enforcement="none", usd_per_hour=price
        )
        return [Offer(Place(NodeConfig(name=kind, url="http://127.0.0.1"), price, kind), plan)]

    async def submit(self, offer: Offer) -> wire.Job:
        id = f"job{len(self.jobs)}"
        attempt = wire.Attempt(number=1, started_at=self.now)
        self.jobs[id] = _job(id, offer.place.name, self.now, state="running", started_at=self.now, attempts=(attempt,), attempt=1)
        return self.jobs[id]

    async def job(self, node: str, id: str) -> wire.Job:
        if node in self.silent:
            raise Unreachable(f"{node} does not answer")
        return self.jobs[id]

    async def cancel(self, node: str, id: str) -> wire.Job:
        job = await self.job(node, id)
        if job.state == "ended":
            raise AgentRefused(409, "it has ended", node)
        self.cancelled.append(id)
        self._end(job, "cancelled")
        return self.jobs[id]


def _job(id: str, node: str, submitted_at: datetime, **fields: object) -> wire.Job:
    return wire.Job(id=id, node=node, submitted_at=submitted_at, **fields)  # type: ignore[arg-type]


def drive_of(world: World, policy: Policy, deadline_hours: float, told: list[str] | None = None) -> Drive:
    progress = Progress(
        id="run1", policy=policy.name, work_seconds=world.work, changeover_seconds=CHANGEOVER, began_at=world.now,
        deadline=BEGIN + timedelta(hours=deadline_hours), spot_usd=Decimal(1), on_demand_usd=Decimal(3),
    )  # fmt: skip
    return Drive(
        progress, policy, world, look_seconds=LOOK, grace_seconds=30, save=lambda _: None,
        told=(told if told is not None else []).append, now=lambda: world.now, sleep=world.sleep,
    )  # fmt: skip


async def test_spot_that_stays_is_used_to_the_end() -> None:
    world = World("1", 4 * 3600)
    drive = drive_of(world, Greedy(), 8)
    await drive.run()
    assert (drive.progress.cause, drive.progress.exit_code, len(drive.progress.legs)) == ("exit:0", 0, 1)
    assert drive.progress.hours("on_demand") == 0 and drive.progress.hours("spot") == pytest.approx(4 + CHANGEOVER / 3600, abs=0.05)


async def test_spot_that_never_comes_is_waited_for_until_the_deadline_calls_for_on_demand() -> None:
    world = World("0", 4 * 3600)
    drive = drive_of(world, Greedy(), 8)
    await drive.run()
    [leg] = drive.progress.legs
    assert leg.kind == "on_demand" and world.now <= drive.progress.deadline
    assert leg.submitted_at - BEGIN > timedelta(hours=3)


@pytest.mark.parametrize("policy", [OnDemand(), Greedy(), UniformProgress(), UniformProgress(hysteresis=False)], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "spot",
    ["1" * 90 + "0" * 60 + "1" * 45 + "0" * 400, ("1" * 20 + "0" * 10) * 30, ("1" * 5 + "0" * 55) * 12, "0" * 240 + "1" * 3 + "0" * 9],
    ids=["fades", "flickers", "blinks", "too late"],
)
async def test_whatever_spot_does_one_job_runs_at_a_time_and_the_deadline_is_kept(policy: Policy, spot: str) -> None:
    world = World(spot, 4 * 3600)
    drive = drive_of(world, policy, 8)
    await drive.run()
    assert drive.progress.cause == "exit:0" and world.now <= drive.progress.deadline
    assert world.most_at_once == 1
    assert [job.id for job in world.jobs.values() if job.state != "ended"] == []


async def test_a_job_that_a_node_would_run_again_is_cancelled_there() -> None:
    world = World("1" * 60 + "0" * 1000, 4 * 3600)
    drive = drive_of(world, Greedy(), 8)
    await drive.run()
    assert drive.progress.legs[0].cause == "spot_reclaim" and "job0" in world.cancelled


async def test_a_node_that_says_nothing_is_lost_after_a_while_and_told_to_cancel_when_it_answers() -> None:
    world, told = World("1", 4 * 3600), list[str]()
    drive = drive_of(world, Greedy(), 12, told)
    for _ in range(30):
        await drive.step()
        await world.sleep(LOOK)
    world.silent = {"spot"}
    while not drive.progress.legs[0].ended:
        await drive.step()
        await world.sleep(LOOK)
    assert any("has not answered" in line for line in told)
    assert (world.now - BEGIN).total_seconds() >= 30 * LOOK + LOST_SECONDS
    assert world.jobs["job0"].state == "running" and drive.progress.legs[0].left
    world.silent = set()
    await drive.step()
    assert "job0" in world.cancelled and not drive.progress.legs[0].left


async def test_when_no_node_answers_it_is_our_own_network_and_the_job_is_left_alone() -> None:
    world = World("1", 4 * 3600)
    drive = drive_of(world, Greedy(), 12)
    await drive.step()
    world.silent = {"spot", "on_demand"}
    for _ in range(60):
        await world.sleep(LOOK)
        await drive.step()
    world.silent = set()
    await drive.run()
    assert (drive.progress.cause, len(drive.progress.legs), world.cancelled) == ("exit:0", 1, [])


async def test_a_job_that_fails_by_itself_is_over_wherever_it_ran() -> None:
    world = World("1", 4 * 3600)
    drive = drive_of(world, Greedy(), 8)
    await drive.step()
    world._end(world.jobs["job0"], "exit:3", exit_code=3)
    await drive.run()
    assert (drive.progress.cause, drive.progress.exit_code, len(world.jobs)) == ("exit:3", 3, 1)


async def test_progress_is_what_ran_beyond_each_changeover() -> None:
    world = World("1" * 60 + "0" * 1000, 4 * 3600)
    drive = drive_of(world, UniformProgress(), 8)
    await drive.run()
    assert drive.progress.done_seconds() == pytest.approx(4 * 3600, abs=3 * LOOK)


async def test_what_is_asked_together_looks_for_the_nodes_once_and_asks_each_kind_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched, asked, clock = [0], list[str](), [0.0]
    places = [Place(NodeConfig(name=name, url="http://127.0.0.1"), Decimal(1), name) for name in ("spot", "on_demand", "reserved_1y")]

    class Submission:
        wanted, client_for = None, None

        async def places(self, *, quiet: bool) -> list[Place]:
            fetched[0] += 1
            return places

    async def ask(found: Sequence[Place], *_: object) -> list[Offer]:
        asked.extend(place.name for place in found)
        return []

    monkeypatch.setattr(job_nodes, "ask", ask)
    fleet = _Fleet(Submission(), lambda: clock[0])  # type: ignore[arg-type]
    for _ in range(2):
        await fleet.offers("spot")
        await fleet.offers("on_demand")
    assert fetched == [1] and asked == ["spot", "on_demand", "reserved_1y"] * 2
    clock[0] += TOGETHER_SECONDS
    await fleet.offers("spot")
    assert fetched == [2]
