"""Rows of the price book: the key of a price, and a price with the times it was first and last seen.

Invariant: two prices of one key are the same step exactly if value, currency and terms are equal, however they are written
(`3.06` and `3.060` are one price).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple, Self

from pricing.calendar import instant, milliseconds
from pricing.prices import INSTANCE_HOUR, LINUX, SHARED, Price

PAYMENTS = (None, "no_upfront", "partial_upfront", "all_upfront")
"""Ways to pay for a term; where none is asked for, the first of them that is known counts."""

ROW_COLUMNS = "valid_ms, first_ms, last_ms, until_ms, amount, currency, upfront, hourly, term_hours, sku, source_id"
KEY_COLUMNS = "cloud, instance_type, purchase, region, zone, payment, os, tenancy, unit"


class Key(NamedTuple):
    """What a price is of. Zone None: the whole region."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    purchase: str
    payment: str | None = None
    os: str = LINUX
    tenancy: str = SHARED
    unit: str = INSTANCE_HOUR

    @classmethod
    def of(cls, price: Price) -> Self:
        return cls(
            price.cloud, price.region, price.zone, price.instance_type, price.purchase, price.payment, price.os,
            price.tenancy, price.unit,
        )  # fmt: skip

    @classmethod
    def stored(cls, columns: tuple[str, ...]) -> Self:
        cloud, name, purchase, region, zone, payment, os, tenancy, unit = columns
        return cls(cloud, region, zone or None, name, purchase, payment or None, os, tenancy, unit)

    def columns(self) -> tuple[str, ...]:
        """As `KEY_COLUMNS`."""
        return (
            self.cloud, self.instance_type, self.purchase, self.region, self.zone or "", self.payment or "", self.os,
            self.tenancy, self.unit,
        )  # fmt: skip


class Kept(NamedTuple):
    """A price with its history: since when it holds, and when it was first and last seen."""

    price: Price
    """`fetched_at` is the last sight."""
    first_seen: datetime
    last_seen: datetime


class Row(NamedTuple):
    """One row of `prices`, without its key; times in UTC milliseconds."""

    valid_ms: int
    first_ms: int
    last_ms: int
    until_ms: int
    """The last moment that it was seen to be in force, besides its beginning."""
    amount: str | None
    currency: str
    upfront: str | None
    hourly: str | None
    term_hours: int | None
    sku: str | None
    source_id: int

    @classmethod
    def of(cls, price: Price, source_id: int) -> Self:
        seen = milliseconds(price.fetched_at)
        return cls(
            milliseconds(price.valid_from), seen, seen, milliseconds(price.valid_from), written(price.amount), price.currency, written(price.upfront),
            written(price.hourly), price.term_hours, price.sku, source_id,
        )  # fmt: skip

    @property
    def is_sight(self) -> bool:
        """Whether its source told no beginning, only that it holds now."""
        return self.valid_ms == self.first_ms

    @property
    def value(self) -> tuple[object, ...]:
        """What makes it a step of its own."""
        return (read(self.amount), self.currency, read(self.upfront), read(self.hourly), self.term_hours)

    def price(self, key: Key, sources: dict[int, str]) -> Price:
        return Price(
            key.cloud, key.region, key.zone, key.instance_type, key.purchase, read(self.amount), self.currency, key.unit,
            instant(self.valid_ms), instant(self.last_ms), sources.get(self.source_id, ""), self.sku, key.payment,
            read(self.upfront), read(self.hourly), self.term_hours, key.os, key.tenancy,
        )  # fmt: skip

    def kept(self, key: Key, sources: dict[int, str]) -> Kept:
        return Kept(self.price(key, sources), instant(self.first_ms), instant(self.last_ms))


def steps_of(rows: Iterable[Row]) -> Iterator[Row]:
    """One row per change of value, from rows in order of (valid_ms, first_ms): the corrected ones are left out."""
    step: Row | None = None
    for _, same in groupby(rows, key=lambda row: row.valid_ms):
        *_, row = same
        if step is not None and step.value == row.value:
            step = step._replace(first_ms=min(step.first_ms, row.first_ms), last_ms=max(step.last_ms, row.last_ms))
            continue
        if step is not None:
            yield step
        step = row
    if step is not None:
        yield step


def written(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")


def read(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def key_id(connection: sqlite3.Connection, key: Key) -> int | None:
    found = connection.execute(
        "SELECT id FROM keys WHERE cloud = ? AND instance_type = ? AND purchase = ? AND region = ? AND zone = ?"
        " AND payment = ? AND os = ? AND tenancy = ? AND unit = ?",
        key.columns(),
    ).fetchone()
    return found[0] if found else None


def sources(connection: sqlite3.Connection) -> dict[int, str]:
    return dict(connection.execute("SELECT id, text FROM sources"))
