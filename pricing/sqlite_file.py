"""What the ledger and the price book have in common: one SQLite file that several programs and threads use at once.

Invariant: a transaction is all or nothing, one thread is in it at a time, and every error of SQLite in it leaves as a
sentence of the file's own kind (`translated`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Self

from pricing.sqlite_faults import is_busy

if TYPE_CHECKING:
    from sqlite_utils.db import Database


class Identity(NamedTuple):
    """What a file says of itself; all zero for an empty one. `tables` counts everything that its schema names."""

    version: int
    application: int
    tables: int


class SqliteFile:
    """Close it, or use it as a context manager. Safe to use from several threads."""

    translated: Callable[..., contextlib.AbstractContextManager[None]]
    """(path) -> a context in which SQLite's errors become those of this kind of file."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; a second time does nothing."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: all of it, or (on any error) nothing."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: what is read in it is of one moment, whatever others write meanwhile."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self.translated(self.path):
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def temporary(connection: sqlite3.Connection, name: str, values: Mapping[int, int]) -> Iterator[None]:
    """The table `temp.NAME` (id, one) for the length of the context, within one transaction: after an error it goes with that."""
    connection.execute(f"CREATE TEMP TABLE {name} (id INTEGER PRIMARY KEY, one INTEGER NOT NULL)")
    connection.executemany(f"INSERT INTO temp.{name} VALUES (?, ?)", values.items())
    yield
    connection.execute(f"DROP TABLE temp.{name}")


def identity(connection: sqlite3.Connection) -> Identity:
    """Read at one moment: between two reads another program may have made the file."""
    begun = not connection.in_transaction
    if begun:
        connection.execute("BEGIN")
    try:
        return Identity(
            connection.execute("PRAGMA user_version").fetchone()[0],
            connection.execute("PRAGMA application_id").fetchone()[0],
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0],
        )
    finally:
        if begun and connection.in_transaction:  # a full disk may have ended it
            connection.execute("ROLLBACK")


def write_ahead(connection: sqlite3.Connection, deadline: float) -> None:
    """Switches to WAL, which stays. SQLite does not wait for a lock here, so two programs that make a file at once must."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def upgrade(
    connection: sqlite3.Connection, version: Callable[[], int], newest: int, migrate: Callable[[sqlite3.Connection], None]
) -> None:
    """Brings a file to its newest schema, all or nothing; another program may have been faster."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version() != newest:
            migrate(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def apply_steps(connection: sqlite3.Connection, name: str, steps: Mapping[str, Callable[[Database], None]]) -> None:
    """Those of sqlite-utils' migrations that the file has not seen yet, in their order."""
    with _without_pandas():
        import sqlite_utils
        from sqlite_utils.migrations import Migrations

    known = Migrations(name)
    for step, change in steps.items():
        known(name=step)(change)
    known.apply(sqlite_utils.Database(connection, execute_plugins=False))


@contextlib.contextmanager
def _without_pandas() -> Iterator[None]:
    """sqlite-utils imports pandas wherever that is installed, for a method that nobody calls: half a second of the first start."""
    hidden = "pandas" not in sys.modules
    if hidden:
        sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hidden:
            sys.modules.pop("pandas", None)
