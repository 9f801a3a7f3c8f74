"""Questions to the price book: the price at a moment, steps over time, all offers of a moment, ages.

Invariant: these only read; each question is answered from one transaction, so from one moment of the book.
"""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

from pricing.calendar import instant, milliseconds
from pricing.pricebook_rows import KEY_COLUMNS, PAYMENTS, ROW_COLUMNS, Kept, Key, Row, key_id, read, sources, steps_of
from pricing.prices import INSTANCE_HOUR, LINUX, SHARED, Price

_CURRENT_COLUMNS = "region, zone, instance_type, purchase, payment, amount, currency, valid_ms, last_ms, source_id"
# the row of each key that holds at a moment: the newest sight of the latest step that has begun
_IN_FORCE = f"""
FROM keys CROSS JOIN prices ON key_id = keys.id
WHERE cloud = :cloud AND unit = '{INSTANCE_HOUR}' AND os = '{LINUX}' AND tenancy = '{SHARED}' AND (valid_ms, first_ms) = (
    SELECT valid_ms, first_ms FROM prices WHERE key_id = keys.id AND valid_ms <= :ms
    ORDER BY valid_ms DESC, first_ms DESC LIMIT 1)
"""


class Current(NamedTuple):
    """A price in force, in the book's own words: what a catalog reads by the ten thousand. Times in UTC milliseconds."""

    region: str
    zone: str
    instance_type: str
    purchase: str
    payment: str
    amount: str | None
    currency: str
    valid_ms: int
    last_ms: int
    source: str


class Age(NamedTuple):
    """How old the kept prices of one cloud and purchase option are."""

    cloud: str
    purchase: str
    offers: int
    """Keys that have a price."""
    newest: datetime
    """When one of them was last seen."""
    age: timedelta
    source: str
    """Of the newest."""


class Refreshed(NamedTuple):
    """The newest refresh of one cloud."""

    cloud: str
    at: datetime
    new: int
    changed: int
    unchanged: int
    refused: int
    outcome: str
    """`done`, `interrupted`, `failed`, or `no key`."""
    fault: str | None


class HeldBack(NamedTuple):
    """A change that looks wrong and was seen once; the price before it is still in force."""

    key: Key
    amount: Decimal
    currency: str
    first_seen: datetime
    last_seen: datetime
    reason: str


class Questions:
    """What can be asked; `reading` gives the connection, inside a read transaction."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        raise NotImplementedError

    def at(
        self, cloud: str, region: str, zone: str | None, instance_type: str, purchase: str, moment: datetime,
        *, payment: str | None = None, os: str = LINUX, tenancy: str = SHARED, unit: str = INSTANCE_HOUR,
    ) -> Price | None:  # fmt: skip
        """The price in force then, of exactly this place; None when none is kept.

        `payment` None: the first that is known of none, no upfront, partial, all upfront.
        """
        with self.reading() as connection:
            for way in PAYMENTS if payment is None else (payment,):
                key = Key(cloud, region, zone, instance_type, purchase, way, os, tenancy, unit)
                row = in_force(connection, key_id(connection, key), milliseconds(moment))
                if row is not None:
                    return row.price(key, sources(connection))
        return None

    def rows(self, key: Key) -> list[Kept]:
        """Every step of a key in order of time, the corrected ones left out."""
        with self.reading() as connection:
            names, ident = sources(connection), key_id(connection, key)
            return [row.kept(key, names) for row in _line(connection, ident)]

    def steps(self, key: Key, start: datetime, end: datetime) -> list[tuple[datetime, Decimal | None]]:
        """The price from each moment on, within [start, end); the one in force at `start` comes first, at `start`."""
        found: list[tuple[datetime, Decimal | None]] = []
        with self.reading() as connection:
            begin, ident = milliseconds(start), key_id(connection, key)
            row = in_force(connection, ident, begin)
            if row is not None:
                found.append((start, read(row.amount)))
            for row in _line(connection, ident, begin + 1, milliseconds(end)):
                amount = read(row.amount)
                if not found or found[-1][1] != amount:
                    found.append((instant(row.valid_ms), amount))
        return found

    def offers_at(self, moment: datetime, cloud: str) -> list[Price]:
        """Every price per instance-hour (Linux, shared tenancy) in force then, one of each key."""
        with self.reading() as connection:
            names = sources(connection)
            found = connection.execute(
                f"SELECT {KEY_COLUMNS}, {ROW_COLUMNS} {_IN_FORCE}", {"cloud": cloud, "ms": milliseconds(moment)}
            )
            return [_row(columns).price(Key.stored(columns[:9]), names) for columns in found]

    def current(self, moment: datetime, cloud: str) -> list[Current]:
        """The same as `offers_at`, at a fifth of the time."""
        with self.reading() as connection:
            names = sources(connection)
            found = connection.execute(f"SELECT {_CURRENT_COLUMNS} {_IN_FORCE}", {"cloud": cloud, "ms": milliseconds(moment)})
            return [Current(*columns[:9], names[columns[9]]) for columns in found]

    def lines(self, cloud: str, instance_type: str) -> dict[Key, list[Kept]]:
        """All steps of all keys of a type, per instance-hour (Linux, shared tenancy)."""
        with self.reading() as connection:
            names = sources(connection)
            found = connection.execute(
                f"SELECT {KEY_COLUMNS}, {ROW_COLUMNS} FROM keys JOIN prices ON key_id = keys.id WHERE cloud = ?"
                " AND instance_type = ? AND unit = ? AND os = ? AND tenancy = ? ORDER BY keys.id, valid_ms, first_ms",
                (cloud, instance_type, INSTANCE_HOUR, LINUX, SHARED),
            ).fetchall()
        lines: dict[Key, list[Kept]] = {}
        for columns, rows in groupby(found, key=lambda columns: columns[:9]):
            key = Key.stored(columns)
            lines[key] = [row.kept(key, names) for row in steps_of(map(_row, rows))]
        return lines

    def keys(self, cloud: str | None = None, instance_type: str | None = None) -> list[Key]:
        """Keys that have a price, in order."""
        with self.reading() as connection:
            found = connection.execute(
                f"SELECT {KEY_COLUMNS} FROM keys WHERE (?1 IS NULL OR cloud = ?1) AND (?2 IS NULL OR instance_type = ?2)"
                " AND id IN (SELECT key_id FROM prices) ORDER BY cloud, instance_type, purchase, region, zone, payment",
                (cloud, instance_type),
            )
            return [Key.stored(columns) for columns in found]

    def clouds(self) -> list[str]:
        with self.reading() as connection:
            return [cloud for (cloud,) in connection.execute("SELECT DISTINCT cloud FROM keys ORDER BY cloud")]

    def newest(self) -> datetime | None:
        """When any price was last seen; None for an empty book."""
        with self.reading() as connection:
            ms = connection.execute("SELECT MAX(last_ms) FROM prices").fetchone()[0]
        return None if ms is None else instant(ms)

    def ages(self, now: datetime) -> list[Age]:
        """How old the prices of each cloud and purchase option are."""
        with self.reading() as connection:
            names = sources(connection)
            found = connection.execute(
                "SELECT cloud, purchase, COUNT(DISTINCT key_id), MAX(last_ms), source_id"
                " FROM prices JOIN keys ON keys.id = key_id GROUP BY cloud, purchase ORDER BY cloud, purchase"
            )
            return [
                Age(cloud, purchase, count, instant(ms), now - instant(ms), names[source])
                for cloud, purchase, count, ms, source in found
            ]

    def refreshed(self) -> list[Refreshed]:
        """The newest refresh of each cloud."""
        with self.reading() as connection:
            found = connection.execute(
                "SELECT cloud, at_ms, new, changed, unchanged, refused, outcome, fault FROM refreshes"
                " WHERE id IN (SELECT MAX(id) FROM refreshes GROUP BY cloud) ORDER BY cloud"
            )
            return [Refreshed(cloud, instant(ms), *rest) for cloud, ms, *rest in found]

    def held(self) -> list[HeldBack]:
        """Changes that wait to be seen again."""
        with self.reading() as connection:
            found = connection.execute(
                f"SELECT {KEY_COLUMNS}, amount, currency, first_ms, last_ms, reason FROM held"
                " JOIN keys ON keys.id = key_id ORDER BY keys.id, first_ms"
            )
            return [
                HeldBack(Key.stored(row[:9]), Decimal(row[9]), row[10], instant(row[11]), instant(row[12]), row[13])
                for row in found
            ]

    def resume_token(self, cloud: str, wanted: str, since: datetime) -> str | None:
        """Where the last refresh of this kind was stopped, unless that was before `since`."""
        with self.reading() as connection:
            found = connection.execute(
                "SELECT token FROM sweeps WHERE cloud = ? AND wanted = ? AND at_ms >= ?", (cloud, wanted, milliseconds(since))
            ).fetchone()
        return found[0] if found else None

    def last_done(self, cloud: str, wanted: str) -> datetime | None:
        """When a refresh of this kind last came to its end."""
        with self.reading() as connection:
            found = connection.execute("SELECT value FROM meta WHERE key = ?", (f"done {cloud} {wanted}",)).fetchone()
        return instant(int(found[0])) if found else None


def in_force(connection: sqlite3.Connection, ident: int | None, ms: int) -> Row | None:
    """The row of a key that holds at a moment."""
    found = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM prices WHERE key_id = ? AND valid_ms <= ? ORDER BY valid_ms DESC, first_ms DESC LIMIT 1",
        (ident, ms),
    ).fetchone()
    return Row(*found) if found else None


def following(connection: sqlite3.Connection, ident: int | None, ms: int) -> Row | None:
    """The first row of a key that begins after a moment."""
    found = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM prices WHERE key_id = ? AND valid_ms > ? ORDER BY valid_ms, first_ms DESC LIMIT 1",
        (ident, ms),
    ).fetchone()
    return Row(*found) if found else None


def _line(connection: sqlite3.Connection, ident: int | None, start: int = -(2**62), end: int = 2**62) -> list[Row]:
    found = connection.execute(
        f"SELECT {ROW_COLUMNS} FROM prices WHERE key_id = ? AND valid_ms >= ? AND valid_ms < ? ORDER BY valid_ms, first_ms",
        (ident, start, end),
    )
    return list(steps_of(Row(*columns) for columns in found))


def _row(columns: tuple) -> Row:
    return Row(*columns[9:])
