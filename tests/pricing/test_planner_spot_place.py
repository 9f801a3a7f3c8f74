"""How often a planned spot node is taken away: as told, as observed there, as AWS's buckets say, or as assumed."""

from __future__ import annotations

import pytest

from pricing.advice_spot_risk import buckets, placed
from pricing.catalog import Catalog
from pricing.market_steps import StepFunction
from pricing.planner_spot import Place, PlainSpot, SpotEstimate, SpotJob
from pricing.planner_spot_place import PlacedSpot

HOUR = 3_600_000
JOB = SpotJob(
    1, 0.0, 36_000.0, 20.0, 1800.0, 600.0, 0.3, 1200.0, 50_000.0, Place("aws", "us-east-1", "use1-az1", "p4d.24xlarge")
)
SHAPES = Catalog.embedded().instances("aws")


def flapping(every: int, hours: int = 1000) -> StepFunction:
    """An hour without spot in so many."""
    return StepFunction([(HOUR * n, int(n % every > 0)) for n in range(hours)], HOUR * hours)


def estimate(job: SpotJob, availability: dict[object, StepFunction] | None = None) -> SpotEstimate:
    found = PlacedSpot(availability or {}).estimate(job)
    assert found is not None
    return found


def test_the_upper_end_of_awss_bucket_counts_where_nothing_was_observed() -> None:
    assert (bucket := buckets()["us-east-1", "p4d.24xlarge"]).to == 15
    found = estimate(JOB)
    assert found.hazard_per_hour == pytest.approx(0.00677, rel=0.01) and bucket.text in found.source
    assert found.seconds < estimate(JOB._replace(hazard_told=True)).seconds


def test_the_open_bucket_another_cloud_and_an_unknown_type_are_the_stated_assumption() -> None:
    assert buckets()["ap-northeast-1", "p3.16xlarge"].to is None
    for place in (
        Place("aws", "ap-northeast-1", None, "p3.16xlarge"),
        Place("gcp", "us-east-1", None, "p4d.24xlarge"),
        Place("aws", "us-east-1", None, "made-up"),
    ):
        found = estimate(JOB._replace(place=place))
        assert found.hazard_per_hour == pytest.approx(0.3) and "assumed" in found.source


def test_what_was_observed_in_the_zone_counts_before_the_region_and_the_bucket() -> None:
    seen: dict[object, StepFunction] = {"use1-az1": flapping(10), "us-east-1": flapping(4)}
    here = estimate(JOB, seen)
    assert here.hazard_per_hour == pytest.approx(1 / 9, rel=0.02) and "observed in use1-az1" in here.source
    elsewhere = estimate(JOB._replace(place=Place("aws", "us-east-1", "use1-az2", "p4d.24xlarge")), seen)
    assert elsewhere.hazard_per_hour == pytest.approx(1 / 3, rel=0.02) and "observed in us-east-1" in elsewhere.source
    assert elsewhere.seconds > here.seconds


def test_what_the_workload_tells_counts_before_all() -> None:
    seen: dict[object, StepFunction] = {"use1-az1": flapping(4)}
    told = JOB._replace(hazard_per_hour=0.1, hazard_told=True)
    found = estimate(told, seen)
    assert found == PlainSpot().estimate(told)._replace(source="as told")  # type: ignore[union-attr]
    waiting = JOB._replace(wait_seconds=60.0, wait_told=True)
    assert estimate(waiting, seen).seconds < estimate(JOB, seen).seconds, "spot was away for an hour, a minute is told"


def test_places_are_read_by_zone_and_gpu_and_a_region_is_its_worst_zone() -> None:
    often, rare = flapping(4), flapping(20)
    found = placed({"us-east-1a_v100_1": rare, "us-east-1b_v100_1": often, "use1-az3": rare, "us-west-2c": often}, SHAPES)
    assert found["us-east-1a", "p3.16xlarge"] is rare and found["us-east-1", "p3.16xlarge"] is often
    assert ("us-east-1", "p4d.24xlarge") not in found and "us-east-1" not in found
    assert found["use1-az3"] is rare and found["us-west-2"] is often
