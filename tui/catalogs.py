"""The catalog that the commands and the app price by: what ships, and over it what `prices refresh` brought.

Invariant: a price book that cannot be used takes nothing away; the prices that ship serve, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pricing.catalog import Catalog

BOOK = "prices.db"
SHIPPED = "shipped-prices"


def overlaid(path: Path | None, complain: Callable[[str], None] = lambda sentence: None, as_of: datetime | None = None) -> Catalog:
    """The catalog over the price book at `path`, as far as there is one; `as_of`: with the prices in force then."""
    shipped = _shipped(path)
    if path is None or not path.is_file():
        return shipped
    from pricing.errors import PriceBookError
    from pricing.pricebook import Shelf

    try:
        return shipped.with_book(Shelf(path), as_of)
    except PriceBookError as fault:
        complain(f"{fault} Until then the prices that ship with the program count.")
        return shipped


def changed_after(path: Path | None, at: datetime) -> bool:
    """Whether the price book has seen prices since."""
    if path is None or not path.is_file():
        return False
    from pricing.errors import PriceBookError
    from pricing.pricebook import Shelf

    try:
        newest = Shelf(path).newest()
    except PriceBookError:
        return False
    return newest is not None and newest > at


def _shipped(path: Path | None) -> Catalog:
    """What ships with this program; in a recording of another version's fleet, what shipped with that."""
    from pricing.catalog import Catalog

    other = None if path is None else path.with_name(SHIPPED)
    return Catalog(other) if other is not None and other.is_dir() else Catalog.embedded()


def stamp(path: Path | None) -> tuple[tuple[int, int] | None, ...]:
    """What changes when a price book is written: time and size of its file and of SQLite's log beside it."""
    if path is None:
        return ()
    return tuple(_stat(file) for file in (path, path.with_name(f"{path.name}-wal")))


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
