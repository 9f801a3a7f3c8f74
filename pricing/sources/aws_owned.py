"""Reservations and savings plans that the account owns, as AWS lists them.

Invariant: only what is active and covers Linux on shared hosts; amounts are exactly the digits that AWS sent. What is left
out is told, since a commitment that is missing would make the nodes it covers look dearer than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from pricing.sources import Skipped
from pricing.sources.aws_numbers import BadRow, amount, hourly_unit, moment, number, payment
from pricing.sources.aws_savings_plans import LINUX, is_running
from pricing.sources.aws_session import AwsSession, Tokens
from pricing.sources.aws_zones import Zones

TOKENS = Tokens("nextToken", "nextToken")
PAGE = 1000
SUFFIX = " (Amazon VPC)"


class OwnedReservation(NamedTuple):
    """Reserved instances that were bought together. Amounts are per instance."""

    id: str
    region: str
    zone: str | None
    """Zone id; None: it covers the whole region."""
    instance_type: str
    count: int
    starts_at: datetime
    ends_at: datetime
    upfront: Decimal
    hourly: Decimal
    currency: str
    payment: str
    offering_class: str
    """`standard` or `convertible`."""


class OwnedSavingsPlan(NamedTuple):
    """A promise to spend `usd_per_hour` (in `currency`) at the plan's rates, used or not."""

    id: str
    plan: str
    """`Compute` (any region and type) or `EC2Instance` (one family in one region)."""
    region: str | None
    family: str | None
    per_hour: Decimal
    currency: str
    payment: str
    upfront: Decimal
    """Of the commitment, what was paid at its start; not in addition to it."""
    starts_at: datetime
    ends_at: datetime


class OwnedRate(NamedTuple):
    """What one owned plan charges per instance-hour."""

    plan_id: str
    region: str
    instance_type: str
    rate: Decimal
    currency: str


T = TypeVar("T")
Read = tuple[list[T], list[Skipped]]


def owned_reservations(session: AwsSession, zones: Zones) -> Read[OwnedReservation]:
    """Active reservations of a region. The call gives all of them at once: it has no pages."""
    client = session.client("ec2", zones.region)
    asked = {"Filters": [{"Name": "state", "Values": ["active"]}]}
    rows = session.call(client, "describe_reserved_instances", asked).get("ReservedInstances", [])
    return _read(rows, lambda row: _reservation(row, zones), f"aws reservations {zones.region}", "ReservedInstancesId")


def owned_savings_plans(session: AwsSession, region: str = "us-east-1") -> Read[OwnedSavingsPlan]:
    """Active savings plans of the account, for EC2; `region` tells the partition."""
    client = session.global_client("savingsplans", region)
    asked = {"states": ["active"], "maxResults": PAGE}
    pages = session.pages(client, "describe_savings_plans", asked, TOKENS)
    rows = (row for page in pages for row in page.answer.get("savingsPlans", []))
    return _read(rows, _plan, "aws savings plans", "savingsPlanId")


def owned_rates(session: AwsSession, plan: OwnedSavingsPlan, region: str = "us-east-1") -> Read[OwnedRate]:
    """The rates of one owned plan for running Linux instances; `region` tells the partition."""
    client = session.global_client("savingsplans", region)
    filters = [{"name": "productType", "values": ["EC2"]}, {"name": "productDescription", "values": [LINUX]}]
    asked = {"savingsPlanId": plan.id, "filters": filters, "maxResults": PAGE}
    pages = session.pages(client, "describe_savings_plan_rates", asked, TOKENS)
    rows = (row for page in pages for row in page.answer.get("searchResults", []))
    return _read(rows, lambda row: _rate(row, plan.id), f"aws savings plan {plan.id}", "usageType")


def _read(rows: Iterable[dict[str, Any]], made: Callable[[dict[str, Any]], T | None], where: str, key: str) -> Read[T]:
    found: list[T] = []
    skipped: list[Skipped] = []
    for row in rows:
        try:
            one = made(row)
            found += [one] if one is not None else []
        except BadRow as bad:
            skipped.append(Skipped(f"{where}, {str(row.get(key, '?'))[:60]}", str(bad)))
    return found, skipped


def _reservation(row: dict[str, Any], zones: Zones) -> OwnedReservation:
    _covers(str(row.get("ProductDescription")).removesuffix(SUFFIX) == LINUX, "system", row.get("ProductDescription"))
    _covers(row.get("InstanceTenancy", "default") == "default", "tenancy", row.get("InstanceTenancy"))
    if not row.get("InstanceType") or not row.get("InstanceCount") or not row.get("CurrencyCode"):
        raise BadRow("It does not tell of which type, how many, or in which currency.")
    return OwnedReservation(
        id=str(row.get("ReservedInstancesId")),
        region=zones.region,
        zone=_zone(row, zones),
        instance_type=row["InstanceType"],
        count=row["InstanceCount"],
        starts_at=moment(row.get("Start"), "start"),
        ends_at=moment(row.get("End"), "end"),
        upfront=number(row.get("FixedPrice"), "upfront price"),
        hourly=_hourly(row),
        currency=row["CurrencyCode"],
        payment=payment(row.get("OfferingType")),
        offering_class=str(row.get("OfferingClass")),
    )


def _covers(holds: bool, what: str, told: object) -> None:
    if not holds:
        raise BadRow(f"It covers the {what} {str(told)[:40]!r}, not Linux on shared hosts.")


def _zone(row: dict[str, Any], zones: Zones) -> str | None:
    if row.get("Scope") == "Region":
        return None
    name = row.get("AvailabilityZoneId") or row.get("AvailabilityZone")
    found = zones.id_of(str(name)) if name else None
    if found is None:
        raise BadRow(f"Its zone {str(name)[:40]!r} is none of {zones.region}: its id is not known.")
    return found


def _hourly(row: dict[str, Any]) -> Decimal:
    """Recurring charges, and the fee per used hour that old reservations have."""
    total = number(row.get("UsagePrice", 0), "usage price")
    for charge in row.get("RecurringCharges", []):
        if charge.get("Frequency") != "Hourly":
            raise BadRow(f"It has a charge {str(charge.get('Frequency'))[:40]!r}, and only hourly ones are known.")
        total += number(charge.get("Amount"), "hourly price")
    return total


def _plan(row: dict[str, Any]) -> OwnedSavingsPlan | None:
    """None: a plan for other services than EC2."""
    if row.get("savingsPlanType") not in ("Compute", "EC2Instance"):
        return None
    if not row.get("currency"):
        raise BadRow("It does not tell its currency.")
    one_place = row["savingsPlanType"] == "EC2Instance"
    if one_place and not (row.get("region") and row.get("ec2InstanceFamily")):
        raise BadRow("It is of one family in one region, and does not tell which.")
    return OwnedSavingsPlan(
        id=str(row.get("savingsPlanId")),
        plan=row["savingsPlanType"],
        region=row["region"] if one_place else None,
        family=row["ec2InstanceFamily"] if one_place else None,
        per_hour=amount(row.get("commitment"), "commitment"),
        currency=row["currency"],
        payment=payment(row.get("paymentOption")),
        upfront=number(row.get("upfrontPaymentAmount") or "0", "upfront payment"),
        starts_at=moment(row.get("start"), "start"),
        ends_at=moment(row.get("end"), "end"),
    )


def _rate(row: dict[str, Any], plan_id: str) -> OwnedRate | None:
    said = {pair.get("name"): pair.get("value") for pair in row.get("properties", [])}
    if not is_running(row, said):
        return None
    if not said.get("region") or not said.get("instanceType") or not row.get("currency"):
        raise BadRow("It does not tell its region, type or currency.")
    hourly_unit(row.get("unit"))
    return OwnedRate(plan_id, said["region"], said["instanceType"], amount(row.get("rate"), "rate"), row["currency"])
