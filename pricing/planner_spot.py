"""What interruptions of spot nodes cost a job in time, and its chance to be late: a plain model with a stated hazard.

Invariant: the seam. `SpotModel.estimate` is all that the planner asks; a model that knows a market's own hazard takes its
place. Times in seconds.

The plain model: interruptions come at random (Poisson), each node's with its own hazard, and one lost node stops all. What
was computed since the last checkpoint is lost; then the job waits for spot, and restarts. The expected time of a segment of
s seconds under a hazard h with restart cost R is (e^(h s) - 1) (1 / h + R) (Daly, FGCS 2006, with R not interrupted itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple, Protocol

HAZARD_PER_HOUR = 0.3
"""Of one node: nine zones of 2023 show 0.29 an hour of what was available (FrontierCS/Frontier-CS, 195 s steps), eight
zone-types of 2022 between 0.15 and 1.7."""
WAIT_SECONDS = 1200.0
"""The median time until spot was there again in the eight zone-types of 2022."""
LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS = 60.0, 3600.0
LONGEST = 1e12
MOST_TERMS = 100_000


class SpotJob(NamedTuple):
    """`ready_seconds`: before any work; `work_seconds`: computing, without checkpoints."""

    nodes: int
    ready_seconds: float
    work_seconds: float
    checkpoint_seconds: float
    every_seconds: float
    changeover_seconds: float
    hazard_per_hour: float
    wait_seconds: float
    deadline_seconds: float | None


class SpotEstimate(NamedTuple):
    """Expected values; None: beyond all measure (the job would practically never end)."""

    seconds: float
    billed_seconds: float
    """Waiting for spot is not billed."""
    interruptions: float
    lost_seconds: float
    """Work computed twice."""
    late_chance: float | None
    """None: without a deadline."""
    hazard_per_hour: float
    """Of all nodes together."""


class SpotModel(Protocol):
    def estimate(self, job: SpotJob) -> SpotEstimate | None: ...


@dataclass(frozen=True, slots=True)
class PlainSpot:
    """The plain model, see the module."""

    def estimate(self, job: SpotJob) -> SpotEstimate | None:
        hazard = job.hazard_per_hour * job.nodes / 3600
        segments = job.work_seconds / job.every_seconds
        segment = job.every_seconds + job.checkpoint_seconds
        restart = job.wait_seconds + job.changeover_seconds
        plain = job.ready_seconds + segments * segment
        if hazard <= 0:
            return SpotEstimate(plain, plain, 0.0, 0.0, _late(plain, 0.0, restart, job.deadline_seconds), 0.0)
        if hazard * segment > 50:
            return None
        failures = segments * expm1(hazard * segment)
        expected = job.ready_seconds + failures * (1 / hazard + restart)
        if not isfinite(expected) or expected > LONGEST:
            return None
        lost = max(0.0, expected - plain - failures * restart)
        each = restart + (lost / failures if failures else 0.0)
        late = _late(plain, failures, each, job.deadline_seconds)
        return SpotEstimate(expected, expected - failures * job.wait_seconds, failures, lost, late, hazard * 3600)


def _late(plain: float, failures: float, each: float, deadline: float | None) -> float | None:
    """The chance of more interruptions than the slack has room for, their number being Poisson with the expected mean."""
    if deadline is None:
        return None
    if plain > deadline:
        return 1.0
    if failures <= 0 or each <= 0:
        return 0.0
    room = int((deadline - plain) / each)
    if failures > 700:
        return 1.0 if room < failures else 0.0
    if room > MOST_TERMS:
        return 0.0
    term = total = exp(-failures)
    for number in range(1, room + 1):
        term *= failures / number
        total += term
    return min(1.0, max(0.0, 1.0 - total))


def interval(checkpoint_seconds: float, hazard_per_hour: float) -> float:
    """Young's interval between checkpoints, sqrt(2 x time of one / hazard) (CACM 1974), within a minute and an hour."""
    if hazard_per_hour <= 0:
        return MOST_INTERVAL_SECONDS
    best = sqrt(2 * checkpoint_seconds * 3600 / hazard_per_hour)
    return min(MOST_INTERVAL_SECONDS, max(LEAST_INTERVAL_SECONDS, best))
