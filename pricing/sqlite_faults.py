"""What SQLite says when a file of ours cannot be used, as a sentence a person can act on.

Invariant: no `sqlite3` error leaves `Faults.translated`; each becomes an error of that kind of file, and names it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from pricing.errors import PricingError

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


class Faults(NamedTuple):
    """How one kind of file is spoken of (`ledger`), its errors, and what helps when it is damaged."""

    name: str
    error: type[PricingError]
    locked: type[PricingError]
    full: type[PricingError]
    damaged: type[PricingError]
    remedy: str

    @contextlib.contextmanager
    def translated(self, path: str, timeout_seconds: float | None = None) -> Iterator[None]:
        """Errors of SQLite inside become those of this kind of file."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._sentence(error, path, timeout_seconds) from error

    def _sentence(self, error: sqlite3.Error, path: str, timeout_seconds: float | None) -> PricingError:
        name, code = self.name, _primary(error)
        if is_busy(error):
            waited = "" if timeout_seconds is None else f" for {timeout_seconds:g} s"
            return self.locked(f"{path}: another program kept the {name} locked{waited}; nothing was changed. Try again.")
        if is_full(error):
            return self.full(f"{path}: no space is left for the {name}; it is as it was. Free some space and try again.")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self.damaged(f"{path}: this is not a {name}, or a damaged one ({error}); it was not changed. {self.remedy}")
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return self.error(f"{path}: the {name} cannot be opened for writing ({error}). Check the folder and its rights.")
        return self.error(f"{path}: the {name} cannot be used ({error}).")


def _primary(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
