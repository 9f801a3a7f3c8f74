"""Prices from a file of spot history (the answer of `aws ec2 describe-spot-price-history`), for the price book.

Invariant: a zone's name means another place in every account, so a price is taken only under a zone's id: told in the row, or
by whoever knows the names of the account that asked. What is left out is told with how much of it there was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from pricing.calendar import instant
from pricing.market_read import Reading
from pricing.market_rows import Fetch
from pricing.prices import INSTANCE_HOUR, Price
from pricing.zones import aws_region_code, is_aws_id, region_in_name

LINUX = ("", "Linux/UNIX")


class HistoryPrices(NamedTuple):
    """What a reading gives."""

    prices: list[Price]
    left_out: list[str]
    """Sentences."""


def prices_of(reading: Reading, ids: Mapping[str, str], regions: Mapping[str, str]) -> HistoryPrices:
    """`ids`: zone name -> zone id, in the account that asked. `regions`: the short form in an id (`use1`) -> region."""
    prices: list[Price] = []
    names, codes, products = Counter[str](), Counter[str](), Counter[str]()
    for fetch in reading.fetches:
        zone = fetch.key.zone if is_aws_id(fetch.key.zone) else ids.get(fetch.key.zone)
        region = None if zone is None else regions.get(aws_region_code(zone)) or region_in_name("aws", fetch.key.zone)
        if fetch.key.product not in LINUX:
            products[fetch.key.product] += fetch.rows
        elif zone is None:
            names[fetch.key.zone] += fetch.rows
        elif region is None:
            codes[zone] += fetch.rows
        else:
            prices += _prices(fetch, zone, region)
    return HistoryPrices(prices, [*_unnamed(names), *_unplaced(codes), *_others(products)])


def _prices(fetch: Fetch, zone: str, region: str) -> Iterator[Price]:
    """One per change. It was seen when the fetch ended, which is the newest moment that it tells of."""
    seen = instant(fetch.prices.end_ms) - timedelta(milliseconds=1)
    currency = "CNY" if region.startswith("cn-") else "USD"
    for starts_ms, amount in zip(fetch.prices.starts_ms, fetch.prices.values, strict=True):
        if amount is not None:
            yield Price(
                "aws", region, zone, fetch.key.instance_type, "spot", amount, currency, INSTANCE_HOUR, instant(starts_ms), seen,  # type: ignore[arg-type]
                f"spot history file {fetch.source}",
            )  # fmt: skip


def _unnamed(names: Counter[str]) -> Iterator[str]:
    if names:
        shown, first = ", ".join(sorted(names)[:4]), min(names)
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        yield (
            f"{names.total():,} rows name a zone of the account that asked ({shown}{more}), which is another place in each account: "
            f"say which it is, with --zone-id {first}=ID for each (`aws ec2 describe-availability-zones` tells)."
        )


def _unplaced(codes: Counter[str]) -> Iterator[str]:
    for zone, count in sorted(codes.items()):
        yield f"{count:,} rows are of the zone {zone}, and no region of it is known: they are left out."


def _others(products: Counter[str]) -> Iterator[str]:
    for product, count in sorted(products.items()):
        yield f"{count:,} rows are of {product!r}, not of Linux/UNIX: they are left out."
