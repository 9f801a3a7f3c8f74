"""The price of a kind of node over time, in the report's currency: at list, and under the contract.

Invariant: a price that is not known, or that no exchange rate turns into the report's currency, has no value but a
reason. A list price is the catalog's (or a price book's), of the node's own purchase option; of nodes that an owned
commitment may cover it is the on-demand price, for that is what their cloud bills where the commitment does not reach.
A price that a node itself states (`usd_per_hour`) is what is paid: no discount comes off it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Protocol

from pricing import contracts, price_steps, quotes
from pricing.calendar import milliseconds
from pricing.instances import InstanceType
from pricing.money import PerHour
from pricing.owned import Commitment, Place
from pricing.price_steps import ALWAYS, PriceBook, Steps
from pricing.quotes import OnPremises, Quote
from pricing.terms import Terms
from pricing.usage import Placed

Key = tuple[object, ...]


class Catalog(Protocol):
    """What attribution asks of a catalog; `pricing.catalog.Catalog` is one."""

    def instance(self, cloud: str, instance_type: str) -> InstanceType | None: ...

    def quote(
        self,
        cloud: str | None,
        region: str | None,
        zone: str | None,
        instance_type: str | None,
        purchase: str | None,
        configured_usd_per_hour: str | Decimal | None = None,
        on_premises: OnPremises | None = None,
    ) -> Quote: ...


@dataclass(slots=True)
class Sheet:
    """Prices per hour of a whole node. `reason`: why some or all of it is not known."""

    key: Key
    listed: Steps
    contracted: Steps
    reason: str = ""
    place: Place | None = None
    """Where commitments may cover it; None if none does."""
    paid: dict[tuple[str, str], Steps] = field(default_factory=dict)
    """(commitment, "cost" or "hours") -> its part of one node-hour, in each hour."""
    covered: Steps | None = None
    """Hourly mean price with the owned commitments applied; no value in hours that none touches."""

    @property
    def varies(self) -> bool:
        return len(self.listed) > 1 or len(self.contracted) > 1 or self.covered is not None

    def changes(self) -> set[int]:
        """Hours in which the rate may differ from the hour before."""
        found = price_steps.changes(self.listed) | price_steps.changes(self.contracted)
        paid = set[int]().union(*map(price_steps.changes, self.paid.values()))
        return found | paid | price_steps.changes(self.covered or ())


def unknown(reason: str) -> Sheet:
    return Sheet((reason,), price_steps.constant(None), price_steps.constant(None), reason)


class Sheets:
    """Asks for each kind of node once."""

    def __init__(
        self,
        catalog: Catalog,
        prices: Mapping[str, PerHour],
        currency: str,
        terms: Terms,
        book: PriceBook | None,
        span: tuple[datetime, datetime],
    ) -> None:
        self.currency = currency
        self.terms = terms
        self.known: dict[Key, Sheet] = {}
        self.converted: set[str] = set()
        """Currencies that an exchange rate turned into the report's."""
        self.catalog = catalog
        self._prices = prices
        self._book = book
        self._span = span
        self._own_rates: dict[tuple[str, str | None, str], Fraction | None] = {}

    def of(self, placed: Placed) -> Sheet:
        """The sheet of the whole node."""
        own = placed.node in self._prices
        key: Key = ("node", placed.node) if own else placed[2:9]
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._given(key, placed) if own else self._asked(key, placed)
        return found

    def quoted(self, place: Place, purchase: str) -> Steps:
        """The catalog's price of another purchase option, for a savings plan's rates."""
        quote = self.catalog.quote(place.cloud, place.region, place.zone, place.instance_type, purchase)
        return self.told([(ALWAYS, quote.price)])[0]

    def told(self, points: Sequence[tuple[int, PerHour | None]]) -> tuple[Steps, str]:
        """Prices over time in the report's currency, and why some are not known there."""
        reason, parts = "", []
        for currency in dict.fromkeys(price.currency for _, price in points if price is not None):
            amounts = price_steps.made(
                (at, price.fraction if price is not None and price.currency == currency else None) for at, price in points
            )
            rates = self.terms.exchange.steps(currency, self.currency)
            if rates is None or rates[0][1] is None:
                reason = self.terms.exchange.why_not(currency, self.currency)
            if rates is not None:
                parts.append(price_steps.combined(lambda amount, rate: amount * rate, amounts, rates))
            if rates is not None and currency != self.currency:
                self.converted.add(currency)
        return price_steps.first_known(*parts) if parts else price_steps.constant(None), reason

    def _given(self, key: Key, placed: Placed) -> Sheet:
        steps, reason = self.told([(ALWAYS, self._prices[placed.node])])
        return Sheet(key, steps, steps, reason)

    def _asked(self, key: Key, placed: Placed) -> Sheet:
        place, quote = self._place(placed), None
        if place is not None and place.purchase not in (None, "on_demand"):
            quote = self._quote(placed, "on_demand")
        purchase = "on_demand" if quote is not None and quote.price is not None else placed.purchase
        if quote is None or quote.price is None:
            quote = self._quote(placed, placed.purchase)
        points, own = self._points(placed, purchase, quote), _stated(placed)
        listed, reason = self.told(points)
        stated, unconverted = self.told([(at, own if price is None else None) for at, price in points])
        factors = contracts.factors(
            self.terms.discounts, placed.cloud, placed.region, placed.instance_type, purchase or "on_demand"
        )
        contracted = price_steps.combined(lambda price, factor: price * factor, listed, factors)
        reason = reason or unconverted or quote.reason or "Its price is not known"
        return Sheet(key, price_steps.first_known(listed, stated), price_steps.first_known(contracted, stated), reason, place)

    def _quote(self, placed: Placed, purchase: str | None) -> Quote:
        return self.catalog.quote(
            placed.cloud,
            placed.region,
            placed.zone,
            placed.instance_type,
            purchase,
            configured_usd_per_hour=placed.usd_per_hour,
            on_premises=placed.on_premises,
        )

    def _points(self, placed: Placed, purchase: str | None, quote: Quote) -> list[tuple[int, PerHour | None]]:
        """The book's prices as far as it has some, the catalog's before them; no price that the node itself states."""
        points: list[tuple[int, PerHour | None]] = [(ALWAYS, None if _is_stated(quote, placed) else quote.price)]
        cloud = (placed.cloud or "").strip().lower()
        if self._book is not None and placed.instance_type is not None and cloud not in ("", "on_premises"):
            kept = self._book.steps(
                cloud, placed.region, placed.zone, placed.instance_type, purchase or "on_demand", *self._span
            )
            points += [(milliseconds(at), price) for at, price in kept]
        return points

    def _place(self, placed: Placed) -> Place | None:
        """Where and what the node is, if any commitment may cover it."""
        if placed.instance_type is None or placed.cloud is None or not self.terms.commitments:
            return None
        place = Place(
            _lower(placed.cloud), _lower(placed.region), _lower(placed.zone), placed.instance_type, _lower(placed.purchase)
        )
        return place if any(one.matches(place) for one in self.terms.commitments) else None

    def _own_rate(self, plan: Commitment, place: Place) -> Fraction | None:
        """Looked up once: a plan may state thousands of rates, and is asked in every hour."""
        key = (plan.id, place.region, place.instance_type)
        if key not in self._own_rates:
            self._own_rates[key] = plan.rate_of(place.instance_type, place.region)
        return self._own_rates[key]

    def plan_rate(self, plan: Commitment, sheet: Sheet, hour: int, factor: Fraction) -> Fraction | None:
        """What a savings plan charges for an hour of such a node, in the report's currency; None if it does not tell."""
        place = sheet.place
        assert place is not None  # noqa: S101 - only sheets of places are asked for
        own = self._own_rate(plan, place)
        if own is not None:
            return own * factor
        listed = price_steps.hour_rate(sheet.listed, hour)
        if plan.percent is not None and listed is not None:
            return listed * (1 - plan.percent / 100)
        return None if plan.purchase is None else price_steps.hour_rate(self.quoted(place, plan.purchase), hour)


def _stated(placed: Placed) -> PerHour | None:
    """What the node's own configuration says is paid for it: no discount comes off that."""
    quote = quotes.from_configuration(placed.usd_per_hour)
    return None if quote is None else quote.price


def _is_stated(quote: Quote, placed: Placed) -> bool:
    return quote.price is not None and quote == quotes.from_configuration(placed.usd_per_hour)


def _lower(text: str | None) -> str | None:
    return text.strip().lower() or None if text else None
