"""Capacity blocks, placement scores, and (against moto, where it is real) zones, instance types and their zones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from moto import mock_aws
from moto.ec2.models.instance_types import InstanceTypeBackend

from pricing.catalog import Catalog
from pricing.sources import BadAnswer
from pricing.sources.aws import AwsSource
from pricing.sources.aws_capacity import capacity_blocks, placement_scores
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_shapes import instance_types, shape, types_with_blocks
from pricing.sources.aws_zones import read_zones
from tests.support.aws_stubs import NOW, US_EAST_1, Aws, Told, wanted, zone_rows

BLOCKS = "describe_capacity_block_offerings"
SCORES = "get_spot_placement_scores"
DAY = timedelta(days=1)


def block(fee: str, days: int = 1, zone: str = "us-east-1a", **change: object) -> dict:
    row = {
        "CapacityBlockOfferingId": f"cbr-{fee}-{days}", "InstanceType": "p5.48xlarge", "AvailabilityZone": zone,
        "InstanceCount": 2, "StartDate": NOW + days * DAY, "EndDate": NOW + (days + 1) * DAY,
        "CapacityBlockDurationHours": 24, "UpfrontFee": fee, "CurrencyCode": "USD", "Tenancy": "default",
    }  # fmt: skip
    return {key: value for key, value in {**row, **change}.items() if value is not None}


def test_blocks_are_read_to_the_end_soonest_first_and_priced_per_instance_hour() -> None:
    aws = Aws()
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [block("1510.56", 5)], "NextToken": "one"})
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [], "NextToken": "two"})
    bad = [block("0"), block("", 1), block("9", zone="us-east-1z"), block("9", CurrencyCode=None), block("9", InstanceCount=0)]
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [block("1000", 2), *bad], "NextToken": ""})
    found, skipped = capacity_blocks(aws.session, US_EAST_1, "p5.48xlarge", NOW, instances=2)
    aws.all_used()
    assert [(one.fee, one.per_instance_hour) for one in found] == [
        (Decimal(1000), Decimal("20.8333333333")),
        (Decimal("1510.56"), Decimal("31.4700000000")),
    ]
    assert found[0].zone == "use1-az2" and found[0].hours == 24
    reasons = " ".join(skip.reason for skip in skipped)
    assert len(skipped) == len(bad)
    for says in ("is no price", "fee is missing", "none of us-east-1", "in which currency", "how many instances"):
        assert says in reasons
    asked = aws.asked(BLOCKS)[0]
    assert (asked["CapacityDurationHours"], asked["InstanceCount"], asked["StartDateRange"]) == (24, 2, NOW)


def test_a_block_that_begins_at_once_is_priced_by_its_minutes() -> None:
    aws = Aws()
    row = block("1000", CapacityBlockDurationMinutes=19 * 60 + 12, CapacityBlockDurationHours=19)
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": [row, block("960", CapacityBlockDurationMinutes=1440)]})
    found, _ = capacity_blocks(aws.session, US_EAST_1, "p5.48xlarge", NOW, instances=2)
    assert {one.hours: one.per_instance_hour for one in found} == {Decimal("19.2"): Decimal("26.0416666667"), 24: Decimal(20)}


def test_a_refresh_takes_the_soonest_block_of_each_zone_for_the_types_that_are_sold_so() -> None:
    aws, told = Aws(), Told()
    types = [
        {"InstanceType": "p5.48xlarge", "SupportedUsageClasses": ["on-demand", "capacity-block"]},
        {"InstanceType": "p6-b200.48xlarge", "SupportedUsageClasses": ["capacity-block"]},
        {"InstanceType": "g5.xlarge", "SupportedUsageClasses": ["on-demand", "spot"]},
    ]
    aws.lay("ec2", "describe_instance_types", {"InstanceTypes": types})
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    offers = [block("960", 3), block("480", 1), block("960", 9, "us-east-1b")]
    aws.lay("ec2", BLOCKS, {"CapacityBlockOfferings": offers})
    aws.refuse("ec2", BLOCKS, "InvalidParameterValue", "The instance type is not supported here")
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("capacity_block", types=None), told))
    assert [(price.zone, price.amount, price.upfront, price.term_hours) for price in prices] == [
        ("use1-az2", Decimal(10), Decimal(240), 24),
        ("use1-az4", Decimal(20), Decimal(480), 24),
    ]
    assert prices[0].source == "aws capacity blocks 2026-08-01, starts 2026-08-02T12:00Z"
    ((where, reason),) = told.skipped
    assert where.endswith("p6-b200.48xlarge")
    assert "not supported here" in reason


def test_placement_scores_go_over_all_regions_ten_at_a_time_best_first() -> None:
    aws = Aws()
    regions = ("us-east-1", *(f"us-west-{number}" for number in range(1, 11)))
    rows = [
        {"Region": "us-east-1", "AvailabilityZoneId": "use1-az2", "Score": 3},
        {"Region": "us-west-2", "AvailabilityZoneId": "usw2-az1", "Score": 9},
    ]
    aws.lay("ec2", SCORES, {"SpotPlacementScores": rows[:1], "NextToken": "one"})
    aws.lay("ec2", SCORES, {"SpotPlacementScores": rows[1:], "NextToken": ""})
    aws.lay("ec2", SCORES, {"SpotPlacementScores": []}, region="us-west-10")
    scores = placement_scores(aws.session, wanted("spot", regions=regions), 4, NOW)
    aws.all_used()
    assert [(one.zone, one.score, one.few_types, one.asked_at) for one in scores] == [
        ("usw2-az1", 9, True, NOW),
        ("use1-az2", 3, True, NOW),
    ]
    assert [len(call["RegionNames"]) for call in aws.asked(SCORES)] == [10, 10, 1]
    with pytest.raises(BadAnswer, match="name at least one"):
        placement_scores(aws.session, wanted("spot", types=None), 4, NOW)


@pytest.mark.parametrize(
    ("gpu", "count"),
    [
        ({"Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}, Fraction(1, 8)),
        ({"Count": 0, "LogicalGpuCount": 2, "GpuPartitionSize": 0.5}, 1),
        ({"Count": 0, "LogicalGpuCount": 3, "GpuPartitionSize": 0.333}, 1),
        ({"Count": 0}, None),
        ({"Count": 8, "LogicalGpuCount": 8, "GpuPartitionSize": 1.0}, 8),
        ({"Count": 4}, 4),
    ],
)
def test_a_gpu_count_of_0_is_a_part_or_unknown_and_never_none(gpu: dict, count: object) -> None:
    raw = {"InstanceType": "g6f.large", "GpuInfo": {"Gpus": [{"Name": "L4", "Manufacturer": "NVIDIA", **gpu}]}}
    assert shape(raw).gpu_count == count
    assert shape(raw).kind == "gpu"


@pytest.fixture(scope="module")
def moto_session() -> Iterator[AwsSession]:
    with mock_aws(), AwsSession() as session:
        yield session


def test_zones_have_ids_by_name_against_moto(moto_session: AwsSession) -> None:
    zones = read_zones(moto_session, "us-east-1")
    assert len(zones.zones) >= 6
    assert zones.id_of("us-east-1a") == zones.id_of(zones.id_of("us-east-1a") or "") is not None
    assert zones.id_of("us-west-2a") is None


def test_shapes_of_the_shipped_table_equal_those_of_the_call_against_moto(moto_session: AwsSession) -> None:
    shapes = {found.instance_type: found for found in instance_types(moto_session, "us-east-1")}
    assert len(shapes) > 800
    for name in ("p4d.24xlarge", "p5.48xlarge", "g5.xlarge", "g4dn.metal"):
        shipped = Catalog.embedded().instance("aws", name)
        assert shipped is not None
        for field in ("gpu_model", "gpu_count", "gpu_memory_bytes", "vcpus", "memory_bytes", "nvme_bytes", "kind"):
            assert getattr(shapes[name], field) == getattr(shipped, field), (name, field)
    assert shapes["m5.large"].gpu_count == 0
    assert shapes["m5.large"].kind == "cpu"
    assert shapes["inf2.48xlarge"].kind == "ai_chip"


def test_types_with_blocks_against_moto(moto_session: AwsSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InstanceTypeBackend, "instance_types", InstanceTypeBackend.instance_types[:50])  # all take seconds
    assert set(types_with_blocks(moto_session, "us-east-1", frozenset({"g4dn.xlarge"}))) == set()


def test_spot_history_parses_against_moto(moto_session: AwsSession) -> None:
    told = Told()
    asked = wanted("spot", types=frozenset({"g4dn.xlarge"}))
    prices = list(AwsSource(moto_session, NOW).fetch(asked, told))
    assert {price.amount for price in prices} <= {Decimal("0.00001")}
    assert told[-1].resume is None
