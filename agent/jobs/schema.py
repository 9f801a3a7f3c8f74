"""The tables of `queue.db`, how a field becomes a column, and what is said of a file that cannot be used.

Invariant: MIGRATIONS only grows: a file has as many of its steps as it says (`state_db`).

Times are UTC milliseconds, money decimal text, everything with parts JSON; a field that is not set is NULL. A spec stands
once, for a job or for all tasks of an array.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from agent.errors import StateDirectoryError
from agent.jobs.rows import AttemptRow, JobRow
from agent.state_db import StateDb

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE spec (id TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE job (
        place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, spec TEXT NOT NULL REFERENCES spec,
        state TEXT NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'starting', 'running', 'stopping', 'ended')),
        array TEXT, array_index INTEGER, user TEXT, actor TEXT,
        submitted_at INTEGER NOT NULL, begun_at INTEGER, started_at INTEGER, ended_at INTEGER, not_before INTEGER,
        attempt INTEGER NOT NULL DEFAULT 0, retries INTEGER NOT NULL DEFAULT 0,
        cause TEXT, evidence TEXT, exit_code INTEGER, signal INTEGER,
        stop_cause TEXT, stop_evidence TEXT, stop_at INTEGER, stop_grace_seconds REAL,
        gpus TEXT, cpu_ids TEXT, numa_nodes TEXT, held_until INTEGER, endpoint TEXT, boot_id TEXT,
        enforcement TEXT, limits TEXT, not_enforced TEXT, warnings TEXT, placement TEXT,
        usage TEXT, usd_per_hour TEXT, cost TEXT, left_behind TEXT,
        log_bytes INTEGER, log_dropped_lines INTEGER, notes TEXT,
        CHECK ((state = 'ended') = (ended_at IS NOT NULL)));
    CREATE INDEX job_unended ON job (place) WHERE state <> 'ended';
    CREATE INDEX job_ended ON job (ended_at, place) WHERE state = 'ended';
    CREATE INDEX job_of_array ON job (array, array_index, state) WHERE array IS NOT NULL;
    CREATE INDEX job_of_spec ON job (spec);
    CREATE TABLE attempt (
        job TEXT NOT NULL, number INTEGER NOT NULL, gpus TEXT, cpu_ids TEXT, numa_nodes TEXT, boot_id TEXT,
        begun_at INTEGER NOT NULL, started_at INTEGER, ended_at INTEGER,
        cause TEXT, evidence TEXT, exit_code INTEGER, signal INTEGER, usage TEXT, cost TEXT,
        PRIMARY KEY (job, number)) WITHOUT ROWID;
    """,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Column:
    """How one field is stored."""

    def __init__(self, kind: Any) -> None:
        parts = get_args(kind)
        self.kind = next(one for one in parts if one is not NoneType) if NoneType in parts else kind
        self.encode: Callable[[Any], Any] = _same
        self.decode: Callable[[Any], Any] = _same
        if self.kind is datetime:
            self.encode, self.decode = ms, utc
        elif self.kind is Decimal:
            self.encode, self.decode = str, Decimal
        elif self.kind not in (str, int, float) and get_origin(self.kind) is not Literal:
            self.encode = _json
            self.decode = msgspec.json.Decoder(self.kind).decode


def _same(value: Any) -> Any:
    return value


def _json(value: Any) -> str | None:
    """None for what is empty: the default of the field."""
    return msgspec.json.encode(value).decode() if value not in ((), {}) else None


def ms(at: datetime) -> int:
    return (at - _EPOCH) // _MILLISECOND


def utc(at: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=at)


def _columns(kind: type[msgspec.Struct]) -> dict[str, Column]:
    hints = get_type_hints(kind)
    return {name: Column(hints[name]) for name in kind.__struct_fields__ if name != "spec"}


JOB = _columns(JobRow)
ATTEMPT = _columns(AttemptRow)


def connect(path: str, *, durable: bool) -> sqlite3.Connection:
    """The open file, whole and of this version. Raises what `StateDb.connect` does."""
    connection = QUEUE.connect(path, durable=durable)
    try:
        with QUEUE.translated(path):
            connection.execute("SELECT count(*) FROM (SELECT 1 FROM job, spec, attempt LIMIT 1)")  # "no such table" is found here
    except BaseException:
        connection.close()
        raise
    return connection


def _whole(connection: sqlite3.Connection, path: str) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged(path, found)


def damaged(path: str, detail: object) -> StateDirectoryError:
    return StateDirectoryError(
        f"{path} is damaged ({' '.join(str(detail).split())}); stop the agent and put a copy of it back, or move it away to begin "
        "with an empty queue: jobs that still run are then killed when the agent starts, as nobody knows them any more"
    )


QUEUE = StateDb(MIGRATIONS, damaged, constraint=damaged, check=_whole, flags=os.O_NOFOLLOW)
