"""Demand from the ledger: node-hours per place, type and purchase option.

Invariant: as the reports count it: a node runs while its rows say so (also where nothing was measured), and a GPU row is its
part of the node. A node whose day is full ran in each of its hours, so the sums per day are enough for most of a year.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np

from pricing.demand import HOURS_PER_DAY, Demand, DemandKey, gap_notes
from pricing.ledger import Ledger
from pricing.ledger_dictionary import read_placements
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import extent
from pricing.lookup import region_key
from pricing.report import SHARE_MS_PER_HOUR
from pricing.usage import KINDS, Placed

HOST = KINDS.index("host")
Lost = tuple[str, int | None, int | None]
"""Node, and the moments (ms) between which its agent threw rows away before they were synced."""


def key_of(placed: Placed) -> DemandKey | None:
    """What a node counts as; None where its type is not known."""
    if placed.instance_type is None or placed.cloud is None:
        return None
    return DemandKey(placed.cloud.strip().lower(), region_key(placed.region or "unknown"), placed.instance_type.strip())


def purchase_of(placed: Placed) -> str:
    return (placed.purchase or "on_demand").strip().lower()


def from_ledger(ledger: Ledger, start_ms: int, end_ms: int) -> Demand:
    """The whole hours of [start_ms, end_ms) that the ledger holds. An empty ledger gives no hours."""
    gaps = [(gap.node, gap.after_ms, gap.before_ms) for gap in ledger.gaps()]
    with ledger.reading() as connection:
        held = extent(connection)
        first, last = -(-start_ms // HOUR_MS), end_ms // HOUR_MS
        if held is not None:
            first, last = max(first, held[0] // HOUR_MS), min(last, held[1] // HOUR_MS)
        if held is None or last <= first:
            return Demand(start_ms // HOUR_MS, np.zeros(0, dtype=bool), {}, {}, ("The ledger holds nothing of that time.",), True)
        return _Reader(connection, first, last).demand(gaps)


class _Reader:
    def __init__(self, connection: sqlite3.Connection, first: int, last: int) -> None:
        self._connection = connection
        self._first, self._last = first, last
        self._placements = read_placements(connection)
        self._counts: dict[tuple[DemandKey, str], np.ndarray] = {}
        self._any = np.zeros(last - first, dtype=bool)
        self._untyped: dict[str, int] = {}

    def demand(self, gaps: Sequence[Lost]) -> Demand:
        self._read()
        notes = [*self._lost(gaps), *self._unknown_types()]
        known = self._any | ~self._in_gaps(gaps)
        counts: dict[DemandKey, np.ndarray] = {}
        bought: dict[DemandKey, dict[str, np.ndarray]] = {}
        for (key, purchase), part in sorted(self._counts.items()):
            counts[key] = counts[key] + part if key in counts else part.copy()
            bought.setdefault(key, {})[purchase] = part
        holes = gap_notes("the ledger", self._first, known)
        return Demand(self._first, known, counts, bought, (*notes, *holes), bool(notes or holes))

    def _read(self) -> None:
        """Full days from the sums per day; the hours of the others one by one."""
        first_day, last_day = -(-self._first // HOURS_PER_DAY), self._last // HOURS_PER_DAY
        if first_day >= last_day:
            self._add_hours(self._first, self._last, None)
            return
        self._add_hours(self._first, first_day * HOURS_PER_DAY, None)
        self._add_hours(last_day * HOURS_PER_DAY, self._last, None)
        partly: dict[int, list[int]] = {}
        rows = self._connection.execute(
            "SELECT at, placement_id, SUM(CASE kind WHEN ? THEN share_ms ELSE 0 END), SUM(share_ms) FROM days"
            " WHERE at >= ? AND at < ? GROUP BY at, placement_id",
            (HOST, first_day, last_day),
        )
        for day, placement_id, host, all_ms in rows:
            nodes = self._nodes(placement_id, host, all_ms)
            if nodes == HOURS_PER_DAY:
                at = day * HOURS_PER_DAY - self._first
                self._add(placement_id, slice(at, at + HOURS_PER_DAY), 1.0)
            else:
                partly.setdefault(day, []).append(placement_id)
        for day, ids in partly.items():
            self._add_hours(day * HOURS_PER_DAY, (day + 1) * HOURS_PER_DAY, ids)

    def _add_hours(self, first: int, last: int, ids: list[int] | None) -> None:
        if first >= last:
            return
        among = "" if ids is None else " AND placement_id IN (SELECT value FROM json_each(?))"
        rows = self._connection.execute(
            "SELECT at, placement_id, SUM(CASE kind WHEN ? THEN share_ms ELSE 0 END), SUM(share_ms) FROM hours"
            f" WHERE at >= ? AND at < ?{among} GROUP BY at, placement_id",
            (HOST, first, last, *(() if ids is None else (json.dumps(ids),))),
        )
        for hour, placement_id, host, all_ms in rows:
            self._add(placement_id, slice(hour - self._first, hour - self._first + 1), self._nodes(placement_id, host, all_ms))

    def _nodes(self, placement_id: int, host: int, all_ms: int) -> float:
        """Node-hours of sums of shares."""
        gpus = self._placements[placement_id].gpu_count
        return host / SHARE_MS_PER_HOUR + (all_ms - host) / (SHARE_MS_PER_HOUR * max(1, gpus))

    def _add(self, placement_id: int, where: slice, nodes: float) -> None:
        placed = self._placements[placement_id]
        self._any[where] = True
        key = key_of(placed)
        if key is None:
            if placed.cloud != "on_premises":
                self._untyped[placed.node] = self._untyped.get(placed.node, 0) + (where.stop - where.start)
            return
        found = self._counts.get((key, purchase_of(placed)))
        if found is None:
            found = self._counts[key, purchase_of(placed)] = np.zeros(self._last - self._first)
        found[where] += nodes

    def _in_gaps(self, gaps: Sequence[Lost]) -> np.ndarray:
        """Hours within rows that an agent threw away: if nothing at all is known of them, they are unknown."""
        inside = np.zeros(self._last - self._first, dtype=bool)
        for _, after_ms, before_ms in gaps:
            begin = self._first if after_ms is None else max(self._first, after_ms // HOUR_MS)
            end = self._last if before_ms is None else min(self._last, -(-before_ms // HOUR_MS))
            inside[begin - self._first : max(begin, end) - self._first] = True
        return inside

    def _lost(self, gaps: Sequence[Lost]) -> list[str]:
        found: Mapping[str, int] = {}
        for node, after_ms, before_ms in gaps:
            begin = self._first if after_ms is None else after_ms // HOUR_MS
            end = self._last if before_ms is None else -(-before_ms // HOUR_MS)
            if begin < self._last and end > self._first:
                found = {**found, node: found.get(node, 0) + min(end, self._last) - max(begin, self._first)}
        return [
            f"node {node}: rows of up to {hours:,} h were thrown away before they were synced; it counts as not running then."
            for node, hours in sorted(found.items())
        ]

    def _unknown_types(self) -> list[str]:
        return [
            f"node {node}: its cloud or instance type is not known; {hours:,} h of it are in no advice."
            for node, hours in sorted(self._untyped.items())
        ]

