"""Azure's Retail Prices API (https://prices.azure.com): public, no key. On demand, spot, reservations and savings plans.

Invariant: only Linux virtual machines; `Low Priority` (the predecessor of spot), Windows, dev/test and other meters never
become a price. A reservation's price is that of its whole term, whatever its unit says; `amount` is that per hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import httpx

from pricing.money import to_decimal
from pricing.prices import INSTANCE_HOUR, Price
from pricing.sources import BadAnswer, OnProgress, Progress, Skipped, TruncatedPage, Wanted
from pricing.sources.web import Web, batches, moment, number, objects

URL = "https://prices.azure.com/api/retail/prices"
VERSION = "2023-01-01-preview"
"""The version that also tells savings plans."""
TYPES_AT_ONCE = 15
"""Types in one filter; longer ones are refused."""
HOURS = {"1 Year": ("1y", 8760), "3 Years": ("3y", 26280)}
NAME = "The Azure Retail Prices API"
PLACES = 10


class _Step(NamedTuple):
    words: str
    filter: str


class AzureSource:
    """`pricing.sources.Source` for Azure."""

    name = "azure"
    cloud = "azure"

    def __init__(
        self,
        now: datetime,
        *,
        url: str = URL,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._now = now
        self._url = url
        self._web = lambda: Web(NAME, transport=transport, **({"sleep": sleep} if sleep else {}))
        self._source = f"azure retail prices api {now:%Y-%m-%d}"

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """Page by page, each filter to its last page."""
        steps = list(_steps(wanted))
        at, link = _resumed(wanted.resume, len(steps))
        pages = rows = 0
        with self._web() as web:
            while at < len(steps):
                page = self._page(web, steps[at], link)
                skipped: list[Skipped] = []
                for item in objects(page, "Items", NAME):
                    for price in self._prices(item, wanted, skipped):
                        rows += 1
                        yield price
                pages += 1
                link = self._next(page, link)
                at += link is None
                words = steps[min(at, len(steps) - 1)].words
                resume = f"{at} {link or ''}" if at < len(steps) else None
                on_progress(Progress(words, at, len(steps), pages, rows, resume, tuple(skipped)))

    def _page(self, web: Web, step: _Step, link: str | None) -> dict[str, Any]:
        if link is not None:
            return web.get(link)
        return web.get(self._url, {"api-version": VERSION, "currencyCode": "USD", "$filter": step.filter})

    def _next(self, page: Mapping[str, Any], before: str | None) -> str | None:
        """The next page's address. Only of the same server: an answer sends us nowhere else."""
        link = page.get("NextPageLink") or None
        if link is None:
            return None
        if not isinstance(link, str) or httpx.URL(link).host != httpx.URL(self._url).host:
            raise BadAnswer(f"{NAME} names a next page on another server ({str(link)[:80]}).")
        if link == before:
            raise TruncatedPage(f"{NAME} names the same next page again; the rest cannot be read.")
        return link

    def _prices(self, item: Mapping[str, Any], wanted: Wanted, skipped: list[Skipped]) -> Iterator[Price]:
        """What an item is a price of; nothing for other meters."""
        purchase, term_hours = _purchase(item)
        if purchase is None or not _is_linux_machine(item) or not _fits(item, wanted):
            return
        where = f"azure {item.get('armRegionName')}, {item.get('armSkuName')}, {purchase}"
        price = number(item.get("retailPrice", item.get("unitPrice")))
        since = moment(item.get("effectiveStartDate"))
        if price is None or since is None or not item.get("currencyCode"):
            skipped.append(Skipped(where, "its price, currency or effective date is none."))
        elif purchase in wanted.purchases:
            yield self._price(item, purchase, price, since, term_hours)
        for plan in item.get("savingsPlan") or () if purchase == "on_demand" and since is not None else ():
            short, _ = HOURS.get(plan.get("term"), (None, 0)) if isinstance(plan, dict) else (None, 0)
            rate = number(plan.get("retailPrice", plan.get("unitPrice"))) if short else None
            if short and rate is not None and f"savings_plan_{short}" in wanted.purchases:
                yield self._price(item, f"savings_plan_{short}", rate, since, None, payment="no_upfront")

    def _price(
        self, item: Mapping[str, Any], purchase: str, price: Decimal, since: datetime, term_hours: int | None,
        payment: str | None = None,
    ) -> Price:  # fmt: skip
        upfront = price if term_hours else None
        amount = to_decimal(Fraction(price) / term_hours, PLACES) if term_hours and price.is_finite() else price
        return Price(
            "azure", str(item["armRegionName"]).lower(), None, str(item["armSkuName"]), purchase, amount,
            str(item["currencyCode"]), INSTANCE_HOUR, since, self._now, self._source, _text(item.get("skuId")), payment,
            upfront, Decimal(0) if term_hours else None, term_hours,
        )  # fmt: skip


def _steps(wanted: Wanted) -> Iterator[_Step]:
    """One filter per region, some types, and kind of price."""
    reserved = [purchase for purchase in wanted.purchases if purchase.startswith("reserved_")]
    kinds = ["Consumption"] if len(reserved) < len(wanted.purchases) else []
    kinds += ["Reservation"] if reserved else []
    types = sorted(wanted.instance_types) if wanted.instance_types is not None else None
    for region in wanted.regions or (None,):
        for names in batches(types, TYPES_AT_ONCE) if types is not None else (None,):
            for kind in kinds:
                yield _Step(f"{kind.lower()} prices of {region or 'all regions'}", _filter(region, names, kind))


def _filter(region: str | None, names: Sequence[str] | None, kind: str) -> str:
    parts = ["serviceName eq 'Virtual Machines'", f"priceType eq '{kind}'"]
    if region is not None:
        parts.append(f"armRegionName eq {_quoted(region)}")
    if names is not None:
        parts.append(f"({' or '.join(f'armSkuName eq {_quoted(name)}' for name in names)})")
    return " and ".join(parts)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _purchase(item: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """The purchase option that an item prices, and its term in hours; None for none of ours."""
    kind, names = item.get("type"), f"{item.get('skuName', '')} {item.get('meterName', '')}".lower()
    if "low priority" in names or item.get("unitOfMeasure") not in ("1 Hour", "1 Year", "3 Years"):
        return None, None
    if kind == "Reservation":
        short, hours = HOURS.get(str(item.get("reservationTerm")), (None, None))
        return (f"reserved_{short}", hours) if short else (None, None)
    if kind != "Consumption" or item.get("unitOfMeasure") != "1 Hour":
        return None, None
    return ("spot" if "spot" in names else "on_demand"), None


def _is_linux_machine(item: Mapping[str, Any]) -> bool:
    product = str(item.get("productName", ""))
    return (
        item.get("serviceName") == "Virtual Machines"
        and bool(item.get("armSkuName"))
        and bool(item.get("armRegionName"))
        and "windows" not in product.lower()
        and "cloud services" not in product.lower()
        and not (number(item.get("tierMinimumUnits")) or 0)
    )


def _fits(item: Mapping[str, Any], wanted: Wanted) -> bool:
    """The server filters too; an answer that does not fit what was asked is left out all the same."""
    names = None if wanted.instance_types is None else {name.lower() for name in wanted.instance_types}
    return (names is None or str(item.get("armSkuName")).lower() in names) and (
        not wanted.regions or str(item.get("armRegionName")).lower() in wanted.regions
    )


def _resumed(token: str | None, steps: int) -> tuple[int, str | None]:
    at, _, link = (token or "0 ").partition(" ")
    return (int(at), link or None) if at.isdigit() and int(at) < steps else (0, None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
