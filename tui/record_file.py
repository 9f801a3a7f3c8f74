"""The file of a recording: one SQLite file with what a fleet did, compressed, and with the money it was priced by.

Invariant: what was committed stays readable: a kill or a full disk loses at most what was not yet written. One program at
a time writes to a file; others may read it meanwhile. A file of a newer format is refused, a damaged one is read as far
as it goes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from pricing.sqlite_file import SqliteFile, identity
from tui.errors import Failed

FORMAT = 1
APPLICATION_ID = 0x5252_5631
"""`RRV1` in the file's header: tells a recording from any other SQLite file."""
HEADER_BYTES = 100
MOST_SENTENCES = 100
PART_BYTES = 1 << 16
"""Files that are kept are cut into parts of this size; a part that was there before is not kept twice."""

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE sessions (from_ms INTEGER PRIMARY KEY, until_ms INTEGER NOT NULL, about BLOB NOT NULL)",
    "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, url TEXT NOT NULL, tags TEXT NOT NULL)",
    """CREATE TABLE chunks (
        segment_ms INTEGER NOT NULL, number INTEGER NOT NULL, until_ms INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (segment_ms, number)) WITHOUT ROWID""",
    """CREATE TABLE events (
        node_id INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL, at_ms INTEGER NOT NULL, body BLOB,
        PRIMARY KEY (node_id, kind, key, at_ms)) WITHOUT ROWID""",
    "CREATE INDEX events_at ON events (at_ms)",
    """CREATE TABLE pages (
        id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, node TEXT NOT NULL, meter TEXT NOT NULL, cursor INTEGER NOT NULL,
        body BLOB NOT NULL)""",
    """CREATE TABLE files (
        name TEXT NOT NULL, at_ms INTEGER NOT NULL, parts BLOB, PRIMARY KEY (name, at_ms)) WITHOUT ROWID""",
    "CREATE TABLE parts (hash BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
)


class Change(NamedTuple):
    """Something that happened to a node: `body` is the message as JSON, None: it is no more."""

    node_id: int
    kind: str
    """`info`, `alert`, `job` (one that ended), `notice`, `error`."""
    key: str
    at_ms: int
    body: bytes | None


class Chunk(NamedTuple):
    """A piece of the deflated stream of a segment; number 0 begins it."""

    segment_ms: int
    number: int
    until_ms: int
    body: bytes


class RecordFile(SqliteFile):
    """Use `write` or `read`; close it, or use it as a context manager. Safe to use from several threads."""

    def __init__(self, connection: sqlite3.Connection, path: str, held: int | None = None) -> None:
        super().__init__(connection, path)
        self._held = held
        """A handle whose lock keeps other writers away."""
        self.damage: list[str] = []
        """Sentences: what could not be read, each once."""

    def tell(self, damage: str) -> None:
        """Adds a sentence to what could not be read."""
        if damage not in self.damage and len(self.damage) < MOST_SENTENCES:
            self.damage.append(damage)

    @classmethod
    def write(cls, path: str | Path) -> Self:
        """Opens a recording to go on with it, or makes one. Failed: somebody else writes it, or it is something else."""
        lock = _locked(str(path))
        try:
            with faults(str(path)):
                connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
                try:
                    _prepare(connection, str(path))
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            os.close(lock)
            raise
        return cls(connection, os.fspath(path), lock)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Opens a recording that is only looked at. Failed: there is none, or it cannot be read at all."""
        if not Path(path).is_file():
            raise Failed(f"{path}: there is no such file. `rackrate record FILE` makes one.")
        if not Path(path).stat().st_size:
            raise Failed(f"{path}: this file is empty: it is no recording.")
        _take_back(Path(path))
        with faults(str(path)):
            connection = sqlite3.connect(
                f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0
            )
            try:
                found = _format(connection, str(path))
                if found != FORMAT:
                    raise Failed(f"{path}: nothing was recorded in this file yet.")
            except BaseException:
                connection.close()
                raise
        return cls(connection, os.fspath(path))

    @classmethod
    def scratch(cls) -> Self:
        """One in a temporary file of its own that is gone when it is closed."""
        connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        _make(connection)
        return cls(connection, "the recording of the last minutes")

    @staticmethod
    def translated(path: str) -> contextlib.AbstractContextManager[None]:
        """Failed: the disk is full, the file is damaged, somebody else holds it."""
        return faults(path)

    def close(self) -> None:
        """Closes the file, then lets others write to it."""
        with self._lock:
            super().close()
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """All rows of an answer; of a damaged file those before the damage."""
        found: list[tuple[Any, ...]] = []
        with self._lock:
            try:
                for row in self._connection.execute(query, values):
                    found.append(row)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise Failed(f"{self.path}: the recording cannot be read ({error}).") from None
                self.tell(f"{self.path}: a part of this file cannot be read ({error}).")
        return found

    @property
    def size_bytes(self) -> int:
        """What the pages take."""
        with self.reading() as connection:
            count, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
            )
        return (count - free) * size

    # -- whole files that are kept with it --------------------------------------------------------------------------

    def keep(self, connection: sqlite3.Connection, name: str, at_ms: int, pieces: Iterable[bytes] | None) -> bool:
        """Keeps a file as it is from `at_ms` on (None: there is none), within a transaction. False: it is as it was."""
        hashes: bytes | None = None
        if pieces is not None:
            hashes = b"".join([_keep_part(connection, piece) for piece in pieces])
        before = connection.execute("SELECT parts FROM files WHERE name = ? ORDER BY at_ms DESC LIMIT 1", (name,)).fetchone()
        if before is not None and before[0] == hashes:
            return False
        connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (name, at_ms, hashes))
        return True

    def kept(self, name: str, at_ms: int) -> Iterator[bytes] | None:
        """The pieces of a file as it was at a moment (before the first: as it was first); None: there was none."""
        query = "SELECT parts FROM files WHERE name = ? AND at_ms {} ORDER BY at_ms {} LIMIT 1"
        found = self.rows(query.format("<= ?", "DESC"), (name, at_ms)) or self.rows(query.format("> ?", "ASC"), (name, at_ms))
        return None if not found or found[0][0] is None else self._pieces(found[0][0])

    def _pieces(self, hashes: bytes) -> Iterator[bytes]:
        for place in range(0, len(hashes), 16):
            row = self.rows("SELECT body FROM parts WHERE hash = ?", (hashes[place : place + 16],))
            if not row:
                raise Failed(f"{self.path}: a part of what it keeps is missing: the file is damaged.")
            try:
                yield zlib.decompress(row[0][0])
            except zlib.error as error:
                raise Failed(f"{self.path}: a part of what it keeps is damaged ({error}).") from None


def _keep_part(connection: sqlite3.Connection, piece: bytes) -> bytes:
    name = hashlib.blake2b(piece, digest_size=16).digest()
    if connection.execute("SELECT 1 FROM parts WHERE hash = ?", (name,)).fetchone() is None:
        connection.execute("INSERT INTO parts VALUES (?, ?)", (name, zlib.compress(piece, 6)))
    return name


def _locked(path: str) -> int:
    """A handle that holds the file for this program alone."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise Failed(f"{path}: cannot be written ({error.strerror}).") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Failed(f"{path}: another program records into this file. End it first, or name another file.") from None
    return handle


def _take_back(path: Path) -> None:
    """What a recorder that was killed had half written is undone: a file that is only read cannot be put right."""
    if not Path(f"{path}-journal").exists():
        return
    with path.open("rb") as file:
        if file.read(HEADER_BYTES)[68:72] != APPLICATION_ID.to_bytes(4):
            return
    with contextlib.suppress(sqlite3.Error):  # whoever may not write is told when it is read
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=10.0)
        try:
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    if _format(connection, path) == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        _make(connection)
    connection.execute("PRAGMA synchronous = NORMAL")


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute("INSERT INTO meta VALUES ('written_by', ?)", (program(),))
    connection.execute("COMMIT")


def _format(connection: sqlite3.Connection, path: str) -> int:
    version, application, tables = identity(connection)
    if application != APPLICATION_ID and (version or application or tables):
        raise Failed(f"{path}: this is another program's file, not a recording; it was not touched. Name another file.")
    if version > FORMAT:
        writer = connection.execute("SELECT value FROM meta WHERE key = 'written_by'").fetchone()
        raise Failed(
            f"{path}: this recording was written by {writer[0] if writer else 'a newer rackrate'} (format {version}); this is "
            f"{program()}, which reads up to format {FORMAT}. Upgrade rackrate; nothing was changed."
        )
    return version


def program() -> str:
    """`rackrate 0.1.0`."""
    from tui import __version__

    return f"rackrate {__version__}"


@contextlib.contextmanager
def faults(path: str) -> Iterator[None]:
    """SQLite's errors as sentences."""
    from pricing.sqlite_faults import is_busy, is_full

    try:
        yield
    except sqlite3.Error as error:
        if is_full(error):
            raise Failed(f"{path}: the disk is full. What was recorded until now is whole; free some space.") from None
        if is_busy(error):
            raise Failed(f"{path}: another program holds this file; try again when it is done.") from None
        if "readonly" in str(error):
            raise Failed(
                f"{path}: its recorder was killed in the middle of a write, which can be taken back only by somebody who may"
                f" write to {path} and its folder. Open it as that user, or copy it with {Path(path).name}-journal."
            ) from None
        if _is_damage(error):
            raise Failed(f"{path}: this is no recording, or it is damaged ({error}).") from None
        raise Failed(f"{path}: the recording cannot be used ({error}).") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: a part of the recording is damaged ({error}).") from None


def _is_damage(error: sqlite3.Error) -> bool:
    return any(word in str(error) for word in ("malformed", "not a database", "corrupt", "no such table"))
