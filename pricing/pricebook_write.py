"""How a price finds its place in the book's history.

Invariant: a row is written for each change that a source tells; a price that is only seen again moves the time of its last
sight. In whatever order prices come, each moment has the price that was told for it.
A change that looks wrong is kept aside until a later fetch says it again, or until it is accepted.
A list of a day gone by adds to the history before what was seen later, and never takes its place.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from pricing.plausible import Judge, Known, Verdict
from pricing.pricebook_read import following, in_force
from pricing.pricebook_rows import ROW_COLUMNS, Key, Row, key_id, read, sources
from pricing.prices import Price

ON_DEMAND = "on_demand"


class PutResult(NamedTuple):
    """What became of prices that were put."""

    new: int = 0
    """Of offers that had no price."""
    unchanged: int = 0
    refused: tuple[tuple[Price, str], ...] = ()
    """With one sentence each; those that are held back for now are among them."""
    changed: int = 0
    """Steps that were added to, or corrected in, a history."""
    held: int = 0
    """How many of the refused are held back: they are taken when they are seen again."""
    warned: tuple[tuple[Price, str], ...] = ()
    """Taken, although they look odd."""

    def plus(self, other: PutResult) -> PutResult:
        return PutResult(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Put:
    """One put, inside one write transaction."""

    def __init__(
        self, connection: sqlite3.Connection, judge: Judge, now_ms: int, accept: bool, *, dated: bool = False
    ) -> None:
        self._connection = connection
        self._judge = judge
        self._now_ms = now_ms
        self._accept = accept
        self._dated = dated
        self._sources = {text: id for id, text in sources(connection).items()}
        self._ids: dict[Key, int] = {}
        self._had: set[Key] = set()
        self._told: dict[tuple[Key, int], tuple[object, ...]] = {}
        self._counts = {"new": 0, "changed": 0, "unchanged": 0, "held": 0}
        self._refused: list[tuple[Price, str]] = []
        self._warned: list[tuple[Price, str]] = []

    def take(self, prices: Iterable[Price]) -> PutResult:
        """On-demand prices first, for spot is judged by them; then in order of time."""
        sane = [price for price in prices if self._well_formed(price)]
        for price in sorted(sane, key=lambda price: (price.purchase != ON_DEMAND, price.valid_from)):
            self._take(price)
        return PutResult(
            self._counts["new"], self._counts["unchanged"], tuple(self._refused), self._counts["changed"],
            self._counts["held"], tuple(self._warned),
        )  # fmt: skip

    def _well_formed(self, price: Price) -> bool:
        sentence = self._judge.malformed(price)
        if sentence is not None:
            self._refused.append((price, sentence))
        return sentence is None

    def _take(self, price: Price) -> None:
        key = Key.of(price)
        ident = self._id(key)
        row = Row.of(price, self._source(price.source))
        before = in_force(self._connection, ident, row.valid_ms)
        if self._told.setdefault((key, row.valid_ms), row.value) != row.value:
            self._refused.append((price, f"{self._judge.name(price)} was given twice, with two prices; the first was kept."))
        elif self._dated and before is not None and before.last_ms > row.last_ms:
            self._before_newer(price, key, ident, row, before)
        elif before is not None and before.value == row.value:
            self._see_again(ident, before, row)
        elif before is not None and before.valid_ms == row.valid_ms and before.last_ms > row.last_ms:
            self._refused.append((price, f"{self._judge.name(price)} is older than what is kept, which corrected it."))
        else:
            self._judged(price, key, ident, row, before)

    def _before_newer(self, price: Price, key: Key, ident: int, row: Row, before: Row) -> None:
        """Of an old list, where a later one told of the same time: what was seen later stays in force from its sight on."""
        if before.value == row.value or before.valid_ms == row.valid_ms:
            self._counts["unchanged"] += 1
        elif before.first_ms <= row.last_ms:
            name = self._judge.name(price)
            self._refused.append((price, f"{name} was seen with another price both before and after this list; that is kept."))
        else:
            self._judged(price, key, ident, row, before)
            after = following(self._connection, ident, row.valid_ms)
            taken = in_force(self._connection, ident, row.valid_ms) != before
            if taken and (after is None or after.valid_ms > before.first_ms):
                self._insert(ident, before._replace(valid_ms=before.first_ms))

    def _judged(self, price: Price, key: Key, ident: int, row: Row, before: Row | None) -> None:
        last = before or following(self._connection, ident, row.valid_ms)
        verdict = self._judge.judge(price, Known(self._as_price(last, key), self._on_demand(key, row.valid_ms)))
        if verdict.kind == "held":
            since = self._confirmed(ident, row, verdict)
            if since is None:
                self._refused.append((price, verdict.sentence))
                self._counts["held"] += 1
                return
            row = row._replace(valid_ms=since)
        elif verdict.kind == "refused":
            self._refused.append((price, verdict.sentence))
            return
        if verdict.kind == "warned":
            self._warned.append((price, verdict.sentence))
        self._write(key, ident, row, in_force(self._connection, ident, row.valid_ms))

    def _confirmed(self, ident: int, row: Row, verdict: Verdict) -> int | None:
        """Since when a held price holds, if it was seen before or is accepted; else it is noted, and None."""
        where = (ident, row.amount, row.currency)
        seen = self._connection.execute(
            "SELECT valid_ms, first_ms FROM held WHERE key_id = ? AND amount = ? AND currency = ?", where
        ).fetchone()
        if self._accept or (seen is not None and seen[1] < row.first_ms):
            return min(row.valid_ms, seen[0]) if seen else row.valid_ms
        self._connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last_ms = excluded.last_ms",
            (ident, row.valid_ms, row.amount, row.currency, row.first_ms, row.last_ms, verdict.sentence),
        )
        return None

    def _write(self, key: Key, ident: int, row: Row, before: Row | None) -> None:
        first = before is None and key not in self._had and following(self._connection, ident, row.valid_ms) is None
        self._counts["new" if first else "changed"] += 1
        self._had.add(key)
        if before is not None and before.valid_ms == row.valid_ms and before.first_ms >= row.first_ms:
            row = row._replace(first_ms=before.first_ms + 1)  # a correction counts as told after what it corrects
        if before is not None and before.until_ms > row.valid_ms:  # what was in force later on still was
            self._insert(ident, before._replace(valid_ms=before.until_ms))
        self._insert(ident, row)
        self._connection.execute("DELETE FROM held WHERE key_id = ? AND valid_ms <= ?", (ident, row.valid_ms))

    def _insert(self, ident: int, row: Row) -> None:
        self._connection.execute(
            f"INSERT OR REPLACE INTO prices (key_id, {ROW_COLUMNS}) VALUES ({', '.join('?' * 12)})", (ident, *row)
        )

    def _see_again(self, ident: int, before: Row, row: Row) -> None:
        """The value is the one in force already; a beginning of its own is kept, for what lies between may come later."""
        self._counts["unchanged"] += 1
        if row.valid_ms != before.valid_ms and not row.is_sight:
            self._insert(ident, row._replace(until_ms=max(row.until_ms, before.until_ms)))
        elif row.last_ms > before.last_ms or row.valid_ms > before.until_ms:
            self._connection.execute(
                "UPDATE prices SET last_ms = MAX(last_ms, ?), until_ms = MAX(until_ms, ?), source_id = ?, sku = COALESCE(?, sku)"
                " WHERE key_id = ? AND valid_ms = ? AND first_ms = ?",
                (row.last_ms, row.valid_ms, row.source_id, row.sku, ident, before.valid_ms, before.first_ms),
            )
        self._connection.execute(
            "DELETE FROM held WHERE key_id = ? AND last_ms < ? AND valid_ms <= ?", (ident, row.last_ms, row.valid_ms)
        )

    def _on_demand(self, key: Key, ms: int) -> Price | None:
        """The book's on-demand price of the same machine and place at that moment."""
        if key.purchase == ON_DEMAND:
            return None
        plain = key._replace(purchase=ON_DEMAND, payment=None)
        for one in (plain, plain._replace(zone=None)):
            row = in_force(self._connection, key_id(self._connection, one), ms)
            if row is not None and row.amount is not None:
                return self._as_price(row, one)
        return None

    def _as_price(self, row: Row | None, key: Key) -> Price | None:
        if row is None or read(row.amount) is None:
            return None
        return row.price(key, {})

    def _id(self, key: Key) -> int:
        if key not in self._ids:
            found = key_id(self._connection, key)
            if found is None:
                places = ", ".join("?" * 9)
                found = self._connection.execute(
                    "INSERT INTO keys (cloud, instance_type, purchase, region, zone, payment, os, tenancy, unit)"
                    f" VALUES ({places}) RETURNING id",
                    key.columns(),
                ).fetchone()[0]
            self._ids[key] = found
        return self._ids[key]

    def _source(self, text: str) -> int:
        if text not in self._sources:
            self._sources[text] = self._connection.execute(
                "INSERT INTO sources (text) VALUES (?) RETURNING id", (text,)
            ).fetchone()[0]
        return self._sources[text]
