"""The price book's tables, and how an older book becomes a newer one (through sqlite-utils' migrations).

Invariant: `PRAGMA user_version` counts the migrations that were applied, and `meta.written_by` names the program that
applied the last one; both stand in every version, so that an old program can say which new one it needs.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from pricing.errors import PriceBookDamaged, PriceBookTooNew
from pricing.ledger_schema import program_version, written_by
from pricing.sqlite_file import apply_steps, identity

if TYPE_CHECKING:
    from sqlite_utils.db import Database

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5252_5031
"""`RRP1` in the file's header: tells a price book from any other SQLite file."""

# `prices` has a row per change that a source told of a key, and `until_ms` the last moment that it was seen to be in force by
# a source that tells no beginning. Of several rows with one `valid_ms` the one with the newest `first_ms` holds: the
# source corrected itself, and what it said before is kept. `held` are changes that look wrong and were seen once.
_TABLES_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    """CREATE TABLE keys (
        id INTEGER PRIMARY KEY, cloud TEXT NOT NULL, instance_type TEXT NOT NULL COLLATE NOCASE, purchase TEXT NOT NULL,
        region TEXT NOT NULL, zone TEXT NOT NULL, payment TEXT NOT NULL, os TEXT NOT NULL, tenancy TEXT NOT NULL,
        unit TEXT NOT NULL,
        UNIQUE (cloud, instance_type, purchase, region, zone, payment, os, tenancy, unit))""",
    """CREATE TABLE prices (
        key_id INTEGER NOT NULL REFERENCES keys, valid_ms INTEGER NOT NULL, first_ms INTEGER NOT NULL,
        last_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, amount TEXT, currency TEXT NOT NULL, upfront TEXT, hourly TEXT, term_hours INTEGER,
        sku TEXT, source_id INTEGER NOT NULL REFERENCES sources,
        PRIMARY KEY (key_id, valid_ms, first_ms)) WITHOUT ROWID""",
    """CREATE TABLE held (
        key_id INTEGER NOT NULL REFERENCES keys, valid_ms INTEGER NOT NULL, amount TEXT NOT NULL, currency TEXT NOT NULL,
        first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (key_id, amount, currency)) WITHOUT ROWID""",
    """CREATE TABLE sweeps (
        cloud TEXT NOT NULL, wanted TEXT NOT NULL, token TEXT NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (cloud, wanted)) WITHOUT ROWID""",
    """CREATE TABLE refreshes (
        id INTEGER PRIMARY KEY, cloud TEXT NOT NULL, at_ms INTEGER NOT NULL, new INTEGER NOT NULL, changed INTEGER NOT NULL,
        unchanged INTEGER NOT NULL, refused INTEGER NOT NULL, outcome TEXT NOT NULL, fault TEXT)""",
)


def _first(db: Database) -> None:
    for statement in _TABLES_1:
        db.execute(statement)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the book up to `SCHEMA_VERSION`; the caller holds the write transaction, so it is all or nothing."""
    apply_steps(connection, "rackrate-prices", {"0001_first": _first})
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('written_by', ?)", (program_version(),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def version(connection: sqlite3.Connection, path: str) -> int:
    """The book's format, 0 for an empty file. PriceBookDamaged for another program's file, PriceBookTooNew."""
    found, application, tables = identity(connection)
    if application != APPLICATION_ID and (found or application or tables):
        raise PriceBookDamaged(
            f"{path}: this is another program's database, not a price book; it was not touched. Move it away."
        )
    if found > SCHEMA_VERSION:
        raise PriceBookTooNew(
            f"{path}: this price book was written by {written_by(connection)} (format {found}); this is rackrate "
            f"{program_version()}, which reads up to format {SCHEMA_VERSION}. Upgrade rackrate; nothing was changed."
        )
    return found
