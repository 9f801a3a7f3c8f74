"""What SQLite says when the price book cannot be used, as a sentence a person can act on.

Invariant: no `sqlite3` error leaves the price book; each becomes a `PriceBookError` that names the file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from pricing.errors import PriceBookDamaged, PriceBookError, PriceBookFull, PriceBookLocked
from pricing.ledger_faults import is_busy, is_full


@contextlib.contextmanager
def translated(path: str, timeout_seconds: float | None = None) -> Iterator[None]:
    """Errors of SQLite inside become those of the price book."""
    try:
        yield
    except sqlite3.Error as error:
        raise _sentence(error, path, timeout_seconds) from error


def _sentence(error: sqlite3.Error, path: str, timeout_seconds: float | None) -> PriceBookError:
    code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
    if is_busy(error):
        waited = "" if timeout_seconds is None else f" for {timeout_seconds:g} s"
        return PriceBookLocked(f"{path}: another program kept the price book locked{waited}; nothing was changed. Try again.")
    if is_full(error):
        return PriceBookFull(f"{path}: no space is left for the price book; it is as it was. Free some space and try again.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return PriceBookDamaged(
            f"{path}: this is not a price book, or a damaged one ({error}); it was not changed. "
            "Restore a copy, or move it away and refresh again: until then the prices that ship with the program serve."
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return PriceBookError(
            f"{path}: the price book cannot be opened for writing ({error}). Check the folder and its rights."
        )
    return PriceBookError(f"{path}: the price book cannot be used ({error}).")
