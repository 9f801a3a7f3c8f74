"""The only calls that `advise --apply` makes: reservations of AWS, after a dry run of all of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from pricing.advice import Call
from pricing.sources import NoPermission
from tests.support.advising import action, reservation
from tests.support.aws_stubs import Aws
from tui.commands.advise_calls import OPERATION, can_make, make, wishes

LIST = "describe_reserved_instances_offerings"
CALLS = (Call("ec2", "us-east-1", OPERATION, {"InstanceCount": 3}),)
OFFER = {
    "ReservedInstancesOfferingId": "off-1", "InstanceType": "p4d.24xlarge", "OfferingType": "No Upfront", "FixedPrice": 0.0,
    "UsagePrice": 0.0, "Duration": 31_536_000, "CurrencyCode": "USD", "RecurringCharges": [{"Amount": 13.8, "Frequency": "Hourly"}],
}  # fmt: skip


def test_what_was_advised_is_what_is_asked_for() -> None:
    advised = action(9, kind="commit", buys=(reservation(3, "13.8"),), calls=CALLS)
    (wish,) = wishes(advised) or []
    assert (wish.region, wish.instance_type, wish.years, wish.payment, wish.count) == (
        "us-east-1",
        "p4d.24xlarge",
        1,
        "no_upfront",
        3,
    )
    paid = [replace(reservation(1, "10"), upfront=Fraction(amount)) for amount in (87_600, 40_000)]
    assert [one.payment for one in wishes(action(9, buys=tuple(paid), calls=CALLS)) or []] == ["all_upfront", "partial_upfront"]


@pytest.mark.parametrize(
    "buys",
    [
        (replace(reservation(1, "5"), kind="savings_plan", instance_type=None, percent=Fraction(30)),),
        (replace(reservation(1, "5"), cloud="azure"),),
        (reservation(1, "5", days=28),),
        (replace(reservation(1, "5"), region=None),),
        (),
    ],
)
def test_everything_else_is_printed_only(buys) -> None:  # noqa: ANN001
    assert not can_make(action(9, kind="commit", buys=buys, calls=CALLS))
    assert not can_make(action(9, kind="commit", buys=(reservation(1, "5"),)))


def test_it_is_found_tried_and_bought_in_this_order() -> None:
    aws = Aws()
    aws.lay("ec2", LIST, {"ReservedInstancesOfferings": [OFFER]})
    aws.refuse("ec2", OPERATION, "DryRunOperation", "would have succeeded", 412)
    aws.lay("ec2", OPERATION, {"ReservedInstancesId": "ri-9"})
    lines = list(make(action(9, kind="commit", buys=(reservation(3, "13.8"),), calls=CALLS), None, aws.session))
    assert lines[0].startswith("dry run passed: 3 x p4d.24xlarge in us-east-1, 1 y, offering off-1, $0") and "41.4" in lines[0]
    assert "reservation ri-9" in lines[1]
    assert [asked["DryRun"] for asked in aws.asked(OPERATION)] == [True, False]


def test_nothing_is_bought_when_one_of_several_dry_runs_is_refused() -> None:
    aws = Aws()
    for _ in range(2):
        aws.lay("ec2", LIST, {"ReservedInstancesOfferings": [OFFER]})
    aws.refuse("ec2", OPERATION, "DryRunOperation", "would have succeeded", 412)
    aws.refuse("ec2", OPERATION, "UnauthorizedOperation", "no", 403)
    advised = action(9, kind="commit", buys=(reservation(3, "13.8"), reservation(1, "13.8")), calls=CALLS)
    with pytest.raises(NoPermission):
        list(make(advised, None, aws.session))
    assert all(asked["DryRun"] for asked in aws.asked(OPERATION))
