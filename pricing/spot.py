"""Spot under a deadline: what a policy sees, what it may choose, and the policies by name.

Invariant: one interface for backtests and for live jobs. A policy sees the present tick and the past, never more; from the
state of a job that can still meet its deadline, no policy's choice leaves it unable to.
Model and rules: Wu et al., "Can't Be Late", NSDI 2024, sections 3 and 4. All times are whole milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pricing.market_traces import Trace
    from pricing.spot_hazard import SpotModel

HOUR_MS = 3_600_000
UNAVAILABLE, AVAILABLE, UNKNOWN = 0, 1, 2
"""As in `market_traces`."""
Array = np.ndarray[Any, Any]


class Decision(IntEnum):
    """Where to be until the next look; also where a job is now."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Job:
    """What has to be done, and at which prices."""

    work_ms: int
    deadline_ms: int
    """From the start of the job."""
    changeover_ms: int
    """Paid on every start of an instance (boot, restore, lost work); an upper bound."""
    tick_ms: int
    """The longest time between two looks; an upper bound."""
    on_demand: float
    """$ per hour."""
    spot: float


@dataclass(frozen=True, slots=True)
class State:
    """One look at one live job."""

    time_left_ms: int
    work_left_ms: int
    instance: Decision
    pending_ms: int
    """Of a changeover that is under way; 0 where none is."""
    available: bool | None
    """Can spot be had now; None (unknown) counts as no."""
    spot: float | None = None
    """$ per hour now; None: as the job said."""
    on_demand: float | None = None


class Look(NamedTuple):
    """The same look at many runs of one job: a scalar is the same for all, an array has one entry a run."""

    elapsed_ms: int
    time_left_ms: int
    work_left_ms: Array
    """int64."""
    instance: Array
    """int8, as `Decision`."""
    pending_ms: Array
    """int64."""
    available: Array
    """bool."""


class Policy:
    """A rule with the memory of its runs: `start`, then at every look `observe` and `choose` (or `decide`, for one job).

    A subclass says what it wishes; `choose` lets through what is safe. The net of the paper: off spot, when the work left
    and two changeovers no longer fit into the time that is left after one more tick, on demand until the end.
    """

    name = ""

    def __init__(self) -> None:
        self.job = Job(0, 0, 0, 1, 1.0, 1.0)

    def start(self, job: Job, runs: int = 1) -> None:
        """Forgets everything: a new job (or many runs of it) begins."""
        self.job = job
        self._locked = np.zeros(runs, bool)

    def observe(self, states: Array, elapsed_ms: int) -> None:
        """The market at this look (uint8, one of UNAVAILABLE, AVAILABLE, UNKNOWN), `elapsed_ms` after the look before.

        May be called before the job begins, with what was seen by then.
        """

    def wish(self, look: Look) -> Array:
        """int8, as `Decision`; the rule itself."""
        raise NotImplementedError

    def choose(self, look: Look) -> Array:
        """int8, as `Decision`: never late, never spot where there is none or where it is not cheaper."""
        job = self.job
        off_spot = look.instance != Decision.SPOT
        self._locked |= off_spot & (look.work_left_ms + 2 * job.changeover_ms > look.time_left_ms - job.tick_ms)
        return _lawful(np.where(self._locked, np.int8(Decision.ON_DEMAND), self.wish(look)), look, job)

    def decide(self, state: State) -> Decision:
        """For one live job, after `start` and `observe`."""
        look = Look(
            self.job.deadline_ms - state.time_left_ms,
            state.time_left_ms,
            np.array([state.work_left_ms]),
            np.array([state.instance], np.int8),
            np.array([state.pending_ms]),
            np.array([bool(state.available)]),
        )
        spot = self.job.spot if state.spot is None else state.spot
        on_demand = self.job.on_demand if state.on_demand is None else state.on_demand
        if spot >= on_demand:
            return Decision.ON_DEMAND
        return Decision(int(self.choose(look)[0]))


def _lawful(choice: Array, look: Look, job: Job) -> Array:
    if job.spot >= job.on_demand:
        return np.full_like(choice, Decision.ON_DEMAND)
    return np.where((choice == Decision.SPOT) & ~look.available, np.int8(Decision.IDLE), choice)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a policy is expected to come to; hours and $ are means over `runs` starts."""

    policy: str
    runs: int
    cost: float
    cost_low: float
    """5th and 95th percentile over the starts."""
    cost_high: float
    on_demand_cost: float
    saving_ratio: float
    standard_error: float
    spot_hours: float
    on_demand_hours: float
    finish_hours: float
    """From the start of the job to its end, idle time included."""
    late_chance: float
    source: str
    """What the worlds were taken from: measured traces, or the fitted model."""


def expected(
    policy: str,
    worlds: Sequence[Trace] | SpotModel | None,
    *,
    work_hours: float,
    deadline_hours: float,
    changeover_hours: float,
    on_demand: float,
    spot: float,
    starts: int = 200,
    seed: int = 0,
) -> Expectation:
    """What a policy (one of `POLICIES`) costs a job, over `starts` starts in measured traces, or in worlds of a model.

    `worlds`: availability traces; a model (`SpotModel.of_hazard(interruptions_per_hour, hours_until_back)`); or None for the
    model that ships. ImpossibleDeadline where even on-demand cannot make it.
    """
    raise NotImplementedError
