"""Copies a ledger while others use it, and gives back the room that deleted rows left.

Invariant: a backup's file is there whole or not at all: it is written beside under another name, checked, flushed to the
disk and then renamed, so a fault or a kill leaves the backup of before. The ledger itself is only read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pricing.errors import LedgerDamaged, LedgerError, LedgerFull
from pricing.ledger import Ledger
from pricing.ledger_state import files, size_bytes
from pricing.leftovers import sweep
from pricing.sqlite_faults import is_full

PAGES = 4096
"""As many are copied between two words about progress."""
_COUNTS = "SELECT (SELECT COUNT(*) FROM usage), (SELECT COUNT(*) FROM hours), (SELECT COUNT(*) FROM days)"


class BackedUp(NamedTuple):
    """`rows` in detail, and the size of the file that was written."""

    rows: int
    size_bytes: int


class Vacuumed(NamedTuple):
    """Size on the disk. `in_use`: others were reading, so the file shrinks when they are done."""

    before_bytes: int
    after_bytes: int
    in_use: bool


def backup(
    ledger: Ledger, target: Path, *, force: bool = False, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> BackedUp:
    """Writes the ledger, as it is at this moment, to `target`; `on_progress` gets bytes done and in all.

    LedgerError where `target` exists (`force` replaces it), is in use or cannot be written; LedgerDamaged where the copy
    is not whole; LedgerFull. In each case `target` is as it was.
    """
    _refuse(ledger.path, target, force)
    with ledger.reading() as source:
        counts = source.execute(_COUNTS).fetchone()  # the moment of the copy: from here on others may write
        page, pages = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
        _refuse_full(target, page * pages)
        with _partial(target) as partial:
            with _faults(target):
                connection = sqlite3.connect(partial, isolation_level=None)
            with contextlib.closing(connection):
                with _faults(target):
                    source.backup(
                        connection,
                        pages=PAGES,
                        progress=lambda _, left, total: on_progress((total - left) * page, total * page),
                    )
                    connection.execute("PRAGMA journal_mode = DELETE")  # one file, that also a read-only folder can hold
                _check(connection, ledger.path, counts)
            return BackedUp(counts[0], _put(partial, target, force))


def _refuse(path: str, target: Path, force: bool) -> None:
    for name in files(os.path.abspath(path)):
        if os.path.abspath(target) == name or (target.exists() and os.path.exists(name) and os.path.samefile(target, name)):
            raise LedgerError(f"{target}: this is the ledger itself. Name another file for its backup.")
    if target.is_dir():
        raise LedgerError(f"{target}: this is a folder. Name a file in it, like {target / 'ledger-backup.db'}.")
    if not target.parent.is_dir():
        raise LedgerError(f"{target}: there is no folder {target.parent}. Make it first.")
    if target.exists() and not force:
        raise LedgerError(f"{target} exists and was not touched. Name another file, or use --force to replace it.")
    beside = f"{target}-wal"
    if os.path.exists(beside):
        raise LedgerError(f"{target} is in use as a ledger ({beside} exists) and was not touched. Name another file.")


def _refuse_full(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise LedgerFull(
            f"{target}: the backup needs {_megabytes(needed)}, and {_megabytes(free)} are free there. Free some space, or "
            "name a file on another disk."
        )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@contextlib.contextmanager
def _partial(target: Path) -> Iterator[str]:
    """A file beside the target that is gone afterwards, whatever happens."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
    except OSError as error:
        raise LedgerError(f"{target}: the backup cannot be written ({error.strerror}).") from error
    os.close(handle)
    sweep(target, name, ".partial")
    try:
        yield name
    finally:
        for path in files(name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextlib.contextmanager
def _faults(target: Path) -> Iterator[None]:
    """What goes wrong with the copy, not with the ledger."""
    try:
        yield
    except sqlite3.Error as error:
        if is_full(error):
            raise LedgerFull(f"{target}: no space is left for the backup; nothing of it was kept.") from error
        raise


def _check(connection: sqlite3.Connection, path: str, counts: tuple[int, ...]) -> None:
    damage = [text for (text,) in connection.execute("PRAGMA integrity_check(3)") if text != "ok"]
    if not damage and connection.execute(_COUNTS).fetchone() != counts:
        damage = ["it has not all rows"]
    if damage:
        raise LedgerDamaged(
            f"{path}: the copy is damaged ({damage[0].splitlines()[-1]}), so no backup was written. "
            "`rackrate ledger check` tells more; keep the backups that you have."
        )


def _put(partial: str, target: Path, force: bool) -> int:
    """Makes the finished copy durable, and gives it its name."""
    try:
        _flush(partial)
        size = os.stat(partial).st_size
        if force:
            os.replace(partial, target)
        else:
            _name(partial, target)
        _flush(target.parent)
    except FileExistsError:
        raise LedgerError(f"{target} was made by another program meanwhile and was not touched. Name another file.") from None
    except OSError as error:
        raise LedgerError(f"{target}: the backup cannot be written ({error.strerror}).") from error
    return size


def _name(partial: str, target: Path) -> None:
    """Never replaces a file that has come since it was looked for (where the file system has links)."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        os.replace(partial, target)


def _flush(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def vacuum(ledger: Ledger) -> Vacuumed:
    """Writes the ledger anew without the room of deleted rows. LedgerFull when the disk has not the space for it;
    LedgerLocked when another program writes all the time. The ledger is whole in any case."""
    with ledger.alone() as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = size_bytes(ledger.path)
        needed = space_needed(connection)
        free = shutil.disk_usage(Path(ledger.path).resolve().parent).free
        if free < needed:
            raise LedgerFull(
                f"{ledger.path}: vacuum writes the ledger anew and needs {_megabytes(needed)} beside it (and as much in the "
                f"folder for temporary files); {_megabytes(free)} are free. Nothing was changed. Free some space."
            )
        connection.execute("VACUUM")
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return Vacuumed(before, size_bytes(ledger.path), bool(busy))


def space_needed(connection: sqlite3.Connection) -> int:
    """Bytes that vacuum writes beside the ledger."""
    pages, unused, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - unused) * size
