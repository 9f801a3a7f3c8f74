"""Rates: what a node-hour of a type costs in a region under each purchase option, all in USD.

Invariant: a price that is missing, empty, zero or in a currency without a dated rate is absent, never 0 and never the
cheapest; what a commitment costs is amortised over its term exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pricing import contracts, price_steps
from pricing.calendar import instant, milliseconds
from pricing.catalog import CLOUDS, Catalog
from pricing.demand import DemandKey
from pricing.instances import InstanceType, name_key
from pricing.lookup import region_key
from pricing.money import PerHour
from pricing.offers import PURCHASES, Offer
from pricing.owned import Commitment
from pricing.pricebook_rows import PAYMENTS
from pricing.terms import Terms

if TYPE_CHECKING:
    from pricing.overlay import Book

HOURS_PER_MONTH = 730
TERM_MONTHS = {"reserved_1y": 12, "reserved_3y": 36, "savings_plan_1y": 12, "savings_plan_3y": 36}
"""Purchase options that bind for a term."""


class Rate(NamedTuple):
    """One way to pay for one node-hour of a type in a region."""

    purchase: str
    usd_per_hour: Fraction
    """Effective: `hourly`, and `upfront` amortised over the term."""
    hourly: Fraction
    """What each hour of the term (of on-demand and spot: each hour that it runs) is billed."""
    upfront: Fraction = Fraction(0)
    """Once, per node."""
    term_months: int | None = None
    payment: str | None = None
    """`no_upfront`, `partial_upfront`, `all_upfront`; None: not told."""
    source: str = ""
    as_of: date | None = None
    estimated: bool = False
    zone: str | None = None
    """The only zone where it holds; None: the whole region."""


def in_dollars(terms: Terms, now: datetime) -> tuple[Terms, list[str]]:
    """The terms with every commitment in USD at the exchange rate of `now`; those without a rate are left out and named."""
    kept: list[Commitment] = []
    notes = []
    for one in terms.commitments:
        steps = terms.exchange.steps(one.currency, "USD")
        rate = None if steps is None else price_steps.value_at(steps, milliseconds(now))
        if rate is None:
            why = terms.exchange.why_not(one.currency, "USD").replace("the report", "the advice")
            notes.append(f"commitment {one.id} is in no advice. {why}.")
        elif one.currency == "USD":
            kept.append(one)
        else:
            rates = {name: price * rate for name, price in one.rates.items()}
            told = replace(one, cost_per_hour=one.cost_per_hour * rate, upfront=one.upfront * rate, rates=rates, currency="USD")
            kept.append(told)
    return replace(terms, commitments=tuple(kept)), notes


class RateCard(Protocol):
    """What the advice asks of prices. `key.cloud` None is answered where only one cloud has the type."""

    def rates(self, key: DemandKey, purchase: str | None = None) -> Sequence[Rate]:
        """The known rates of a type in a region, by purchase option, each option's cheapest first."""
        ...

    def on_demand(self, key: DemandKey) -> Rate | None:
        """None where it is not known."""
        ...

    def shape(self, key: DemandKey) -> InstanceType | None: ...

    def keys(self) -> Sequence[DemandKey]:
        """Every type and region with a known rate: where work could move to."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences: which prices were left out, and why."""
        ...


def ordered(rates: Sequence[Rate]) -> list[Rate]:
    return sorted(
        rates, key=lambda rate: (PURCHASES.index(rate.purchase), rate.usd_per_hour, rate.zone or "", rate.payment or "")
    )


class CatalogCard:
    """The catalog's prices with the discounts and exchange rates of the terms, as they hold at `now`.

    Of what binds for a term, each way to pay that a price book knows is a rate (the catalog itself tells one of them).
    """

    def __init__(self, catalog: Catalog, terms: Terms, now: datetime) -> None:
        self._catalog = catalog
        self._terms = terms
        self._now = now
        self._found: dict[DemandKey, tuple[Rate, ...]] = {}
        self._untold: dict[str, int] = {}
        self._converted: set[str] = set()
        self._payments: dict[tuple[str, str, str], list[tuple[Offer, str]]] | None = None
        self._keys: list[DemandKey] | None = None

    def rates(self, key: DemandKey, purchase: str | None = None) -> Sequence[Rate]:
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = tuple(ordered(self._read(key)))
        return found if purchase is None else [rate for rate in found if rate.purchase == purchase]

    def on_demand(self, key: DemandKey) -> Rate | None:
        return next((rate for rate in self.rates(key, "on_demand") if rate.zone is None), None)

    def shape(self, key: DemandKey) -> InstanceType | None:
        return self._catalog.instance(self.cloud_of(key), key.instance_type)

    def keys(self) -> Sequence[DemandKey]:
        if self._keys is None:
            places = {
                DemandKey(offer.cloud, offer.region, offer.instance_type): None
                for cloud in CLOUDS
                for offer in self._catalog.offers(cloud)
                if offer.price is not None and offer.price.amount and self._exchange_rate(offer) is not None
            }
            self._keys = sorted(places, key=lambda key: tuple(part or "" for part in key))
        return self._keys

    @property
    def notes(self) -> tuple[str, ...]:
        exchange = self._terms.exchange
        used = [exchange.used(currency, "USD") for currency in sorted(self._converted)]
        return (*used, *(f"{count} prices are in no advice. {why}." for why, count in sorted(self._untold.items())))

    def why_not(self, key: DemandKey, purchase: str) -> str | None:
        """Why no rate is known, where the catalog tells."""
        return self._catalog.quote(self.cloud_of(key), key.region, None, key.instance_type, purchase).reason

    def cloud_of(self, key: DemandKey) -> str | None:
        """The key's cloud, or the only one that has the type."""
        if key.cloud is not None:
            return key.cloud
        having = [cloud for cloud in CLOUDS if self._catalog.instance(cloud, key.instance_type) is not None]
        return having[0] if len(having) == 1 else None

    def _read(self, key: DemandKey) -> list[Rate]:
        cloud = self.cloud_of(key)
        if cloud is None or cloud not in CLOUDS:
            return []
        offers = self._catalog.offers(cloud, key.region, instance_type=key.instance_type)
        paid = self._ways_to_pay(cloud, key)
        told = {(offer.purchase, offer.zone) for offer, _ in paid}
        found = [self._rate(offer, payment) for offer, payment in paid]
        found += [self._rate(offer, None) for offer in offers if (offer.purchase, offer.zone) not in told]
        return [rate for rate in found if rate is not None]

    def _ways_to_pay(self, cloud: str, key: DemandKey) -> list[tuple[Offer, str]]:
        """Committed prices of a price book, one per way to pay."""
        if self._catalog.book is None:
            return []
        if self._payments is None:
            self._payments = _by_payment(self._catalog.book, self._now)
        return self._payments.get((cloud, key.region, name_key(cloud, key.instance_type)), [])

    def _rate(self, offer: Offer, payment: str | None) -> Rate | None:
        usd = self._dollars(offer)
        if usd is None:
            return None
        at = milliseconds(self._now)
        factor = price_steps.value_at(
            contracts.factors(self._terms.discounts, offer.cloud, offer.region, offer.instance_type, offer.purchase), at
        )
        effective = usd * (1 if factor is None else factor)
        if not effective:
            return None
        term = TERM_MONTHS.get(offer.purchase)
        hourly = effective * self._hourly_share(offer, payment)
        upfront = (effective - hourly) * (term or 0) * HOURS_PER_MONTH
        return Rate(
            offer.purchase, effective, hourly, upfront, term, payment if payment in PAYMENTS else None, offer.source,
            offer.as_of, offer.estimated, offer.zone,
        )  # fmt: skip

    def _hourly_share(self, offer: Offer, payment: str | None) -> Fraction:
        """How much of the effective price is billed hour by hour, as the price book tells it."""
        if payment != "partial_upfront" or self._catalog.book is None:
            return Fraction(payment != "all_upfront")
        for key, kept in self._catalog.book.lines(offer.cloud, offer.instance_type).items():
            same = (region_key(key.region), key.zone or None, key.purchase, key.payment)
            price = kept[-1].price if kept else None
            if (
                same == (offer.region, offer.zone, offer.purchase, payment)
                and price
                and price.hourly is not None
                and price.amount
            ):
                return Fraction(price.hourly) / Fraction(price.amount)
        return Fraction(1)

    def _dollars(self, offer: Offer) -> Fraction | None:
        if offer.price is None or not offer.price.amount:
            return None
        currency, rate = offer.price.currency, self._exchange_rate(offer)
        if rate is None:
            why = self._terms.exchange.why_not(currency, "USD").replace("the report", "the advice")
            self._untold[why] = self._untold.get(why, 0) + 1
            return None
        if currency != "USD":
            self._converted.add(currency)
        return offer.price.fraction * rate

    def _exchange_rate(self, offer: Offer) -> Fraction | None:
        """What one unit of the offer's currency is in USD at `now`."""
        assert offer.price is not None  # noqa: S101 - only priced offers are asked for
        steps = self._terms.exchange.steps(offer.price.currency, "USD")
        return None if steps is None else price_steps.value_at(steps, milliseconds(self._now))


def _by_payment(book: Book, now: datetime) -> dict[tuple[str, str, str], list[tuple[Offer, str]]]:
    """(cloud, region, type) -> the offers that bind for a term, each with the way to pay."""
    found: dict[tuple[str, str, str], list[tuple[Offer, str]]] = {}
    for cloud in CLOUDS:
        for one in book.current(now, cloud):
            if one.purchase not in TERM_MONTHS or one.amount is None or not one.payment:
                continue
            price = PerHour(Decimal(one.amount), one.currency)
            offer = Offer(
                cloud, region_key(one.region), one.zone or None, one.instance_type, one.purchase, price,
                instant(one.last_ms).date(), f"{one.source} ({one.payment.replace('_', ' ')})",
            )  # fmt: skip
            found.setdefault((cloud, offer.region, name_key(cloud, one.instance_type)), []).append((offer, one.payment))
    return found


class LayeredCard:
    """The rates of the first card; of purchase options that it does not tell for a type, those of the second."""

    def __init__(self, first: RateCard, second: RateCard) -> None:
        self._cards = first, second

    def rates(self, key: DemandKey, purchase: str | None = None) -> Sequence[Rate]:
        first = list(self._cards[0].rates(key))
        told = {rate.purchase for rate in first}
        found = ordered(first + [rate for rate in self._cards[1].rates(key) if rate.purchase not in told])
        return found if purchase is None else [rate for rate in found if rate.purchase == purchase]

    def on_demand(self, key: DemandKey) -> Rate | None:
        return self._cards[0].on_demand(key) or self._cards[1].on_demand(key)

    def shape(self, key: DemandKey) -> InstanceType | None:
        return self._cards[0].shape(key) or self._cards[1].shape(key)

    def keys(self) -> Sequence[DemandKey]:
        return list(dict.fromkeys([*self._cards[0].keys(), *self._cards[1].keys()]))

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._cards[0].notes, *self._cards[1].notes)


class FileCard:
    """Rates of a file. A rate without a cloud holds for a key of any cloud, and the other way round."""

    def __init__(self, found: Mapping[DemandKey, Sequence[Rate]], notes: Sequence[str], shapes: Catalog | None) -> None:
        self._rates = {self._key(key): tuple(ordered(rates)) for key, rates in found.items()}
        self._told = list(found)
        self._notes = tuple(notes)
        self._shapes = shapes

    def rates(self, key: DemandKey, purchase: str | None = None) -> Sequence[Rate]:
        found = self._rates.get(self._key(key)) or self._rates.get(self._key(key._replace(cloud=None))) or ()
        if not found and key.cloud is None:
            of_clouds = [self._rates[same] for same in self._rates if same[1:] == self._key(key)[1:]]
            found = of_clouds[0] if len(of_clouds) == 1 else ()
        return found if purchase is None else [rate for rate in found if rate.purchase == purchase]

    def on_demand(self, key: DemandKey) -> Rate | None:
        return next(iter(self.rates(key, "on_demand")), None)

    def shape(self, key: DemandKey) -> InstanceType | None:
        if self._shapes is None:
            return None
        clouds = CLOUDS if key.cloud is None else (key.cloud,)
        found = [shape for cloud in clouds if (shape := self._shapes.instance(cloud, key.instance_type)) is not None]
        return found[0] if len(found) == 1 else None

    def keys(self) -> Sequence[DemandKey]:
        return self._told

    @property
    def notes(self) -> tuple[str, ...]:
        return self._notes

    @staticmethod
    def _key(key: DemandKey) -> DemandKey:
        return DemandKey(key.cloud, key.region, name_key(key.cloud or "", key.instance_type))


def read_rates(path: Path, shapes: Catalog | None = None) -> FileCard:
    """From a CSV file: see `pricing.rate_file`. AdviceFileError names file, row and column. `shapes`: what the types are."""
    from pricing import rate_file

    return rate_file.read_rates(path, shapes)
