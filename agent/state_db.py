"""SQLite files of the state directory: opened, brought to the newest schema, and what is said of one that cannot be used.

Invariant: `PRAGMA user_version` counts the migrations that a file has, and they are applied in one transaction; a file with
more is left alone. No `sqlite3` error leaves `connect` or `translated`: each becomes a sentence that names the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from agent.errors import StateDirectoryError, StateFull, StateLocked, StateTooNew

Sentence = Callable[[str, object], StateDirectoryError]
"""(path, what SQLite says)"""


def _nothing(connection: sqlite3.Connection, path: str) -> None:
    pass


class StateDb(NamedTuple):
    """One kind of file."""

    migrations: tuple[str, ...]
    damaged: Sentence
    constraint: Sentence
    """What it means that a constraint does not hold."""
    check: Callable[[sqlite3.Connection, str], None] = _nothing
    """Called before the migrations; raises what `damaged` says."""
    flags: int = 0
    """More of `os.open`'s."""

    def connect(self, path: str, *, durable: bool) -> sqlite3.Connection:
        """The open file, in write-ahead mode. StateTooNew, StateFull, StateLocked, StateDirectoryError."""
        connection: sqlite3.Connection | None = None
        try:
            if path != ":memory:":
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | self.flags, 0o600))
            connection = sqlite3.connect(path, timeout=2.0, isolation_level=None, check_same_thread=False)
            self._prepare(connection, path, durable)
            return connection
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, OSError):
                raise StateDirectoryError(f"{path} cannot be opened: {error.strerror}; give the agent a folder it may write to") from error
            if isinstance(error, sqlite3.Error):
                raise self.translate(error, path) from error
            raise

    def translate(self, error: sqlite3.Error, path: str) -> StateDirectoryError:
        """The sentence for what SQLite says about `path`."""
        match (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                return StateFull(f"no space is left to write {path}; free some on that file system")
            case sqlite3.SQLITE_BUSY:
                return StateLocked(f"{path} is locked by another program; end it, or wait until it lets go")
            case sqlite3.SQLITE_CONSTRAINT:
                return self.constraint(path, error)
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return self.damaged(path, error)
            case sqlite3.SQLITE_ERROR if "no such" in str(error):
                return self.damaged(path, error)
        return StateDirectoryError(f"{path} cannot be used: {error}; check the disk and the rights on its folder")

    @contextmanager
    def translated(self, path: str) -> Iterator[None]:
        """Errors of SQLite inside become sentences."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.translate(error, path) from error

    def _prepare(self, connection: sqlite3.Connection, path: str, durable: bool) -> None:
        version, newest = connection.execute("PRAGMA user_version").fetchone()[0], len(self.migrations)
        if version > newest:
            raise StateTooNew(
                f"{path} was written by a newer version of the agent (format {version}, this one knows {newest}); "
                "install that version again, or start with another state directory"
            )
        connection.execute("PRAGMA journal_mode = WAL")
        synchronous(connection, durable)
        self.check(connection, path)
        if version < newest:
            self._migrate(connection)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """All missing steps in one transaction; another process may have been faster."""
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        for statement in ";".join(self.migrations[version:]).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(self.migrations)}")
        connection.execute("COMMIT")


def synchronous(connection: sqlite3.Connection, durable: bool) -> None:
    """Whether the next transactions end with an fsync of the log."""
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
