"""What SQLite says when something is wrong, as a sentence a person can act on.

Invariant: no `sqlite3` error leaves the ledger; each becomes a `LedgerError` that names the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from pricing.errors import LedgerDamaged, LedgerError, LedgerFull, LedgerLocked

_WRITE_FAULTS = frozenset(
    getattr(sqlite3, name, None)
    for name in ("SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE", "SQLITE_IOERR_SHMSIZE")
)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another program holds the lock."""
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_full(error: sqlite3.Error) -> bool:
    """Whether no space was left, or the file may not grow."""
    return _primary(error) == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", None) in _WRITE_FAULTS


@contextlib.contextmanager
def translated(path: str, timeout_seconds: float | None = None) -> Iterator[None]:
    """Errors of SQLite inside become those of the ledger."""
    try:
        yield
    except sqlite3.Error as error:
        raise _sentence(error, path, timeout_seconds) from error


def _primary(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _sentence(error: sqlite3.Error, path: str, timeout_seconds: float | None) -> LedgerError:
    code = _primary(error)
    if is_busy(error):
        waited = "" if timeout_seconds is None else f" for {timeout_seconds:g} s"
        return LedgerLocked(f"{path}: another program kept the ledger locked{waited}; nothing was changed. Try again.")
    if is_full(error):
        return LedgerFull(f"{path}: no space is left for the ledger; it is as it was. Free some space and try again.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return LedgerDamaged(
            f"{path}: this is not a ledger, or a damaged one ({error}); it was not changed. "
            "Restore a copy, or move it away and sync again: agents still keep their newer rows."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return LedgerError(f"{path}: the ledger cannot be opened for writing ({error}). Check the folder and its rights.")
    return LedgerError(f"{path}: the ledger cannot be used ({error}).")
