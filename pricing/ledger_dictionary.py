"""Names that stand in many rows, kept once each: nodes, meters, GPUs, holders, reasons, placements.

Invariant: lives within one transaction, so an id that it hands out is in the ledger if and only if the rows are.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from decimal import Decimal

from pricing.ledger_merge import Ids
from pricing.usage import ENERGY_SOURCES, KINDS, Interruption, Owned, Placed, Usage


class Dictionary:
    """Looks names up and adds those that are new."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._cache: dict[tuple[str, str | None], int] = {("gpus", None): 0, ("reasons", None): 0}

    def node(self, name: str) -> int:
        return self._id("nodes", "name", name)

    def meter(self, node_id: int, name: str) -> tuple[int, int, int | None]:
        """(id, cursor, end of the newest row in ms)."""
        self.connection.execute("INSERT OR IGNORE INTO meters (node_id, name) VALUES (?, ?)", (node_id, name))
        return self.connection.execute(
            "SELECT id, cursor, ends_ms FROM meters WHERE node_id = ? AND name = ?", (node_id, name)
        ).fetchone()

    def cursors_elsewhere(self, node_id: int, meter: str) -> dict[str, int]:
        """Node -> how far this record was taken under that node's name: an agent keeps its record when it is renamed."""
        return dict(
            self.connection.execute(
                "SELECT nodes.name, cursor FROM meters JOIN nodes ON nodes.id = node_id WHERE meters.name = ? AND node_id != ?",
                (meter, node_id),
            )
        )

    def ids(self, row: Usage, placement_id: int) -> Ids:
        """Raises ValueError for a kind or an energy source that this version does not know."""
        return Ids(
            gpu=self._id("gpus", "uuid", row.gpu),
            placement=placement_id,
            kind=KINDS.index(row.kind),
            reason=self._id("reasons", "text", row.reason),
            holder=self.holder(row.user, row.project, row.job),
            share=row.share_millionths,
            source=0 if row.energy_source is None else 1 + ENERGY_SOURCES.index(row.energy_source),
        )

    def placements(self, meter_id: int, placements: Iterable[Placed], needed: set[int]) -> dict[int, int]:
        """The agent's numbers -> our ids. One that was written is never altered."""
        self.connection.executemany(
            "INSERT OR IGNORE INTO placements (meter_id, number, node, cloud, region, zone, instance_type, purchase,"
            " usd_per_hour, on_premises, gpu_count, gpu_model, tags, vcpus, memory_bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(meter_id, *_placement_record(placed)) for placed in placements if placed.number in needed],
        )
        return dict(self.connection.execute("SELECT number, id FROM placements WHERE meter_id = ?", (meter_id,)))

    def interruptions(self, meter_id: int, told: Iterable[Interruption]) -> None:
        """What a record tells of its interruptions: new ones, and what became of those that are known."""
        self.connection.executemany(
            "INSERT INTO interruptions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET noticed_ms = excluded.noticed_ms,"
            " at_ms = excluded.at_ms, booted_ms = excluded.booted_ms, withdrawn = excluded.withdrawn",
            [(meter_id, *one) for one in told],
        )

    def holder(self, user: str | None, project: str | None, job: str | None) -> int:
        """The id of one holder."""
        key = json.dumps((user, project, job))
        found = self._cache.get(("holders", key))
        if found is None:
            self.connection.execute(
                "INSERT OR IGNORE INTO holders (key, user, project, job) VALUES (?, ?, ?, ?)", (key, user, project, job)
            )
            found = self._id("holders", "key", key)
        return found

    def _id(self, table: str, column: str, value: str | None) -> int:
        found = self._cache.get((table, value))
        if found is None:
            if table != "holders":
                self.connection.execute(f"INSERT OR IGNORE INTO {table} ({column}) VALUES (?)", (value,))
            found = self.connection.execute(f"SELECT id FROM {table} WHERE {column} = ?", (value,)).fetchone()[0]
            self._cache[table, value] = found
        return found


def _placement_record(placed: Placed) -> tuple[object, ...]:
    owned = placed.on_premises
    facts = None if owned is None else json.dumps([None if part is None else str(part) for part in owned])
    tags = json.dumps(dict(placed.tags), sort_keys=True)
    return (*placed[:8], facts, placed.gpu_count, placed.gpu_model, tags, placed.vcpus, placed.memory_bytes)


def read_placements(connection: sqlite3.Connection) -> dict[int, Placed]:
    """Our id -> what the node was."""
    return {
        id: Placed(*facts[:8], _owned(facts[8]), facts[9], facts[10], json.loads(facts[11]), *facts[12:])
        for id, *facts in connection.execute(
            "SELECT id, number, node, cloud, region, zone, instance_type, purchase, usd_per_hour, on_premises,"
            " gpu_count, gpu_model, tags, vcpus, memory_bytes FROM placements"
        )
    }


def _owned(text: str | None) -> Owned | None:
    if text is None:
        return None
    return Owned(*(None if part is None else Decimal(part) for part in json.loads(text)))
