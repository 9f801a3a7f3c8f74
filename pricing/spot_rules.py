"""The published policies: all on demand, greedy, time-sliced, Uniform Progress.

Invariant: every choice passes the safety net of `Policy.choose`; what a rule says is never the last word.
Source: Wu et al., "Can't Be Late", NSDI 2024, sections 4.1 to 4.4, in the tick form that reproduces its Table 3.
"""

from __future__ import annotations

import numpy as np

from pricing.spot import Array, Decision, Job, Look, Policy

IDLE, SPOT, ON_DEMAND = (int(one) for one in Decision)


class OnDemand(Policy):
    """Never spot."""

    name = "on_demand"

    def wish(self, look: Look) -> Array:
        return np.full(len(look.work_left_ms), ON_DEMAND, np.int8)


class Greedy(Policy):
    """Spot where there is some, else wait."""

    name = "greedy"

    def wish(self, look: Look) -> Array:
        return np.where(look.available, SPOT, IDLE).astype(np.int8)


class TimeSliced(Policy):
    """n equal slices; each has to bring its share of the work, on demand at its end where spot did not."""

    def __init__(self, slices: int) -> None:
        super().__init__()
        self.slices = slices
        self.name = f"time_sliced_{slices}"

    def start(self, job: Job, runs: int = 1) -> None:
        super().start(job, runs)
        self._slice = 0
        self._forced = np.zeros(runs, bool)

    def wish(self, look: Look) -> Array:
        job, n = self.job, self.slices
        now = min(n - 1, look.elapsed_ms * n // job.deadline_ms)
        if now != self._slice:
            self._slice, self._forced = now, np.zeros_like(self._forced)
        quota = -(-job.work_ms * (now + 1) // n)
        missing = quota - (job.work_ms - look.work_left_ms)
        time_left = job.deadline_ms * (now + 1) // n - look.elapsed_ms
        free = look.instance != SPOT
        self._forced |= free & (missing + 2 * job.changeover_ms > time_left - job.tick_ms)
        self._forced &= missing > 0
        return np.where(self._forced & free, ON_DEMAND, np.where(look.available, SPOT, IDLE)).astype(np.int8)


class UniformProgress(Policy):
    """Keeps pace with the work spread evenly over the time; spot whenever there is some.

    With hysteresis, a job on demand stays there until it is ahead by what two changeovers cost.
    """

    def __init__(self, *, hysteresis: bool = True) -> None:
        super().__init__()
        self.hysteresis = hysteresis
        self.name = "uniform_progress" if hysteresis else "uniform_progress_plain"

    def wish(self, look: Look) -> Array:
        done = self.job.work_ms - look.work_left_ms
        behind = done < self._due(look.elapsed_ms)
        if not self.hysteresis:
            return np.where(look.available, SPOT, np.where(behind, ON_DEMAND, IDLE)).astype(np.int8)
        ahead = done >= self._due(look.elapsed_ms + 2 * self.job.changeover_ms)
        on = look.instance == ON_DEMAND
        otherwise = np.where(look.available, SPOT, np.where(behind, ON_DEMAND, IDLE))
        return np.where(on, np.where(look.available & ahead, SPOT, ON_DEMAND), otherwise).astype(np.int8)

    def _due(self, elapsed_ms: int) -> int:
        """The work that even progress would have done by then; integers of any size, so exact for any deadline."""
        return -(-elapsed_ms * self.job.work_ms // self.job.deadline_ms)
