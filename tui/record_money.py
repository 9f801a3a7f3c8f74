"""The money in a recording: usage rows as they were taken from the agents, and the prices in force with their changes.

Invariant: the ledger of any moment is the one that the recording began with and the pages that were taken until then, so it
gives the report that was given then. No token and no password is kept.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from pricing.errors import LedgerError
from pricing.ledger import Ledger, Taken
from pricing.usage import Interruption, Placed, Usage
from tui.catalogs import BOOK, SHIPPED, stamp
from tui.record_file import PART_BYTES, RecordFile, faults

TERMS, OWNED, LEDGER = "terms.toml", "owned.toml", "ledger.db"
LEVEL = 9
FOLD_PAGES = 50_000


class Page(NamedTuple):
    """Arguments of `Ledger.take`; the rows are stored column by column."""

    columns: tuple[tuple, ...]  # type: ignore[type-arg]
    placements: tuple[Placed, ...]
    first_sequence: int
    last_sequence: int | None
    noticed_ms: int | None
    interruptions: tuple[Interruption, ...]


_pages: msgspec.msgpack.Decoder[Page] = msgspec.msgpack.Decoder(Page)
_STARTS, _ENDS = Usage._fields.index("starts_ms"), Usage._fields.index("ends_ms")


def pack_page(page: Page) -> bytes:
    """Starts as what they grow by, ends as lengths: mostly the same small numbers."""
    columns = list(page.columns)
    if columns:
        starts = columns[_STARTS]
        columns[_ENDS] = tuple(end - start for start, end in zip(starts, columns[_ENDS], strict=True))
        columns[_STARTS] = (starts[0], *(b - a for a, b in itertools.pairwise(starts)))
        columns[0] = (columns[0][0],)
    return zlib.compress(msgspec.msgpack.encode(page._replace(columns=tuple(columns))), LEVEL)


def unpack_page(body: bytes) -> Page:
    """As it was taken. msgspec.DecodeError or zlib.error: it is damaged."""
    page = _pages.decode(zlib.decompress(body))
    columns = [tuple(column) for column in page.columns]
    if columns:
        starts = columns[_STARTS] = tuple(itertools.accumulate(columns[_STARTS]))
        columns[_ENDS] = tuple(start + length for start, length in zip(starts, columns[_ENDS], strict=True))
        columns[0] = tuple(range(columns[0][0], columns[0][0] + len(starts)))
    return page._replace(columns=tuple(columns))


class PageKeeper:
    """Stands where `tui.sync` has a ledger: what it takes goes into the recording."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._cursors: dict[str, dict[str, int]] = {}
        self._interruptions: dict[tuple[str, str], int] = {}
        base = file.rows("SELECT value FROM meta WHERE key = 'cursors'")
        for node, meter, cursor in json.loads(base[0][0]) if base else ():
            self._cursors.setdefault(node, {})[meter] = cursor
        for node, meter, cursor in file.rows("SELECT node, meter, MAX(cursor) FROM pages GROUP BY 1, 2 ORDER BY MAX(id)"):
            known = self._cursors.setdefault(node, {})
            known.pop(meter, None)  # the one that was taken from last stands last
            known[meter] = cursor
        self.rows = 0

    def newest_meter(self, node: str) -> tuple[str, int] | None:
        """(meter, cursor) that the node was last seen with."""
        return next(reversed(self._cursors.get(node, {}).items()), None)

    def cursor(self, node: str, meter: str) -> int:
        """The newest sequence that was taken."""
        return self._cursors.get(node, {}).get(meter, 0)

    def take(
        self, node: str, meter: str, rows: Sequence[Usage], placements: Sequence[Placed], first_sequence: int, *,
        last_sequence: int | None = None, noticed_at: datetime | None = None, interruptions: Sequence[Interruption] = (),
    ) -> Taken:  # fmt: skip
        """As `Ledger.take`; a page that brings nothing new is not kept."""
        before = self.cursor(node, meter)
        fresh = [row for row in rows if row.sequence > before]
        if fresh and (fresh[-1].sequence - fresh[0].sequence != len(fresh) - 1 or (fresh[0].sequence > before + 1 > first_sequence)):
            raise LedgerError(f"node {node}: rows of its page are missing; nothing of it was recorded.")
        cursor = fresh[-1].sequence if fresh else max(before, first_sequence - 1)
        told = hash(tuple(interruptions))
        if cursor != before or self._interruptions.get((node, meter), hash(())) != told:
            noticed = None if noticed_at is None else round(noticed_at.timestamp() * 1000)
            page = Page(tuple(zip(*fresh, strict=True)), tuple(placements), first_sequence, last_sequence, noticed, tuple(interruptions))
            self._keep(node, meter, cursor, page, noticed or 0)
            self._interruptions[node, meter] = told
        self._cursors.setdefault(node, {})[meter] = cursor
        self.rows += len(fresh)
        return Taken(len(fresh), len(rows) - len(fresh), cursor - before - len(fresh))

    def _keep(self, node: str, meter: str, cursor: int, page: Page, at_ms: int) -> None:
        with self._file.writing() as connection:
            connection.execute(
                "INSERT INTO pages (at_ms, node, meter, cursor, body) VALUES (?, ?, ?, ?, ?)",
                (at_ms, node, meter, cursor, pack_page(page)),
            )


class Prices:
    """Keeps the files that prices come from, whenever they change."""

    def __init__(self, file: RecordFile, prices: Path | None, terms: Path | None) -> None:
        self._file = file
        self._prices = prices
        self._terms = terms
        self._seen: object = None

    def look(self, at_ms: int) -> bool:
        """Keeps what has changed since the last look; True if anything did."""
        owned = None if self._terms is None else self._terms.with_name(OWNED)
        seen = (stamp(self._prices), stamp(self._terms), stamp(owned))
        if seen == self._seen:
            return False
        kept = False
        with contextlib.ExitStack() as stack:
            book = None if self._prices is None or not self._prices.is_file() else stack.enter_context(copied(self._prices))
            with self._file.writing() as connection:
                for name, path in ((BOOK, book), (TERMS, self._terms), (OWNED, owned)):
                    pieces = _pieces_of(path) if path is not None and path.is_file() else None
                    kept |= self._file.keep(connection, name, at_ms, pieces)
        self._seen = seen
        return kept

    def keep_shipped(self, at_ms: int) -> None:
        """The prices that ship with this program: another version may ship others."""
        with self._file.writing() as connection:
            self._file.keep(connection, SHIPPED, at_ms, [shipped_archive()])


def shipped_archive() -> bytes:
    """The tables that ship, by name, in one piece."""
    from pricing.catalog import SNAPSHOT

    return msgspec.msgpack.encode({file.name: file.read_bytes() for file in sorted(SNAPSHOT.glob("*.csv"))})


def keep_ledger(file: RecordFile, path: Path, at_ms: int, *, anew: bool = False) -> bool:
    """Keeps a ledger as what the recording begins with, unless it has one. True if it was kept now."""
    if not path.is_file() or (not anew and file.rows("SELECT 1 FROM files WHERE name = ? LIMIT 1", (LEDGER,))):
        return False
    with copied(path) as copy, file.writing() as connection:
        if anew:
            connection.execute("DELETE FROM files WHERE name = ?", (LEDGER,))
        file.keep(connection, LEDGER, at_ms, _pieces_of(copy))
        with contextlib.closing(sqlite3.connect(copy)) as ledger:
            cursors = ledger.execute(
                "SELECT nodes.name, meters.name, cursor FROM meters JOIN nodes ON nodes.id = node_id ORDER BY ends_ms, meters.id"
            ).fetchall()
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('cursors', ?)", (json.dumps(cursors),))
    return True


@contextlib.contextmanager
def copied(path: Path) -> Iterator[Path]:
    """A copy of an SQLite file as it is at this moment, whoever writes to it."""
    with tempfile.TemporaryDirectory(prefix="rackrate-record-") as folder:
        copy = Path(folder) / path.name
        with faults(str(path)), contextlib.closing(sqlite3.connect(path, timeout=10.0)) as source, contextlib.closing(
            sqlite3.connect(copy)
        ) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        yield copy


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while piece := stream.read(PART_BYTES):
            yield piece


# -- the money of a moment --------------------------------------------------------------------------------------------------


def put_files(file: RecordFile, at_ms: int, folder: Path) -> None:
    """The prices, terms and commitments of a moment, in a folder."""
    for name in (BOOK, TERMS, OWNED):
        _put(file, name, at_ms, folder / name)
    shipped = file.kept(SHIPPED, at_ms)
    archive = None if shipped is None else b"".join(shipped)
    if archive is not None and archive != shipped_archive():
        (folder / SHIPPED).mkdir(exist_ok=True)
        for name, content in msgspec.msgpack.decode(archive, type=dict[str, bytes]).items():
            (folder / SHIPPED / Path(name).name).write_bytes(content)


def _put(file: RecordFile, name: str, at_ms: int, target: Path) -> bool:
    pieces = file.kept(name, at_ms)
    target.unlink(missing_ok=True)
    if pieces is None:
        return False
    with target.open("wb") as stream:
        stream.writelines(pieces)
    return True


def put_ledger(file: RecordFile, at_ms: int, path: Path) -> None:
    """The ledger of a moment, made anew."""
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink(missing_ok=True)
    _put(file, LEDGER, at_ms, path)
    bring_forward(file, path, -1, at_ms)


def bring_forward(file: RecordFile, path: Path, from_ms: int, until_ms: int) -> int:
    """Takes the pages of (from, until] into a ledger; returns how many. Damaged ones are left out."""
    pages = file.rows("SELECT id FROM pages WHERE at_ms > ? AND at_ms <= ? ORDER BY id", (from_ms, until_ms))
    with Ledger.open(path) as ledger:
        for (ident,) in pages:
            for node, meter, body in file.rows("SELECT node, meter, body FROM pages WHERE id = ?", (ident,)):
                with contextlib.suppress(zlib.error, msgspec.DecodeError, ValueError, LedgerError):
                    _take(ledger, node, meter, unpack_page(body))
    return len(pages)


def _take(ledger: Ledger, node: str, meter: str, page: Page) -> None:
    from datetime import UTC

    noticed = None if page.noticed_ms is None else datetime.fromtimestamp(page.noticed_ms / 1000, UTC)
    rows = [Usage(*row) for row in zip(*page.columns, strict=True)]
    ledger.take(
        node, meter, rows, page.placements, page.first_sequence, last_sequence=page.last_sequence, noticed_at=noticed,
        interruptions=page.interruptions,
    )  # fmt: skip


def fold(file: RecordFile, before_ms: int, *, least: int = FOLD_PAGES) -> bool:
    """Pages of before a moment become part of the ledger that the recording begins with, where there are many."""
    count = file.rows("SELECT COUNT(*) FROM pages WHERE at_ms < ?", (before_ms,))[0][0]
    if count < least:
        return False
    with tempfile.TemporaryDirectory(prefix="rackrate-record-") as folder:
        path = Path(folder) / LEDGER
        put_ledger(file, before_ms - 1, path)
        keep_ledger(file, path, before_ms, anew=True)
    with file.writing() as connection:
        connection.execute("DELETE FROM pages WHERE at_ms < ?", (before_ms,))
        _sweep(connection)
    return True


def _sweep(connection: sqlite3.Connection) -> None:
    """Drops parts that no file has any more."""
    used: set[bytes] = set()
    for (hashes,) in connection.execute("SELECT parts FROM files WHERE parts IS NOT NULL"):
        used.update(hashes[place : place + 16] for place in range(0, len(hashes), 16))
    gone = [(name,) for (name,) in connection.execute("SELECT hash FROM parts") if name not in used]
    connection.executemany("DELETE FROM parts WHERE hash = ?", gone)
