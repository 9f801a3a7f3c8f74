"""How often spot of a type is taken away, and how much of the time it is there: observed, from AWS's buckets, or assumed.

Invariant: what is observed wins; an assumption is a high one and is called one. The Spot Advisor's buckets are read by their
labels (its own `max` figures are 5, 11, 16, 22, 100), and the open bucket "above 20 %" is no figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pricing.catalog import SNAPSHOT
from pricing.demand import DemandKey
from pricing.errors import CatalogError
from pricing.instances import read_table
from pricing.market_steps import StepFunction
from pricing.market_traces import steps_hazard

if TYPE_CHECKING:
    from pricing.advice import Case

ASSUMED_PER_HOUR, ASSUMED_HOURS_BACK = 0.30, 1.85
"""V100 in nine zones, February and March 2023 (FrontierCS/Frontier-CS): 1,868 interruptions in 6,237 available hours, and the
mean time until spot was back."""
RUN_HOURS = 24
"""A bucket is the share of instances that AWS took back within a month; how long they ran is not told: taken as a day each."""
HOURS_BACK = 1.0
LEAST_HOURS = 24
"""Of availability, before a hazard counts as observed."""


class Bucket(NamedTuple):
    """How many percent of the instances of a type were taken back in a month; `to` None: no upper end."""

    since: int
    to: int | None
    as_of: str

    @property
    def text(self) -> str:
        return (
            f"above {self.since} %" if self.to is None else f"{self.since} to {self.to} %" if self.since else f"below {self.to} %"
        )


class Risk(NamedTuple):
    """`per_hour`: interruptions an hour of what runs; `availability`: share of the time that spot can be had."""

    per_hour: float
    availability: float
    source: str
    assumed: bool
    bucket: str | None = None


def risk_of(case: Case, key: DemandKey, zone: str | None) -> Risk:
    """Of a type in a zone. `availability` of the case's options: (zone, type) or zone -> 1 and 0 over time."""
    bucket = buckets().get((key.region, key.instance_type)) if key.cloud in (None, "aws") else None
    text = None if bucket is None else f"{bucket.text} ({bucket.as_of})"
    seen = _observed(case, key, zone)
    if seen is not None:
        return seen._replace(bucket=text)
    others = [found for other in {rate.zone for rate in case.card.rates(key, "spot")} if (found := _observed(case, key, other))]
    if others:
        worst = max(others, key=lambda one: (one.per_hour, -one.availability))
        return worst._replace(source=f"as in the worst observed zone: {worst.source}", assumed=True, bucket=text)
    if bucket is None or bucket.to is None:
        why = "0.3 interruptions an hour, 64 % of the time available: the mean of V100 in nine zones of 2023"
        return Risk(ASSUMED_PER_HOUR, 1 / (1 + ASSUMED_PER_HOUR * ASSUMED_HOURS_BACK), why, True, text)
    per_hour = -math.log(1 - bucket.to / 100) / RUN_HOURS
    why = f"the upper end of AWS's bucket ({text}), of instances that run a day each"
    return Risk(per_hour, 1 / (1 + per_hour * HOURS_BACK), why, False, text)


def _observed(case: Case, key: DemandKey, zone: str | None) -> Risk | None:
    told = case.options.get("availability")
    if not isinstance(told, Mapping) or zone is None:
        return None
    steps = told.get((zone, key.instance_type), told.get(zone))
    if not isinstance(steps, StepFunction) or not steps:
        return None
    hazard, share = steps_hazard(steps), steps.mean(steps.start_ms, steps.end_ms).value
    if hazard.per_hour is None or not share or hazard.available_hours < LEAST_HOURS:
        return None
    hours = float(hazard.available_hours)
    # half an interruption more: none in a short history is not "never"
    per_hour = max(float(hazard.per_hour), 0.5 / hours)
    return Risk(per_hour, float(share), f"{hazard.interruptions} interruptions in {hours:,.0f} available hours of {zone}", False)


@cache
def buckets(path: Path = SNAPSHOT / "spot_advisor.csv") -> Mapping[tuple[str, str], Bucket]:
    """(region, type) -> bucket, of the GPU types of AWS. CatalogError names the file and the line."""
    found: dict[tuple[str, str], Bucket] = {}
    for line, row in read_table(path):
        try:
            region, name, since, to, _, as_of, _ = row
            found[region, name] = Bucket(int(since), int(to) if to else None, as_of)
        except ValueError as fault:
            raise CatalogError(f"{path.name}, line {line} is damaged ({fault}): reinstall rackrate.") from None
    return found
