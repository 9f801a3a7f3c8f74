"""AWS Cost Explorer: what was spent, what will be, and what AWS would commit to. Each request costs money.

Invariant: no request leaves without a `Budget` that was asked: retries and further pages count as requests too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

from pricing.money import parse_decimal
from pricing.sources import BadAnswer, RequestsRefused
from pricing.sources.aws_session import AwsSession, Tokens

COST_OF_REQUEST = Decimal("0.01")
CAP = 20
TOKENS = Tokens("NextPageToken", "NextPageToken")
MORE = 5
"""Requests that are asked for together, once the first are used up."""
PLANS = {"COMPUTE_SP": "Compute plan", "EC2_INSTANCE_SP": "EC2 Instance plan"}
LOOKBACKS = ("SEVEN_DAYS", "THIRTY_DAYS", "SIXTY_DAYS")


class Budget:
    """How many requests may leave. `allow(requests)` asks whoever pays, before they do; `cap` is never exceeded."""

    def __init__(self, allow: Callable[[int], bool], cap: int = CAP) -> None:
        self._allow = allow
        self._cap = cap
        self._allowed = 0
        self.used = 0

    @property
    def spent(self) -> Decimal:
        """USD."""
        return self.used * COST_OF_REQUEST

    def plan(self, requests: int) -> None:
        """Asks for as many as a call is expected to need. RequestsRefused: the answer was no, or the cap is in the way."""
        missing = self.used + requests - self._allowed
        if self.used + requests > self._cap:
            raise RequestsRefused(
                self._refusal(f"{requests} more would exceed the cap of {self._cap}: raise it, or ask for less")
            )
        if missing > 0:
            if not self._allow(missing):
                raise RequestsRefused(self._refusal(f"{requests} more were not allowed"))
            self._allowed += missing

    def take(self) -> None:
        """Counts one request that leaves now. RequestsRefused."""
        if self.used >= self._allowed:
            self.plan(max(1, min(MORE, self._cap - self.used)))
        self.used += 1

    def _refusal(self, why: str) -> str:
        return f"Cost Explorer charges $0.01 per request; {self.used} were sent (${self.spent}), and {why}."


class Spent(NamedTuple):
    """What was spent in one period, for one group."""

    start: date
    end: date
    """Exclusive."""
    keys: tuple[str, ...]
    """One per grouping; empty: the total."""
    amount: Decimal
    currency: str
    estimated: bool
    """AWS may still change it."""


class Forecast(NamedTuple):
    """AWS's own forecast of one period."""

    start: date
    end: date
    mean: Decimal
    low: Decimal | None
    high: Decimal | None
    currency: str


class Recommendation(NamedTuple):
    """What AWS would commit to, assuming that the look-back repeats itself."""

    kind: str
    """`reservation` or `savings_plan`."""
    lookback: str
    term: str
    payment: str
    what: str
    """`2 x p4d.24xlarge in us-east-1`, `12.5 per hour, EC2 Instance plan p5 in us-east-1`."""
    region: str | None
    instance_type: str | None
    """A family for a savings plan of one; None: any."""
    count: Decimal | None
    """Instances; None for a savings plan."""
    per_hour: Decimal | None
    """A savings plan's commitment; None for a reservation."""
    upfront: Decimal
    saving_per_month: Decimal
    currency: str


def spent(
    session: AwsSession, budget: Budget, start: date, end: date, *,
    granularity: str = "DAILY", group_by: Sequence[str] = (), metric: str = "UnblendedCost",
) -> Iterator[Spent]:  # fmt: skip
    """Costs from `start` to `end` (exclusive) by up to two dimensions (`SERVICE`, `INSTANCE_TYPE`) or tags (`tag:team`)."""
    asked = {
        "TimePeriod": {"Start": start.isoformat(), "End": end.isoformat()},
        "Granularity": granularity,
        "Metrics": [metric],
        **({"GroupBy": [_group(name) for name in group_by]} if group_by else {}),
    }
    for answer in pages_of(session, budget, "get_cost_and_usage", asked):
        for period in answer.get("ResultsByTime", []):
            first, last = days_of(period)
            groups = period["Groups"] if group_by else [{"Keys": [], "Metrics": period.get("Total", {})}]
            for group in groups:
                value = group["Metrics"].get(metric)
                if value is not None:
                    keys = tuple(str(key) for key in group["Keys"])
                    money, currency = money_of(value.get("Amount"), metric), currency_of(value.get("Unit"))
                    yield Spent(first, last, keys, money, currency, bool(period.get("Estimated")))


def forecast(
    session: AwsSession, budget: Budget, start: date, end: date, *, granularity: str = "DAILY", interval_percent: int = 80
) -> list[Forecast]:
    """Costs to come, from `start` (today or later) to `end` (exclusive), with the interval that AWS gives."""
    asked = {
        "TimePeriod": {"Start": start.isoformat(), "End": end.isoformat()},
        "Metric": "UNBLENDED_COST",
        "Granularity": granularity,
        "PredictionIntervalLevel": interval_percent,
    }
    budget.plan(1)
    answer = session.call(session.global_client("ce"), "get_cost_forecast", asked, budget.take)
    currency = currency_of(answer.get("Total", {}).get("Unit"))
    return [_forecast(row, currency) for row in answer.get("ForecastResultsByTime", [])]


def _forecast(row: dict[str, Any], currency: str) -> Forecast:
    first, last = days_of(row)
    low, high = row.get("PredictionIntervalLowerBound"), row.get("PredictionIntervalUpperBound")
    return Forecast(
        first, last, money_of(row.get("MeanValue"), "mean"),
        None if low is None else money_of(low, "lower bound"), None if high is None else money_of(high, "upper bound"), currency,
    )  # fmt: skip


def reservation_recommendations(
    session: AwsSession, budget: Budget, lookback: str = "THIRTY_DAYS", *,
    term: str = "ONE_YEAR", payment: str = "NO_UPFRONT",
) -> list[Recommendation]:  # fmt: skip
    """What reserved instances AWS would buy for EC2."""
    asked = {
        "Service": "Amazon Elastic Compute Cloud - Compute", "LookbackPeriodInDays": lookback,
        "TermInYears": term, "PaymentOption": payment,
    }  # fmt: skip
    found: list[Recommendation] = []
    for answer in pages_of(session, budget, "get_reservation_purchase_recommendation", asked):
        for block in answer.get("Recommendations", []):
            found += [_reservation(row, lookback, term, payment) for row in block.get("RecommendationDetails", [])]
    return found


def _reservation(row: dict[str, Any], lookback: str, term: str, payment: str) -> Recommendation:
    details = row.get("InstanceDetails", {}).get("EC2InstanceDetails", {})
    name, region = details.get("InstanceType"), details.get("Region")
    count = money_of(row.get("RecommendedNumberOfInstancesToPurchase"), "number of instances")
    return Recommendation(
        "reservation", lookback, term, payment, f"{count:f} x {name} in {region}", region, name, count, None,
        money_of(row.get("UpfrontCost"), "upfront cost"),
        money_of(row.get("EstimatedMonthlySavingsAmount"), "saving"), currency_of(row.get("CurrencyCode")),
    )  # fmt: skip


def savings_plan_recommendations(
    session: AwsSession, budget: Budget, lookback: str = "THIRTY_DAYS", *,
    plan: str = "COMPUTE_SP", term: str = "ONE_YEAR", payment: str = "NO_UPFRONT",
) -> list[Recommendation]:  # fmt: skip
    """What savings plans AWS would buy. It answers from its last analysis, which may be a day old."""
    asked = {
        "SavingsPlansType": plan, "LookbackPeriodInDays": lookback, "TermInYears": term, "PaymentOption": payment,
    }  # fmt: skip
    found: list[Recommendation] = []
    for answer in pages_of(session, budget, "get_savings_plans_purchase_recommendation", asked):
        block = answer.get("SavingsPlansPurchaseRecommendation", {})
        rows = block.get("SavingsPlansPurchaseRecommendationDetails", [])
        found += [_savings_plan(row, plan, lookback, term, payment) for row in rows]
    return found


def _savings_plan(row: dict[str, Any], plan: str, lookback: str, term: str, payment: str) -> Recommendation:
    details = row.get("SavingsPlansDetails", {})
    family, region = details.get("InstanceFamily") or None, details.get("Region") or None
    hourly = money_of(row.get("HourlyCommitmentToPurchase"), "commitment")
    what = f"{hourly:f} per hour, {PLANS.get(plan, plan)}" + (f" {family}" if family else "") + (f" in {region}" if region else "")
    return Recommendation(
        "savings_plan", lookback, term, payment, what, region, family, None, hourly,
        money_of(row.get("UpfrontCost"), "upfront cost"),
        money_of(row.get("EstimatedMonthlySavingsAmount"), "saving"), currency_of(row.get("CurrencyCode")),
    )  # fmt: skip


RECOMMENDATION_REQUESTS = 3
"""Of `aws_recommendations` for one look-back."""


def aws_recommendations(
    session: AwsSession, budget: Budget, lookbacks: Sequence[str] = ("THIRTY_DAYS",), *,
    term: str = "ONE_YEAR", payment: str = "NO_UPFRONT",
) -> list[Recommendation]:  # fmt: skip
    """What AWS would commit to: reservations, Compute savings plans and EC2 Instance savings plans, of each look-back.

    They are alternatives and not to be added up: each assumes that the look-back repeats itself, and none of the others.
    `budget` is asked first for three requests a look-back.
    """
    budget.plan(RECOMMENDATION_REQUESTS * len(lookbacks))
    found: list[Recommendation] = []
    for lookback in lookbacks:
        found += reservation_recommendations(session, budget, lookback, term=term, payment=payment)
        for plan in ("COMPUTE_SP", "EC2_INSTANCE_SP"):
            found += savings_plan_recommendations(session, budget, lookback, plan=plan, term=term, payment=payment)
    return found


def pages_of(session: AwsSession, budget: Budget, operation: str, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All pages of a call, each of them paid."""
    budget.plan(1)
    for page in session.pages(session.global_client("ce"), operation, asked, TOKENS, before=budget.take):
        yield page.answer


def _group(name: str) -> dict[str, str]:
    return {"Type": "TAG", "Key": name[4:]} if name.startswith("tag:") else {"Type": "DIMENSION", "Key": name}


def days_of(row: dict[str, Any]) -> tuple[date, date]:
    period = row["TimePeriod"]
    return date.fromisoformat(period["Start"][:10]), date.fromisoformat(period["End"][:10])


def money_of(text: object, what: str) -> Decimal:
    """Zero and credits are amounts here. BadAnswer when there is none: a sum without it would be wrong."""
    try:
        return parse_decimal(text, what)
    except ValueError as fault:
        raise BadAnswer(f"Cost Explorer sent an amount that cannot be read. {fault}") from None


def currency_of(unit: object) -> str:
    if not isinstance(unit, str) or not re.fullmatch("[A-Z]{3}", unit):
        raise BadAnswer(f"Cost Explorer sent an amount in {str(unit)[:20]!r}, which is no currency.")
    return unit
