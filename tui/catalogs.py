"""The catalog that the commands and the app price by: what ships, and over it what `prices refresh` brought.

Invariant: a price book that cannot be used takes nothing away; the prices that ship serve, and the reason is told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pricing.catalog import Catalog

BOOK = "prices.db"


def overlaid(path: Path | None, complain: Callable[[str], None] = lambda sentence: None) -> Catalog:
    """The catalog over the price book at `path`, as far as there is one."""
    from pricing.catalog import Catalog

    shipped = Catalog.embedded()
    if path is None or not path.is_file():
        return shipped
    from pricing.errors import PriceBookError
    from pricing.pricebook import Shelf

    try:
        return shipped.with_book(Shelf(path))
    except PriceBookError as fault:
        complain(f"{fault} Until then the prices that ship with the program count.")
        return shipped


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
