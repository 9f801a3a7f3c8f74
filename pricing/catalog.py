"""Offers: cloud, region, zone, instance type, GPUs, purchase option, price, as_of, source; and what a node costs.

Invariant: a price always carries its currency, its date and its source; one that is not known is None, is said why,
and is never the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Self

from pricing import quotes
from pricing.instances import InstanceType, Kind, name_key, read_instances
from pricing.lookup import SET_PRICE, Asked, Table, did_you_mean, look_up, region_key
from pricing.offers import PURCHASES, Offer, order, read_offers
from pricing.quotes import OnPremises, Quote

__all__ = ["CLOUDS", "PURCHASES", "Catalog", "InstanceType", "Kind", "Offer", "OnPremises", "Quote"]

CLOUDS = ("aws", "gcp", "azure", "alibaba")
SNAPSHOT = Path(__file__).parent / "snapshot"


class Catalog:
    """The price tables of one folder, each read when first asked for. CatalogError when one is damaged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[str, Table] = {}
        # a fleet asks the same question every second, and the search for near names is slow
        self._found = lru_cache(maxsize=4096)(self._look_up)

    @classmethod
    @cache
    def embedded(cls) -> Self:
        """The prices that ship with the program; the same object each time."""
        return cls(SNAPSHOT)

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
    ) -> Quote:
        """What a node of this description costs per hour; what is unknown or wrong is said in `reason`, never raised.

        A catalog price wins over the configured one, the configured one over an estimate. On premises the configured
        one always counts, else purchase price, years and power do.
        """
        configured = quotes.from_configuration(configured_usd_per_hour)
        cloud, zone = _clean(cloud, lower=True), _clean(zone, lower=True)
        if cloud == "on_premises" or (cloud is None and on_premises is not None):
            return configured or _owned(on_premises)
        found = self._found(cloud, _clean(region), zone, _clean(instance_type), _clean(purchase))
        exact = found.price is not None and not found.estimated
        return found if exact or configured is None else configured

    def _look_up(
        self, cloud: str | None, region: str | None, zone: str | None, name: str | None, purchase: str | None
    ) -> Quote:
        if cloud is None:
            return quotes.unknown(f"No price for {name or 'this node'}: its cloud is not known; {SET_PRICE}")
        if name is None:
            return quotes.unknown(f"No price for this {cloud} node: its instance type is not known; {SET_PRICE}")
        if cloud not in CLOUDS:
            near = did_you_mean(cloud, (*CLOUDS, "on_premises"))
            return quotes.unknown(f"No price for {name}: no prices of cloud {cloud} are at hand{near}; {SET_PRICE}")
        shape = self.instance(cloud, name)
        if shape is None:
            return self._unknown_type(cloud, region or zone, name)
        return look_up(Asked(cloud, region, zone, shape.instance_type, purchase), self._table(cloud))

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
            self._tables[cloud] = Table(cloud, read_offers(cloud, self._folder / f"{cloud}.csv"))
        return self._tables[cloud]

    @cached_property
    def _shapes(self) -> dict[str, dict[str, InstanceType]]:
        return read_instances(self._folder / "instance_types.csv")


def _clean(text: str | None, *, lower: bool = False) -> str | None:
    """Stripped, printable, at most 100 characters; an empty text is as unknown as none."""
    stripped = "".join(filter(str.isprintable, text or "")).strip()[:100]
    return (stripped.lower() if lower else stripped) or None


def _owned(on_premises: OnPremises | None) -> Quote:
    if on_premises is not None:
        return quotes.from_purchase(on_premises)
    return quotes.unknown("No price for this on-premises node: set usd_per_hour, or purchase_usd and years, for it")
