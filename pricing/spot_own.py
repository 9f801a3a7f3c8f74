"""Our own policy: the best plan for a fitted market, behind an exact shield.

Invariant: from a state from which on-demand can make it, every choice leads to one from which it can, whatever spot does:
idle and on spot the slack (time left - work left) stays at least a changeover, on demand at least what is pending of it.
"""

from __future__ import annotations

import numpy as np

from pricing.spot import HOUR_MS, Array, Decision, Job, Look, Policy, lawful
from pricing.spot_hazard import SHIPPED, Memory, SpotModel
from pricing.spot_solve import Plan, solve

IDLE, SPOT, ON_DEMAND = (int(one) for one in Decision)


class Rackrate(Policy):
    """Stochastic dynamic programming on the age of the spell and the share of recent availability."""

    name = "rackrate"

    def __init__(self, model: SpotModel = SHIPPED) -> None:
        super().__init__()
        self.model = model
        self._plans: dict[tuple[Job, int], Plan] = {}

    def start(self, job: Job, runs: int = 1) -> None:
        super().start(job, runs)
        self._memory = Memory(self.model, runs)
        self._seen_ms = 0
        self._plan: Plan | None = None

    def observe(self, states: Array, elapsed_ms: int) -> None:
        self._memory.observe(states, elapsed_ms)
        if self._plan is None:
            self._seen_ms += elapsed_ms

    def wish(self, look: Look) -> Array:
        if self._plan is None:
            self._plan = self._solved(look)
        slack = look.time_left_ms - look.work_left_ms - np.where(look.instance == IDLE, 0, look.pending_ms)
        planned = self._plan.look_up(
            look.time_left_ms / HOUR_MS,
            slack / HOUR_MS,
            look.available,
            look.instance == ON_DEMAND,
            self._memory.age_hours,
            self._memory.share,
        )
        return np.where(look.instance == SPOT, np.int8(SPOT), planned)

    def _solved(self, look: Look) -> Plan:
        """Solved once a job, at its first look."""
        before = max(0, self._seen_ms - look.elapsed_ms - self.job.tick_ms)
        key = (self.job, before)
        if key not in self._plans:
            self._plans = {key: solve(self.job, self.model, before / HOUR_MS)}
        return self._plans[key]

    def choose(self, look: Look) -> Array:
        return lawful(_shielded(self.wish(look), look, self.job), look, self.job)


def _shielded(wish: Array, look: Look, job: Job) -> Array:
    """Only what keeps the invariant; on demand otherwise. A tick that ends the work for certain is always allowed."""
    slack, start, tick = look.time_left_ms - look.work_left_ms, job.changeover_ms, job.tick_ms
    wait = slack - tick >= start
    enter = (slack >= 2 * start) | (look.work_left_ms + start <= tick)
    stay = (slack - np.minimum(tick, look.pending_ms) >= start) | (look.work_left_ms + look.pending_ms <= tick)
    allowed = np.where(look.instance == SPOT, stay, enter)
    wish = np.where((wish == SPOT) & ~(allowed & look.available), np.int8(IDLE), wish)
    wish = np.where((wish == IDLE) & ~wait, np.int8(ON_DEMAND), wish)
    return np.where((look.instance == SPOT) & look.available & ~stay, np.int8(ON_DEMAND), wish)
