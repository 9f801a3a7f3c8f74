"""The omniscient optimum: the least cost of each run for somebody who knows the whole trace, by dynamic programming.

Invariant: no policy under the rules of `spot_backtest.simulate` is cheaper. The state is (tick, instance, slack), slack =
time left - work left - changeover under way: it falls by a tick for each idle tick and by a changeover for each start.
Source: Wu et al., "Can't Be Late", NSDI 2024, section 3.3 (there as an integer program).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from pricing.spot import AVAILABLE, Array, Job
from pricing.spot_backtest import Outcome

MOST_SLACKS, FINE_SLACKS = 5_000, 1_000
"""Of the exact solution; of the bound."""
RUNS_AT_ONCE = 64
NEVER = 2**62
COARSEST = 50_000
"""Steps of money in a tick's price, below which the solution is not called exact."""


@dataclass(frozen=True, slots=True)
class _Units:
    """Integers: slack, and a key of (cost, ticks on demand, starts on demand), most weighty first, so that a sum is a sum."""

    tick: int
    start: int
    lowest_ms: int
    unit_ms: int
    width: int
    bits: int
    spot: int
    on_demand: int


def optimum(states: Array, job: Job) -> tuple[Outcome, bool]:
    """(the best outcome of each run, whether exact); `states`: uint8 (runs, ticks).

    Where changeover and tick have no common measure the changeover is rounded down to one: not exact, a bound that no policy
    can pass. The job has to be one that on-demand can do (`job_of`).
    """
    ticks = job.deadline_ms // job.tick_ms
    units, exact = _units(job, ticks)
    available = np.ascontiguousarray((states[:, :ticks] == AVAILABLE).T)
    parts = [
        _least(available[:, first : first + RUNS_AT_ONCE], job, units)
        for first in range(0, available.shape[1], RUNS_AT_ONCE)
    ]
    return _outcome(np.concatenate(parts), job, units), exact


def _units(job: Job, ticks: int) -> tuple[_Units, bool]:
    slack_ms = ticks * job.tick_ms - job.work_ms
    unit = gcd(job.tick_ms, job.changeover_ms)
    exact = slack_ms <= unit * MOST_SLACKS
    if not exact:
        finest = max(1, slack_ms // FINE_SLACKS)
        parts = next(parts for parts in range(max(1, job.tick_ms // finest), 0, -1) if job.tick_ms % parts == 0)
        unit = job.tick_ms // parts
    width, bits = slack_ms // unit + 1, (ticks + 1).bit_length()
    scale = 2 ** (60 - 2 * bits) / (ticks * max(job.spot, job.on_demand))
    spot, on_demand = (max(1, round(price * scale)) << 2 * bits for price in (job.spot, job.on_demand))
    exact = exact and min(spot, on_demand) >> 2 * bits > COARSEST
    lowest = slack_ms - (width - 1) * unit
    return _Units(
        job.tick_ms // unit, job.changeover_ms // unit, lowest, unit, width, bits, spot, on_demand + (1 << bits)
    ), exact  # fmt: skip


def _least(available: Array, job: Job, units: _Units) -> Array:
    """Forward over the ticks: the least key of reaching each slack, idle, on spot and on demand; int64 (runs,).

    Only slacks that can have been reached by then and are not yet those of work that is done.
    """
    ticks, runs = available.shape
    idle = np.full((units.width, runs), NEVER, np.int64)
    idle[-1] = 0
    spot, on_demand, best = np.full_like(idle, NEVER), np.full_like(idle, NEVER), np.full(runs, NEVER, np.int64)
    top = units.width
    for tick in range(ticks):
        band = slice(max(0, units.width - 1 - (tick + 1) * max(units.tick, units.start)), top)
        anywhere = np.minimum(np.minimum(idle[band], spot[band]), on_demand[band])
        start = _fallen(anywhere, units.start)
        spot[band] = np.minimum(spot[band], start) + units.spot
        spot[band, ~available[tick]] = NEVER
        on_demand[band] = np.minimum(np.minimum(on_demand[band], start + 1) + units.on_demand, NEVER)
        idle[band] = _fallen(anywhere, units.tick)
        done = max(0, -(-((ticks - tick - 1) * job.tick_ms - units.lowest_ms) // units.unit_ms))
        if done < top:
            np.minimum(best, np.minimum(spot[done:top], on_demand[done:top]).min(axis=0), out=best)
            top = done
        if top <= band.start:
            break
    return best


def _fallen(keys: Array, units: int) -> Array:
    """What was at a slack is now `units` lower."""
    if units == 0:
        return keys
    fallen = np.full_like(keys, NEVER)
    if units < len(keys):
        fallen[:-units] = keys[units:]
    return fallen


def _outcome(keys: Array, job: Job, units: _Units) -> Outcome:
    mask = (1 << units.bits) - 1
    on_demand, starts = keys >> units.bits & mask, keys & mask
    on_demand_cost = units.on_demand >> 2 * units.bits
    spot = ((keys >> 2 * units.bits) - on_demand * on_demand_cost) // (units.spot >> 2 * units.bits)
    on_demand_work = np.minimum(on_demand * job.tick_ms - starts * job.changeover_ms, job.work_ms)
    return Outcome("omniscient", spot, on_demand, job.work_ms - on_demand_work, on_demand_work, None, np.zeros(len(keys), bool))
