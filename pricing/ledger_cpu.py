"""Processors and memory that jobs without a GPU held, in the ledger: agent rows in, rows of up to an hour out, sums.

Invariant: whole numbers only; a row lies within one UTC hour and its amounts do not change within it, so any cut of it is
exact. An agent's rows of one moment (what its jobs hold, and from whom it is taken) sum to 0. `part` is 0 for a job, else 1
+ the place in `usage.KINDS` of what it is taken from. What retention rolled up is in `ledger_cpu_hours`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

from pricing import ledger_cpu_hours
from pricing.ledger_cpu_hours import CpuTotal
from pricing.ledger_dictionary import Dictionary
from pricing.ledger_merge import HOUR_MS
from pricing.ledger_totals import Among
from pricing.usage import KINDS, Usage

TABLES = (
    """CREATE TABLE cpu_usage (
        hour INTEGER NOT NULL, node_id INTEGER NOT NULL, meter_id INTEGER NOT NULL, starts_ms INTEGER NOT NULL,
        first_sequence INTEGER NOT NULL, ends_ms INTEGER NOT NULL, placement_id INTEGER NOT NULL, part INTEGER NOT NULL,
        holder_id INTEGER NOT NULL, vcpus INTEGER NOT NULL, memory INTEGER NOT NULL, rows INTEGER NOT NULL,
        last_sequence INTEGER NOT NULL,
        PRIMARY KEY (hour, node_id, meter_id, starts_ms, first_sequence)) WITHOUT ROWID""",
    "ALTER TABLE placements ADD COLUMN vcpus INTEGER",
    "ALTER TABLE placements ADD COLUMN memory_bytes INTEGER",
    "ALTER TABLE closed_charges ADD COLUMN node_hours TEXT NOT NULL DEFAULT '0'",
    "ALTER TABLE closed_charges ADD COLUMN paid TEXT NOT NULL DEFAULT ''",
)


UNUSED_UNITS = 10**9
"""What is unused of an amount is told in so many parts of it, rounded up."""


_Ids = tuple[int, int, int, int, int]
"""Placement, part, holder, vCPUs, memory: what rows must have in common to become one."""


def take(names: Dictionary, node_id: int, meter_id: int, rows: Sequence[Usage], placements: dict[int, int]) -> None:
    """Takes these agent rows of kind `cpu`; `placements`: the agent's numbers -> our ids. ValueError: an unknown kind."""
    connection = names.connection
    known = _stored(connection, node_id, meter_id, {row.starts_ms // HOUR_MS for row in rows})
    alike: dict[tuple[object, ...], _Ids] = {}
    touched: dict[int, list[int]] = {}
    for row in rows:
        what = row[7:10] + row[13:]
        ids = alike.get(what)
        if ids is None:
            ids = alike[what] = _ids(row, names, placements)
        for start, end in _hours(row.starts_ms, row.ends_ms):
            key = start // HOUR_MS, ids
            found = known.get(key)
            if found is None or found[2] != start:
                found = known[key] = [start, row.sequence, start, *ids, 0, row.sequence]
            found[2], found[-1] = end, row.sequence
            found[-2] += start == row.starts_ms
            touched[id(found)] = found
    connection.executemany(
        f"INSERT INTO cpu_usage VALUES ({', '.join('?' * 13)}) ON CONFLICT DO UPDATE SET ends_ms = excluded.ends_ms,"
        " rows = excluded.rows, last_sequence = excluded.last_sequence",
        [(one[0] // HOUR_MS, node_id, meter_id, *one) for one in touched.values()],
    )


def _ids(row: Usage, names: Dictionary, placements: dict[int, int]) -> _Ids:
    part = 0 if row.taken_from is None else 1 + KINDS.index(row.taken_from)
    holder = names.holder(row.user, row.project, row.job)
    return placements[row.placement], part, holder, row.vcpus_millionths, row.memory_mib


def _stored(
    connection: sqlite3.Connection, node_id: int, meter_id: int, hours: set[int]
) -> dict[tuple[int, _Ids], list[int]]:
    """The newest row of each kind in these hours, which new ones may continue."""
    found: dict[tuple[int, _Ids], list[int]] = {}
    for hour in hours:
        for row in connection.execute(
            "SELECT starts_ms, first_sequence, ends_ms, placement_id, part, holder_id, vcpus, memory, rows, last_sequence"
            " FROM cpu_usage WHERE hour = ? AND node_id = ? AND meter_id = ? ORDER BY last_sequence",
            (hour, node_id, meter_id),
        ):
            found[hour, row[3:8]] = list(row)
    return found


def _hours(start: int, ends_ms: int) -> Sequence[tuple[int, int]]:
    """[start, ends_ms) cut at full hours."""
    edge = (start // HOUR_MS + 1) * HOUR_MS
    if ends_ms <= edge:
        return ((start, ends_ms),)
    return ((start, edge), *_hours(edge, ends_ms))


def has_rows(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> bool:
    """Whether there may be any in the hours of [starts_ms, ends_ms)."""
    hours = starts_ms // HOUR_MS, -(-ends_ms // HOUR_MS)
    return any(
        connection.execute(f"SELECT 1 FROM {table} WHERE {hour} >= ? AND {hour} < ? LIMIT 1", hours).fetchone()
        for table, hour in (("cpu_usage", "hour"), ("cpu_hours", "at"))
    )


def cpu_totals(connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None) -> Iterator[CpuTotal]:
    """The sums of [starts_ms, ends_ms), exact however it cuts the rows; those of one place may come several times."""
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    length = "(MIN(ends_ms, ?) - MAX(starts_ms, ?))"
    yield from map(
        CpuTotal._make,
        connection.execute(
            f"SELECT placement_id, part, holder_id, SUM({length} * vcpus), SUM({length} * memory) FROM cpu_usage"
            f" WHERE hour >= ? AND hour < ? AND starts_ms < ? AND ends_ms > ?{where} GROUP BY placement_id, part, holder_id",
            (
                *(ends_ms, starts_ms) * 2, starts_ms // HOUR_MS, -(-ends_ms // HOUR_MS), ends_ms, starts_ms, *ids,
            ),
        ),
    )  # fmt: skip
    yield from ledger_cpu_hours.totals(connection, starts_ms, ends_ms, among)


def unused_totals(
    connection: sqlite3.Connection, starts_ms: int, ends_ms: int, among: Among | None = None
) -> Iterator[CpuTotal]:
    """Of what is taken from holders of GPUs, as much as was unused of what they held in the same hour, x `UNUSED_UNITS`."""
    held = KINDS.index("held")
    taken, values = _taken(connection, 1 + held, starts_ms, ends_ms, among)
    sums: dict[tuple[int, int], list[int]] = {}
    for placement_id, holder_id, vcpu_ms, memory_ms, share_ms, unused in connection.execute(
        f"SELECT placement_id, holder_id, vcpu_ms, memory_ms, share_ms, measured_share_ms - busy FROM ({taken}) AS taken"
        " JOIN hours USING (placement_id, holder_id) WHERE at = hour AND kind = ? AND busy < measured_share_ms",
        (*values, held),
    ):
        units = -(-unused * UNUSED_UNITS // share_ms)
        amounts = sums.setdefault((placement_id, holder_id), [0, 0])
        amounts[0] += vcpu_ms * units
        amounts[1] += memory_ms * units
    for (placement_id, holder_id), (vcpu_ms, memory_ms) in sums.items():
        yield CpuTotal(placement_id, 1 + held, holder_id, vcpu_ms, memory_ms)


def _taken(
    connection: sqlite3.Connection, part: int, starts_ms: int, ends_ms: int, among: Among | None
) -> tuple[str, tuple[object, ...]]:
    """SQL, and its values, for (hour, placement, holder, vcpu_ms, memory_ms) of this part: of rows, and of what was rolled up."""
    where, ids = ("", ()) if among is None else (among.condition(), (among.ids,))
    length = "(MIN(ends_ms, ?) - MAX(starts_ms, ?))"
    cut = [
        (hour, total.placement_id, total.holder_id, total.vcpu_ms, total.memory_ms)
        for hour, total in ledger_cpu_hours.cut_totals(connection, starts_ms, ends_ms, among)
        if total.part == part
    ]
    columns = ", ".join(f"json_extract(value, '$[{place}]')" for place in range(5))
    query = (
        f"SELECT hour, placement_id, holder_id, SUM({length} * vcpus) AS vcpu_ms, SUM({length} * memory) AS memory_ms"
        f" FROM cpu_usage WHERE part = ? AND hour >= ? AND hour < ? AND starts_ms < ? AND ends_ms > ?{where}"
        " GROUP BY hour, placement_id, holder_id UNION ALL SELECT at, placement_id, holder_id, vcpu_ms, memory_ms"
        f" FROM cpu_hours WHERE part = ? AND at >= ? AND at < ?{where} UNION ALL SELECT {columns} FROM json_each(?)"
    )
    of_rows = (*(ends_ms, starts_ms) * 2, part, starts_ms // HOUR_MS, -(-ends_ms // HOUR_MS), ends_ms, starts_ms, *ids)
    return query, (*of_rows, part, *ledger_cpu_hours.whole(starts_ms, ends_ms), *ids, json.dumps(cut))


def jobs_on(connection: sqlite3.Connection, starts_ms: int, ends_ms: int) -> Iterator[tuple[int, str | None]]:
    """(placement, job) of all jobs without a GPU in the hours of [starts_ms, ends_ms)."""
    yield from connection.execute(
        "SELECT placement_id, job FROM (SELECT placement_id, holder_id FROM cpu_usage WHERE hour >= ?1 AND hour < ?2 AND part = 0"
        " UNION SELECT placement_id, holder_id FROM cpu_hours WHERE at >= ?1 AND at < ?2 AND part = 0)"
        " JOIN holders ON holders.id = holder_id GROUP BY placement_id, job",
        (starts_ms // HOUR_MS, -(-ends_ms // HOUR_MS)),
    )


def unbalanced(connection: sqlite3.Connection) -> Iterator[tuple[str, int]]:
    """(node, UTC hour) in which what jobs hold is not what is taken from others, of meters whose rows are all here."""
    yield from connection.execute(
        "SELECT nodes.name, hour FROM (SELECT meter_id, hour, (ends_ms - starts_ms) * vcpus AS vcpu_ms,"
        " (ends_ms - starts_ms) * memory AS memory_ms FROM cpu_usage UNION ALL SELECT meter_id, at, vcpu_ms, memory_ms"
        " FROM cpu_hours JOIN placements ON placements.id = placement_id)"
        " JOIN meters ON meters.id = meter_id JOIN nodes ON nodes.id = meters.node_id"
        " WHERE agent_last IS NOT NULL AND cursor >= agent_last AND meter_id NOT IN (SELECT meter_id FROM gaps)"
        " GROUP BY meter_id, hour HAVING SUM(vcpu_ms) != 0 OR SUM(memory_ms) != 0"
    )
