"""Offers: what one instance type costs per hour, where, and bought how. The rows of the price tables.

Invariant: a price that is missing, empty or zero is None and sorts after every known price.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pricing.errors import BadMoney, CatalogError
from pricing.instances import read_table
from pricing.money import PerHour

PURCHASES = (
    "on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y", "capacity_block",
)  # fmt: skip


class Offer(NamedTuple):
    """One instance type, per hour and whole machine (not per GPU), as its source listed it on `as_of`."""

    cloud: str
    region: str
    zone: str | None
    """The zone's id (AWS `use1-az1`); None when the price holds in the whole region (but not in its local zones)."""
    instance_type: str
    purchase: str
    price: PerHour | None
    """None: it is offered there, and the source tells no price."""
    as_of: date
    """The day on which its source last said so."""
    source: str
    valid_from: datetime | None = None
    """UTC: since when it holds, where the source tells."""
    estimated: bool = False
    """It is this offer's price at another time; `source` says which."""


def read_offers(cloud: str, path: Path) -> list[Offer]:
    """All offers of one table. CatalogError names the file and the line."""
    offers = []
    for line, row in read_table(path):
        try:
            region, zone, name, purchase, amount, currency, as_of, source = row
            price = _price(amount, currency)
            offers.append(Offer(cloud, region, zone or None, name, purchase, price, _day(as_of), source))
        except (ValueError, InvalidOperation, BadMoney) as fault:
            raise CatalogError(f"{path.name}, line {line} is damaged ({fault}): reinstall rackrate.") from None
    return offers


def order(offer: Offer) -> tuple[object, ...]:
    """Cheapest first within a currency, USD before others, unknown prices last; then by name, place and purchase."""
    name = (offer.cloud, offer.instance_type, offer.region, offer.zone or "", offer.purchase)
    if offer.price is None:
        return (1, False, "", 0, *name)
    return (0, offer.price.currency != "USD", offer.price.currency, offer.price.amount, *name)


def _price(amount: str, currency: str) -> PerHour | None:
    if not amount:
        return None
    price = PerHour(Decimal(amount), currency)
    if price.amount <= 0:
        raise BadMoney(f"price {amount}")
    return price


@lru_cache(maxsize=64)
def _day(text: str) -> date:
    return date.fromisoformat(text)
