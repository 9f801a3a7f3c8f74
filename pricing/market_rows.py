"""Replies of `DescribeSpotPriceHistory` -> fetches: what one request told about each zone, type and product.

Invariant: a row that cannot be trusted (no price, no zone, a local time) is refused with its place, the rest is kept. A
fetch knows prices from its oldest row of a zone (the carry-in row before the window is one) until the newest row of all
its zones: later nothing was asked, and nothing is assumed.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any, NamedTuple

from pricing.calendar import milliseconds
from pricing.errors import BadMoney
from pricing.market_steps import StepFunction
from pricing.market_traps import Trap, trap
from pricing.money import parse_decimal
from pricing.zones import is_aws_id, region_in_name

PAGE_ROWS = 1000
"""The most rows that one page of the API has."""
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
_FIELDS = ("AvailabilityZone", "InstanceType", "ProductDescription", "SpotPrice", "Timestamp")


class SeriesKey(NamedTuple):
    """Whose price it is. `zone`: the name or id that the source gave; each account has its own mapping of names."""

    zone: str
    instance_type: str
    product: str
    """`Linux/UNIX`, without ` (Amazon VPC)`."""


class Fetch(NamedTuple):
    """What one file or request told about one series; known between its first row and the newest row of the whole fetch."""

    key: SeriesKey
    source: str
    prices: StepFunction
    rows: int


def is_rows(document: Any) -> bool:  # noqa: ANN401 - JSON of others
    """A reply, a list of replies, or the bare list of rows."""
    if isinstance(document, dict):
        return "SpotPriceHistory" in document
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and (
        "SpotPriceHistory" in document[0] or "SpotPrice" in document[0]
    )  # fmt: skip


def read_rows(
    document: Any,  # noqa: ANN401 - JSON of others
    file: str,
    *,
    tz: tzinfo | None = None,
    until: datetime | None = None,
) -> tuple[list[Fetch], list[Trap]]:
    """The fetches of one reply (or of several pages of one request, in a list).

    `tz`: the zone of times without one (they are refused otherwise). `until`: when it was fetched, if that is known.
    """
    traps: list[Trap] = []
    rows = _all_rows(document, file, traps)
    series: defaultdict[SeriesKey, list[tuple[int, int, Decimal | None]]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        found = _row(row, file, number, tz, traps)
        if found is not None:
            key, at, price = found
            series[key].append((at, -number, price))
    traps += _products(series, file)
    newest = max((at for found in series.values() for at, _, _ in found), default=0)
    ends_ms = newest + 1 if until is None else max(milliseconds(until), newest + 1)
    fetches = []
    for key, found in series.items():
        found.sort()  # of equal times the one that stands first (newest first) is the last
        fetches.append(Fetch(key, file, StepFunction(((at, price) for at, _, price in found), ends_ms), len(found)))
    return fetches, traps


def _all_rows(document: Any, file: str, traps: list[Trap]) -> list[Any]:  # noqa: ANN401
    pages = document if isinstance(document, list) else [document]
    if pages and isinstance(pages[0], dict) and "SpotPriceHistory" not in pages[0]:
        pages = [{"SpotPriceHistory": pages}]
    rows: list[Any] = []
    for page in pages:
        found = page.get("SpotPriceHistory") if isinstance(page, dict) else None
        if not isinstance(found, list):
            traps.append(trap("bad_row", file, len(rows) + 1, "a page without a list of rows; it is left out."))
            continue
        rows += found
    last = pages[-1] if pages and isinstance(pages[-1], dict) else {}
    if last.get("NextToken") or (rows and len(rows) % PAGE_ROWS == 0 and "NextToken" not in last):
        reason = "and a token for the next page" if last.get("NextToken") else "which is a full page"
        text = f"ends at {len(rows):,} rows {reason}: older rows are missing. Fetch on until no token is left."
        traps.append(trap("truncated_page", file, len(rows), text))
    elif rows and len(rows) % PAGE_ROWS == 0:
        text = f"has exactly {len(rows):,} rows, a full page: older rows may be missing."
        traps.append(trap("truncated_page", file, len(rows), text))
    if not rows:
        traps.append(trap("empty_list", file, None, "no rows: the type is not offered there, or not under this name."))
    return rows


def _row(
    row: Any,  # noqa: ANN401
    file: str,
    number: int,
    tz: tzinfo | None,
    traps: list[Trap],
) -> tuple[SeriesKey, int, Decimal | None] | None:
    if not isinstance(row, dict) or not all(isinstance(row.get(name, ""), str) for name in _FIELDS if name != "SpotPrice"):
        traps.append(trap("bad_row", file, number, "is no row of spot history; it is left out."))
        return None
    zone = row.get("AvailabilityZone") or row.get("AvailabilityZoneId") or ""
    fault = _zone_fault(zone, file)
    if fault is None and is_aws_id(row.get("AvailabilityZoneId") or ""):
        zone = row["AvailabilityZoneId"]  # a name means another place in each account
    if fault is not None:
        traps.append(trap("unknown_zone" if fault[0] else "wrong_region", file, number, fault[1]))
        return None
    if not row.get("InstanceType"):
        traps.append(trap("bad_row", file, number, "has no InstanceType; it is left out."))
        return None
    at = _time(row.get("Timestamp", ""), file, number, tz, traps)
    price = price_of(row.get("SpotPrice", ""), file, number, traps)
    if at is None:
        return None
    product = (row.get("ProductDescription") or "").removesuffix(" (Amazon VPC)")
    return SeriesKey(zone, row["InstanceType"], product), at, price


def _zone_fault(zone: object, file: str) -> tuple[bool, str] | None:
    """(unknown rather than elsewhere, why)."""
    shown = repr(zone)[:40]
    if not isinstance(zone, str) or not zone:
        return True, "names no zone; the row is left out."
    region = region_in_name("aws", zone)
    if region is None:
        known = is_aws_id(zone)
        return None if known else (True, f"{shown} is no zone of AWS, such as us-east-1a or use1-az1; the row is left out.")
    folders = {part for part in file.split("/")[:-1] if _REGION.fullmatch(part)}
    if folders and region not in folders:
        return False, f"zone {shown} is not in {', '.join(sorted(folders))}, the folder of its file; the row is left out."
    return None


def _time(text: str, file: str, number: int, tz: tzinfo | None, traps: list[Trap]) -> int | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        traps.append(trap("bad_time", file, number, f"'{text[:40]}' is no time; the row is left out."))
        return None
    if found.tzinfo is None:
        if tz is None:
            what = f"'{text[:40]}' has no time zone, so it may be local time; the row is left out. Say which zone it is in."
            traps.append(trap("local_time", file, number, what))
            return None
        found = found.replace(tzinfo=tz)
    return milliseconds(found)


def price_of(value: object, file: str, number: int, traps: list[Trap]) -> Decimal | None:
    """The price; None with a trap when it is empty, zero, negative or no number: unknown is never the cheapest."""
    try:
        price = parse_decimal(value, "price")
    except BadMoney as error:
        traps.append(trap("unknown_price", file, number, f"{error} The price counts as unknown."))
        return None
    if price <= 0:
        text = "0, which means unknown" if price == 0 else f"{price}, which is below 0"
        traps.append(trap("unknown_price", file, number, f"the price is {text}."))
        return None
    return price


def _products(series: dict[SeriesKey, Any], file: str) -> Sequence[Trap]:
    counts = Counter(key.product for key in series for _ in series[key])
    if len(counts) < 2:
        return ()
    told = ", ".join(f"{count:,} of {product or 'none'}" for product, count in counts.most_common())
    return (trap("mixed_products", file, None, f"rows of several products ({told}); each is a history of its own."),)
