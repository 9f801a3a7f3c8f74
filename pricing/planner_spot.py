"""What interruptions of spot nodes cost a job in time, and its chance to be late: a plain model with a stated hazard.

Invariant: the seam. `SpotModel.estimate` is all that the planner asks; a model that knows a market's own hazard takes its
place. Times in seconds.

The plain model: interruptions come at random (Poisson), each node's with its own hazard, and one lost node stops all. What
was computed since the last checkpoint is lost; then the job waits for spot, and restarts. The expected time of a segment of
s seconds under a hazard h with restart cost R is (e^(h s) - 1) (1 / h + R) (Daly, FGCS 2006, with R not interrupted itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erfc, exp, expm1, isfinite, sqrt
from typing import NamedTuple, Protocol

HAZARD_PER_HOUR = 0.3
"""Of one node: nine zones of 2023 show 0.29 an hour of what was available (FrontierCS/Frontier-CS, 195 s steps), eight
zone-types of 2022 between 0.15 and 1.7."""
WAIT_SECONDS = 1200.0
"""The median time until spot was there again in the eight zone-types of 2022."""
LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS = 60.0, 3600.0
LONGEST = 1e12
NEGLIGIBLE = 1e-9
"""Expected interruptions in all, below which there are none."""
MOST_TERMS = 100_000


class Place(NamedTuple):
    """Where the nodes run."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str


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
    place: Place | None = None
    hazard_told: bool = False
    """Whether the workload itself tells the hazard and the wait: then no model knows better."""
    wait_told: bool = False


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
    source: str = ""
    """Where the hazard comes from; empty: assumed."""


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
        if hazard * plain < NEGLIGIBLE:
            late = None if job.deadline_seconds is None else float(plain > job.deadline_seconds)
            return SpotEstimate(plain, plain, 0.0, 0.0, late, hazard * 3600)
        if hazard * segment > 50:
            return None
        failures = segments * expm1(hazard * segment)
        lost = max(0.0, failures / hazard - segments * segment)
        expected = plain + lost + failures * restart
        if not isfinite(expected) or expected > LONGEST:
            return None
        late = None if job.deadline_seconds is None else _late(hazard, segments, segment, restart, job.deadline_seconds - plain)
        return SpotEstimate(expected, expected - failures * job.wait_seconds, failures, lost, late, hazard * 3600)


def _late(hazard: float, segments: float, segment: float, restart: float, slack: float) -> float:
    """The chance that interruptions take more than `slack` seconds.

    Their number is negative binomial (each segment is tried until it succeeds); what one takes is the restart and the time
    into the segment, and the sum of several is taken for normal.
    """
    if slack < 0:
        return 1.0
    survive = exp(-hazard * segment)
    fail = -expm1(-hazard * segment)
    mean = 1 / hazard - segment * survive / fail + restart
    spread = sqrt(max(0.0, 1 / hazard**2 - segment**2 * survive / fail**2))
    expected = segments * fail / survive
    if hazard * segment * segments > 600 or expected > MOST_TERMS / 10:
        deviation = sqrt(expected * (spread**2 + mean**2 / survive))
        return _above(slack, expected * mean, deviation)
    chance = exp(-hazard * segment * segments)
    late, number = 0.0, 0
    total = chance
    while total < 1 - 1e-12 and number < MOST_TERMS:
        chance *= (number + segments) / (number + 1) * fail
        number += 1
        total += chance
        late += chance * _above(slack, number * mean, sqrt(number) * spread)
        if number * mean > slack + 12 * sqrt(number) * spread:
            return min(1.0, late + max(0.0, 1 - total))
    return min(1.0, late)


def _above(limit: float, mean: float, deviation: float) -> float:
    """The chance that a normal value is above a limit."""
    if deviation <= 0:
        return float(mean > limit)
    return 0.5 * erfc((limit - mean) / deviation / sqrt(2))


def interval(checkpoint_seconds: float, hazard_per_hour: float) -> float:
    """Young's interval between checkpoints, sqrt(2 x time of one / hazard) (CACM 1974), within a minute and an hour."""
    if hazard_per_hour <= 0:
        return MOST_INTERVAL_SECONDS
    best = sqrt(2 * checkpoint_seconds * 3600 / hazard_per_hour)
    return min(MOST_INTERVAL_SECONDS, max(LEAST_INTERVAL_SECONDS, best))
