"""What policies would have done on recorded availability: all runs at once, tick by tick, the same starts for each policy.

Invariant: a policy is shown the present tick and the past. Whole ticks are billed. A run is late when its work is not done
after the last whole tick before its deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pricing.spot import AVAILABLE, HOUR_MS, Array, Decision, Job, Look, Policy

IDLE, SPOT, ON_DEMAND = (int(one) for one in Decision)


@dataclass(frozen=True, slots=True)
class Worlds:
    """What the market did around each start."""

    states: Array
    """uint8 (runs, ticks): UNAVAILABLE, AVAILABLE, UNKNOWN from the start on, at least as long as the deadline."""
    history: Array
    """uint8 (runs, ticks before the start), UNKNOWN where nothing is known; may have no columns."""
    zone: Array
    """int (runs,): which of `zones`."""
    zones: tuple[str, ...] = ()
    block: Array | None = None
    """int (runs,): which stretch of one deadline's length within the zone; starts of one overlap."""

    def of(self, chosen: Array) -> Worlds:
        """Only these runs."""
        block = None if self.block is None else self.block[chosen]
        return Worlds(self.states[chosen], self.history[chosen], self.zone[chosen], self.zones, block)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entry a run."""

    policy: str
    spot_ticks: Array
    on_demand_ticks: Array
    spot_work_ms: Array
    on_demand_work_ms: Array
    """The work that was done there; the rest of their time went into changeovers, and the last tick's end."""
    finish_ticks: Array | None
    """Ticks from the start to the end of the work; for a late run, all ticks of the deadline; None: not told."""
    late: Array

    def cost(self, job: Job) -> Array:
        """$ of each run."""
        hours = job.tick_ms / HOUR_MS
        return (self.spot_ticks * job.spot + self.on_demand_ticks * job.on_demand) * hours

    @classmethod
    def joined(cls, parts: Sequence[Outcome], order: Array) -> Outcome:
        """Outcomes of one policy on parts of the runs; `order` puts their rows in place."""
        arrays = {
            name: None if getattr(parts[0], name) is None else np.concatenate([getattr(one, name) for one in parts])[order]
            for name in cls.__slots__
            if name != "policy"
        }
        return cls(policy=parts[0].policy, **arrays)


def simulate(policy: Policy, worlds: Worlds, job: Job) -> Outcome:
    """Runs a policy on all worlds."""
    runs, ticks = len(worlds.states), job.deadline_ms // job.tick_ms
    policy.start(job, runs)
    for tick in range(worlds.history.shape[1]):
        policy.observe(worlds.history[:, tick], job.tick_ms)
    work = np.full(runs, job.work_ms, np.int64)
    instance, pending = np.zeros(runs, np.int8), np.zeros(runs, np.int64)
    spot, on_demand, finish, spot_work, on_demand_work = (np.zeros(runs, np.int64) for _ in range(5))
    states = np.ascontiguousarray(worlds.states[:, :ticks].T)
    for tick in range(ticks):
        available = states[tick] == AVAILABLE
        lost = (instance == SPOT) & ~available
        instance[lost], pending[lost] = IDLE, 0
        policy.observe(states[tick], job.tick_ms)
        look = Look(tick * job.tick_ms, (ticks - tick) * job.tick_ms, work, instance, pending, available)
        chosen = np.where(work > 0, policy.choose(look), IDLE).astype(np.int8)
        pending = np.where(chosen == IDLE, 0, np.where(chosen != instance, job.changeover_ms, pending))
        instance, running = chosen, chosen != IDLE
        used = np.minimum(pending, job.tick_ms)
        pending = pending - used
        done = np.where(running, np.minimum(work, job.tick_ms - used), 0)
        work = work - done
        spot_work += np.where(chosen == SPOT, done, 0)
        on_demand_work += np.where(chosen == ON_DEMAND, done, 0)
        spot += chosen == SPOT
        on_demand += chosen == ON_DEMAND
        finish += (work > 0) | running
        if not (work > 0).any():
            break
    return Outcome(policy.name, spot, on_demand, spot_work, on_demand_work, finish, work > 0)
