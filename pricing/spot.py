"""Spot under a deadline: what a policy sees, what it may choose, and the policies by name.

Invariant: one interface for backtests and for live jobs. A policy sees the present tick and the past, never more; from the
state of a job that can still meet its deadline, no policy's choice leaves it unable to.
Model and rules: Wu et al., "Can't Be Late", NSDI 2024, sections 3 and 4. All times are whole milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import ceil, floor, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pricing.errors import ImpossibleDeadline, SpotJobError

if TYPE_CHECKING:
    from pricing.market_traces import Trace
    from pricing.spot_hazard import SpotModel

HOUR_MS = 3_600_000
LONGEST_HOURS = 24 * 366
DEFAULT_SLICES = 4
POLICIES = (
    "on_demand",
    "greedy",
    "time_sliced_4",
    "uniform_progress_plain",
    "uniform_progress",
    "rackrate",
    "omniscient",
)
"""`time_sliced_N` for any N; `omniscient` is no policy that could be run: it knows the future."""
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
        return lawful(np.where(self._locked, np.int8(Decision.ON_DEMAND), self.wish(look)), look, job)

    def decide(self, state: State) -> Decision:
        """For one live job, after `start` and `observe`; spot that is not cheaper now counts as not there."""
        spot = self.job.spot if state.spot is None else state.spot
        on_demand = self.job.on_demand if state.on_demand is None else state.on_demand
        available = bool(state.available) and spot < on_demand
        lost = state.instance is Decision.SPOT and not available
        look = Look(
            self.job.deadline_ms - state.time_left_ms,
            state.time_left_ms,
            np.array([state.work_left_ms]),
            np.array([Decision.IDLE if lost else state.instance], np.int8),
            np.array([0 if lost else state.pending_ms]),
            np.array([available]),
        )
        return Decision(int(self.choose(look)[0]))


def lawful(choice: Array, look: Look, job: Job) -> Array:
    """No spot where there is none, or where it is not cheaper."""
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


def job_of(
    *,
    work_hours: float,
    deadline_hours: float,
    changeover_hours: float,
    on_demand: float,
    spot: float,
    tick_ms: int = 600_000,
) -> Job:
    """A job that on-demand can do in time. SpotJobError names the figure that is none; ImpossibleDeadline the least time."""
    for name, hours in (("work", work_hours), ("deadline", deadline_hours)):
        if not (isfinite(hours) and 0 < hours <= LONGEST_HOURS):
            raise SpotJobError(f"{name} of {hours:g} h: has to be above 0 and at most {LONGEST_HOURS:,} hours.")
    if not (isfinite(changeover_hours) and 0 <= changeover_hours <= LONGEST_HOURS):
        raise SpotJobError(f"changeover of {changeover_hours:g} h: has to be 0 or more, and at most {LONGEST_HOURS:,} hours.")
    for name, price in (("on-demand", on_demand), ("spot", spot)):
        if not (isfinite(price) and price > 0):
            raise SpotJobError(f"{name} price of {price:g}: has to be above 0; a price of 0 is unknown.")
    job = Job(
        ceil(work_hours * HOUR_MS - 1e-6),
        floor(deadline_hours * HOUR_MS + 1e-6),
        ceil(changeover_hours * HOUR_MS - 1e-6),
        tick_ms,
        on_demand,
        spot,
    )
    least = -(-(job.work_ms + job.changeover_ms) // tick_ms)
    if least > job.deadline_ms // tick_ms:
        raise ImpossibleDeadline(
            f"The deadline of {deadline_hours:g} h cannot be met: {work_hours:g} h of work and a changeover of "
            f"{changeover_hours:g} h take {least * tick_ms / HOUR_MS:.2f} h even on demand (in whole ticks of "
            f"{tick_ms / 1000:g} s)."
        )
    return job


def policy_of(name: str) -> Policy:
    """A policy by its name: one of `POLICIES`, `time_sliced_N`, or `own` for `rackrate`."""
    from pricing.spot_own import Rackrate
    from pricing.spot_rules import Greedy, OnDemand, TimeSliced, UniformProgress

    makers: dict[str, Callable[[], Policy]] = {
        "on_demand": OnDemand,
        "greedy": Greedy,
        "uniform_progress": UniformProgress,
        "uniform_progress_plain": lambda: UniformProgress(hysteresis=False),
        "rackrate": Rackrate,
        "own": Rackrate,
    }
    slices = re.fullmatch(r"time_sliced(?:_|\()?([1-9][0-9]{0,3})?\)?", name)
    if slices:
        return TimeSliced(int(slices[1] or DEFAULT_SLICES))
    if name not in makers:
        raise SpotJobError(f"There is no policy named `{name:.40}`; there are {', '.join(POLICIES)}.")
    return makers[name]()


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

    `worlds`: availability traces, each at least as long as the deadline; a model (`SpotModel.of_hazard(interruptions_per_hour, hours_until_back)`); or None for the
    model that ships. ImpossibleDeadline where even on-demand cannot make it.
    """
    from pricing.spot_expected import expectation

    job_hours = {"work_hours": work_hours, "deadline_hours": deadline_hours, "changeover_hours": changeover_hours}
    return expectation(policy, worlds, starts, seed, on_demand=on_demand, spot=spot, **job_hours)
