"""Buying reserved instances from AWS, once the user has typed so: the offering that is meant, a dry run, the purchase.

Invariant: nothing is bought whose price differs from the one that the advice was computed with, whose offering is not the only
one that fits, or whose dry run was refused. A purchase is never tried twice: without an answer it may have been made.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from pricing.sources import BadAnswer, SourceFault
from pricing.sources.aws_faults import judged
from pricing.sources.aws_numbers import HOUR_SECONDS, YEAR_HOURS, BadRow, number
from pricing.sources.aws_session import AwsSession

OPTIONS = {"no_upfront": "No Upfront", "partial_upfront": "Partial Upfront", "all_upfront": "All Upfront"}
LARGEST_DIFFERENCE = Fraction(1, 1000)
"""Of the price per hour, by which an offering may be dearer than the advice assumed."""


class Wish(NamedTuple):
    """What is to be bought."""

    region: str
    instance_type: str
    years: int
    payment: str
    """`no_upfront`, `partial_upfront` or `all_upfront`."""
    count: int
    usd_per_hour: Fraction
    """Effective, of one instance."""


class Offering(NamedTuple):
    """One that AWS sells. Amounts per instance."""

    id: str
    upfront: Decimal
    hourly: Decimal
    hours: int

    @property
    def per_hour(self) -> Fraction:
        return Fraction(self.upfront) / self.hours + Fraction(self.hourly)


def asked(wish: Wish) -> dict[str, Any]:
    """The parameters of `describe_reserved_instances_offerings`: standard class, Linux, shared hosts, of the whole region."""
    seconds = wish.years * YEAR_HOURS * HOUR_SECONDS
    return {
        "InstanceType": wish.instance_type,
        "ProductDescription": "Linux/UNIX",
        "InstanceTenancy": "default",
        "OfferingClass": "standard",
        "OfferingType": OPTIONS[wish.payment],
        "MinDuration": seconds,
        "MaxDuration": seconds,
        "IncludeMarketplace": False,
        "Filters": [{"Name": "scope", "Values": ["Region"]}],
    }


def find_offering(session: AwsSession, wish: Wish) -> Offering:
    """The only offering that fits. BadAnswer: none or several do, or it costs more than the advice assumed."""
    client = session.client("ec2", wish.region)
    rows = [
        row
        for page in session.pages(client, "describe_reserved_instances_offerings", asked(wish))
        for row in page.answer.get("ReservedInstancesOfferings", [])
        if row.get("InstanceType") == wish.instance_type and row.get("OfferingType") == OPTIONS[wish.payment]
    ]
    if len(rows) != 1:
        raise BadAnswer(
            f"AWS has {len(rows) or 'no'} offerings of {wish.instance_type} in {wish.region} for {wish.years} years, "
            f"{OPTIONS[wish.payment]}: one was expected, so nothing was bought."
        )
    found = _offering(rows[0])
    if found.per_hour > wish.usd_per_hour * (1 + LARGEST_DIFFERENCE):
        raise BadAnswer(
            f"AWS asks ${float(found.per_hour):.4f} an hour for {wish.instance_type}, and the advice was computed with "
            f"${float(wish.usd_per_hour):.4f}: refresh the prices and ask again; nothing was bought."
        )
    return found


def _offering(row: dict[str, Any]) -> Offering:
    try:
        if row.get("CurrencyCode", "USD") != "USD":
            raise BadRow(f"Its price is in {row.get('CurrencyCode')}.")
        hourly = number(row.get("UsagePrice", 0), "usage price")
        for charge in row.get("RecurringCharges", []):
            if charge.get("Frequency") != "Hourly":
                raise BadRow(f"It has a charge {str(charge.get('Frequency'))[:40]!r}, and only hourly ones are known.")
            hourly += number(charge.get("Amount"), "hourly price")
        hours = int(row.get("Duration", 0)) // HOUR_SECONDS
        upfront = number(row.get("FixedPrice", 0), "upfront price")
        if not hours or not (hourly or upfront):
            raise BadRow("It has no duration or no price.")
    except BadRow as bad:
        raise BadAnswer(f"The offering that AWS names is not clear ({str(bad).rstrip('.')}): nothing was bought.") from None
    return Offering(str(row["ReservedInstancesOfferingId"]), upfront, hourly, hours)


def purchase(offering: Offering, wish: Wish, *, dry_run: bool) -> dict[str, Any]:
    """The parameters of `purchase_reserved_instances_offering`."""
    return {"ReservedInstancesOfferingId": offering.id, "InstanceCount": wish.count, "DryRun": dry_run}


def try_to_buy(session: AwsSession, offering: Offering, wish: Wish) -> None:
    """The dry run: returns when AWS would have sold. SourceFault: why it would not."""
    from botocore.exceptions import ClientError

    client = session.client("ec2", wish.region)
    try:
        client.purchase_reserved_instances_offering(**purchase(offering, wish, dry_run=True))
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "DryRunOperation":
            return
        raise _fault(error, wish.region) from error
    except Exception as error:
        raise _fault(error, wish.region) from error
    raise BadAnswer(
        "AWS answered the dry run of the purchase as if it had bought: look at the reservations before anything else."
    )


def buy(session: AwsSession, offering: Offering, wish: Wish) -> str:
    """Buys, once; the id of the reservation. SourceFault: not bought, or not known (then the sentence says so)."""
    client = session.client("ec2", wish.region)
    try:
        answer = client.purchase_reserved_instances_offering(**purchase(offering, wish, dry_run=False))
    except Exception as error:
        raise _fault(error, wish.region) from error
    return str(answer.get("ReservedInstancesId", "")) or "without an id"


def _fault(error: Exception, region: str) -> Exception:
    found = judged(error, f"ec2 PurchaseReservedInstancesOffering in {region}", region)
    if found is None:
        return error
    if found.passes:
        return SourceFault(f"{found.fault} Whether it was bought is not known: look at the reservations before trying again.")
    return found.fault
