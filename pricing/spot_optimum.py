"""The omniscient optimum: the least cost of each run for somebody who knows the whole trace, by dynamic programming.

Invariant: no policy under the rules of `spot_backtest.simulate` is cheaper. The state is (tick, instance, slack), slack =
time left - work left - changeover under way: it falls by a tick for each idle tick and by a changeover for each start.
Source: Wu et al., "Can't Be Late", NSDI 2024, section 3.3 (there as an integer program).
"""

from __future__ import annotations

from math import gcd

import numpy as np

from pricing.spot import AVAILABLE, Array, Job

MOST_SLACKS = 12_000
RUNS_AT_ONCE = 64


def optimum(states: Array, job: Job) -> tuple[Array, bool]:
    """($ of each run (float64; inf where even on demand is late), whether exact).

    `states`: uint8 (runs, ticks). Where changeover and tick have no common measure the changeover is rounded down to one
    (not exact: a lower bound of the cost).
    """
    ticks = job.deadline_ms // job.tick_ms
    slack_ms = ticks * job.tick_ms - job.work_ms
    unit, exact = _unit(job, slack_ms)
    available = np.ascontiguousarray((states[:, :ticks] == AVAILABLE).T)
    parts = [
        _least(available[:, first : first + RUNS_AT_ONCE], job, slack_ms, unit)
        for first in range(0, available.shape[1], RUNS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0), exact


def _unit(job: Job, slack_ms: int) -> tuple[int, bool]:
    unit = gcd(job.tick_ms, job.changeover_ms)
    if slack_ms <= unit * MOST_SLACKS:
        return unit, True
    parts = 1
    while slack_ms > job.tick_ms // (parts + 1) * MOST_SLACKS // 2 and parts < 120 and job.tick_ms // (parts + 1) > 0:
        parts += 1
    return max(1, job.tick_ms // max(1, min(parts, 60))), False


def _least(available: Array, job: Job, slack_ms: int, unit: int) -> Array:
    """Forward over the ticks: the least cost of reaching each slack, idle, on spot and on demand."""
    ticks, runs = available.shape
    if slack_ms < 0:
        return np.full(runs, np.inf)
    tick_units, start_units = job.tick_ms // unit, job.changeover_ms // unit
    width = slack_ms // unit + 1
    spot_price, on_demand_price = (np.float32(price * job.tick_ms / 3_600_000) for price in (job.spot, job.on_demand))
    lowest = slack_ms - (width - 1) * unit
    never = np.float32(np.inf)
    idle = np.full((width, runs), never, np.float32)
    idle[width - 1] = 0
    spot, on_demand = np.full_like(idle, never), np.full_like(idle, never)
    best = np.full(runs, np.inf)
    for tick in range(ticks):
        rest = (ticks - tick) * job.tick_ms
        anywhere = np.minimum(np.minimum(idle, spot), on_demand)
        start = _fallen(anywhere, start_units)
        new_spot = np.where(available[tick], np.minimum(spot, start) + spot_price, never)
        new_demand = np.minimum(on_demand, start) + on_demand_price
        idle, spot, on_demand = _fallen(anywhere, tick_units), new_spot, new_demand
        done = -(-(rest - job.tick_ms - lowest) // unit)
        if done < width:
            done = max(0, done)
            ends = np.minimum(spot[done:], on_demand[done:])
            np.minimum(best, ends.min(axis=0), out=best)
    return best


def _fallen(costs: Array, units: int) -> Array:
    """What was at a slack is now `units` lower."""
    if units == 0:
        return costs
    fallen = np.full_like(costs, np.inf)
    if units < len(costs):
        fallen[:-units] = costs[units:]
    return fallen
