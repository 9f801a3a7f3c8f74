"""Whether the time of each GPU is tiled by its rows: at every moment one whole GPU, no overlap, no hole.

Invariant: only reads. SQL tells of each hour which GPUs one meter covered wholly and simply; whatever is otherwise is
walked row by row. So most of a large ledger never becomes a row of Python, and yet nothing is taken on trust.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from pricing.ledger_merge import HOUR_MS
from pricing.usage import WHOLE_SHARE

FAULTS = 20
"""As many are told of a kind; who reads more has a ledger to restore."""
# One row, or two that meet, of the whole GPU; or rows that all last the whole hour and share it.
_SIMPLE = (
    f"MIN(starts_ms) = :hour * {HOUR_MS} AND MAX(ends_ms) = (:hour + 1) * {HOUR_MS} AND MIN(ends_ms - starts_ms) > 0 AND"
    f" ((MIN(share) = {WHOLE_SHARE} AND MAX(share) = {WHOLE_SHARE}"
    " AND (COUNT(*) = 1 OR (COUNT(*) = 2 AND MAX(starts_ms) = MIN(ends_ms))))"
    f" OR (SUM(share) = {WHOLE_SHARE} AND MIN(share) >= 0"
    f" AND MAX(starts_ms) = :hour * {HOUR_MS} AND MIN(ends_ms) = (:hour + 1) * {HOUR_MS}))"
)


class _Row(NamedTuple):
    hour: int
    node: int
    gpu: int
    meter: int
    starts_ms: int
    ends_ms: int
    share: int


class Tiling:
    """Walks the rows hour by hour; remembers per meter and GPU how far its time is covered.

    Before the hour until which rows were rolled up, the rest of a moment may be there as sums only: there it looks only
    for too much.
    """

    def __init__(self, connection: sqlite3.Connection, rolled_until: int) -> None:
        """`rolled_until`: the hour before which rows were rolled up; 0 for never."""
        self._connection = connection
        self._rolled_until = rolled_until
        self._covered: dict[tuple[int, int], int] = {}
        self._until: dict[tuple[int, int], int] = {}
        self._text, self._simple, self._hour = "", set[str](), 0
        """What covered the hour that was looked at last wholly and simply, as `meter.gpu`: text and set."""
        self._found: list[str] = []
        self._node_of = dict(connection.execute("SELECT id, node_id FROM meters"))
        nodes = list(self._node_of.values())
        self._several = json.dumps([node for node in set(nodes) if nodes.count(node) > 1] if len(set(nodes)) < len(nodes) else [])
        self._unfinished, self._gappy = self._exceptions()
        for meter, node, gpu, ends_ms in connection.execute(
            "SELECT meter_id, node_id, gpu_id, rolled_gpus.ends_ms FROM rolled_gpus JOIN meters ON meters.id = meter_id"
        ):
            self._covered[meter, gpu] = ends_ms
            self._until[node, gpu] = max(ends_ms, self._until.get((node, gpu), ends_ms))

    def _exceptions(self) -> tuple[set[int], set[int]]:
        """Meters whose newest rows are still to come, and meters with a gap that explains a hole in time."""
        unfinished = self._connection.execute("SELECT id FROM meters WHERE agent_last IS NULL OR cursor < agent_last")
        gappy = self._connection.execute("SELECT DISTINCT meter_id FROM gaps")
        return {id for (id,) in unfinished}, {id for (id,) in gappy}

    def faults(self) -> list[str]:
        """At most twenty sentences."""
        return self._found[:FAULTS]

    def take(self, hour: int) -> None:
        """Looks at one hour; they come in order."""
        if len(self._found) >= FAULTS:
            return
        text, walked = ("", None) if hour < self._rolled_until else self._told(hour)
        if text != self._text or hour != self._hour + 1:
            self._found += self._changed(hour, set(text.split(",")) if text else set())
        self._text, self._hour = text, hour
        if walked is None or walked:
            self._walk(hour, walked)

    def _told(self, hour: int) -> tuple[str, set[tuple[int, int]]]:
        """(`meter.gpu` of all that is simple, (node, GPU) of all else)."""
        simple, other = self._connection.execute(
            "SELECT group_concat(CASE WHEN simple THEN meter_id || '.' || gpu_id END),"
            " group_concat(CASE WHEN NOT simple THEN node_id || '.' || gpu_id END)"
            f" FROM (SELECT node_id, meter_id, gpu_id, {_SIMPLE} AS simple FROM usage WHERE hour = :hour"
            " GROUP BY node_id, meter_id, gpu_id)",
            {"hour": hour},
        ).fetchone()
        walked = set(map(_pair, other.split(","))) if other else set()
        double = {node for (node,) in self._of_two_meters(hour)} if self._several != "[]" else set()
        if not (walked or double):
            return simple or "", walked
        keys = [(*_pair(key), key) for key in (simple or "").split(",") if key]
        walked |= {(self._node_of[meter], gpu) for meter, gpu, _ in keys if self._node_of[meter] in double}
        kept = [key for meter, gpu, key in keys if (self._node_of[meter], gpu) not in walked]
        return ",".join(kept), walked

    def _of_two_meters(self, hour: int) -> Iterable[tuple[int]]:
        return self._connection.execute(
            "SELECT node_id FROM usage WHERE hour = ? AND node_id IN (SELECT value FROM json_each(?))"
            " GROUP BY node_id HAVING MIN(meter_id) <> MAX(meter_id)",
            (hour, self._several),
        )

    def _changed(self, hour: int, simple: set[str]) -> Iterator[str]:
        """Other GPUs than in the hour before are simple: notes how far the former ones reach, looks at the new ones."""
        goes_on = hour == self._hour + 1
        end, start = (self._hour + 1) * HOUR_MS, hour * HOUR_MS
        for meter, gpu in map(_pair, self._simple - simple if goes_on else self._simple):
            self._covered[meter, gpu] = self._until[self._node_of[meter], gpu] = end
        for meter, gpu in sorted(map(_pair, simple - self._simple if goes_on else simple)):
            row = _Row(hour, self._node_of[meter], gpu, meter, start, start + HOUR_MS, WHOLE_SHARE)
            yield from self._piece(row, start, start + HOUR_MS, [row])
        self._simple = simple

    def _walk(self, hour: int, walked: set[tuple[int, int]] | None) -> None:
        """These GPUs (None: all) of an hour, row by row."""
        among = json.dumps(None if walked is None else sorted({node for node, _ in walked}))
        rows = self._connection.execute(
            "SELECT hour, node_id, gpu_id, meter_id, starts_ms, ends_ms, share FROM usage WHERE hour = :hour"
            + (" AND node_id IN (SELECT value FROM json_each(:among))" if walked is not None else "")
            + " ORDER BY node_id, gpu_id, starts_ms",
            {"hour": hour, "among": among},
        )
        for key, same in groupby(rows, key=itemgetter(1, 2)):
            if walked is None or key in walked:
                group = [_Row._make(row) for row in same]
                self._found += self._beside_rolled(group) if hour < self._rolled_until else self._gpu_hour(group)

    def _beside_rolled(self, rows: list[_Row]) -> Iterator[str]:
        """One GPU in one hour of which more may have been rolled up."""
        yield from self._empty(rows)
        for row in rows:
            for covered, key in ((self._covered, (row.meter, row.gpu)), (self._until, (row.node, row.gpu))):
                covered[key] = max(row.ends_ms, covered.get(key, row.ends_ms))
        edges = sorted({edge for row in rows for edge in (row.starts_ms, row.ends_ms)})
        for start, end in zip(edges, edges[1:], strict=False):
            share = sum(row.share for row in rows if row.starts_ms < end and row.ends_ms > start)
            if share > WHOLE_SHARE:
                yield f"{self._name(rows[0])} has shares of {share} millionths from {start} to {end} ms"

    def _gpu_hour(self, rows: list[_Row]) -> Iterator[str]:
        """One GPU in one hour: at every moment between two edges the shares sum to one whole."""
        yield from self._empty(rows)
        edges = sorted({edge for row in rows for edge in (row.starts_ms, row.ends_ms)})
        if len(edges) == len(rows) + 1 and all(row.share == WHOLE_SHARE for row in rows):
            for row in rows:
                yield from self._piece(row, row.starts_ms, row.ends_ms, [row])
            return
        for start, end in zip(edges, edges[1:], strict=False):
            yield from self._piece(rows[0], start, end, [row for row in rows if row.starts_ms < end and row.ends_ms > start])

    def _empty(self, rows: list[_Row]) -> Iterator[str]:
        for row in rows:
            if row.ends_ms <= row.starts_ms:
                yield f"{self._name(row)} has a row that ends at {row.ends_ms} ms, not after it starts"

    def _piece(self, any_row: _Row, start: int, end: int, rows: list[_Row]) -> Iterator[str]:
        if not rows:
            return
        gpu = (any_row.node, any_row.gpu)
        if start < self._until.get(gpu, start):
            yield f"{self._name(any_row)} overlaps itself at {start} ms"
        self._until[gpu] = end
        share = sum(row.share for row in rows)
        for meter in {row.meter for row in rows}:
            key = (meter, any_row.gpu)
            if self._covered.get(key, start) != start and meter not in self._gappy:
                yield f"{self._name(any_row)} has a hole from {self._covered[key]} to {start} ms"
            self._covered[key] = end
            if share > WHOLE_SHARE or (share < WHOLE_SHARE and not self._is_tail(any_row, meter, end)):
                yield f"{self._name(any_row)} has shares of {share} millionths from {start} to {end} ms"

    def _is_tail(self, row: _Row, meter: int, end: int) -> bool:
        """Whether more of the meter is to come, and this is the newest of its GPU."""
        if meter not in self._unfinished:
            return False
        later = self._connection.execute(
            "SELECT 1 FROM usage WHERE hour >= ? AND node_id = ? AND meter_id = ? AND gpu_id = ? AND ends_ms > ? LIMIT 1",
            (row.hour, row.node, meter, row.gpu, end),
        )
        return later.fetchone() is None

    def _name(self, row: _Row) -> str:
        node = self._connection.execute("SELECT name FROM nodes WHERE id = ?", (row.node,)).fetchone()[0]
        gpu = self._connection.execute("SELECT uuid FROM gpus WHERE id = ?", (row.gpu,)).fetchone()[0]
        return f"node {node}, {gpu or 'host'}:"


def _pair(text: str) -> tuple[int, int]:
    first, _, second = text.partition(".")
    return int(first), int(second)
