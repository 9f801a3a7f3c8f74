"""Of jobs without a GPU, the hours whose rows were rolled up: per UTC hour, placement, part and holder one sum.

Invariant: whole hours are as exact as their rows were. Where a range cuts such an hour, its sums are spread evenly over it,
so that parts of a tiling sum to the whole, and within each part what jobs hold and what is taken for it still sum to 0.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from pricing.ledger_merge import HOUR_MS, portion
from pricing.ledger_totals import Among

TABLES = (
    """CREATE TABLE cpu_hours (
        at INTEGER NOT NULL, placement_id INTEGER NOT NULL, part INTEGER NOT NULL, holder_id INTEGER NOT NULL,
        vcpu_ms INTEGER NOT NULL, memory_ms INTEGER NOT NULL, vcpu_s INTEGER NOT NULL, memory_s INTEGER NOT NULL,
        rows INTEGER NOT NULL, PRIMARY KEY (at, placement_id, part, holder_id)) WITHOUT ROWID""",
)
VCPU_S = "(ends_ms - starts_ms) * ABS(vcpus) / 1000"
MEMORY_S = "(ends_ms - starts_ms) * ABS(memory) / 1000"
"""Of a row: what the print of a closed month sums up. It rounds each row, so a sum of rows cannot be rounded anew."""


class CpuTotal(NamedTuple):
    """`vcpu_ms`: millionths of a vCPU x ms; `memory_ms`: MiB x ms. Below 0 for those from whom it is taken."""

    placement_id: int
    part: int
    holder_id: int
    vcpu_ms: int
    memory_ms: int


def roll_up(connection: sqlite3.Connection, chosen: str, values: Mapping[str, str]) -> None:
    """Makes sums of the rows whose `hour` is as `chosen` says; the caller holds the transaction."""
    connection.execute(
        "INSERT INTO cpu_hours SELECT hour, placement_id, part, holder_id, SUM((ends_ms - starts_ms) * vcpus),"
        f" SUM((ends_ms - starts_ms) * memory), SUM({VCPU_S}), SUM({MEMORY_S}), SUM(rows) FROM cpu_usage WHERE {chosen}"
        " GROUP BY hour, placement_id, part, holder_id ON CONFLICT DO UPDATE SET vcpu_ms = vcpu_ms + excluded.vcpu_ms,"
        " memory_ms = memory_ms + excluded.memory_ms, vcpu_s = vcpu_s + excluded.vcpu_s,"
        " memory_s = memory_s + excluded.memory_s, rows = rows + excluded.rows",
        values,
    )
    connection.execute(f"DELETE FROM cpu_usage WHERE {chosen}", values)


def whole(starts_ms: int, ends_ms: int) -> tuple[int, int]:
    """The UTC hours that lie in [starts_ms, ends_ms) as [first, end); none where first is not below end."""
    return -(-starts_ms // HOUR_MS), ends_ms // HOUR_MS


def totals(connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None) -> Iterator[CpuTotal]:
    """The sums of [starts_ms, ends_ms); those of one place may come several times."""
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    found = connection.execute(
        "SELECT placement_id, part, holder_id, SUM(vcpu_ms), SUM(memory_ms) FROM cpu_hours"
        f" WHERE at >= ? AND at < ?{where} GROUP BY placement_id, part, holder_id",
        (*whole(starts_ms, ends_ms), *ids),
    )
    yield from map(CpuTotal._make, found)
    yield from (total for _, total in cut_totals(connection, starts_ms, ends_ms, among))


def cut_totals(
    connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None
) -> Iterator[tuple[int, CpuTotal]]:
    """(hour, what of its sums falls into the range) of the hours, two at most, that it cuts."""
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    for hour in sorted({edge // HOUR_MS for edge in (starts_ms, ends_ms) if edge % HOUR_MS}):
        begin, end = hour * HOUR_MS, (hour + 1) * HOUR_MS
        cut = begin, end, max(begin, starts_ms), min(end, ends_ms)
        found = connection.execute(
            "SELECT placement_id, part, holder_id, vcpu_ms, memory_ms FROM cpu_hours"
            f" WHERE at = ?{where} ORDER BY placement_id, part, holder_id",
            (hour, *ids),
        )
        for _, placed in groupby(map(CpuTotal._make, found), key=itemgetter(0)):
            yield from ((hour, total) for total in _spread(placed, cut))


def _spread(of_placement: Iterator[CpuTotal], cut: tuple[int, int, int, int]) -> Iterator[CpuTotal]:
    """Each one's part is what the running sum grows by: what sums to 0 does so in every part of the hour."""
    vcpus = memory = given_vcpus = given_memory = 0
    for total in of_placement:
        vcpus, memory = vcpus + total.vcpu_ms, memory + total.memory_ms
        edge_vcpus, edge_memory = portion(vcpus, *cut), portion(memory, *cut)
        yield total._replace(vcpu_ms=edge_vcpus - given_vcpus, memory_ms=edge_memory - given_memory)
        given_vcpus, given_memory = edge_vcpus, edge_memory
