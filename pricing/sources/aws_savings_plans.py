"""What AWS Savings Plans charge per instance-hour, published for everybody.

Invariant: a rate is of Linux on shared tenancy, for running it (not for an unused reservation of it), in its own currency.
Compute and EC2 Instance plans have different rates under one purchase option: a reading is of one kind, which `source` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import Skipped, Wanted
from pricing.sources.aws_numbers import HOUR_SECONDS, PAYMENTS, YEAR_HOURS, BadRow, amount, hourly_unit, payment
from pricing.sources.aws_price_list import Listed
from pricing.sources.aws_session import AwsSession, Tokens
from pricing.sources.aws_steps import Batch, Mark

Plan = Literal["Compute", "EC2Instance"]
TERMS = {YEAR_HOURS: "savings_plan_1y", 3 * YEAR_HOURS: "savings_plan_3y"}
PURCHASES = frozenset(TERMS.values())
PAGE = 1000
TOKENS = Tokens("nextToken", "nextToken")
LINUX, SHARED = "Linux/UNIX", "shared"
TYPES_ASKED = 50
"""Up to so many types are named in the request; beyond, all are read and filtered here."""


def savings_plan_rates(
    session: AwsSession, region: str, wanted: Wanted, now: datetime, mark: Mark, plan: Plan = "Compute"
) -> Iterator[Batch]:
    """The rates of a region for one and three years and all payments, page by page. A mark is the token."""
    client, seen = session.global_client("savingsplans", region), Listed()
    asked = {
        "savingsPlanTypes": [plan],
        "savingsPlanPaymentOptions": list(PAYMENTS),
        "products": ["EC2"],
        "serviceCodes": ["AmazonEC2"],
        "filters": _filters(region, wanted),
        "maxResults": PAGE,
    }
    for page in session.pages(client, "describe_savings_plans_offering_rates", asked, TOKENS, mark):
        prices: list[Price] = []
        skipped: list[Skipped] = []
        for row in page.answer.get("searchResults", []):
            try:
                price = _price(row, session.currency(region), region, wanted, now, plan)
                prices += [price] if price else []
            except BadRow as bad:
                skipped.append(Skipped(f"aws savings plans {region}, {str(row.get('usageType'))[:60]}", str(bad)))
        kept, twice = seen.kept(prices)
        yield Batch(kept, [*skipped, *twice], page.token)


def _filters(region: str, wanted: Wanted) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "region", "values": [region]},
        {"name": "productDescription", "values": [LINUX]},
        {"name": "tenancy", "values": [SHARED]},
    ]
    if wanted.instance_types is not None and len(wanted.instance_types) <= TYPES_ASKED:
        found.append({"name": "instanceType", "values": sorted(wanted.instance_types)})
    return found


def _price(row: dict[str, Any], currency: str, region: str, wanted: Wanted, now: datetime, plan: Plan) -> Price | None:
    """None: a rate of something else (another system, an unused reservation, another term). BadRow."""
    said = {pair.get("name"): pair.get("value") for pair in row.get("properties", [])}
    offering, name = row.get("savingsPlanOffering", {}), said.get("instanceType")
    purchase = TERMS.get(offering.get("durationSeconds", 0) // HOUR_SECONDS)
    if purchase not in wanted.purchases or offering.get("planType", plan) != plan or not is_running(row, said):
        return None
    if not name:
        raise BadRow("It names no instance type.")
    if wanted.instance_types is not None and name not in wanted.instance_types:
        return None
    if said.get("region", region) != region:
        raise BadRow(f"It is a rate of {said['region']!r}, and {region!r} was asked for.")
    if (told := offering.get("currency")) != currency:
        raise BadRow(f"Its currency is {told}, and the rates of {region} are in {currency}.")
    hourly_unit(row.get("unit"))
    return Price(
        cloud="aws",
        region=region,
        zone=None,
        instance_type=name,
        purchase=purchase or "",
        amount=amount(row.get("rate"), "rate"),
        currency=currency,
        unit=INSTANCE_HOUR,
        valid_from=now,
        fetched_at=now,
        source=f"aws savings plans api {now:%Y-%m-%d}, {plan}",
        sku=offering.get("offeringId"),
        payment=payment(offering.get("paymentOption")),
        term_hours=offering["durationSeconds"] // HOUR_SECONDS,
    )


def is_running(row: dict[str, Any], said: dict[str | None, str | None]) -> bool:
    """Whether a rate is one of running Linux instances on shared hosts."""
    usage = str(row.get("usageType", ""))
    return (
        said.get("productDescription", LINUX) == LINUX
        and said.get("tenancy", SHARED) == SHARED
        and row.get("operation", "RunInstances") == "RunInstances"
        and (usage.startswith("BoxUsage") or "-BoxUsage" in usage)
    )
