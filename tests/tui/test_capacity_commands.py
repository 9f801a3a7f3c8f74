"""`prices scores` and `prices blocks`: words, exit codes, and that a score is never a price."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from tests.support.aws_stubs import Aws, zone_rows
from tests.support.cli import Done

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
SCORES, BLOCKS = "get_spot_placement_scores", "describe_capacity_block_offerings"
Run = Callable[..., Done]
WORDS = ("prices",)


@pytest.fixture(autouse=True)
def a_second_later() -> Iterator[None]:
    """Between two commands no midnight passes, and nothing grows old."""
    with time_machine.travel(NOW + timedelta(seconds=1), tick=False):
        yield


def block(fee: str, days: int, zone: str = "us-east-1a", **change: object) -> dict:
    end = (NOW + timedelta(days=days + 1)).replace(hour=11, minute=30, second=0)
    return {
        "CapacityBlockOfferingId": f"cbr-{days}", "InstanceType": "p5.48xlarge", "AvailabilityZone": zone, "InstanceCount": 2,
        "StartDate": end - timedelta(days=1), "EndDate": end, "CapacityBlockDurationHours": 24, "UpfrontFee": fee,
        "CurrencyCode": "USD", **change,
    }  # fmt: skip


def test_scores_are_told_best_first_with_their_moment_and_as_no_price(run: Run, aws: Aws) -> None:
    rows = [{"Region": "us-east-1", "AvailabilityZoneId": f"use1-az{zone}", "Score": score} for zone, score in ((2, 3), (4, 9))]
    aws.lay("ec2", SCORES, {"SpotPlacementScores": rows})
    done = run("scores", "P5.48xlarge", "--region", "US-EAST-1", "--count", "4")
    assert done.code == 0 and [line.split() for line in done.out.splitlines()[1:]] == [
        ["us-east-1", "use1-az4", "9"], ["us-east-1", "use1-az2", "3"],
    ]  # fmt: skip
    for says in (f"of {NOW:%Y-%m-%d}", "4 x p5.48xlarge on spot", "No price", "fewer than three types"):
        assert says in done.err
    assert aws.asked(SCORES)[0]["TargetCapacity"] == 4 and aws.asked(SCORES)[0]["RegionNames"] == ["us-east-1"]
    aws.lay("ec2", SCORES, {"SpotPlacementScores": [{"Region": "us-east-1", "Score": 7}]})
    record = run("scores", "p5.48xlarge", "p4d.24xlarge", "g5.xlarge", "--region", "us-east-1", "--regions-only", "--json").json()
    assert record["scores"] == [{"region": "us-east-1", "zone": None, "score": 7}] and record["few_types"] is False
    assert not any("price" in key or "usd" in key for key in record)
    aws.lay("ec2", SCORES, {"SpotPlacementScores": []})
    assert "gives no score there" in run("scores", "p5.48xlarge", "--region", "us-east-1").out


def test_blocks_are_told_soonest_first_with_fee_end_and_price_beside_on_demand(run: Run, aws: Aws) -> None:
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [block("1510.56", 5), block("1000", 2), block("", 3)]})
    done = run("blocks", "p5.48xlarge", "--region", "us-east-1", "--count", "2")
    assert done.code == 4 and "fee is missing" in done.err, "one could not be read"
    lines = [line.split() for line in done.out.splitlines()]
    assert [line[-3] for line in lines[1:]] == ["$1,000.00", "$1,510.56"] and lines[1][-2] == "$20.8333"
    assert {line[4] for line in lines[1:]} == {"11:30"} and "all end at 11:30 UTC" in done.err
    assert "paid up front and not given back" in done.err and max(map(len, done.out.splitlines())) <= 90
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [block("1000", 2, EndDate=NOW + timedelta(days=3, hours=1))]})
    record = run("blocks", "p5.48xlarge", "--region", "us-east-1", "--hours", "48", "--json").json()
    (one,) = record["blocks"]
    assert (one["upfront"], one["per_instance_hour"], one["hours"]) == ("1000", "20.8333333333", 24.0)
    assert float(one["on_demand_per_hour"]) > 20
    assert aws.asked(BLOCKS)[1]["CapacityDurationHours"] == 48


def test_a_region_that_cannot_be_read_is_told_and_the_others_are_shown(run: Run, aws: Aws) -> None:
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": []})
    aws.refuse("ec2", "describe_availability_zones", "OptInRequired", region="ap-east-1")
    done = run("blocks", "p5.48xlarge", "--region", "us-east-1", "--region", "ap-east-1")
    assert done.code == 4 and "has not enabled ap-east-1" in done.err and "no capacity block of 1 x p5.48xlarge" in done.out
    aws.refuse("ec2", "describe_availability_zones", "ExpiredToken")
    assert run("blocks", "p5.48xlarge", "--region", "us-east-1").code == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("blocks", "p5.48xlarge", "--region", "us-east-1", "--hours", "30"), "try 24"),
        (("blocks", "p5.48xlarge", "--region", "us-east-1", "--hours", "400"), "whole weeks up to 26"),
        (("blocks", "p5.48xlarge", "--region", "us-east-1", "--count", "0"), "no number of instances"),
        (("blocks", "p5.48xlarge"), "--region"),
        (("blocks", "h100", "--region", "us-east-1"), "no instance type of AWS"),
        (("scores", "p5.48xlarge", "--region", " "), "--region is empty"),
        (("scores", "--region", "us-east-1"), "TYPE"),
        (("scores", "p5.48xlarge", "--region", "virginia"), "write one like us-east-1"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_asked(run: Run, words: tuple[str, ...], says: str) -> None:
    done = run(*words)
    assert done.code == 2 and says in done.err


def test_a_refresh_that_names_capacity_blocks_keeps_the_soonest_of_each_zone(run: Run, aws: Aws) -> None:
    types = [{"InstanceType": "p5.48xlarge", "SupportedUsageClasses": ["on-demand", "capacity-block"]}]
    aws.lay("ec2", "describe_instance_types", {"InstanceTypes": types})
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [block("1510.56", 3), block("1520", 1, "us-east-1b")]})
    asked = ("refresh", "--cloud", "aws", "--buy", "capacity_block", "--region", "us-east-1", "--type", "p5.48xlarge")
    done = run(*asked)
    assert done.code == 0 and done.out.splitlines()[1].split()[:3] == ["aws", "2", "0"]
    records = run("p5.48xlarge", "region:us-east-1", "buy:capacity_block", "--json").json()
    found = {one["zone"]: one["price_per_hour"] for one in records if one["age_days"] == 0}
    assert {zone: float(amount) for zone, amount in found.items()} == {"use1-az2": 31.47, "use1-az4": pytest.approx(31.6667, abs=1e-4)}
