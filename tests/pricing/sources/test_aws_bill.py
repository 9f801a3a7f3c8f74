"""Cost Explorer's charges for instances as lines of a bill: they sum to what it tells, whatever kinds of charge there are."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from pricing import compare_read as bills
from pricing.sources import BadAnswer, RequestsRefused
from pricing.sources.aws_bill import NAMED, REQUESTS, instance_bill, kind_of
from pricing.sources.aws_costs import Budget
from pricing.sources.aws_session import AwsSession
from tests.support.aws_stubs import Aws, cost_group, cost_period

USAGE = "get_cost_and_usage"
JULY, LATER = date(2026, 7, 1), date(2026, 7, 3)


def told(
    use: list[dict], charges: list[dict], account: str | None = None, aws: Aws | None = None
) -> tuple[list[bills.Line], Aws, Budget]:
    aws, budget = aws or Aws(), Budget(lambda requests: True)
    aws.lay("ce", USAGE, {"ResultsByTime": use})
    aws.lay("ce", USAGE, {"ResultsByTime": charges})
    return instance_bill(aws.session, budget, JULY, LATER, account).lines, aws, budget


def test_use_has_place_type_and_hours_and_the_rest_is_a_line_of_its_kind() -> None:
    use = [
        cost_group("p4d.24xlarge", "us-east-1", billed="526.98", used="480.5", hours="24"),
        cost_group("NoInstanceType", "NoRegion", billed="1", used="1", hours="3", unit="N/A"),
    ]
    kinds = {
        "Usage": ("530", "483.5"), "Savings Plan negation": ("-100", "0"), "RIFee": ("0", "12.5"), "Tax": ("50", "50"),
        "Credit": ("-7", "-7"), "Enterprise Discount Program Discount": ("-5", "-5"), "Support fee": ("3", "3"), "Refund": ("0", "0"),
    }  # fmt: skip
    lines, aws, budget = told([cost_period(1, *use)], [cost_period(1, *(cost_group(name, billed=a, used=b) for name, (a, b) in kinds.items()))])
    first = lines[0]
    assert (first.kind, first.region, first.instance_type, first.hours, first.currency) == ("compute", "us-east-1", "p4d.24xlarge", 24, "USD")
    assert (first.starts, first.ends) == (datetime(2026, 7, 1, tzinfo=UTC), datetime(2026, 7, 2, tzinfo=UTC))
    assert (lines[1].region, lines[1].instance_type, lines[1].hours) == (None, None, None)
    assert [(line.kind, line.billed, line.cost) for line in lines[2:]] == [
        ("commitment", -100, 0), ("commitment", 0, Fraction("12.5")), ("tax", 50, 50), ("credit", -7, -7), ("discount", -5, -5),
        ("other", 3, 3), ("other", 530 - Fraction("527.98"), 483 + Fraction("0.5") - Fraction("481.5")),
    ]  # fmt: skip
    assert budget.used == REQUESTS == 2 and [line.row for line in lines] == list(range(1, 10))
    by_type, by_kind = aws.asked(USAGE)
    assert by_type["TimePeriod"] == {"Start": "2026-07-01", "End": "2026-07-03"} and by_type["Granularity"] == "DAILY"
    spelt = by_type["Filter"]["And"][2]["Not"]["Dimensions"]["Values"]
    assert {"RIFee", "Recurring reservation fee", "SavingsPlanNegation", "Savings Plan Negation", "Savings Plan negation"} <= set(spelt)
    assert by_kind["Filter"]["Dimensions"]["Values"] == ["Amazon Elastic Compute Cloud - Compute", "Savings Plans for AWS Compute usage"]


SHARED = Aws()
money = st.decimals(-1000, 1000, places=4).map(str)


@settings(max_examples=25, deadline=None)
@given(
    use=st.lists(st.tuples(st.sampled_from(("p4d.24xlarge", "g5.xlarge", "NoInstanceType")), money, money, st.integers(1, 2)), max_size=4),
    charges=st.lists(
        st.tuples(st.sampled_from(["Usage", "DiscountedUsage", "RIFee", "Tax", "SppDiscount", "Unheard of"]), money, money, st.integers(1, 2)),
        max_size=6,
    ),
)  # fmt: skip
def test_the_lines_sum_to_what_cost_explorer_tells_of_all_charges(use: list, charges: list) -> None:
    by_type = [cost_period(day, cost_group(name, "us-east-1", billed=a, used=b)) for name, a, b, day in use]
    by_kind = [cost_period(day, cost_group(name, billed=a, used=b)) for name, a, b, day in charges]
    lines, _, _ = told(by_type, by_kind, aws=SHARED)
    assert sum(line.billed for line in lines) == sum(Fraction(a) for _, a, _, _ in charges)
    assert sum(line.cost for line in lines) == sum(Fraction(b) for _, _, b, _ in charges)


@pytest.mark.parametrize("kind", NAMED)
def test_a_kind_of_charge_is_known_in_every_spelling(kind: str) -> None:
    for name in NAMED[kind]:
        assert {kind_of(name), kind_of(name.upper()), kind_of(name.replace("Plan", " Plan "))} == {kind}
    assert (kind_of("Some new discount"), kind_of("Whatever")) == (bills.DISCOUNT, bills.OTHER)


def test_an_account_is_asked_for_and_days_that_may_change_are_told() -> None:
    aws = Aws()
    aws.lay("ce", USAGE, {"ResultsByTime": [cost_period(1), cost_period(2, cost_group("g5.xlarge", "eu-west-1"), estimated=True)]})
    aws.lay("ce", USAGE, {"ResultsByTime": [cost_period(2, cost_group("Usage"), estimated=True)]})
    found = instance_bill(aws.session, Budget(lambda requests: True), JULY, LATER, "123456789012")
    assert found.estimated == (date(2026, 7, 2),) and found.lines[0].accounts == ("123456789012",)
    for asked in aws.asked(USAGE):
        assert {"Dimensions": {"Key": "LINKED_ACCOUNT", "Values": ["123456789012"]}} in asked["Filter"]["And"]


def test_both_requests_are_asked_for_at_once_and_a_no_sends_none() -> None:
    aws, asked = Aws(), []

    def no(count: int) -> bool:
        asked.append(count)
        return False

    with pytest.raises(RequestsRefused, match="2 more were not allowed"):
        instance_bill(aws.session, Budget(no), JULY, LATER)
    assert (asked, aws.calls) == ([2], [])


def test_a_charge_in_two_currencies_is_a_fault() -> None:
    group = cost_group("g5.xlarge", "eu-west-1")
    group["Metrics"]["AmortizedCost"]["Unit"] = "CNY"
    with pytest.raises(BadAnswer, match="in USD and in CNY"):
        told([cost_period(1, group)], [])


def test_the_request_is_one_that_moto_takes() -> None:
    answer = {"ResultsByTime": [cost_period(1, cost_group("Usage", "us-east-1", hours="24"))], "GroupDefinitions": [], "DimensionValueAttributes": []}
    with mock_aws(), AwsSession() as session:
        seeded = "http://motoapi.amazonaws.com/moto-api/static/ce/cost-and-usage-results"
        assert requests.post(seeded, json={"results": [answer, answer]}).status_code == 201
        found = instance_bill(session, Budget(lambda requests: True), JULY, LATER)
    assert [(line.kind, line.hours) for line in found.lines] == [("compute", 24)]
