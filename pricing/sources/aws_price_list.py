"""The AWS price list by its query call: on demand and reserved, for a region and the local zones in it.

Invariant: a type whose price is listed twice with different values in one place keeps neither silently: the first that was
read stays, and the other is told as skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from pricing.prices import Price
from pricing.sources import NoPermission, RefusedCredentials, Skipped, Unreachable, Wanted
from pricing.sources.aws_products import FAMILIES, FILTERS, METAL, Place, Reading, read_products
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_steps import Batch, Mark
from pricing.sources.aws_zones import Zones

PURCHASES = frozenset({"on_demand", "reserved_1y", "reserved_3y"})
PAGE = 100
SERVICE = "AmazonEC2"


def source_name(now: datetime) -> str:
    return f"aws price list api {now:%Y-%m-%d}"


def places_of(region: str, zones: Zones | None) -> list[Place]:
    """The region, and each group of local zones in it."""
    groups = {} if zones is None else zones.local_groups()
    return [Place(region, region), *(Place(region, code, ids) for code, ids in groups.items())]


def price_list(
    session: AwsSession, region: str, zones: Zones | None, wanted: Wanted, now: datetime, mark: Mark
) -> Iterator[Batch]:
    """On-demand and reserved prices of `region`, page by page. A mark is [query, token]."""
    purchases, currency = PURCHASES.intersection(wanted.purchases), session.currency(region)
    queries = [
        (place, family) for place in places_of(region, zones) for family in FAMILIES if family != METAL or place.code == region
    ]
    first, token = mark or (0, None)
    seen = Listed()
    for number, (place, family) in enumerate(queries[first:], first):
        reading = Reading(place, currency, purchases, wanted.instance_types, now, source_name(now))
        asked = {"ServiceCode": SERVICE, "Filters": _filters(reading, family), "MaxResults": PAGE}
        for page in session.pages(session.pricing_client(region), "get_products", asked, start=token):
            prices, skipped = read_products(page.answer.get("PriceList", []), reading)
            kept, twice = seen.kept(prices)
            yield Batch(kept, [*skipped, *twice], _next(number, page.token, len(queries)))
        token = None


def _next(number: int, token: str | None, total: int) -> Mark:
    if token is not None:
        return [number, token]
    return [number + 1, None] if number + 1 < total else None


def _filters(reading: Reading, family: str) -> list[dict[str, str]]:
    """What the price list is asked to leave out itself; all of it is checked again in what comes."""
    fields = {**FILTERS, "regionCode": reading.place.code, "productFamily": family}
    if family != METAL:
        fields["tenancy"] = "Shared"
    if reading.instance_types is not None and len(reading.instance_types) == 1:
        fields["instanceType"] = next(iter(reading.instance_types))
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]


class Listed:
    """What a reading has listed, to find prices that are there twice."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Price] = {}

    def kept(self, prices: list[Price]) -> tuple[list[Price], list[Skipped]]:
        """Prices that are new; a price that contradicts an earlier one is skipped, an equal one left out silently."""
        kept: list[Price] = []
        skipped: list[Skipped] = []
        for price in prices:
            key = (price.region, price.zone, price.instance_type, price.purchase, price.payment, price.valid_from)
            known = self._known.setdefault(key, price)
            if known is price:
                kept.append(price)
            elif known.amount != price.amount:
                where = f"{price.source} {price.zone or price.region}, {price.instance_type}, {price.purchase}"
                reason = f"It is listed twice: {known.amount} is kept, {price.amount} is left out."
                skipped.append(Skipped(where, reason))
        return kept, skipped


def zones_or_reason(read: Callable[[str], Zones], region: str) -> tuple[Zones | None, Skipped | None]:
    """The zones of a region; without permission or network None, and what is lost by that."""
    try:
        return read(region), None
    except (NoPermission, RefusedCredentials, Unreachable) as fault:
        return None, Skipped(f"local zones of {region}", f"Their prices are left out, since the zones are not known. {fault}")
