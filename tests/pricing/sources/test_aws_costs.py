"""Cost Explorer under a budget, against moto where it is real."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
import requests
from moto import mock_aws

from pricing.sources import BadAnswer, RequestsRefused, Throttled
from pricing.sources.aws_costs import (
    Budget,
    forecast,
    reservation_recommendations,
    savings_plan_recommendations,
    spent,
)
from pricing.sources.aws_session import AwsSession
from tests.support.aws_stubs import Aws

USAGE = "get_cost_and_usage"
JULY, AUGUST = date(2026, 7, 1), date(2026, 8, 1)


def period(amount: str, unit: str = "USD", day: int = 1) -> dict:
    return {
        "TimePeriod": {"Start": f"2026-07-0{day}", "End": f"2026-07-0{day + 1}"},
        "Total": {"UnblendedCost": {"Amount": amount, "Unit": unit}},
        "Groups": [],
        "Estimated": day > 1,
    }


def asking(answers: list[bool]) -> tuple[list[int], Budget]:
    asked: list[int] = []

    def allow(requests: int) -> bool:
        asked.append(requests)
        return answers.pop(0)

    return asked, Budget(allow, cap=4)


def test_each_page_and_each_retry_counts_and_the_payer_is_asked_before() -> None:
    aws = Aws()
    aws.lay("ce", USAGE, {"ResultsByTime": [period("12.50")], "NextPageToken": "one"})
    aws.refuse("ce", USAGE, "LimitExceededException")
    aws.lay("ce", USAGE, {"ResultsByTime": [period("0", day=2), period("-3.25", day=3)]})
    asked, budget = asking([True, True])
    rows = list(spent(aws.session, budget, JULY, AUGUST))
    assert [(row.start, row.amount, row.currency, row.estimated) for row in rows] == [
        (date(2026, 7, 1), Decimal("12.50"), "USD", False),
        (date(2026, 7, 2), Decimal(0), "USD", True),
        (date(2026, 7, 3), Decimal("-3.25"), "USD", True),
    ]
    assert (asked, budget.used, budget.spent) == ([1, 3], 3, Decimal("0.03"))
    assert aws.asked(USAGE)[0]["TimePeriod"] == {"Start": "2026-07-01", "End": "2026-08-01"}
    assert aws.asked(USAGE)[1]["NextPageToken"] == "one"


def test_without_leave_no_request_is_sent() -> None:
    aws = Aws()
    _, budget = asking([False])
    with pytest.raises(RequestsRefused, match=r"\$0.01 per request; 0 were sent \(\$0.00\), and 1 more were not allowed"):
        list(spent(aws.session, budget, JULY, AUGUST))
    assert aws.calls == []


def test_the_cap_holds_also_when_the_answer_does_not_end_and_also_for_retries() -> None:
    aws = Aws()
    for number in range(4):
        aws.lay("ce", USAGE, {"ResultsByTime": [period("1")], "NextPageToken": f"{number}"})
    _, budget = asking([True] * 9)
    found = spent(aws.session, budget, JULY, AUGUST)
    with pytest.raises(RequestsRefused, match="exceed the cap of 4"):
        list(found)
    assert (budget.used, len(aws.calls)) == (4, 4)
    throttled = Aws()
    for _ in range(8):
        throttled.refuse("ce", USAGE, "LimitExceededException")
    _, budget = asking([True] * 9)
    with pytest.raises((RequestsRefused, Throttled)):
        list(spent(throttled.session, budget, JULY, AUGUST))
    assert budget.used == 4


@pytest.mark.parametrize(
    ("row", "says"),
    [(period("12,5"), "decimal comma"), (period(""), "is empty"), (period("1", "N/A"), "'N/A', which is no currency")],
)
def test_an_amount_that_cannot_be_read_is_a_fault_since_a_sum_without_it_would_be_wrong(row: dict, says: str) -> None:
    aws = Aws()
    aws.lay("ce", USAGE, {"ResultsByTime": [row]})
    with pytest.raises(BadAnswer, match=says):
        list(spent(aws.session, Budget(lambda _: True), JULY, AUGUST))


def test_costs_by_two_groups_are_read_against_moto() -> None:
    row = {
        "TimePeriod": {"Start": "2026-07-01", "End": "2026-07-02"}, "Total": {},
        "Groups": [{"Keys": ["p4d.24xlarge", "team$a"], "Metrics": {"UnblendedCost": {"Amount": "526.98", "Unit": "USD"}}}],
    }  # fmt: skip
    answer = {"ResultsByTime": [row], "DimensionValueAttributes": [], "GroupDefinitions": []}
    with mock_aws(), AwsSession() as session:
        seeded = "http://motoapi.amazonaws.com/moto-api/static/ce/cost-and-usage-results"
        assert requests.post(seeded, json={"results": [answer]}).status_code == 201
        budget = Budget(lambda _: True)
        rows = list(spent(session, budget, JULY, AUGUST, group_by=("INSTANCE_TYPE", "tag:team")))
    assert [(one.keys, one.amount, one.currency) for one in rows] == [(("p4d.24xlarge", "team$a"), Decimal("526.98"), "USD")]
    assert budget.used == 1


def test_a_forecast_has_its_interval() -> None:
    aws = Aws()
    day = {"TimePeriod": {"Start": "2026-08-02", "End": "2026-08-03"}, "MeanValue": "526.98"}
    bounds = {"PredictionIntervalLowerBound": "400.1", "PredictionIntervalUpperBound": "610"}
    results = [{**day, **bounds}, day]
    aws.lay("ce", "get_cost_forecast", {"Total": {"Amount": "1053.96", "Unit": "USD"}, "ForecastResultsByTime": results})
    first, second = forecast(aws.session, Budget(lambda _: True), AUGUST, date(2026, 9, 1))
    assert (first.mean, first.low, first.high, first.currency) == (Decimal("526.98"), Decimal("400.1"), Decimal(610), "USD")
    assert (second.low, second.high) == (None, None)


def test_recommendations_are_read_to_the_end() -> None:
    aws = Aws()
    money = {"UpfrontCost": "0", "EstimatedMonthlySavingsAmount": "812.5", "CurrencyCode": "USD"}
    machine = {"EC2InstanceDetails": {"InstanceType": "g5.xlarge", "Region": "eu-west-1"}}
    row = {**money, "InstanceDetails": machine, "RecommendedNumberOfInstancesToPurchase": "3"}
    call = "get_reservation_purchase_recommendation"
    aws.lay("ce", call, {"Recommendations": [{"RecommendationDetails": [row]}], "NextPageToken": "one"})
    aws.lay("ce", call, {"Recommendations": [{"RecommendationDetails": [row]}]})
    budget = Budget(lambda _: True)
    found = reservation_recommendations(aws.session, budget)
    assert [(one.what, one.count, one.saving_per_month) for one in found] == [
        ("3 x g5.xlarge in eu-west-1", Decimal(3), Decimal("812.5"))
    ] * 2
    assert budget.used == 2
    plan = {
        **money,
        "SavingsPlansDetails": {"Region": "eu-west-1", "InstanceFamily": "g5"},
        "HourlyCommitmentToPurchase": "2.75",
    }
    answer = {"SavingsPlansPurchaseRecommendation": {"SavingsPlansPurchaseRecommendationDetails": [plan]}}
    aws.lay("ce", "get_savings_plans_purchase_recommendation", answer)
    (one,) = savings_plan_recommendations(aws.session, budget, "SEVEN_DAYS", plan="EC2_INSTANCE_SP")
    assert (one.per_hour, one.instance_type, one.what) == (
        Decimal("2.75"),
        "g5",
        "2.75 per hour, EC2 Instance plan g5 in eu-west-1",
    )
