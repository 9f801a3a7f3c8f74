"""Offers of all clouds as the app's screen of the market shows them, and the history of one.

Invariant: the rows are the offers of `rackrate prices`, each with its date and source; an offer whose price is not known
is there and never the cheapest.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, tzinfo
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from tui import format as fmt
from tui.columns import Column, purchase_text
from tui.money_files import MoneyFiles
from tui.query_rows import OFFER_WORDS

if TYPE_CHECKING:
    from pricing.catalog import InstanceType, Offer
    from tui.price_history import Series

DAYS = (7, 30, 90, 365)
"""How far back a history is drawn."""
HEIGHTS = (8, 12)
"""Lines of one chart, on low screens and on others."""


Sorted = tuple[bool, str, float]
"""Dollars first, then by currency and amount; as floats, for thousands of fractions take a tenth of a second to compare."""


class MarketRow(NamedTuple):
    """An offer with what it sells."""

    offer: Offer
    shape: InstanceType | None
    each: Fraction | None
    """Per GPU-hour, in the offer's currency."""
    age_days: int
    texts: Mapping[str, list[str]]
    """What a query looks at, by its keys: made once, for a query looks at all offers with each letter that is typed."""
    by_each: Sorted | None
    by_price: Sorted | None
    key: str

    @property
    def where(self) -> str:
        return fmt.clean(self.offer.zone or self.offer.region or "") or fmt.UNKNOWN


MARKET_WORDS = OFFER_WORDS._replace(
    texts=lambda row, key, now: row.texts[key],
    number=lambda row, key, now: OFFER_WORDS.number(row.offer, key, now),
    bare=lambda row: [text for texts in row.texts.values() for text in texts],
)
"""What can be asked of offers, asked of these rows."""


class Market(NamedTuple):
    """All offers at one moment."""

    rows: tuple[MarketRow, ...]
    today: date


def read_market(files: MoneyFiles, today: date) -> Market:
    """The catalog over the price book."""
    from pricing.catalog import Catalog
    from tui.offers import age_days, instance_of

    shipped = Catalog.embedded()
    rows: dict[str, MarketRow] = {}
    for offer in files.catalog().offers():
        texts = {key: OFFER_WORDS.texts(offer, key, 0.0) for key in OFFER_WORDS.text_keys}
        each, price = shipped.per_gpu(offer), offer.price
        where = (offer.cloud, offer.region or "", offer.zone or "")
        row = MarketRow(
            offer, instance_of(offer), each, age_days(offer, today), texts, _sorted(offer, each),
            _sorted(offer, None if price is None else price.fraction),
            "\x1f".join((*where, offer.instance_type, offer.purchase, offer.source)),
        )  # fmt: skip
        rows[row.key] = row
    return Market(tuple(rows.values()), today)


def _sorted(offer: Offer, value: Fraction | None) -> Sorted | None:
    price = offer.price
    return None if price is None or value is None else (price.currency != "USD", price.currency, float(value))


def _price_text(row: MarketRow, each: bool) -> str:
    from tui.offers import amount_text

    if each:
        return fmt.UNKNOWN if row.each is None else amount_text(row.offer.price, row.each)
    return amount_text(row.offer.price)


def _gpu(row: MarketRow) -> str:
    return (row.shape.gpu_model if row.shape else None) or fmt.UNKNOWN


def _gpus(row: MarketRow) -> int | None:
    return row.shape.gpu_count if row.shape else None


def _column(ident: str, title: str, width: int, priority: int, value: Any, text: Any = None, **more: Any) -> Column:
    shown = text or value
    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, now: value(row),
                  text=lambda row, now: fmt.clean(shown(row)), **more)  # fmt: skip


MARKET_COLUMNS: tuple[Column, ...] = (
    _column("each", "PER GPU-H", 11, 1, lambda row: row.by_each, lambda row: _price_text(row, True), align="right", sort_key="1"),
    _column("price", "PRICE/H", 12, 5, lambda row: row.by_price, lambda row: _price_text(row, False), align="right",
            sort_key="2"),
    _column("gpu", " GPU", 11, 2, _gpu, lambda row: f" {_gpu(row)}", flex=True, sort_key="3"),
    _column("gpus", "GPUS", 4, 6, _gpus, lambda row: str(_gpus(row) or fmt.UNKNOWN), align="right", descending=True, sort_key="4"),
    _column("type", "TYPE", 16, 3, lambda row: row.offer.instance_type, flex=True, sort_key="5"),
    _column("buy", "BUY", 9, 2, lambda row: purchase_text(row.offer.purchase), sort_key="6"),
    _column("cloud", "CLOUD", 7, 4, lambda row: row.offer.cloud, sort_key="7"),
    _column("where", "WHERE", 15, 3, lambda row: row.where, flex=True, sort_key="8"),
    _column("as_of", "AS OF", 10, 7, lambda row: row.offer.as_of, lambda row: row.offer.as_of.isoformat()),
    _column("age", "AGE", 5, 6, lambda row: row.age_days, lambda row: f"{row.age_days}d", align="right", sort_key="9"),
    _column("source", " SOURCE", 24, 8, lambda row: row.offer.source, lambda row: f" {row.offer.source}", flex=True),
)  # fmt: skip


class History(NamedTuple):
    """What one offer cost over time, and what the same machine costs by other options and elsewhere."""

    row: MarketRow
    series: tuple[Series, ...]
    start: datetime
    end: datetime


def read_history(files: MoneyFiles, row: MarketRow, days: int, now: datetime) -> History:
    """As `rackrate prices history TYPE --cloud --region --buy` finds it. PricingError."""
    from pricing.pricebook import PriceBook
    from tui.price_history import find_series

    offer, start = row.offer, now - timedelta(days=days)
    asked = argparse.Namespace(
        type=offer.instance_type, cloud=offer.cloud, region=offer.region, zone=offer.zone, buy=offer.purchase
    )
    catalog = files.catalog()
    if files.prices is None or not files.prices.is_file():
        return History(row, tuple(find_series(None, catalog, asked, start, now)), start, now)
    with PriceBook.open(files.prices) as book:
        return History(row, tuple(find_series(book, catalog, asked, start, now)), start, now)


def history_lines(history: History, width: int, height: int, zone: tzinfo, unicode: bool) -> list[str]:
    """The charts of its lines of prices; one that did not change as a sentence."""
    from tui.price_history import charts

    return list(charts(history.series, history.start, history.end, zone, width=width, height=height, unicode=unicode))


def alike(rows: Sequence[MarketRow], row: MarketRow) -> list[MarketRow]:
    """The cheapest offers of the same instance type: each purchase option where it is cheapest, and the same place."""
    same = [one for one in rows if (one.offer.cloud, one.offer.instance_type) == (row.offer.cloud, row.offer.instance_type)]
    same.sort(key=lambda one: (one.by_price is None, one.by_price or (), one.key))
    best: dict[str, MarketRow] = {}
    for one in same:
        best.setdefault(one.offer.purchase, one)
    here = [one for one in same if (one.offer.region, one.offer.zone) == (row.offer.region, row.offer.zone)]
    chosen = {one.key: one for one in (*best.values(), *here)}
    return [one for one in same if one.key in chosen]
