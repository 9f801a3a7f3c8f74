"""Buying reserved instances: the offering that is meant, the dry run first, and never twice. Shapes checked by botocore."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.sources import BadAnswer, NoPermission, SourceFault
from pricing.sources.aws_purchase import (
    Offering,
    Wish,
    asked,
    buy,
    find_offering,
    try_to_buy,
)
from tests.support.aws_stubs import Aws

LIST, BUY = "describe_reserved_instances_offerings", "purchase_reserved_instances_offering"
WISH = Wish("us-east-1", "p4d.24xlarge", 1, "no_upfront", 3, Fraction("13.50"))
OFFERING = Offering("off-1", Decimal(0), Decimal("13.5"), 8760)


def row(**change: object) -> dict[str, object]:
    return {
        "ReservedInstancesOfferingId": "off-1", "InstanceType": "p4d.24xlarge", "OfferingType": "No Upfront", "FixedPrice": 0.0,
        "UsagePrice": 0.0, "Duration": 31_536_000, "CurrencyCode": "USD",
        "RecurringCharges": [{"Amount": 13.5, "Frequency": "Hourly"}], **change,
    }  # fmt: skip


def test_the_one_offering_that_fits_is_found_over_all_pages_with_its_exact_price() -> None:
    aws = Aws()
    aws.lay("ec2", LIST, {"ReservedInstancesOfferings": [], "NextToken": "x"}, asked(WISH))
    aws.lay("ec2", LIST, {"ReservedInstancesOfferings": [row(), row(InstanceType="p5.48xlarge")]})
    assert find_offering(aws.session, WISH) == OFFERING
    assert asked(WISH)["MinDuration"] == asked(WISH)["MaxDuration"] == 365 * 86_400
    aws.all_used()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "no offerings"),
        ([row(), row(ReservedInstancesOfferingId="off-2")], "2 offerings"),
        ([row(RecurringCharges=[{"Amount": 14.9, "Frequency": "Hourly"}])], r"asks \$14.9000 an hour"),
        ([row(CurrencyCode="CNY")], "in CNY"),
        ([row(RecurringCharges=[])], "no price"),
    ],
)
def test_nothing_else_than_what_was_advised_is_taken(rows: list[dict[str, object]], sentence: str) -> None:
    aws = Aws()
    aws.lay("ec2", LIST, {"ReservedInstancesOfferings": rows})
    with pytest.raises(BadAnswer, match=sentence):
        find_offering(aws.session, WISH)


def test_a_dry_run_that_would_have_sold_passes_and_one_that_is_refused_says_why() -> None:
    aws = Aws()
    aws.refuse("ec2", BUY, "DryRunOperation", "Request would have succeeded", 412)
    try_to_buy(aws.session, OFFERING, WISH)
    assert aws.asked(BUY) == [{"ReservedInstancesOfferingId": "off-1", "InstanceCount": 3, "DryRun": True}]
    aws.refuse("ec2", BUY, "UnauthorizedOperation", "no", 403)
    with pytest.raises(NoPermission, match="ec2:PurchaseReservedInstancesOffering"):
        try_to_buy(aws.session, OFFERING, WISH)


def test_a_purchase_is_made_once_and_a_broken_answer_is_never_tried_again() -> None:
    aws = Aws()
    aws.lay(
        "ec2",
        BUY,
        {"ReservedInstancesId": "ri-9"},
        {"ReservedInstancesOfferingId": "off-1", "InstanceCount": 3, "DryRun": False},
    )
    assert buy(aws.session, OFFERING, WISH) == "ri-9"
    aws.refuse("ec2", BUY, "InternalError", "later", 500)
    with pytest.raises(SourceFault, match="Whether it was bought is not known"):
        buy(aws.session, OFFERING, WISH)
    assert len(aws.asked(BUY)) == 2
    aws.all_used()
