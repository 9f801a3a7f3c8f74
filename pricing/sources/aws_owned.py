"""Reservations and savings plans that the account owns, as AWS lists them.

Invariant: only what covers Linux on shared hosts, each with its state; amounts are exactly the digits that AWS sent. What is
left out is told, since a commitment that is missing would make the nodes it covers look dearer than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from pricing.sources import NoPermission, Skipped, Unreachable
from pricing.sources.aws_numbers import HOUR_SECONDS, BadRow, amount, hourly_unit, moment, number, payment
from pricing.sources.aws_savings_plans import LINUX, TYPES_ASKED, is_running
from pricing.sources.aws_session import AwsSession, Tokens
from pricing.sources.aws_zones import Zones
from pricing.zones import is_aws_id

TOKENS = Tokens("nextToken", "nextToken")
PAGE = 1000
SUFFIX = " (Amazon VPC)"
STATES = ("active", "queued", "payment-pending", "payment-failed", "retired")
"""What is asked for: not what was deleted from the queue or given back, which never counted."""
PLAN_STATES = (*STATES, "pending-return")
ROUNDED = timedelta(seconds=2)
"""AWS writes the last second of a term as its end, and the two moments of a reservation to the millisecond."""


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
    state: str
    """One of `STATES`."""
    term_hours: int
    """For which `upfront` was paid; the time between start and end is shorter where a reservation was changed."""


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
    state: str
    """One of `PLAN_STATES`."""
    term_hours: int


class OwnedRate(NamedTuple):
    """What one owned plan charges per instance-hour."""

    plan_id: str
    region: str
    instance_type: str
    rate: Decimal
    currency: str


T = TypeVar("T")
Read = tuple[list[T], list[Skipped]]


class Account(NamedTuple):
    """Whose key it is, and which regions the account has enabled."""

    id: str
    regions: tuple[str, ...]


def account(session: AwsSession, region: str = "us-east-1") -> Account:
    """The account of the key; `region` tells the partition. No regions: the key may not list them."""
    caller = session.call(session.global_client("sts", region), "get_caller_identity", {})
    try:
        answer = session.call(session.global_client("ec2", region), "describe_regions", {})
    except NoPermission:
        answer = {}
    return Account(str(caller["Account"]), tuple(sorted(row["RegionName"] for row in answer.get("Regions", []))))


def owned_reservations(session: AwsSession, region: str, zones: Callable[[str], Zones]) -> Read[OwnedReservation]:
    """Reservations of a region in every state of `STATES`. The call gives all of them at once: it has no pages.

    `zones` is asked when one of them is of a zone.
    """
    client = session.client("ec2", region)
    asked = {"Filters": [{"Name": "state", "Values": list(STATES)}]}
    rows = session.call(client, "describe_reserved_instances", asked).get("ReservedInstances", [])
    return _read(rows, lambda row: _reservation(row, region, zones), f"aws reservations {region}", "ReservedInstancesId")


def owned_savings_plans(session: AwsSession, region: str = "us-east-1") -> Read[OwnedSavingsPlan]:
    """Savings plans of the account for EC2, in every state of `PLAN_STATES`; `region` tells the partition."""
    client = session.global_client("savingsplans", region)
    asked = {"states": list(PLAN_STATES), "maxResults": PAGE}
    pages = session.pages(client, "describe_savings_plans", asked, TOKENS)
    rows = (row for page in pages for row in page.answer.get("savingsPlans", []))
    return _read(rows, _plan, "aws savings plans", "savingsPlanId")


def owned_rates(
    session: AwsSession, plan: OwnedSavingsPlan, region: str = "us-east-1", types: Sequence[str] | None = None
) -> Read[OwnedRate]:
    """The rates of one owned plan for running Linux instances, of these types or of all; `region` tells the partition."""
    client = session.global_client("savingsplans", region)
    found: list[OwnedRate] = []
    skipped: list[Skipped] = []
    for names in [None] if types is None else [types[at : at + TYPES_ASKED] for at in range(0, len(types), TYPES_ASKED)]:
        filters = [{"name": "productType", "values": ["EC2"]}, {"name": "productDescription", "values": [LINUX]}]
        if names is not None:
            filters.append({"name": "instanceType", "values": list(names)})
        asked = {"savingsPlanId": plan.id, "filters": filters, "maxResults": PAGE}
        pages = session.pages(client, "describe_savings_plan_rates", asked, TOKENS)
        rows = (row for page in pages for row in page.answer.get("searchResults", []))
        some, left = _read(rows, lambda row: _rate(row, plan.id), f"aws savings plan {plan.id}", "usageType")
        found += some
        skipped += left
    return found, skipped


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


def _reservation(row: dict[str, Any], region: str, zones: Callable[[str], Zones]) -> OwnedReservation:
    _covers(str(row.get("ProductDescription")).removesuffix(SUFFIX) == LINUX, "system", row.get("ProductDescription"))
    _covers(row.get("InstanceTenancy", "default") == "default", "tenancy", row.get("InstanceTenancy"))
    if not row.get("InstanceType") or not row.get("InstanceCount") or not row.get("CurrencyCode"):
        raise BadRow("It does not tell of which type, how many, or in which currency.")
    starts_at, ends_at, term_hours = _term(row.get("Start"), row.get("End"), row.get("Duration"))
    return OwnedReservation(
        id=str(row.get("ReservedInstancesId")),
        region=region,
        zone=_zone(row, region, zones),
        instance_type=row["InstanceType"],
        count=row["InstanceCount"],
        starts_at=starts_at,
        ends_at=ends_at,
        upfront=number(row.get("FixedPrice"), "upfront price"),
        hourly=_hourly(row),
        currency=row["CurrencyCode"],
        payment=payment(row.get("OfferingType")),
        offering_class=str(row.get("OfferingClass")),
        state=str(row.get("State", "active")),
        term_hours=term_hours,
    )


def _term(start: object, end: object, seconds: object) -> tuple[datetime, datetime, int]:
    """Start, end (exclusive) and whole hours of a term; its end is where the paid time ends, not a second before."""
    starts_at, ends_at = moment(start, "start"), moment(end, "end")
    if not isinstance(seconds, int) or seconds < HOUR_SECONDS:
        seconds = -(-(ends_at - starts_at) // timedelta(hours=1)) * HOUR_SECONDS
    whole = starts_at + timedelta(seconds=seconds)
    ends_at = whole if abs(whole - ends_at) <= ROUNDED else ends_at
    if ends_at <= starts_at:
        raise BadRow(f"Its end, {ends_at:%Y-%m-%d %H:%M}, is not after its start, {starts_at:%Y-%m-%d %H:%M}.")
    return starts_at, ends_at, seconds // HOUR_SECONDS


def _covers(holds: bool, what: str, told: object) -> None:
    if not holds:
        raise BadRow(f"It covers the {what} {str(told)[:40]!r}, not Linux on shared hosts.")


def _zone(row: dict[str, Any], region: str, zones: Callable[[str], Zones]) -> str | None:
    if row.get("Scope") == "Region":
        return None
    if is_aws_id(row.get("AvailabilityZoneId") or ""):
        return row["AvailabilityZoneId"]
    name = row.get("AvailabilityZone")
    try:
        found = zones(region).id_of(str(name)) if name else None
    except (NoPermission, Unreachable) as fault:
        raise BadRow(f"It is of the zone {str(name)[:40]!r}, whose id is not known. {fault}") from None
    if found is None:
        raise BadRow(f"Its zone {str(name)[:40]!r} is none of {region}: its id is not known.")
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
    starts_at, ends_at, term_hours = _term(row.get("start"), row.get("end"), row.get("termDurationInSeconds"))
    return OwnedSavingsPlan(
        id=str(row.get("savingsPlanId")),
        plan=row["savingsPlanType"],
        region=row["region"] if one_place else None,
        family=row["ec2InstanceFamily"] if one_place else None,
        per_hour=amount(row.get("commitment"), "commitment"),
        currency=row["currency"],
        payment=payment(row.get("paymentOption")),
        upfront=number(row.get("upfrontPaymentAmount") or "0", "upfront payment"),
        starts_at=starts_at,
        ends_at=ends_at,
        state=str(row.get("state", "active")),
        term_hours=term_hours,
    )


def _rate(row: dict[str, Any], plan_id: str) -> OwnedRate | None:
    said = {pair.get("name"): pair.get("value") for pair in row.get("properties", [])}
    if not is_running(row, said):
        return None
    if not said.get("region") or not said.get("instanceType") or not row.get("currency"):
        raise BadRow("It does not tell its region, type or currency.")
    hourly_unit(row.get("unit"))
    return OwnedRate(plan_id, said["region"], said["instanceType"], amount(row.get("rate"), "rate"), row["currency"])
