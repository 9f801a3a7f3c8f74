"""The ledger's tables, and how an older ledger becomes a newer one (through sqlite-utils' migrations).

Invariant: `PRAGMA user_version` counts the migrations that were applied, and `meta.written_by` names the program that
applied the last one; both stand in every version, so that an old program can say which new one it needs.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from pricing import closed_schema
from pricing.sqlite_file import apply_steps

if TYPE_CHECKING:
    from sqlite_utils.db import Database

SCHEMA_VERSION = 6
APPLICATION_ID = 0x5252_4C31
"""`RRL1` in the file's header: tells a ledger from any other SQLite file."""

# Rows are clustered by hour, then node: a page of an agent lands in one or two places, the edges of a report are one
# range each, and no second index is needed. `hours` and `days` are the sums of `usage` per UTC hour or day, placement,
# kind and holder, kept in the same transaction: a month of 1,000 nodes is added up from them.
_TABLES_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE gpus (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE)",
    "CREATE TABLE reasons (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
    """CREATE TABLE holders (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, user TEXT, project TEXT, job TEXT)""",
    """CREATE TABLE meters (
        id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL REFERENCES nodes, name TEXT NOT NULL,
        cursor INTEGER NOT NULL DEFAULT 0,
        elsewhere INTEGER NOT NULL DEFAULT 0, agent_last INTEGER, ends_ms INTEGER, UNIQUE (node_id, name))""",
    """CREATE TABLE placements (
        id INTEGER PRIMARY KEY, meter_id INTEGER NOT NULL REFERENCES meters, number INTEGER NOT NULL,
        node TEXT NOT NULL, cloud TEXT, region TEXT, zone TEXT, instance_type TEXT, purchase TEXT, usd_per_hour TEXT,
        on_premises TEXT, gpu_count INTEGER NOT NULL, gpu_model TEXT, tags TEXT NOT NULL, UNIQUE (meter_id, number))""",
    """CREATE TABLE usage (
        hour INTEGER NOT NULL, node_id INTEGER NOT NULL, meter_id INTEGER NOT NULL, gpu_id INTEGER NOT NULL,
        starts_ms INTEGER NOT NULL, first_sequence INTEGER NOT NULL, ends_ms INTEGER NOT NULL,
        placement_id INTEGER NOT NULL, kind INTEGER NOT NULL, reason_id INTEGER NOT NULL, holder_id INTEGER NOT NULL,
        share INTEGER NOT NULL, source INTEGER NOT NULL, busy INTEGER NOT NULL, measured_ms INTEGER NOT NULL,
        energy_mj INTEGER, rows INTEGER NOT NULL, last_sequence INTEGER NOT NULL,
        PRIMARY KEY (hour, node_id, meter_id, gpu_id, starts_ms, first_sequence)) WITHOUT ROWID""",
    *(
        f"""CREATE TABLE {table} (
        at INTEGER NOT NULL, placement_id INTEGER NOT NULL, kind INTEGER NOT NULL, holder_id INTEGER NOT NULL,
        share_ms INTEGER NOT NULL, busy INTEGER NOT NULL, measured_share_ms INTEGER NOT NULL, energy_mj INTEGER,
        PRIMARY KEY (at, placement_id, kind, holder_id)) WITHOUT ROWID"""
        for table in ("hours", "days")
    ),
    """CREATE TABLE gaps (
        id INTEGER PRIMARY KEY, meter_id INTEGER NOT NULL REFERENCES meters, from_sequence INTEGER NOT NULL,
        to_sequence INTEGER NOT NULL, after_ms INTEGER, before_ms INTEGER, noticed_at_ms INTEGER)""",
    "INSERT INTO gpus VALUES (0, '')",
    "INSERT INTO reasons VALUES (0, '')",
)

# What retention took out of `usage`: per hour and meter how much it was (so that `hours` can still be checked), how far
# each GPU's time is covered by it, and over what time each placement was seen. `rollups`: one line per run.
_TABLES_3 = (
    """CREATE TABLE rolled_hours (
        hour INTEGER NOT NULL, meter_id INTEGER NOT NULL, rows INTEGER NOT NULL, share_ms INTEGER NOT NULL,
        busy INTEGER NOT NULL, measured_share_ms INTEGER NOT NULL, energy_mj INTEGER,
        PRIMARY KEY (hour, meter_id)) WITHOUT ROWID""",
    """CREATE TABLE rolled_gpus (
        meter_id INTEGER NOT NULL, gpu_id INTEGER NOT NULL, ends_ms INTEGER NOT NULL,
        PRIMARY KEY (meter_id, gpu_id)) WITHOUT ROWID""",
    "CREATE TABLE rolled_placements (placement_id INTEGER PRIMARY KEY, starts_ms INTEGER NOT NULL, ends_ms INTEGER NOT NULL)",
    """CREATE TABLE rollups (
        id INTEGER PRIMARY KEY, done_at_ms INTEGER NOT NULL, until_hour INTEGER NOT NULL, ledger_rows INTEGER NOT NULL,
        agent_rows INTEGER NOT NULL)""",
)

# What clouds announced: that they end a node. One that was withdrawn stays, so that it is not taken for news again.
_TABLES_4 = (
    """CREATE TABLE interruptions (
        meter_id INTEGER NOT NULL REFERENCES meters, number INTEGER NOT NULL, cloud TEXT NOT NULL, kind TEXT NOT NULL,
        noticed_ms INTEGER NOT NULL, at_ms INTEGER NOT NULL, booted_ms INTEGER, withdrawn INTEGER NOT NULL,
        PRIMARY KEY (meter_id, number)) WITHOUT ROWID""",
)


def _first(db: Database) -> None:
    for statement in _TABLES_1:
        db.execute(statement)


def _closed_months(db: Database) -> None:
    for statement in closed_schema.TABLES:
        db.execute(statement)


def _roll_ups(db: Database) -> None:
    for statement in _TABLES_3:
        db.execute(statement)


def _interruptions(db: Database) -> None:
    for statement in _TABLES_4:
        db.execute(statement)


def _cpu_use(db: Database) -> None:
    from pricing import ledger_cpu

    for statement in ledger_cpu.TABLES:
        db.execute(statement)


def _cpu_hours(db: Database) -> None:
    from pricing import ledger_cpu_hours

    for statement in ledger_cpu_hours.TABLES:
        db.execute(statement)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the ledger up to `SCHEMA_VERSION`; the caller holds the write transaction, so it is all or nothing."""
    apply_steps(connection, "rackrate-ledger", {
        "0001_first": _first,
        "0002_closed_months": _closed_months,
        "0003_roll_ups": _roll_ups,
        "0004_interruptions": _interruptions,
        "0005_cpu_use": _cpu_use,
        "0006_cpu_hours": _cpu_hours,
    })  # fmt: skip
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('written_by', ?)", (program_version(),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def program_version() -> str:
    """The version of the installed program."""
    from importlib import (
        metadata,  # 25 ms, and needed only to make a ledger or to refuse one
    )

    try:
        return metadata.version("rackrate")
    except metadata.PackageNotFoundError:
        return "of unknown version"


def written_by(connection: sqlite3.Connection) -> str:
    """Which program wrote the ledger last, as far as the ledger tells."""
    try:
        row = connection.execute("SELECT value FROM meta WHERE key = 'written_by'").fetchone()
    except sqlite3.OperationalError:
        row = None
    return f"rackrate {row[0]}" if row else "a newer rackrate"
