"""Offers: cloud, region, zone, instance type, GPUs, purchase option, price, as_of, source; and what a node costs.

Invariant: a price always carries its currency, its date and its source; one that is not known is None, is said why,
and is never the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pricing import quotes, zones
from pricing.errors import PriceBookError
from pricing.instances import InstanceType, Kind, name_key, read_instances
from pricing.lookup import SET_PRICE, Asked, Table, did_you_mean, look_up, region_key
from pricing.money import PerHour
from pricing.offers import PURCHASES, Offer, order, read_offers
from pricing.quotes import OnPremises, Quote

if TYPE_CHECKING:
    from pricing.overlay import Book, History

__all__ = ["CLOUDS", "PURCHASES", "Catalog", "InstanceType", "Kind", "Offer", "OnPremises", "Quote"]

CLOUDS = ("aws", "gcp", "azure", "alibaba")
SNAPSHOT = Path(__file__).parent / "snapshot"


class Catalog:
    """The price tables of one folder, each read when first asked for. CatalogError when one is damaged.

    `embedded` is what ships; `with_book` lays the newer prices of a price book over it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[str, Table] = {}
        self._shipped: Catalog | None = None
        self._book: Book | None = None
        self._now: datetime | None = None
        self._histories: dict[str, History] = {}
        self.problem: str | None = None
        """One sentence: why the price book could not be read, so that only what ships serves."""
        # a fleet asks the same question every second, and the search for near names is slow
        self._found = lru_cache(maxsize=4096)(self._look_up)

    @classmethod
    @cache
    def embedded(cls) -> Self:
        """The prices that ship with the program; the same object each time."""
        return cls(SNAPSHOT)

    def with_book(self, book: Book, now: datetime | None = None) -> Catalog:
        """These prices, and over them the newer ones of a price book; `now` None: as of the book's last sight.

        The book is asked when a price is first wanted: what is put into it later needs another catalog.
        """
        laid = type(self)(self._folder)
        laid._shipped, laid._book, laid._now = self, book, now
        return laid

    @property
    def history(self) -> ExactSteps | None:
        """The prices over time, for attribution; None without a price book: then each price holds at all times."""
        return None if self._book is None else ExactSteps(self)

    @property
    def book(self) -> Book | None:
        """The price book that is laid over what ships, where there is one."""
        return self._book

    def offers(
        self,
        cloud: str | None = None,
        region: str | None = None,
        zone: str | None = None,
        instance_type: str | None = None,
        gpu_model: str | None = None,
        purchase: str | None = None,
    ) -> list[Offer]:
        """Offers that match every argument given (case does not matter); cheapest first, unknown prices last.

        USD comes before other currencies, which are never compared. `zone` takes only offers of that very zone.
        """
        found = [
            offer
            for offer in self._of(cloud, instance_type)
            if (region is None or region_key(region) == offer.region)
            and (zone is None or zone.strip().lower() == offer.zone)
            and (purchase is None or purchase.strip().lower() == offer.purchase)
            and (gpu_model is None or self._has_model(offer, gpu_model))
        ]
        return sorted(found, key=order)

    def instance(self, cloud: str | None, instance_type: str | None) -> InstanceType | None:
        """The machine's shape; None when the type is not known. `Standard_` and `ecs.` may be left out."""
        if cloud is None or instance_type is None:
            return None
        cloud = cloud.strip().lower()
        return self._shapes.get(cloud, {}).get(name_key(cloud, instance_type))

    def instances(self, cloud: str) -> list[InstanceType]:
        """All known types of a cloud, by name."""
        return sorted(self._shapes.get(cloud.strip().lower(), {}).values(), key=lambda shape: shape.instance_type)

    def per_gpu(self, offer: Offer) -> Fraction | None:
        """The offer's price per GPU (or chip) and hour, exact, in its currency; None when either part is not known."""
        shape = self.instance(offer.cloud, offer.instance_type)
        if offer.price is None or shape is None or not shape.gpu_count:
            return None
        return offer.price.fraction / shape.gpu_count

    def quote(
        self,
        cloud: str | None,
        region: str | None,
        zone: str | None,
        instance_type: str | None,
        purchase: str | None,
        configured_usd_per_hour: str | Decimal | None = None,
        on_premises: OnPremises | None = None,
        *,
        at: datetime | None = None,
    ) -> Quote:
        """What a node of this description costs per hour; what is unknown or wrong is said in `reason`, never raised.

        `at`: as it was then, by the history of the price book; None: as it is now. A catalog price wins over the configured one, the configured one over an estimate. On premises the configured
        one always counts, else purchase price, years and power do.
        """
        configured = quotes.from_configuration(configured_usd_per_hour)
        cloud, zone = _clean(cloud, lower=True), _clean(zone, lower=True)
        if cloud == "on_premises" or (cloud is None and on_premises is not None):
            return configured or _owned(on_premises)
        found = self._found(cloud, _clean(region), zone, _clean(instance_type), _clean(purchase), at)
        exact = found.price is not None and not found.estimated
        return found if exact or configured is None else configured

    def steps(
        self,
        cloud: str,
        region: str | None,
        zone: str | None,
        instance_type: str,
        purchase: str | None,
        start: datetime,
        end: datetime,
        *,
        estimates: bool = True,
    ) -> list[tuple[datetime, PerHour | None]]:
        """What `quote` says at each moment of [start, end): the price from each moment on, the one at `start` first.

        Without `estimates`, only from moments on at which the very offer's price is known.
        """
        asked = (_clean(cloud, lower=True), _clean(region), _clean(zone, lower=True), _clean(instance_type), _clean(purchase))
        steps: list[tuple[datetime, PerHour | None]] = []
        for moment in sorted({start} | {at for at in self._moments(*asked) if start < at < end}):
            quote = self._look_up(*asked, moment)
            if not estimates and (quote.estimated or quote.price is None):
                continue
            if not steps or steps[-1][1] != quote.price:
                steps.append((moment, quote.price))
        return steps

    def _moments(
        self, cloud: str | None, region: str | None, zone: str | None, name: str | None, purchase: str | None
    ) -> Iterable[datetime]:
        if self._book is None or cloud not in CLOUDS or name is None:
            return ()
        place = zone if zone is not None and zones.is_aws_id(zone) else None
        bought = (purchase or "on_demand").lower()
        return self._history(cloud).moments(self._spelt(cloud, name), region_key(region) if region else None, place, bought)

    def _look_up(
        self,
        cloud: str | None,
        region: str | None,
        zone: str | None,
        name: str | None,
        purchase: str | None,
        at: datetime | None = None,
    ) -> Quote:
        if cloud is None:
            return quotes.unknown(f"No price for {name or 'this node'}: its cloud is not known; {SET_PRICE}")
        if name is None:
            return quotes.unknown(f"No price for this {cloud} node: its instance type is not known; {SET_PRICE}")
        if cloud not in CLOUDS:
            near = did_you_mean(cloud, (*CLOUDS, "on_premises"))
            return quotes.unknown(f"No price for {name}: no prices of cloud {cloud} are at hand{near}; {SET_PRICE}")
        spelt = self._spelt(cloud, name)
        if self.instance(cloud, name) is None and not self._table(cloud).named(spelt):
            return self._unknown_type(cloud, region or zone, name)
        table = self._table(cloud) if at is None or self._book is None else self._history(cloud).at(spelt, at)
        return look_up(Asked(cloud, region, zone, spelt, purchase), table)

    def _spelt(self, cloud: str, name: str) -> str:
        """The type as its cloud writes it, as far as it is known."""
        shape = self.instance(cloud, name)
        if shape is not None:
            return shape.instance_type
        listed = self._table(cloud).named(name)
        return listed[0].instance_type if listed else name

    def _unknown_type(self, cloud: str, place: str | None, name: str) -> Quote:
        what = f"No price for {name} in {place}" if place else f"No price for {name}"
        for other in CLOUDS:
            if self.instance(other, name):
                return quotes.unknown(f"{what}: it is an instance type of {other}, not of {cloud}")
        names = {key: shape.instance_type for key, shape in self._shapes.get(cloud, {}).items()}
        return quotes.unknown(f"{what}: unknown instance type{did_you_mean(name_key(cloud, name), names)}")

    def _of(self, cloud: str | None, instance_type: str | None) -> Iterator[Offer]:
        chosen = CLOUDS if cloud is None else (cloud.strip().lower(),)
        for name in chosen:
            if name in CLOUDS:
                table = self._table(name)
                yield from table.named(instance_type) if instance_type is not None else table.offers

    def _has_model(self, offer: Offer, gpu_model: str) -> bool:
        shape = self.instance(offer.cloud, offer.instance_type)
        return shape is not None and (shape.gpu_model or "").lower() == gpu_model.strip().lower()

    def _table(self, cloud: str) -> Table:
        if cloud not in self._tables:
            if self._shipped is None or self._book is None:
                self._tables[cloud] = Table(cloud, read_offers(cloud, self._folder / f"{cloud}.csv"))
            else:
                from pricing.overlay import merged  # only a catalog with a book pays for it

                try:
                    self._tables[cloud] = merged(self._shipped._table(cloud), self._book, self._now)
                except PriceBookError as fault:
                    self.problem = str(fault)
                    self._tables[cloud] = self._shipped._table(cloud)
        return self._tables[cloud]

    def _history(self, cloud: str) -> History:
        if cloud not in self._histories:
            from pricing.overlay import History

            assert self._shipped is not None and self._book is not None
            self._histories[cloud] = History(self._shipped._table(cloud), self._table(cloud), self._book)
        return self._histories[cloud]

    @cached_property
    def _shapes(self) -> dict[str, dict[str, InstanceType]]:
        if self._shipped is not None:
            return self._shipped._shapes
        return read_instances(self._folder / "instance_types.csv")


class ExactSteps:
    """A catalog's prices over time as `pricing.price_steps.PriceBook`: a price that a node states beats an estimate."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def steps(
        self,
        cloud: str,
        region: str | None,
        zone: str | None,
        instance_type: str,
        purchase: str,
        start: datetime,
        end: datetime,
    ) -> list[tuple[datetime, PerHour | None]]:
        return self._catalog.steps(cloud, region, zone, instance_type, purchase, start, end, estimates=False)


def _clean(text: str | None, *, lower: bool = False) -> str | None:
    """Stripped, printable, at most 100 characters; an empty text is as unknown as none."""
    stripped = "".join(filter(str.isprintable, text or "")).strip()[:100]
    return (stripped.lower() if lower else stripped) or None


def _owned(on_premises: OnPremises | None) -> Quote:
    if on_premises is not None:
        return quotes.from_purchase(on_premises)
    return quotes.unknown("No price for this on-premises node: set usd_per_hour, or purchase_usd and years, for it")
