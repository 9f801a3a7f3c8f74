"""What a node costs per hour as far as it can be known, and one sentence why where it cannot.

Invariant: a price that is not known is None with a reason, never another offer's; an estimate says so and from what.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, Protocol

from pricing.errors import BadMoney
from pricing.money import PerHour, parse_decimal, to_decimal
from pricing.offers import Offer

HOURS_PER_YEAR = 8766
"""365.25 days: the average year of the calendar, used to write a bought machine off."""
PLACES = 10
"""Decimals of a price that is computed, rounded half to even."""


class OnPremises(Protocol):
    """What an owned node costs: bought for `purchase_usd`, written off over `years`, fed with `power_usd_per_kwh`."""

    @property
    def purchase_usd(self) -> Decimal: ...
    @property
    def years(self) -> Decimal: ...
    @property
    def power_watts(self) -> Decimal | None: ...
    @property
    def power_usd_per_kwh(self) -> Decimal | None: ...


class Quote(NamedTuple):
    """One node's price per hour (whole machine)."""

    price: PerHour | None
    as_of: date | None
    """The day the source listed it; None for a configured price, which has no date."""
    source: str
    """Where the price comes from; empty when there is none."""
    reason: str | None = None
    """One sentence why the price is not known; None when it is."""
    estimated: bool = False
    """The price is not this very offer's; `source` says what it was made from."""


def unknown(reason: str) -> Quote:
    return Quote(None, None, "", reason)


def from_offer(offer: Offer) -> Quote:
    return Quote(offer.price, offer.as_of, offer.source, estimated=offer.estimated and offer.price is not None)


def from_configuration(configured: str | Decimal | None) -> Quote | None:
    """A price that the node's own `usd_per_hour` states; None when it states none (left out, empty or 0)."""
    if configured is None or (isinstance(configured, str) and not configured.strip()):
        return None
    try:
        amount = parse_decimal(configured, "usd_per_hour of this node")
    except BadMoney as fault:
        return unknown(str(fault))
    if amount < 0:
        return unknown(f"The usd_per_hour of this node is {amount}: a price cannot be negative.")
    return Quote(PerHour(amount), None, "configuration of the node (usd_per_hour)") if amount else None


def from_purchase(owned: OnPremises) -> Quote:
    """purchase_usd / (years x 8,766 h) + power_watts / 1000 x power_usd_per_kwh, rounded half to even at 10 places.

    Without both power figures the power is left out, and the source says so.
    """
    try:
        hourly, power = _written_off(owned), _power(owned)
    except BadMoney as fault:
        return unknown(str(fault))
    price = PerHour(to_decimal(hourly + (power or 0), PLACES))
    source = f"configuration of the node (purchase over {owned.years} years of {HOURS_PER_YEAR:,} h"
    return Quote(price, None, f"{source}, {'plus power' if power is not None else 'power not counted'})")


def _written_off(owned: OnPremises) -> Fraction:
    paid = _positive(owned.purchase_usd, "purchase_usd")
    return paid / (_positive(owned.years, "years") * HOURS_PER_YEAR)


def _power(owned: OnPremises) -> Fraction | None:
    if owned.power_watts is None or owned.power_usd_per_kwh is None:
        return None
    watts = _positive(owned.power_watts, "power_watts")
    return watts / 1000 * _positive(owned.power_usd_per_kwh, "power_usd_per_kwh")


def _positive(value: object, key: str) -> Fraction:
    number = parse_decimal(value, f"{key} of the node")
    if number <= 0:
        raise BadMoney(f"The {key} of the node is {number}: it must be above 0.")
    return Fraction(number)


def from_zones(offers: Sequence[Offer], region: str, why: str) -> Quote:
    """One price for a region whose zones have their own: theirs if they agree, else the median, marked as an estimate.

    `offers` are priced, of one region, type and purchase option; `why` says why no zone was taken.
    """
    prices = sorted(offer.price for offer in offers if offer.price)
    if prices[0] == prices[-1]:
        return from_offer(offers[0])
    span = f"{len(prices)} zones of {region}, {prices[0]} to {prices[-1]}"
    source = f"median of {span}, because {why}; {offers[0].source}"
    return Quote(_median(prices), min(offer.as_of for offer in offers), source, estimated=True)


def _median(ordered: Sequence[PerHour]) -> PerHour:
    """The middle one, or exactly half the sum of the middle two."""
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) * Decimal("0.5")
