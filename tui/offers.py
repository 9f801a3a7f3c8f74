"""Offers of the catalog as the commands show them, and the words that select them.

Invariant: offers without a price stand last; the price per GPU is derived from the whole instance and says so.
"""

from __future__ import annotations

from datetime import date
from fractions import Fraction
from typing import Any

from pricing.catalog import Catalog, InstanceType, Offer
from pricing.money import PerHour
from tui import format as fmt
from tui.columns import purchase_text
from tui.query import Predicate
from tui.records import money


def select_offers(wanted: Predicate, catalog: Catalog) -> list[Offer]:
    """Offers that a query over `OFFER_WORDS` selects, the cheapest per GPU first."""
    return sorted((offer for offer in catalog.offers() if wanted(offer, 0.0)), key=_cheapest_first)


def instance_of(offer: Offer) -> InstanceType | None:
    """The instance type that the offer sells."""
    return Catalog.embedded().instance(offer.cloud, offer.instance_type)


def _cheapest_first(offer: Offer) -> tuple[Any, ...]:
    each = Catalog.embedded().per_gpu(offer)
    price = offer.price
    currency = price.currency if price else "~"
    return (each is None, currency != "USD", currency, each or 0, offer.cloud, offer.region or "", offer.zone or "", offer.instance_type)


def amount_text(price: PerHour | None, value: Fraction | None = None, places: int = 4) -> str:
    """`$3.0600` or `CNY 26.4600`."""
    if price is None or (value is None and price.amount is None):
        return fmt.UNKNOWN
    number = fmt.usd(Fraction(price.amount) if value is None else value, places)
    return number if price.currency == "USD" else f"{price.currency} {number.lstrip('$')}"


def age_days(offer: Offer, today: date) -> int:
    """How many days ago its source last said so."""
    return max(0, (today - offer.as_of).days)


def offer_cells(offer: Offer, today: date) -> tuple[str, ...]:
    """One row of `rackrate prices`."""
    instance, each = instance_of(offer), Catalog.embedded().per_gpu(offer)
    gpus = f"{instance.gpu_count} x {instance.gpu_model}" if instance and instance.gpu_count else fmt.UNKNOWN
    return (
        offer.cloud,
        fmt.clean(offer.zone or offer.region) or fmt.UNKNOWN,
        fmt.clean(offer.instance_type),
        gpus,
        purchase_text(offer.purchase),
        amount_text(offer.price),
        amount_text(offer.price, each) if each is not None else fmt.UNKNOWN,
        offer.as_of.isoformat(),
        f"{age_days(offer, today)} d",
        fmt.clean(offer.source),
    )


def offer_record(offer: Offer, today: date) -> dict[str, Any]:
    """One offer for `--json`; money as decimal strings in `currency`."""
    instance, each = instance_of(offer), Catalog.embedded().per_gpu(offer)
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "purchase": offer.purchase,
        "currency": offer.price.currency if offer.price else None,
        "price_per_hour": format(offer.price.amount, "f") if offer.price else None,
        "price_per_gpu_hour": money(each),
        "gpu_model": instance.gpu_model if instance else None,
        "gpu_count": str(instance.gpu_count) if instance and instance.gpu_count is not None else None,
        "gpu_memory_bytes": instance.gpu_memory_bytes if instance else None,
        "vcpus": instance.vcpus if instance else None,
        "memory_bytes": instance.memory_bytes if instance else None,
        "nvme_bytes": instance.nvme_bytes if instance else None,
        "network": instance.network if instance else None,
        "as_of": offer.as_of.isoformat(),
        "age_days": age_days(offer, today),
        "valid_from": offer.valid_from.isoformat() if offer.valid_from else None,
        "source": offer.source,
    }
