"""From what a node says of itself to the offer that prices it, or to the sentence why none does.

Invariant: an offer is taken only for its own type, region, zone and purchase option; anything else is an estimate that
says so, or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from pricing import quotes, zones
from pricing.instances import name_key
from pricing.offers import PURCHASES, Offer
from pricing.quotes import Quote

SET_PRICE = "set usd_per_hour for the node to what you pay"
SHOWN = 4
"""How many places or names a sentence lists."""


class Asked(NamedTuple):
    """A node's own words, stripped; the cloud and the instance type are known ones, as the cloud writes them."""

    cloud: str
    region: str | None
    zone: str | None
    name: str
    purchase: str | None


class Table:
    """The offers of one cloud, found by type and region."""

    def __init__(self, cloud: str, offers: Sequence[Offer]) -> None:
        self.cloud = cloud
        self.offers = offers
        self._by_name: dict[str, list[Offer]] = {}
        for offer in offers:
            self._by_name.setdefault(name_key(cloud, offer.instance_type), []).append(offer)

    @cached_property
    def regions(self) -> frozenset[str]:
        return frozenset(offer.region for offer in self.offers)

    @cached_property
    def _region_of_code(self) -> dict[str, str]:
        return {zones.aws_region_code(offer.zone): offer.region for offer in self.offers if offer.zone}

    def region_of_zone(self, zone: str) -> str | None:
        """The region that a zone lies in, as far as its id or name tells."""
        if self.cloud == "aws" and zones.is_aws_id(zone):
            return self._region_of_code.get(zones.aws_region_code(zone))
        return zones.region_in_name(self.cloud, zone)

    def named(self, name: str) -> Sequence[Offer]:
        """The offers of one type."""
        return self._by_name.get(name_key(self.cloud, name), ())

    def select(self, name: str, region: str, purchase: str) -> list[Offer]:
        return [offer for offer in self.named(name) if offer.region == region and offer.purchase == purchase]

    def places(self, name: str, purchase: str) -> list[str]:
        """Regions in which this type has a known price for this purchase option."""
        return sorted({offer.region for offer in self.named(name) if offer.purchase == purchase and offer.price})


class Slice(Table):
    """Some offers of a table, in its regions and zones: a type that is not offered in one is no unknown region."""

    def __init__(self, table: Table, offers: Sequence[Offer]) -> None:
        super().__init__(table.cloud, offers)
        self._table = table

    @cached_property
    def regions(self) -> frozenset[str]:
        return self._table.regions

    def region_of_zone(self, zone: str) -> str | None:
        return self._table.region_of_zone(zone)


def region_key(region: str) -> str:
    """`East US` and `eastus` are one region."""
    return "".join(region.lower().split())


def did_you_mean(word: str, names: Iterable[str] | Mapping[str, str]) -> str:
    """` (did you mean p4d.24xlarge?)`, or nothing when no name is near. A mapping tells how each key is written."""
    import difflib  # only a misspelt name pays for it

    word, spelt = word.lower(), names if isinstance(names, Mapping) else {name.lower(): name for name in sorted(names)}
    near = difflib.get_close_matches(word, spelt, n=3, cutoff=0.75)
    likeness = [difflib.SequenceMatcher(None, key, word).ratio() for key in near]
    best = [spelt[key] for key, ratio in zip(near, likeness, strict=True) if ratio > likeness[0] - 0.02]
    return f" (did you mean {' or '.join(best)}?)" if best else ""


def look_up(asked: Asked, table: Table) -> Quote:
    """The quote for a node of a known cloud and type."""
    purchase = asked.purchase.lower() if asked.purchase else None
    if purchase is not None and purchase not in PURCHASES:
        near = did_you_mean(purchase, PURCHASES)
        return quotes.unknown(f"No price for {asked.name}: unknown purchase option {asked.purchase}{near}")
    region = _region(asked, table)
    if isinstance(region, Quote):
        return region
    found = _in_region(asked, region, purchase or "on_demand", table)
    if purchase is not None or found.price is None:
        return found
    source = f"on-demand price, because the purchase option is not known; {found.source}"
    return found._replace(source=source, estimated=True)


def _region(asked: Asked, table: Table) -> str | Quote:
    """The region to look in, or why there is none."""
    told = region_key(asked.region) if asked.region else None
    of_zone = table.region_of_zone(asked.zone) if asked.zone else None
    region = told or of_zone
    if region is None:
        return quotes.unknown(f"No price for {asked.name}: the node's region is not known; {SET_PRICE}")
    if region not in table.regions:
        what = f"No price for {asked.name} in {region}: no prices of that region are at hand"
        return quotes.unknown(f"{what}{did_you_mean(region, table.regions)}; {SET_PRICE}")
    if of_zone is not None and of_zone != region:
        return quotes.unknown(f"No price for {asked.name}: zone {asked.zone} lies in {of_zone}, not in {region}")
    return region


def _in_region(asked: Asked, region: str, purchase: str, table: Table) -> Quote:
    offers = table.select(asked.name, region, purchase)
    if table.cloud == "aws" and asked.zone and zones.is_local(asked.zone):
        return _in_local_zone(asked, purchase, offers)
    regional = [offer for offer in offers if offer.zone is None]
    if regional:
        return _priced(regional[0], region)
    if not offers:
        return _not_offered(asked.name, region, purchase, table)
    if asked.zone and (table.cloud != "aws" or zones.is_aws_id(asked.zone)):
        return _in_zone(asked, asked.zone, offers)
    return _in_some_zone(asked, region, offers)


def _priced(offer: Offer, place: str) -> Quote:
    if offer.price is not None:
        return quotes.from_offer(offer)
    what = f"{_label(offer.purchase)} price for {offer.instance_type} in {place}"
    return quotes.unknown(f"No {what}: {offer.source} lists the type there without one; {SET_PRICE}")


def _in_zone(asked: Asked, zone: str, offers: Sequence[Offer]) -> Quote:
    """Exactly this zone's price."""
    for offer in offers:
        if offer.zone == zone:
            return _priced(offer, zone)
    listed = _some(sorted(offer.zone or "" for offer in offers if offer.price))
    what = f"{_label(offers[0].purchase)} price for {asked.name} in {zone}"
    return quotes.unknown(f"No {what}: the catalog lists it only in {listed or 'no zone'}; {SET_PRICE}")


def _in_local_zone(asked: Asked, purchase: str, offers: Sequence[Offer]) -> Quote:
    zoned = [offer for offer in offers if offer.zone == asked.zone]
    if zoned:
        return _priced(zoned[0], zoned[0].zone or "")
    what = f"{_label(purchase)} price for {asked.name} in {asked.zone}"
    return quotes.unknown(f"No {what}: a local zone has prices of its own, which are not at hand; {SET_PRICE}")


def _in_some_zone(asked: Asked, region: str, offers: Sequence[Offer]) -> Quote:
    """One zone of a region, and it is not known which."""
    usual = [offer for offer in offers if offer.price and offer.zone and not zones.is_local(offer.zone)]
    if not usual:
        return _priced(offers[0]._replace(price=None), region)
    why = "the zone is not known"
    if asked.zone:
        why = f"zone {asked.zone} is a name, which each account maps to another place (give the id, like use1-az1)"
    return quotes.from_zones(usual, region, why)


def _not_offered(name: str, region: str, purchase: str, table: Table) -> Quote:
    what = f"No {_label(purchase)} price for {name} in {region}"
    elsewhere = table.places(name, purchase)
    if elsewhere:
        return quotes.unknown(f"{what}: the catalog has one only in {_some(elsewhere)}; {SET_PRICE}")
    if purchase in ("on_demand", "spot"):
        return quotes.unknown(f"{what}: the catalog has none of {table.cloud} for this type; {SET_PRICE}")
    return quotes.unknown(f"{what}: {_label(purchase)} rates of this type are not known offline; {SET_PRICE}")


def _label(purchase: str) -> str:
    return {"on_demand": "on-demand", "capacity_block": "capacity block"}.get(purchase, purchase)


def _some(names: Sequence[str]) -> str:
    """The first few of them, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
