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
_SUMS = (
    f"SELECT at, placement_id, SUM(CASE kind WHEN {HOST} THEN share_ms ELSE 0 END),"
    f" SUM(CASE kind WHEN {HOST} THEN 0 ELSE share_ms END) FROM {{table}}"
)
_HOURS = _SUMS.format(table="hours") + " WHERE at >= ? AND at < ? GROUP BY 1, 2"
_FEW = (
    _SUMS.format(table="json_each(?) AS hour CROSS JOIN json_each(?) AS node CROSS JOIN hours")
    + " WHERE at = hour.value AND placement_id = node.value GROUP BY at, placement_id"
)


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
            return Demand(
                start_ms // HOUR_MS, np.zeros(0, dtype=bool), {}, {}, ("The ledger holds nothing of that time.",), True
            )
        return _Reader(connection, first, last).demand(gaps)


class _Reader:
    def __init__(self, connection: sqlite3.Connection, first: int, last: int) -> None:
        self._connection = connection
        self._first, self._last = first, last
        self._placements = read_placements(connection)
        most = max(self._placements, default=0) + 1
        self._pools: dict[tuple[DemandKey, str], int] = {}
        self._pool_of = np.full(most, -1)
        self._gpus_of = np.ones(most)
        for id, placed in self._placements.items():
            key = key_of(placed)
            self._gpus_of[id] = max(1, placed.gpu_count)
            if key is not None:
                self._pool_of[id] = self._pools.setdefault((key, purchase_of(placed)), len(self._pools))
        self._counts = np.zeros((len(self._pools), last - first))
        self._any = np.zeros(last - first, dtype=bool)
        self._untyped = np.zeros(most)

    def demand(self, gaps: Sequence[Lost]) -> Demand:
        self._read()
        notes = [*self._lost(gaps), *self._unknown_types()]
        known = self._any | ~self._in_gaps(gaps)
        counts: dict[DemandKey, np.ndarray] = {}
        bought: dict[DemandKey, dict[str, np.ndarray]] = {}
        for (key, purchase), pool in sorted(self._pools.items()):
            part = self._counts[pool]
            if part.any():
                counts[key] = counts[key] + part if key in counts else part.copy()
                bought.setdefault(key, {})[purchase] = part
        holes = gap_notes("the ledger", self._first, known)
        return Demand(self._first, known, counts, bought, (*notes, *holes), bool(notes or holes))

    def _read(self) -> None:
        """Full days from the sums per day; the hours of the others one by one."""
        first_day, last_day = -(-self._first // HOURS_PER_DAY), self._last // HOURS_PER_DAY
        if first_day >= last_day:
            self._add_hours(self._first, self._last)
            return
        self._add_hours(self._first, first_day * HOURS_PER_DAY)
        self._add_hours(last_day * HOURS_PER_DAY, self._last)
        days, ids, nodes = self._sums(
            f"{_SUMS.format(table='days')} WHERE at >= ? AND at < ? GROUP BY 1, 2", first_day, last_day
        )
        full = nodes == HOURS_PER_DAY
        for hour in range(HOURS_PER_DAY):
            self._add(days[full] * HOURS_PER_DAY + hour, ids[full], np.ones(int(full.sum())))
        partly, starts = np.unique(days[~full], return_index=True)  # the rows come by day
        for day, of_day in zip(partly, np.split(ids[~full], starts[1:]), strict=False):
            self._add_partly(int(day), of_day)

    def _add_partly(self, day: int, ids: np.ndarray) -> None:
        """The hours of nodes that did not run all day: looked up one by one where they are few."""
        first = day * HOURS_PER_DAY
        if len(ids) * 4 > len(self._placements):
            hours, found, nodes = self._sums(_HOURS, first, first + HOURS_PER_DAY)
            among = np.isin(found, ids)
            self._add(hours[among], found[among], nodes[among])
            return
        wanted = [json.dumps(part) for part in (list(range(first, first + HOURS_PER_DAY)), ids.tolist())]
        self._add(*self._sums(_FEW, *wanted))

    def _add_hours(self, first: int, last: int) -> None:
        if first < last:
            self._add(*self._sums(_HOURS, first, last))

    def _sums(self, query: str, *parameters: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(hour or day, placement, node-hours), three arrays."""
        rows = self._connection.execute(query, parameters).fetchall()
        at, ids, host, rest = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return at, ids, host / SHARE_MS_PER_HOUR + rest / (SHARE_MS_PER_HOUR * self._gpus_of[ids])

    def _add(self, hours: np.ndarray, ids: np.ndarray, nodes: np.ndarray) -> None:
        at, pools = hours - self._first, self._pool_of[ids]
        self._any[at] = True
        typed = pools >= 0
        np.add.at(self._counts, (pools[typed], at[typed]), nodes[typed])
        np.add.at(self._untyped, ids[~typed], 1)

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
        hours: dict[str, int] = {}
        for id in np.flatnonzero(self._untyped):
            placed = self._placements[int(id)]
            if placed.cloud != "on_premises":
                hours[placed.node] = hours.get(placed.node, 0) + int(self._untyped[id])
        return [
            f"node {node}: its cloud or instance type is not known; {count:,} h of it are in no advice."
            for node, count in sorted(hours.items())
        ]
