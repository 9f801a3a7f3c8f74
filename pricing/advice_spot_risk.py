"""How often spot of a type is taken away, and how much of the time it is there: observed, from AWS's buckets, or assumed.

Invariant: what is observed wins; an assumption is a high one and is called one. The Spot Advisor's buckets are read by their
labels (its own `max` figures are 5, 11, 16, 22, 100), and the open bucket "above 20 %" is no figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pricing.catalog import SNAPSHOT
from pricing.demand import DemandKey
from pricing.errors import CatalogError
from pricing.instances import InstanceType, read_table
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
    hours_back: float | None = None
    """Mean hours until spot was there again, where that was observed."""


def risk_of(case: Case, key: DemandKey, zone: str | None) -> Risk:
    """Of a type in a zone. `availability` of the case's options: (zone, type) or zone -> 1 and 0 over time."""
    bucket = bucket_of(key.cloud, key.region, key.instance_type)
    text = None if bucket is None else f"{bucket.text} ({bucket.as_of})"
    told = case.options.get("availability")
    told = told if isinstance(told, Mapping) else {}
    seen = observed(told, zone, key.instance_type) or observed(told, key.region, key.instance_type)
    if seen is not None:
        return seen._replace(bucket=text)
    zones = {rate.zone for rate in case.card.rates(key, "spot")}
    others = [found for other in zones if (found := observed(told, other, key.instance_type))]
    if others:
        worst = max(others, key=lambda one: (one.per_hour, -one.availability))
        return worst._replace(source=f"as in the worst observed zone: {worst.source}", assumed=True, bucket=text)
    return bucket_risk(bucket)


def bucket_of(cloud: str | None, region: str, instance_type: str) -> Bucket | None:
    return buckets().get((region, instance_type)) if cloud in (None, "aws") else None


def bucket_risk(bucket: Bucket | None) -> Risk:
    """Of AWS's bucket; without one, or with the open one, the stated assumption."""
    text = None if bucket is None else f"{bucket.text} ({bucket.as_of})"
    if bucket is None or bucket.to is None:
        why = "0.3 interruptions an hour, 64 % of the time available: assumed, the mean of V100 in nine zones of 2023"
        return Risk(ASSUMED_PER_HOUR, 1 / (1 + ASSUMED_PER_HOUR * ASSUMED_HOURS_BACK), why, True, text)
    per_hour = -math.log(1 - bucket.to / 100) / RUN_HOURS
    why = f"the upper end of AWS's bucket ({text}), of instances that run a day each"
    return Risk(per_hour, 1 / (1 + per_hour * HOURS_BACK), why, False, text)


def observed(availability: Mapping[object, object], zone: str | None, instance_type: str) -> Risk | None:
    """From `availability`: (zone, type) or zone -> 1 and 0 over time; None where it tells too little. A region stands for all
    of its zones."""
    if zone is None:
        return None
    steps = availability.get((zone, instance_type), availability.get(zone))
    if not isinstance(steps, StepFunction) or not steps:
        return None
    hazard, share = steps_hazard(steps), steps.mean(steps.start_ms, steps.end_ms).value
    if hazard.per_hour is None or not share or hazard.available_hours < LEAST_HOURS:
        return None
    hours = float(hazard.available_hours)
    # half an interruption more: none in a short history is not "never"
    per_hour = max(float(hazard.per_hour), 0.5 / hours)
    back = (1 / float(share) - 1) / per_hour
    source = f"{hazard.interruptions} interruptions in {hours:,.0f} available hours observed in {zone}"
    return Risk(per_hour, float(share), source, False, hours_back=back)


def placed(availability: Mapping[str, StepFunction], shapes: Iterable[InstanceType]) -> dict[object, StepFunction]:
    """By what they hold for: (zone, type) and (region, type) of places like `us-east-1a_v100_1`, else zone and region. Of a
    region with several the one with the most interruptions stands."""
    types: dict[str, list[str]] = {}
    for shape in shapes:
        types.setdefault((shape.gpu_model or "").upper(), []).append(shape.instance_type)
    found: dict[object, StepFunction] = {}
    worst: dict[object, float] = {}
    for place, steps in sorted(availability.items()):
        zone, _, rest = place.partition("_")
        names = types.get(rest.partition("_")[0].upper(), []) if rest else [None]
        hazard = float(steps_hazard(steps).per_hour or 0) if steps else 0.0
        for where in (zone, re.sub(r"(?<=\d)[a-z]$", "", zone)):
            for key in [where if name is None else (where, name) for name in names]:
                if key not in found or hazard > worst[key]:
                    found[key], worst[key] = steps, hazard
        found.setdefault(place, steps)
    return found


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
