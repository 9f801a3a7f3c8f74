"""The commitments that an account owns: what AWS lists, what of it counts, and what stands in owned.toml."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from pricing.owned_file import RESERVATIONS, SAVINGS_PLANS
from pricing.sources import ExpiredCredentials, NoPermission
from pricing.sources.aws_commitments import Found, read_commitments
from pricing.sources.aws_owned import Account, account, owned_rates, owned_reservations, owned_savings_plans
from tests.support.aws_stubs import NOW, US_EAST_1, Aws, owned_rate_row, owned_row, plan_row, zone_rows

RESERVED, PLANS, RATES = "describe_reserved_instances", "describe_savings_plans", "describe_savings_plan_rates"
TYPES = ["p4d.24xlarge", "p5.48xlarge"]


def test_owned_reservations_are_exact_and_what_is_left_out_is_told() -> None:
    aws = Aws()
    zonal = owned_row(Scope="Availability Zone", AvailabilityZone="us-east-1b", ProductDescription="Linux/UNIX (Amazon VPC)")
    bad = [
        owned_row(ProductDescription="Windows"),
        owned_row(InstanceTenancy="dedicated"),
        owned_row(Scope="Availability Zone", AvailabilityZone="us-west-2a"),
        owned_row(OfferingType="Heavy Utilization"),
        owned_row(End=NOW - timedelta(days=1), Duration=None),
        {"ReservedInstancesId": "ri-9", "ProductDescription": "Linux/UNIX"},
    ]
    aws.lay("ec2", RESERVED, {"ReservedInstances": [owned_row(), zonal, *bad]})
    found, skipped = owned_reservations(aws.session, "us-east-1", lambda region: US_EAST_1)
    assert [(one.zone, one.count, one.upfront, one.hourly, one.payment, one.state) for one in found] == [
        (None, 2, Decimal("60000.1"), Decimal("6.849315"), "partial_upfront", "active"),
        ("use1-az4", 2, Decimal("60000.1"), Decimal("6.849315"), "partial_upfront", "active"),
    ]
    assert (found[0].starts_at, found[0].ends_at) == (NOW, datetime(2027, 8, 1, 12, tzinfo=UTC))
    assert len(skipped) == len(bad)
    (filter,) = aws.asked(RESERVED)[0]["Filters"]
    assert filter["Values"] == ["active", "queued", "payment-pending", "payment-failed", "retired"]


def test_a_term_is_as_long_as_what_was_paid_for_not_a_second_less() -> None:
    aws = Aws()
    seconds = [owned_row(End=NOW + timedelta(seconds=31_536_000 - off)) for off in (0, 1, 1.945)]
    aws.lay("ec2", RESERVED, {"ReservedInstances": [*seconds, owned_row(End=NOW + timedelta(days=100))]})
    found, _ = owned_reservations(aws.session, "us-east-1", lambda region: US_EAST_1)
    assert [one.ends_at - one.starts_at for one in found] == [timedelta(days=365)] * 3 + [timedelta(days=100)]
    assert {one.term_hours for one in found} == {8760}


def test_owned_savings_plans_and_their_rates_are_read_to_the_end() -> None:
    aws = Aws()
    family = plan_row(savingsPlanId="sp-2", savingsPlanType="EC2Instance", region="us-east-1", ec2InstanceFamily="p5")
    other = plan_row(savingsPlanType="SageMaker")
    bad = [plan_row(savingsPlanType="EC2Instance"), plan_row(commitment="0"), plan_row(start="soon")]
    aws.lay("savingsplans", PLANS, {"savingsPlans": [plan_row(), other], "nextToken": "one"})
    aws.lay("savingsplans", PLANS, {"savingsPlans": [family, *bad]})
    found, skipped = owned_savings_plans(aws.session)
    assert [(one.id, one.plan, one.region, one.family, one.per_hour) for one in found] == [
        ("sp-1", "Compute", None, None, Decimal("12.5")),
        ("sp-2", "EC2Instance", "us-east-1", "p5", Decimal("12.5")),
    ]
    assert found[0].ends_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert len(skipped) == len(bad)
    rows = [owned_rate_row("31.1"), owned_rate_row("0")]
    aws.lay("savingsplans", RATES, {"savingsPlanId": "sp-1", "searchResults": rows[:1], "nextToken": "one"})
    aws.lay("savingsplans", RATES, {"savingsPlanId": "sp-1", "searchResults": rows[1:]})
    told, left = owned_rates(aws.session, found[0])
    assert [(one.region, one.instance_type, one.rate) for one in told] == [("us-east-1", "p4d.24xlarge", Decimal("31.1"))]
    assert len(left) == 1
    aws.all_used()


def test_the_account_tells_its_regions_unless_the_key_may_not_list_them() -> None:
    aws = Aws()
    caller = {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/u"}
    regions = [{"RegionName": name} for name in ("us-west-2", "eu-west-1")]
    aws.lay("sts", "get_caller_identity", caller)
    aws.lay("ec2", "describe_regions", {"Regions": regions})
    assert account(aws.session) == Account("123456789012", ("eu-west-1", "us-west-2"))
    aws.lay("sts", "get_caller_identity", caller)
    aws.refuse("ec2", "describe_regions", "UnauthorizedOperation")
    assert account(aws.session) == Account("123456789012", ())


def read(reservations: list[dict], plans: list[dict] | None = None, rates: list[dict] | None = None) -> Found:
    aws = Aws()
    aws.lay("ec2", RESERVED, {"ReservedInstances": reservations})
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("savingsplans", PLANS, {"savingsPlans": plans or []})
    for plan in plans or []:
        aws.lay("savingsplans", RATES, {"savingsPlanId": plan["savingsPlanId"], "searchResults": rates or []})
    return read_commitments(aws.session, Account("1", ()), ["us-east-1"], NOW, TYPES)


@pytest.mark.parametrize(
    ("state", "span", "listed", "kept"),
    [
        ("active", (-10, 355), True, True),
        ("queued", (30, 395), True, True),
        ("retired", (-400, -35), True, True),
        ("retired", (-900, -535), False, False),
        ("retired", (-10, 355), False, False),
        ("payment-pending", (0, 365), True, False),
        ("payment-failed", (-5, 360), True, False),
    ],
)
def test_what_counts_is_what_aws_lets_cover_instances(state: str, span: tuple[int, int], listed: bool, kept: bool) -> None:
    start, end = (NOW + timedelta(days=days) for days in span)
    row = owned_row(State=state, Start=start, End=end)
    plan = plan_row(state=state, start=f"{start:%Y-%m-%dT%H:%M:%S}Z", end=f"{end:%Y-%m-%dT%H:%M:%S}Z")
    found = read([row], [plan] if listed else [])
    assert [one.state for one in found.owned] == ([state, state] if listed else [])
    assert [one.why_not is None for one in found.owned] == ([kept, kept] if listed else [])
    assert [len(part.commitments) for part in found.readings] == [int(kept), int(kept)]
    for part in found.readings if kept else ():
        (one,) = part.commitments
        assert (one.ends_ms - one.starts_ms) == 365 * 86_400_000


def test_what_is_kept_costs_what_aws_says_amortised_over_the_paid_term() -> None:
    found = read([owned_row(), owned_row(ReservedInstancesId="ri-2", End=NOW + timedelta(days=73))])
    reserved, changed = (one.commitment for one in found.owned)
    each = Fraction("60000.1") / 8760 + Fraction("6.849315")
    assert reserved.cost_per_hour == each and reserved.whole_cost == 2 * each
    assert abs(changed.cost_per_hour - each) < Fraction(1, 10**9), "its part of the upfront payment over its part of the term"
    assert changed.upfront == Fraction("12000.02")


def test_a_plan_charges_its_own_rates_by_region_and_those_of_the_catalog_where_they_cannot_be_read() -> None:
    rates = [owned_rate_row("31.1"), owned_rate_row("33.2", "eu-west-1"), owned_rate_row("5", name="p5.48xlarge", currency="CNY")]
    found = read([], [plan_row(upfrontPaymentAmount="1000", paymentOption="Partial Upfront")], rates)
    (one,) = (own.commitment for own in found.owned)
    assert one.rate_of("P4D.24xlarge", "us-east-1") == Fraction("31.1")
    assert one.rate_of("p4d.24xlarge", "eu-west-1") == Fraction("33.2")
    assert one.rate_of("p4d.24xlarge", "us-west-2") is None and one.rate_of("p5.48xlarge", "us-east-1") is None
    assert (one.purchase, one.upfront, one.cost_per_hour) == (None, 1000, Fraction("12.5"))
    assert "1 of its rates are in CNY, and the plan is in USD" in found.skipped[0].reason
    (bare,) = (own.commitment for own in read([], [plan_row(currency="CNY")]).owned)
    assert (bare.purchase, bare.rates, bare.currency) == ("savings_plan_1y", {}, "CNY")


def test_a_place_that_cannot_be_read_gives_no_reading_and_the_others_do() -> None:
    aws = Aws()
    aws.refuse("ec2", RESERVED, "UnauthorizedOperation")
    aws.lay("ec2", RESERVED, {"ReservedInstances": []}, region="us-west-2")
    aws.lay("savingsplans", PLANS, {"savingsPlans": []})
    told: list[tuple[str, int, int]] = []
    asked = ["us-east-1", "us-west-2"]
    found = read_commitments(aws.session, Account("1", ()), asked, NOW, TYPES, lambda *said: told.append(said))
    assert [(part.of, part.region) for part in found.readings] == [(RESERVATIONS, "us-west-2"), (SAVINGS_PLANS, None)]
    ((where, reason),) = found.lost
    assert where == "reservations of us-east-1" and "allow ec2:DescribeReservedInstances" in reason
    assert [done for _, done, _ in told] == [0, 1, 2, 3]


def test_without_any_answer_the_fault_is_raised_and_an_expired_key_stops_at_once() -> None:
    aws = Aws()
    aws.refuse("ec2", RESERVED, "UnauthorizedOperation")
    aws.refuse("savingsplans", PLANS, "AccessDeniedException")
    with pytest.raises(NoPermission):
        read_commitments(aws.session, Account("1", ()), ["us-east-1"], NOW, TYPES)
    aws.refuse("ec2", RESERVED, "ExpiredToken")
    with pytest.raises(ExpiredCredentials):
        read_commitments(aws.session, Account("1", ()), ["us-east-1", "us-west-2"], NOW, TYPES)
    aws.all_used()
