"""The plain spot model with what is known of the place: own observations of availability, else AWS's interruption buckets.

Invariant: what the workload tells of its interruptions counts before all; what nothing tells of is the stated assumption, and
each estimate says which of them it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pricing.advice_spot_risk import Risk, bucket_of, bucket_risk, observed
from pricing.planner_spot import PlainSpot, SpotEstimate, SpotJob, SpotModel


@dataclass(frozen=True, slots=True)
class PlacedSpot:
    """`availability`: (zone, type) or zone -> 1 and 0 over time, as `pricing.market.availability_history` gives it."""

    availability: Mapping[object, object] = field(default_factory=dict)
    model: SpotModel = PlainSpot()

    def estimate(self, job: SpotJob) -> SpotEstimate | None:
        """As the model does it, with the hazard of the job's place. None: it would practically never end."""
        if job.hazard_told or job.place is None:
            found, source = self.model.estimate(job), "as told" if job.hazard_told else ""
        else:
            risk = self._risk(job)
            wait = job.wait_seconds
            if not job.wait_told and risk.hours_back is not None:
                wait = 3600 * risk.hours_back
            found = self.model.estimate(job._replace(hazard_per_hour=risk.per_hour, wait_seconds=wait))
            source = risk.source
        return None if found is None else found._replace(source=source)

    def _risk(self, job: SpotJob) -> Risk:
        assert job.place is not None  # the caller looked
        cloud, region, zone, name = job.place
        return (
            observed(self.availability, zone, name)
            or observed(self.availability, region, name)
            or bucket_risk(bucket_of(cloud, region, name))
        )
