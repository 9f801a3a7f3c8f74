"""The offers of one cloud from two origins: the prices that ship with the program, and those that a price book keeps.

Invariant: of two prices of one offer the one with the newer evidence counts, whole, with its own date and source; a price
that a book does not know never hides one that ships. What counts at a moment is told by what was known of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple, Protocol

from pricing.calendar import instant
from pricing.instances import name_key
from pricing.lookup import Slice, Table, region_key
from pricing.money import PerHour
from pricing.offers import Offer
from pricing.pricebook_read import Current
from pricing.pricebook_rows import PAYMENTS, Kept, Key
from pricing.prices import Price

Place = tuple[str, str | None, str, str]
"""Region, zone, name key and purchase option: what an offer is of."""


class Book(Protocol):
    """What a catalog asks of a price book; `pricing.pricebook.PriceBook` and `Shelf` are some."""

    def current(self, moment: datetime, cloud: str) -> list[Current]: ...
    def lines(self, cloud: str, instance_type: str) -> dict[Key, list[Kept]]: ...
    def newest(self) -> datetime | None: ...


class Line(NamedTuple):
    """What is known of one offer over time: the steps that the book keeps, and what ships."""

    kept: Sequence[Kept]
    shipped: Offer | None

    def moments(self) -> Iterable[datetime]:
        """When the price may change."""
        yield from (kept.price.valid_from for kept in self.kept)
        if self.shipped is not None:
            yield _midnight(self.shipped)

    def at(self, moment: datetime) -> Offer | None:
        """The offer as it was then; as it was first known where nothing older is."""
        before = [kept for kept in self.kept if kept.price.valid_from <= moment]
        kept, shipped = (before[-1] if before else None), self.shipped
        if kept is None:
            first = self.kept[0] if self.kept else None
            if shipped is None or (first is not None and moment < first.price.valid_from < _midnight(shipped)):
                return _first_known(first) if first is not None else None
            return shipped
        if shipped is None or shipped.price is None:
            return _offer(kept.price)
        newer = kept.last_seen.date() < shipped.as_of <= moment.date()
        return shipped if newer or kept.price.amount is None else _offer(kept.price)


def merged(shipped: Table, book: Book, now: datetime | None) -> Table:
    """The newest offers of a cloud: the book's where its evidence is not older. `now` None: as of the book's last sight."""
    moment = now or book.newest()
    if moment is None:
        return shipped
    found = {_place(shipped.cloud, offer): offer for offer in shipped.offers}
    for place, current in preferred(shipped.cloud, book.current(moment, shipped.cloud)).items():
        as_of = _day(current.last_ms)
        old = found.get(place)
        if old is None or old.price is None or (current.amount is not None and as_of >= old.as_of):
            spelt = old.instance_type if old is not None else current.instance_type
            amount = None if current.amount is None else PerHour(Decimal(current.amount), current.currency)
            source = _sourced(current.source, current.payment or None)
            found[place] = Offer(
                shipped.cloud, place[0], place[1], spelt, current.purchase, amount, as_of, source, _moment(current.valid_ms)
            )  # fmt: skip
    return Table(shipped.cloud, list(found.values()))


class History:
    """What is known of the offers of one cloud at any moment."""

    def __init__(self, shipped: Table, newest: Table, book: Book) -> None:
        self._shipped = shipped
        self._newest = newest
        self._book = book
        self._lines = lru_cache(maxsize=512)(self._read)

    def at(self, name: str, moment: datetime) -> Slice:
        """The offers of a type as they were then."""
        offers = (line.at(moment) for line in self._lines(name).values())
        return Slice(self._newest, [offer for offer in offers if offer is not None])

    def moments(self, name: str, region: str | None, zone: str | None, purchase: str) -> set[datetime]:
        """When a price of a type may have changed there."""
        return {
            moment
            for (place, at, _, bought), line in self._lines(name).items()
            if bought == purchase and region in (None, place) and (zone is None or at in (None, zone))
            for moment in line.moments()
        }

    def _read(self, name: str) -> Mapping[Place, Line]:
        cloud = self._shipped.cloud
        lines = {_place(cloud, offer): Line((), offer) for offer in self._shipped.named(name)}
        kept = self._book.lines(cloud, name)
        for key in sorted(kept, key=lambda key: -PAYMENTS.index(key.payment)):  # the way to pay that counts comes last
            place = (region_key(key.region), key.zone, name_key(cloud, key.instance_type), key.purchase)
            lines[place] = Line(kept[key], lines[place].shipped if place in lines else None)
        return lines


def preferred(cloud: str, prices: Iterable[Current]) -> dict[Place, Current]:
    """Of each offer the way to pay that counts where none is asked for: without upfront before with it."""
    best: dict[Place, Current] = {}
    for price in prices:
        place = (region_key(price.region), price.zone or None, name_key(cloud, price.instance_type), price.purchase)
        old = best.get(place)
        if old is None or PAYMENTS.index(price.payment or None) < PAYMENTS.index(old.payment or None):
            best[place] = price
    return best


@lru_cache(maxsize=4096)
def _moment(ms: int) -> datetime:
    return instant(ms)


@lru_cache(maxsize=4096)
def _day(ms: int) -> date:
    return instant(ms).date()


@lru_cache(maxsize=4096)
def _sourced(source: str, payment: str | None) -> str:
    return f"{source} ({payment.replace('_', ' ')})" if payment else source


def _place(cloud: str, offer: Offer) -> Place:
    return (offer.region, offer.zone, name_key(cloud, offer.instance_type), offer.purchase)


def _offer(price: Price) -> Offer:
    amount = None if price.amount is None else PerHour(price.amount, price.currency)
    return Offer(
        price.cloud, region_key(price.region), price.zone, price.instance_type, price.purchase, amount,
        price.fetched_at.date(), _sourced(price.source, price.payment), price.valid_from,
    )  # fmt: skip


def _first_known(kept: Kept) -> Offer:
    offer = _offer(kept.price)
    source = f"{offer.source}; the first price known, of {kept.price.valid_from:%Y-%m-%d}"
    return offer._replace(source=source, estimated=True)


def _midnight(offer: Offer) -> datetime:
    return datetime.combine(offer.as_of, time(), UTC)
