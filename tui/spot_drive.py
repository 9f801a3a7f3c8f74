"""A job that a spot policy drives: where it is now, what is done, and the next step: wait, spot, or on demand.

Invariant: at most one leg of a drive runs that is known of; before another begins, the one before has ended or its node is
lost, and a node that was lost is told to cancel what it held as soon as it answers. What is done is never counted twice.

Progress is time: of each leg what ran beyond the changeover (boot, restore, work lost since the last checkpoint). The job
saves and finds its checkpoints by itself, where every node reaches them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, Protocol

import msgspec

from agent import wire
from agent.client import AgentRefused, ClientError
from pricing.spot import Decision, Policy, State
from pricing.spot import Job as Task
from tui import format as fmt
from tui.errors import RackrateError
from tui.job_nodes import Offer, hourly

Kind = Literal["spot", "on_demand"]
LOST_SECONDS = 120.0
"""A node that says nothing for so long, while others answer, is lost to the drive."""
START_SECONDS = 120.0
"""A leg on spot that has not begun to run by then is given up."""
STOP_SECONDS = 90.0
"""Beyond the job's own grace, for a leg to end."""
FAILED = ("start_error", "oom", "time_limit", "budget", "idle_stop", "cancelled", "unkillable")
"""Causes with which a job is over wherever it ran."""


class Leg(msgspec.Struct, kw_only=True):
    """One job on one node."""

    node: str
    job: str
    kind: Kind
    usd_per_hour: Decimal | None
    submitted_at: datetime
    run_seconds: float = 0.0
    cost: Decimal | None = None
    ended: bool = False
    cause: str | None = None
    left: bool = False
    """Its node still has to be told to cancel it."""


class Progress(msgspec.Struct, kw_only=True):
    """What has to outlive the driver: one JSON file."""

    id: str
    policy: str
    work_seconds: float
    changeover_seconds: float
    began_at: datetime
    deadline: datetime
    spot_usd: Decimal
    on_demand_usd: Decimal
    legs: list[Leg] = []
    exit_code: int | None = None
    cause: str | None = None
    """Of the job, once it is over."""

    @property
    def leg(self) -> Leg | None:
        """The one that runs."""
        return self.legs[-1] if self.legs and not self.legs[-1].ended else None

    def done_seconds(self) -> float:
        return sum(max(0.0, leg.run_seconds - self.changeover_seconds) for leg in self.legs)

    def hours(self, kind: Kind) -> float:
        return sum(leg.run_seconds for leg in self.legs if leg.kind == kind) / 3600

    def cost(self) -> Decimal | None:
        """Of all legs; None where one is not known."""
        costs = [leg.cost for leg in self.legs]
        return None if None in costs else sum((cost for cost in costs if cost is not None), Decimal(0))


class Nodes(Protocol):
    """What the drive asks of the fleet."""

    async def offers(self, kind: Kind) -> Sequence[Offer]:
        """What the nodes of this kind say to a dry run, cheapest first."""
        ...

    async def submit(self, offer: Offer) -> wire.Job: ...
    async def job(self, node: str, id: str) -> wire.Job: ...
    async def cancel(self, node: str, id: str) -> wire.Job: ...


class Drive:
    """One drive. `run` returns when the job is over; `step` is one look."""

    def __init__(
        self,
        progress: Progress,
        policy: Policy,
        nodes: Nodes,
        *,
        look_seconds: float,
        grace_seconds: float,
        save: Callable[[Progress], None],
        told: Callable[[str], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.progress = progress
        self._policy, self._nodes, self._save, self._told = policy, nodes, save, told
        self._look, self._grace, self._now, self._sleep = look_seconds, grace_seconds, now, sleep
        self._answered_at = self._now()
        self._looked_at: datetime | None = None
        policy.start(self._task())

    def _task(self) -> Task:
        one = self.progress
        return Task(
            work_ms=_ms(one.work_seconds),
            deadline_ms=_ms((one.deadline - one.began_at).total_seconds()),
            changeover_ms=_ms(one.changeover_seconds),
            tick_ms=_ms(self._look + LOST_SECONDS),
            on_demand=float(one.on_demand_usd),
            spot=float(one.spot_usd),
        )

    async def run(self) -> None:
        """Looks again and again until the job is over."""
        while self.progress.cause is None:
            await self.step()
            if self.progress.cause is None:
                await self._sleep(self._look)
        await self._cancel_left()

    async def step(self) -> None:
        """One look at the job and at the market, and what follows from it."""
        await self._cancel_left()
        await self._see()
        if self.progress.cause is not None:
            return
        spot = await self._nodes.offers("spot")
        leg = self.progress.leg
        on_spot = leg is not None and leg.kind == "spot"
        starting = [offer for offer in spot if offer.plan is not None and offer.plan.starts_now]
        available = on_spot or bool(starting)
        decision = self._decide(available, starting)
        if leg is not None and decision.word != leg.kind and not await self._leave(leg, decision):
            return
        if self.progress.leg is None and self.progress.cause is None and decision is not Decision.IDLE:
            await self._start(decision.word, starting if decision is Decision.SPOT else await self._nodes.offers("on_demand"))  # type: ignore[arg-type]

    def _decide(self, available: bool, starting: Sequence[Offer]) -> Decision:
        import numpy as np

        one, leg, now = self.progress, self.progress.leg, self._now()
        elapsed = 0.0 if self._looked_at is None else (now - self._looked_at).total_seconds()
        self._looked_at = now
        self._policy.observe(np.array([available], np.uint8), _ms(elapsed))
        pending = max(0.0, one.changeover_seconds - leg.run_seconds) if leg else 0.0
        prices = [price for offer in starting if (price := price_of(offer)) is not None]
        spot = leg.usd_per_hour if leg is not None and leg.kind == "spot" else min(prices, default=None)
        state = State(
            time_left_ms=_ms((one.deadline - now).total_seconds()),
            work_left_ms=max(_ms(self._look), _ms(one.work_seconds - one.done_seconds())),
            instance=Decision.IDLE if leg is None else Decision[leg.kind.upper()],
            pending_ms=_ms(pending),
            available=available,
            spot=None if spot is None else float(spot),
        )
        return self._policy.decide(state)

    async def _see(self) -> None:
        """What became of the leg that runs."""
        leg = self.progress.leg
        if leg is None:
            return
        try:
            job = await self._nodes.job(leg.node, leg.job)
        except AgentRefused as error:
            if error.status == 404:
                self._end(leg, "lost", f"{leg.node} does not know job {leg.job} any more")
            return
        except (ClientError, RackrateError):
            await self._silent(leg)
            return
        self._answered_at = self._now()
        self._take(leg, job)

    async def _silent(self, leg: Leg) -> None:
        """Lost, if others answer; where nobody does it is our own network, and the job runs on."""
        silent = (self._now() - self._answered_at).total_seconds()
        if silent < LOST_SECONDS:
            return
        others = [*await self._nodes.offers("spot"), *await self._nodes.offers("on_demand")]
        if any(offer.place.node.name != leg.node for offer in others):
            leg.left = True
            self._end(leg, "lost", f"{leg.node} has not answered for {silent:.0f} s: it is taken as lost")

    def _take(self, leg: Leg, job: wire.Job) -> None:
        leg.run_seconds = max(leg.run_seconds, ran_seconds(job, self._now()))
        leg.cost = job.cost
        cause = job.cause or ""
        if job.state == "ended" and (cause == "exit:0" or cause in FAILED or cause.startswith(("exit", "signal"))):
            self._end(leg, cause, None)
            if cause != "cancelled" or not leg.left:
                self.progress.cause, self.progress.exit_code = cause, job.exit_code
        elif job.state == "ended":
            self._end(leg, cause, job.evidence)
        elif job.state == "queued" and cause in ("spot_reclaim", "preempted"):
            leg.left = True
            self._end(leg, cause, job.evidence)
        elif job.state == "queued" and leg.kind == "spot" and self._late(leg):
            leg.left = True
            self._end(leg, "lost", f"{leg.node} did not start it within {START_SECONDS:.0f} s: {job.reason}")
        self._save(self.progress)

    def _late(self, leg: Leg) -> bool:
        return (self._now() - leg.submitted_at).total_seconds() > START_SECONDS

    def _end(self, leg: Leg, cause: str, why: str | None) -> None:
        leg.ended, leg.cause = True, cause
        self._save(self.progress)
        self._tell(f"{leg.kind.replace('_', ' ')} on {leg.node} ended ({cause}){f': {fmt.clean(why)}' if why else ''}")

    async def _leave(self, leg: Leg, decision: Decision) -> bool:
        """Stops the leg softly, so that it can save; False while it has not ended."""
        to = {Decision.IDLE: "waits for spot", Decision.SPOT: "moves to spot", Decision.ON_DEMAND: "moves to on demand"}[decision]
        self._tell(f"{to}: job {leg.job} on {leg.node} is stopped softly")
        leg.left = True
        deadline = self._now().timestamp() + self._grace + STOP_SECONDS
        while not leg.ended:
            await self._cancel(leg)
            await self._see()
            if self._now().timestamp() > deadline or leg.ended:
                break
            await self._sleep(min(1.0, self._look))
        return leg.ended

    async def _start(self, kind: Kind, offers: Sequence[Offer]) -> None:
        """On the cheapest that starts it now; on demand it may also wait in a queue."""
        planned = [offer for offer in offers if offer.plan is not None]
        starting = [offer for offer in planned if offer.plan is not None and offer.plan.starts_now]
        for offer in starting or (planned[:1] if kind == "on_demand" else ()):
            try:
                job = await self._nodes.submit(offer)
            except (ClientError, RackrateError) as error:
                self._told(f"rackrate: {error}")
                continue
            price = price_of(offer)
            leg = Leg(node=offer.place.node.name, job=job.id, kind=kind, usd_per_hour=price, submitted_at=self._now())
            self.progress.legs.append(leg)
            self._answered_at = self._now()
            self._save(self.progress)
            self._tell(f"{kind.replace('_', ' ')} on {leg.node}, {hourly(price)}: job {job.id}")
            return
        if kind == "on_demand":
            self._tell("no on-demand node takes it now: the deadline is in danger")

    async def _cancel_left(self) -> None:
        """Nodes that were left, or lost, must not run it again."""
        for leg in self.progress.legs:
            if leg.left and leg.ended and await self._cancel(leg):
                leg.left = False
                self._save(self.progress)

    async def _cancel(self, leg: Leg) -> bool:
        try:
            job = await self._nodes.cancel(leg.node, leg.job)
        except AgentRefused as error:
            return error.status in (404, 409)  # it does not know the job, or that has ended
        except (ClientError, RackrateError):
            return False
        leg.run_seconds = max(leg.run_seconds, ran_seconds(job, self._now()))
        leg.cost = job.cost if job.cost is not None else leg.cost
        return job.state == "ended"

    def _tell(self, what: str) -> None:
        one, now = self.progress, self._now()
        left = max(0.0, (one.deadline - now).total_seconds())
        self._told(
            f"{now.astimezone():%H:%M:%S} {what}; {one.done_seconds() / 3600:.1f} of {one.work_seconds / 3600:.1f} h done, "
            f"{left / 3600:.1f} h left"
        )


def price_of(offer: Offer) -> Decimal | None:
    """$ an hour of what the job would hold; of the whole node where that has no price of its own (it takes no GPU)."""
    price = offer.plan.usd_per_hour if offer.plan is not None else None
    return price or offer.place.usd_per_hour or None


def ran_seconds(job: wire.Job, now: datetime) -> float:
    """How long it has run, over its attempts on this node."""
    total = 0.0
    for attempt in job.attempts:
        if attempt.started_at is not None:
            total += max(0.0, ((attempt.ended_at or now) - attempt.started_at).total_seconds())
    return total


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def outcome(progress: Progress, now: datetime) -> dict[str, object]:
    """What became of it, as `--json` prints it."""
    cost = progress.cost()
    return {
        "id": progress.id,
        "policy": progress.policy,
        "cause": progress.cause,
        "exit_code": progress.exit_code,
        "late": now > progress.deadline,
        "cost": None if cost is None else str(cost),
        "spot_hours": round(progress.hours("spot"), 4),
        "on_demand_hours": round(progress.hours("on_demand"), 4),
        "moves": max(0, len(progress.legs) - 1),
        "legs": [
            {
                "node": leg.node,
                "job": leg.job,
                "purchase": leg.kind,
                "run_seconds": round(leg.run_seconds, 1),
                "cost": None if leg.cost is None else str(leg.cost),
                "cause": leg.cause,
            }
            for leg in progress.legs
        ],
    }
