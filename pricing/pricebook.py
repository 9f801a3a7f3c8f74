"""The price book: one SQLite file (`prices.db`) that keeps every published price with its history.

Invariant: a `put` is one transaction: all of its good rows and the notes on the others, or nothing. A price that does not
look right never replaces a good one. Several programs may use the book at once.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from pricing import pricebook_schema as schema
from pricing.calendar import milliseconds
from pricing.errors import PriceBookDamaged, PriceBookError, PriceBookFull, PriceBookLocked
from pricing.plausible import Judge
from pricing.pricebook_read import Age, HeldBack, Questions, Refreshed
from pricing.pricebook_rows import Kept, Key
from pricing.pricebook_write import Put, PutResult
from pricing.prices import Price
from pricing.sqlite_faults import Faults
from pricing.sqlite_file import SqliteFile, upgrade, write_ahead

__all__ = ["Age", "HeldBack", "Kept", "Key", "PriceBook", "PutResult", "Refreshed", "Shelf"]

TIMEOUT_SECONDS = 10.0
_FAULTS = Faults(
    "price book", PriceBookError, PriceBookLocked, PriceBookFull, PriceBookDamaged,
    "Restore a copy, or move it away and refresh again: until then the prices that ship with the program serve.",
)  # fmt: skip


class PriceBook(SqliteFile, Questions):
    """Use `open`; close it, or use it as a context manager. Safe to use from several threads."""

    translated = staticmethod(_FAULTS.translated)

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(connection, path)
        self._judge: Judge | None = None

    @classmethod
    def open(cls, path: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> PriceBook:
        """Opens the book, or makes one where there is none; `:memory:` is allowed.

        Raises PriceBookTooNew, PriceBookLocked (busy longer than the timeout), PriceBookDamaged, PriceBookFull or
        PriceBookError.
        """
        with _FAULTS.translated(str(path), timeout_seconds):
            connection = sqlite3.connect(path, timeout=timeout_seconds, isolation_level=None, check_same_thread=False)
            try:
                _prepare(connection, str(path), time.monotonic() + timeout_seconds)
            except BaseException:
                connection.close()
                raise
        return cls(connection, os.fspath(path))

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """One within another is part of it."""
        with self._lock:
            if self._connection.in_transaction:
                with _FAULTS.translated(self.path):
                    yield self._connection
                return
            with super()._transaction(begin) as connection:
                yield connection

    def put(
        self, prices: Iterable[Price], now: datetime, *, judge: Judge | None = None, accept: bool = False, dated: bool = False
    ) -> PutResult:
        """Takes prices in any order; what does not look right is refused or held back with a sentence.

        `accept` takes what would be held back. `dated`: they are of a list of a day gone by, which is their `fetched_at`:
        they never take the place of what was seen after it. The same prices again change nothing but the time of their last sight.
        """
        if judge is None:
            judge = self._judge = self._judge or Judge.shipped()
        with self.writing() as connection:
            return Put(connection, judge, milliseconds(now), accept, dated=dated).take(prices)

    def keep_resume(self, cloud: str, wanted: str, token: str | None, now: datetime) -> None:
        """Notes where a refresh stands; None: it is done, at `now`."""
        with self.writing() as connection:
            if token is None:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"done {cloud} {wanted}", milliseconds(now)))
            connection.execute("DELETE FROM sweeps WHERE cloud = ? AND wanted = ?", (cloud, wanted))
            if token is not None:
                connection.execute("INSERT INTO sweeps VALUES (?, ?, ?, ?)", (cloud, wanted, token, milliseconds(now)))

    def note_refresh(self, done: Refreshed) -> None:
        """Keeps how a refresh ended."""
        with self.writing() as connection:
            connection.execute(
                "INSERT INTO refreshes (cloud, at_ms, new, changed, unchanged, refused, outcome, fault)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (done.cloud, milliseconds(done.at), *done[2:]),
            )

    def check(self) -> list[str]:
        """One sentence per fault of the file; empty when it is whole."""
        with self.reading() as connection:
            found = [text for (text,) in connection.execute("PRAGMA integrity_check(20)")]
        return [] if found == ["ok"] else [f"{self.path}: {text}" for text in found]


class Shelf(Questions):
    """A book that is opened for each question and closed after it, so that a catalog may hold one for ever."""

    def __init__(self, path: str | Path) -> None:
        """PriceBookError when there is a file and it cannot be used as a book."""
        self.path = os.fspath(path)
        with self.reading():
            pass

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with PriceBook.open(self.path) as book, book.reading() as connection:
            yield connection


def _prepare(connection: sqlite3.Connection, path: str, deadline: float) -> None:
    """Checks what the file is, and brings it to the newest schema."""
    found = schema.version(connection, path)
    if found == schema.SCHEMA_VERSION:
        return
    write_ahead(connection, deadline)
    upgrade(connection, lambda: schema.version(connection, path), schema.SCHEMA_VERSION, schema.migrate)
