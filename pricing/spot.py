"""Spot under a deadline: what a policy sees, what it may choose, and the policies by name.

Invariant: one interface for backtests and for live jobs. A policy sees the present tick and the past, never more; from the
state of a job that can still meet its deadline, no policy's choice leaves it unable to.
Model and rules: Wu et al., "Can't Be Late", NSDI 2024, sections 3 and 4. All times are whole milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pricing.market_traces import Trace
    from pricing.spot_hazard import SpotModel

HOUR_MS = 3_600_000


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
    """One look at a live job."""

    time_left_ms: int
    work_left_ms: int
    instance: Decision
    pending_ms: int
    """Of a changeover that is under way; 0 where none is."""
    available: bool | None
    """Can spot be had now; None (unknown) counts as no."""


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
