"""What a policy is expected to cost a job: over starts in measured traces, or in worlds drawn from a model.

Invariant: the same seed gives the same worlds; the source of the worlds is told.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pricing.market_traces import Trace
from pricing.spot import HOUR_MS, Array, Expectation, Job, job_of, policy_of
from pricing.spot_backtest import Outcome, Worlds, simulate
from pricing.spot_hazard import SHIPPED, Memory, SpotModel
from pricing.spot_judge import clustered
from pricing.spot_optimum import optimum
from pricing.spot_own import Rackrate
from pricing.spot_traces import starts_of, tick_of

WARM_UP_HOURS = 96
MOST_TICKS = 3000
"""Of one drawn world; a longer deadline has longer ticks."""


def expectation(
    policy: str,
    worlds: Sequence[Trace] | SpotModel | None,
    starts: int,
    seed: int,
    *,
    work_hours: float,
    deadline_hours: float,
    changeover_hours: float,
    on_demand: float,
    spot: float,
) -> Expectation:
    """See `pricing.spot.expected`."""
    figures = {
        "work_hours": work_hours, "deadline_hours": deadline_hours, "changeover_hours": changeover_hours,
        "on_demand": on_demand, "spot": spot,
    }  # fmt: skip
    model = SHIPPED
    if worlds is None or isinstance(worlds, SpotModel):
        model = worlds or SHIPPED
        job = job_of(**figures, tick_ms=_tick(work_hours, deadline_hours, changeover_hours))
        found, source = drawn(model, job, starts, seed), model.source
    else:
        job = job_of(**figures, tick_ms=tick_of(worlds))
        found, _ = starts_of(worlds, job, starts=starts, seed=seed)
        source = f"{len(found.states):,} starts in {len(worlds):,} traces"
    if policy == "omniscient":
        return _told(optimum(found.states, job)[0], found, job, source)
    rule = Rackrate(model) if policy == Rackrate.name else policy_of(policy)
    return _told(simulate(rule, found, job), found, job, source)


def _tick(work_hours: float, deadline_hours: float, changeover_hours: float) -> int:
    """Ten minutes; shorter where the job has little room, longer where the deadline is far."""
    room = max(0.0, deadline_hours - work_hours - changeover_hours) * HOUR_MS
    shortest = max(1000, int(deadline_hours * HOUR_MS // MOST_TICKS))
    return max(shortest, min(600_000, int(room / 6)))


def drawn(model: SpotModel, job: Job, runs: int, seed: int) -> Worlds:
    """Worlds of the model, each warmed up, none of it shown as history."""
    rng, ticks, hours = np.random.default_rng(seed), job.deadline_ms // job.tick_ms, job.tick_ms / HOUR_MS
    warm_up = min(2000, int(WARM_UP_HOURS / hours))
    memory, states = Memory(model, runs), np.empty((runs, ticks), np.uint8)
    now = (rng.random(runs) < model.prior_share).astype(np.uint8)
    for tick in range(warm_up + ticks):
        memory.observe(now, job.tick_ms)
        if tick >= warm_up:
            states[:, tick - warm_up] = now
        age, share = memory.age_hours, memory.share
        hazard = np.where(now == 1, model.hazard(True, age, share), model.hazard(False, age, share))
        now = np.where(rng.random(runs) < -np.expm1(-hazard * hours), 1 - now, now).astype(np.uint8)
    return Worlds(states, np.empty((runs, 0), np.uint8), np.arange(runs))


def _told(outcome: Outcome, worlds: Worlds, job: Job, source: str) -> Expectation:
    cost, tick = outcome.cost(job), job.tick_ms / HOUR_MS
    on_demand = job.work_ms / HOUR_MS * job.on_demand
    clusters: Array = worlds.zone if worlds.block is None else worlds.zone * 1_000_000_007 + worlds.block
    finish = outcome.finish_ticks
    return Expectation(
        policy=outcome.policy,
        runs=len(cost),
        cost=float(cost.mean()),
        cost_low=float(np.quantile(cost, 0.05)),
        cost_high=float(np.quantile(cost, 0.95)),
        on_demand_cost=on_demand,
        saving_ratio=float(1 - cost.mean() / on_demand),
        standard_error=(clustered(cost, clusters) or 0.0) / on_demand,
        spot_hours=float(outcome.spot_ticks.mean() * tick),
        on_demand_hours=float(outcome.on_demand_ticks.mean() * tick),
        finish_hours=job.deadline_ms / HOUR_MS if finish is None else float(finish.mean() * tick),
        late_chance=float(outcome.late.mean()),
        source=source,
    )
