"""One product of the AWS price list (a JSON document) into prices: on demand, and reserved for one and three years.

Invariant: only Linux without licences, shared tenancy, bought in the usual way: rows of capacity blocks, dedicated hosts and
capacity reservations are other products. A price that is not told in exactly one currency and per hour is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import Skipped
from pricing.sources.aws_numbers import (
    HOURS,
    YEAR_HOURS,
    BadRow,
    amount,
    hourly_unit,
    moment,
    number,
    only_currency,
    payment,
    per_hour,
)

METAL = "Compute Instance (bare metal)"
FAMILIES = ("Compute Instance", METAL)
TERMS = {"1yr": ("reserved_1y", YEAR_HOURS), "3yr": ("reserved_3y", 3 * YEAR_HOURS)}
FILTERS = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""What every product must be; a product that does not have the attribute at all passes (old price lists lack some)."""


class Place(NamedTuple):
    """Where products are read for: a region, or a group of local zones, which have prices of their own."""

    region: str
    code: str
    """The price list's `regionCode`: the region's, or `us-west-2-lax-1`."""
    zones: tuple[str | None, ...] = (None,)
    """Zone ids that its prices hold in; None: the region."""


class Reading(NamedTuple):
    """What a reading of products is for."""

    place: Place
    currency: str
    purchases: frozenset[str]
    instance_types: frozenset[str] | None
    now: datetime
    source: str


Found = tuple[list[Price], list[Skipped]]


def read_products(texts: Sequence[str | dict[str, Any]], reading: Reading) -> Found:
    """The prices of one page, and what was left out."""
    prices: list[Price] = []
    skipped: list[Skipped] = []
    for text in texts:
        try:
            product = json.loads(text) if isinstance(text, str) else text
            found, left = read_product(product, reading)
        except (ValueError, TypeError, AttributeError, KeyError):
            left, found = [Skipped(_where(reading, str(text)[:40]), "The product is no JSON document of the known form.")], []
        prices += found
        skipped += left
    return prices, skipped


def read_product(document: dict[str, Any], reading: Reading) -> Found:
    """The prices of one product; none when it is another kind of product."""
    product = document["product"]
    attributes = product.get("attributes", {})
    name = attributes.get("instanceType")
    if not name or not _is_wanted(product.get("productFamily"), attributes, reading):
        return [], []
    if (code := attributes.get("regionCode")) != reading.place.code:
        reason = f"It is a price of {code!r}, and {reading.place.code!r} was asked for."
        return [], [Skipped(_where(reading, name), reason)]
    prices: list[Price] = []
    skipped: list[Skipped] = []
    terms = document.get("terms", {})
    for purchase, term in _terms(terms, reading.purchases):
        try:
            prices += _priced(name, purchase, term, product.get("sku"), reading)
        except BadRow as bad:
            skipped.append(Skipped(_where(reading, name, purchase or "reserved"), str(bad)))
    return prices, skipped


def _is_wanted(family: str | None, attributes: dict[str, str], reading: Reading) -> bool:
    names = reading.instance_types
    tenancies = ("Shared", "Dedicated") if family == METAL else ("Shared",)
    return (
        family in FAMILIES
        and (names is None or attributes["instanceType"] in names)
        and all(attributes.get(field, value) == value for field, value in FILTERS.items())
        and attributes.get("tenancy") in tenancies
        and attributes.get("operation", "RunInstances") == "RunInstances"
    )


def _terms(terms: dict[str, Any], purchases: frozenset[str]) -> list[tuple[str | None, dict[str, Any]]]:
    """The terms that are asked for; the purchase option of a reserved one whose length is not known is None."""
    found: list[tuple[str | None, dict[str, Any]]] = []
    if "on_demand" in purchases:
        found += [("on_demand", term) for term in terms.get("OnDemand", {}).values()]
    for term in terms.get("Reserved", {}).values():
        said = term.get("termAttributes", {})
        purchase = TERMS.get(str(said.get("LeaseContractLength")).replace(" ", ""), (None, 0))[0]
        if said.get("OfferingClass") == "standard" and (purchase is None or purchase in purchases):
            if purchase is not None or {"reserved_1y", "reserved_3y"} & purchases:
                found.append((purchase, term))
    return found


def _priced(name: str, purchase: str | None, term: dict[str, Any], sku: str | None, reading: Reading) -> list[Price]:
    """The price of a term, once for each zone of the place. BadRow."""
    if purchase is None:
        length = term["termAttributes"].get("LeaseContractLength")
        raise BadRow(f"Its term is {str(length)[:40]!r}, neither one nor three years.")
    paid = _on_demand(term, reading) if purchase == "on_demand" else _reserved(term, reading)
    return [
        Price(
            cloud="aws",
            region=reading.place.region,
            zone=zone,
            instance_type=name,
            purchase=purchase,
            currency=reading.currency,
            unit=INSTANCE_HOUR,
            valid_from=moment(term.get("effectiveDate"), "effective date"),
            fetched_at=reading.now,
            source=reading.source,
            sku=sku,
            **paid,
        )
        for zone in reading.place.zones
    ]


def _on_demand(term: dict[str, Any], reading: Reading) -> dict[str, Any]:
    dimensions = list(term["priceDimensions"].values())
    if len(dimensions) != 1:
        raise BadRow(f"It has {len(dimensions)} price dimensions, and one was expected.")
    hourly_unit(dimensions[0].get("unit"))
    price = only_currency(dimensions[0]["pricePerUnit"], reading.currency)
    return {"amount": amount(price, f"price in {reading.currency}")}


def _reserved(term: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """Upfront (unit Quantity, once per instance) and hourly parts of a reservation."""
    parts: dict[str, Decimal] = {}
    for dimension in term["priceDimensions"].values():
        unit = str(dimension.get("unit"))
        kind = "upfront" if unit.lower() == "quantity" else "hourly" if unit.lower() in HOURS else None
        if kind is None or kind in parts:
            raise BadRow(f"It has a price with the unit {unit[:40]!r}, which is unknown or there twice.")
        parts[kind] = number(only_currency(dimension["pricePerUnit"], reading.currency), f"{kind} price")
    said = term["termAttributes"]
    hours = TERMS[said["LeaseContractLength"].replace(" ", "")][1]
    words = payment(said.get("PurchaseOption"))
    _complete(words, parts)
    whole = per_hour(parts.get("upfront", Decimal(0)), hours, parts.get("hourly", Decimal(0)))
    return {
        "amount": amount(whole, "price"),
        "payment": words,
        "upfront": parts.get("upfront", Decimal(0)),
        "hourly": parts.get("hourly", Decimal(0)),
        "term_hours": hours,
    }


def _complete(words: str, parts: dict[str, Decimal]) -> None:
    """BadRow when a part that the payment option implies is not there: half a price would look cheap."""
    upfront, hourly = parts.get("upfront", Decimal(0)), parts.get("hourly", Decimal(0))
    if words != "no_upfront" and not upfront:
        raise BadRow(f"Its payment is {words}, and no upfront price is told.")
    if words == "no_upfront" and upfront:
        raise BadRow(f"Its payment is {words}, and an upfront price of {upfront} is told.")
    if words != "all_upfront" and not hourly:
        raise BadRow(f"Its payment is {words}, and no hourly price is told.")


def _where(reading: Reading, *parts: str) -> str:
    return ", ".join((f"{reading.source} {reading.place.code}", *parts))
