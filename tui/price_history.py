"""What `prices history` shows: one line per place and purchase option, drawn or as rows.

Invariant: a price is shown from when it holds; where the price book keeps no history, the one price that is known is shown
as what it is.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from tui import format as fmt
from tui.columns import purchase_text
from tui.errors import WrongUsage
from tui.terminal import draws_unicode

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from pricing.pricebook import Key, PriceBook

MOST_CHARTS = 6
HEIGHT = 12


class Series(NamedTuple):
    """One line of prices."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    purchase: str
    payment: str | None
    currency: str
    steps: list[tuple[datetime, Decimal | None]]
    on_demand: Decimal | None
    source: str

    @property
    def title(self) -> str:
        payment = f", {self.payment.replace('_', ' ')}" if self.payment else ""
        words = f"{self.instance_type} {purchase_text(self.purchase)}{payment} in {self.zone or self.region} ({self.cloud})"
        return fmt.clean(f"{words}: {self.source}")


def find_series(
    book: PriceBook | None, catalog: Catalog, arguments: argparse.Namespace, start: datetime, end: datetime
) -> list[Series]:
    """The kept lines of the type that the options choose; the catalog's own price where none is kept."""
    cloud, name = _machine(catalog, arguments)
    keys = [key for key in book.keys(cloud, name)] if book is not None else []
    buy = (arguments.buy or "").strip().lower() or None
    chosen = [key for key in keys if _matches(key, arguments, buy)]
    if buy is None and any(key.purchase == "spot" for key in chosen):
        chosen = [key for key in chosen if key.purchase == "spot"]
    found = [one for key in chosen if book is not None and (one := _kept(book, catalog, key, start, end)) is not None]
    return found or _shipped(catalog, cloud, name, arguments, buy, start)


def _machine(catalog: Catalog, arguments: argparse.Namespace) -> tuple[str, str]:
    from pricing.catalog import CLOUDS
    from pricing.lookup import did_you_mean

    asked = arguments.cloud.strip().lower() if arguments.cloud else None
    if asked is not None and asked not in CLOUDS:
        raise WrongUsage(f"--cloud {fmt.clean(asked)}: there are {', '.join(CLOUDS)}.")
    clouds = [asked] if asked else list(CLOUDS)
    for cloud in clouds:
        shape = catalog.instance(cloud, arguments.type)
        offers = catalog.offers(cloud, instance_type=arguments.type)
        if shape is not None or offers:
            return cloud, shape.instance_type if shape is not None else offers[0].instance_type
    names = [shape.instance_type for cloud in clouds for shape in catalog.instances(cloud)]
    raise WrongUsage(f"{fmt.clean(arguments.type)}: there is no such instance type{did_you_mean(arguments.type, names)}.")


def _matches(key: Key, arguments: argparse.Namespace, buy: str | None) -> bool:
    from pricing.lookup import region_key
    from pricing.prices import INSTANCE_HOUR, LINUX

    return (
        (arguments.region is None or region_key(key.region) == region_key(arguments.region))
        and (arguments.zone is None or key.zone == arguments.zone.strip().lower())
        and (buy is None or key.purchase == buy)
        and (key.unit, key.os) == (INSTANCE_HOUR, LINUX)
    )


def _kept(book: PriceBook, catalog: Catalog, key: Key, start: datetime, end: datetime) -> Series | None:
    steps = book.steps(key, start, end)
    if not steps:
        return None
    newest = book.rows(key)[-1].price
    rack = catalog.quote(key.cloud, key.region, None, key.instance_type, "on_demand").price
    limit = rack.amount if rack is not None and rack.currency == newest.currency and key.purchase == "spot" else None
    return Series(
        key.cloud, key.region, key.zone, key.instance_type, key.purchase, key.payment, newest.currency, steps, limit,
        f"{newest.source}, seen {newest.fetched_at:%Y-%m-%d %H:%M} UTC",
    )  # fmt: skip


def _shipped(
    catalog: Catalog, cloud: str, name: str, arguments: argparse.Namespace, buy: str | None, start: datetime
) -> list[Series]:
    offers = catalog.offers(cloud, arguments.region, arguments.zone, name, purchase=buy)
    return [
        Series(
            cloud, offer.region, offer.zone, name, offer.purchase, None, offer.price.currency, [(start, offer.price.amount)],
            None, f"{offer.source}, as of {offer.as_of}; no history is kept",
        )
        for offer in offers
        if offer.price is not None
    ]  # fmt: skip


def charts(
    series: Sequence[Series],
    start: datetime,
    end: datetime,
    zone: tzinfo,
    *,
    width: int | None = None,
    height: int = HEIGHT,
    unicode: bool | None = None,
) -> Iterator[str]:
    """A chart per line of prices, as wide as the terminal; those that do not change as one line of text."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 160) if width is None else width
    unicode = draws_unicode() if unicode is None else unicode
    moving = [one for one in series if len(one.steps) > 1]
    for one in moving[:MOST_CHARTS]:
        yield one.title
        yield from _chart(one, start, end, (width, height), zone, unicode)
        yield ""
    for one in moving[MOST_CHARTS:]:
        amounts = [amount for _, amount in one.steps if amount is not None]
        span = f"{_four(min(amounts))} to {_four(max(amounts))} {one.currency}" if amounts else "not known"
        yield f"{one.title}: {span}, {len(one.steps)} changes (choose it with --zone or --region)"
    for one in series:
        if len(one.steps) <= 1:
            amount = one.steps[0][1]
            yield f"{one.title}: {'not known' if amount is None else f'{_four(amount)} {one.currency}'} all the time"


def _four(amount: Decimal) -> str:
    """To four digits behind the point, and no noughts at the end: `10.2055`, `9`."""
    text = f"{amount:.4f}"
    return text.rstrip("0").rstrip(".")


def _chart(
    one: Series, start: datetime, end: datetime, size: tuple[int, int], zone: tzinfo, unicode: bool
) -> list[str]:  # fmt: skip
    from tui.history_chart import draw

    return draw(one.steps, start, end, *size, unicode=unicode, on_demand=one.on_demand, currency=one.currency, tz=zone)


def series_record(one: Series) -> dict[str, Any]:
    """For `--json`."""
    return {
        "cloud": one.cloud,
        "region": one.region,
        "zone": one.zone,
        "instance_type": one.instance_type,
        "purchase": one.purchase,
        "payment": one.payment,
        "currency": one.currency,
        "source": one.source,
        "steps": [
            {"from": at.isoformat(), "price_per_hour": None if amount is None else format(amount, "f")}
            for at, amount in one.steps
        ],
    }
