"""The tables of `queue.db`, how a field becomes a column, and what is said of a file that cannot be used.

Invariant: `PRAGMA user_version` counts the steps of MIGRATIONS that a file has; a file with more is left alone.

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

from agent.errors import StateDirectoryError, StateFull, StateLocked, StateTooNew
from agent.jobs.rows import AttemptRow, JobRow

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
    """The open file, whole and of this version. Raises what `translate` makes of its faults, StateTooNew."""
    connection: sqlite3.Connection | None = None
    try:
        if path != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, timeout=2.0, isolation_level=None, check_same_thread=False)
        _prepare(connection, path, durable)
        return connection
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, OSError):
            raise StateDirectoryError(
                f"{path} cannot be opened: {error.strerror}; give the agent a folder it may write to"
            ) from error
        if isinstance(error, sqlite3.Error):
            raise translate(error, path) from error
        raise


def _prepare(connection: sqlite3.Connection, path: str, durable: bool) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StateTooNew(
            f"{path} was written by a newer version of the agent (format {version}, this one knows {len(MIGRATIONS)}); "
            "install that version again, or start with another state directory"
        )
    connection.execute("PRAGMA journal_mode = WAL")
    synchronous(connection, durable)
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged(path, found)
    if version < len(MIGRATIONS):
        _migrate(connection)
    connection.execute("SELECT count(*) FROM (SELECT 1 FROM job, spec, attempt LIMIT 1)")  # "no such table" is found here


def _migrate(connection: sqlite3.Connection) -> None:
    """All missing steps in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for statement in ";".join(MIGRATIONS[version:]).split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.execute("COMMIT")


def synchronous(connection: sqlite3.Connection, durable: bool) -> None:
    """Whether the next transactions end with an fsync of the log."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")


def damaged(path: str, detail: object) -> StateDirectoryError:
    return StateDirectoryError(
        f"{path} is damaged ({' '.join(str(detail).split())}); stop the agent and put a copy of it back, or move it away to begin "
        "with an empty queue: jobs that still run are then killed when the agent starts, as nobody knows them any more"
    )


_SENTENCES: dict[int, Callable[[str, str], StateDirectoryError]] = {
    sqlite3.SQLITE_FULL: lambda path, _: StateFull(f"no space is left to write {path}; free some on that file system"),
    sqlite3.SQLITE_CORRUPT: damaged,
    sqlite3.SQLITE_NOTADB: damaged,
    sqlite3.SQLITE_CONSTRAINT: damaged,
    sqlite3.SQLITE_BUSY: lambda path, _: StateLocked(f"{path} is locked by another program; end it, or wait until it lets go"),
}


def translate(error: sqlite3.Error, path: str) -> StateDirectoryError:
    """The sentence for what SQLite says about `path`."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    sentence = _SENTENCES.get(code)
    if sentence is not None:
        return sentence(path, str(error))
    if code == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return damaged(path, error)
    return StateDirectoryError(f"{path} cannot be used: {error}; check the disk and the rights on its folder")
