"""Which placements and holders a report cannot tell apart, so that SQL adds them up as one: of a thousand nodes, few.

Invariant: alike are placements that differ at most in their node, number and tags, where the group keys name none of
these and no node has a price of its own; and holders that the keys call the same. So all that stands for one number has
one label, one rate at any moment and one cost part. Where some moment has no price, each placement stands for itself.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Hashable, Iterator, Mapping

from pricing import grouping
from pricing.books import Books
from pricing.rates import Rates
from pricing.sqlite_file import temporary
from pricing.usage import Placed

FEW = 50
"""Fewer placements are not worth it."""
_FEW_HOLDERS = 64
_KINDS = 16
_GPU_DAYS = 36_500
"""In one sum: with all of them held that is a third of 2^63 millionths of milliseconds."""
_OWN = ("number", "node", "tags", "vcpus", "memory_bytes")
"""What makes no difference to the price of a placement."""


class Alike:
    """Both tables map an id to that of the one that stands for it; see `ledger_totals.Together`."""

    joins = (
        " CROSS JOIN temp.alike_placements ON alike_placements.id = placement_id"
        " CROSS JOIN temp.alike_holders ON alike_holders.id = holder_id"
    )

    def __init__(self, holders: int, days: int) -> None:
        self._holders = holders
        self.days = days
        self.number = f"(alike_placements.one * {_KINDS} + kind) * {holders} + alike_holders.one"

    def names(self, number: int) -> tuple[int, int, int]:
        """(placement, kind, holder) that stand for all that have this number."""
        rest, holder_id = divmod(number, self._holders)
        return (*divmod(rest, _KINDS), holder_id)


@contextlib.contextmanager
def alike(connection: sqlite3.Connection, books: Books) -> Iterator[Alike | None]:
    """What a report of these books may add up as one; None where that saves nothing. Within one transaction."""
    placements = _placements(books)
    holders = _merged({id: books.names(holder) for id, holder in books.rates.holders.items()})
    gpus = sum(max(1, placed.gpu_count) for placed in books.rates.placements.values())
    if len(placements) < FEW or gpus > _GPU_DAYS or not _worth(placements, holders):
        yield None
        return
    with temporary(connection, "alike_placements", placements), temporary(connection, "alike_holders", holders):
        yield Alike(max(holders, default=0) + 1, _GPU_DAYS // gpus)


def _worth(placements: Mapping[int, int], holders: Mapping[int, int]) -> bool:
    """Joining and sorting in SQL pays off where few numbers come out."""
    few = len(set(holders.values())) <= max(_FEW_HOLDERS, len(holders) // 4)
    return few and len(set(placements.values())) * 4 <= len(placements)


def _placements(books: Books) -> dict[int, int]:
    rates = books.rates
    return _merged({id: _kind(rates, books.keys, id, placed) for id, placed in rates.placements.items()})


def _kind(rates: Rates, keys: tuple[str, ...], id: int, placed: Placed) -> Hashable:
    if placed.node in rates.pricing.prices or not rates.always_priced(id):
        return id
    facts = tuple(value for name, value in zip(Placed._fields, placed, strict=True) if name not in _OWN)
    return facts, grouping.labels(keys, placed, "")


def _merged(kinds: Mapping[int, Hashable]) -> dict[int, int]:
    """Each id's first one of the same kind."""
    first: dict[Hashable, int] = {}
    return {id: first.setdefault(kind, id) for id, kind in kinds.items()}
