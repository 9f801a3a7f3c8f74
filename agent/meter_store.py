"""`usage.db`: the SQLite file that keeps an agent's usage rows.

Invariant: a sequence is given out once. Rows, the state needed to go on after a restart, and the dictionary entries
they name are written in one transaction; only rows of a finished transaction are ever read out.

Written with the standard library's sqlite3: this is an agent's hot path and its start, and importing sqlite-utils
costs more time than a day of flushes. The schema is a list of steps counted by `PRAGMA user_version`.
In WAL mode `synchronous=FULL` makes each commit survive a power cut: a row that a client has seen must not come back
as another row with the same sequence. Times are UTC milliseconds, shares and utilisation millionths, energy millijoules.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agent import wire
from agent.errors import StateDirectoryError, StateLocked
from agent.meter_cpu import MIB
from agent.meter_holders import Holder
from agent.meter_interruptions import Taken
from agent.meter_placement import PlacementRef, decode_facts, encode_facts
from agent.meter_track import Stretch
from agent.state_db import StateDb

KINDS: tuple[wire.UsageKind, ...] = ("held", "idle", "lost", "down", "host", "cpu")
SOURCES: tuple[wire.EnergySource, ...] = ("counter", "integrated")
"""Stored as their place in these tuples: append only."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE gpu (
        id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE, model TEXT,
        until_ms INTEGER NOT NULL, tracked INTEGER NOT NULL);
    CREATE TABLE holder (id INTEGER PRIMARY KEY, user TEXT, project TEXT, job TEXT);
    CREATE INDEX holder_by_name ON holder (user, project, job);
    CREATE TABLE placement (id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
    CREATE TABLE usage (
        sequence INTEGER PRIMARY KEY, starts_ms INTEGER NOT NULL, length_ms INTEGER NOT NULL CHECK (length_ms > 0),
        gpu INTEGER NOT NULL, kind INTEGER NOT NULL, reason TEXT, holder INTEGER NOT NULL,
        share INTEGER NOT NULL CHECK (share BETWEEN 1 AND 1000000), utilization INTEGER,
        energy_mj INTEGER, energy_source INTEGER, placement INTEGER NOT NULL);
    """,
    """
    CREATE TABLE interruption (
        number INTEGER PRIMARY KEY, cloud TEXT NOT NULL, kind TEXT NOT NULL, noticed_ms INTEGER NOT NULL,
        at_ms INTEGER NOT NULL, booted_ms INTEGER, boot TEXT, withdrawn INTEGER NOT NULL);
    """,
    """
    CREATE TABLE cpu (sequence INTEGER PRIMARY KEY, taken_from INTEGER, vcpus INTEGER NOT NULL, memory INTEGER NOT NULL);
    """,
)
HOST_UUID = ""
"""Stands in the gpu table for the host of a node without GPUs, and for none in rows of kind `cpu`."""
_CPU = KINDS.index("cpu")
_UNUSED_SHARE = 1
"""In the share column of `cpu` rows, which have none (the column knows no 0); what they have is in the table `cpu`."""

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOLDERS_CACHED = 10_000
_PRUNED_AT_ONCE = 5_000
PRUNE_EVERY_MS = 3_600_000
_INSERT = "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT = """
    SELECT usage.sequence, starts_ms, length_ms, gpu.uuid, kind, reason, share, holder.user, holder.project, holder.job,
           utilization, energy_mj, energy_source, placement, taken_from, vcpus, memory
    FROM usage JOIN gpu ON gpu.id = usage.gpu JOIN holder ON holder.id = usage.holder
    LEFT JOIN cpu ON cpu.sequence = usage.sequence
    WHERE usage.sequence > ? ORDER BY usage.sequence LIMIT ?
"""
_PLACEMENT = 13
"""Its place in a selected row."""


class Kept(NamedTuple):
    """How far the rows of one GPU reach, and whether it is still part of the node. `gpu` None: the host."""

    gpu: str | None
    model: str | None
    until_ms: int
    tracked: bool = True


def utc(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


@lru_cache(maxsize=512)
def _share(millionths: int) -> Decimal:
    return Decimal(millionths).scaleb(-6)


class MeterStore:
    """The open file. Not thread-safe: `Meter` holds the lock."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._db = connection
        self._path = path
        self._gpus: dict[str, int] = {}
        self._holders: dict[Holder, int] = {}
        with USAGE.translated(self._path):
            self.meter = self._meter_id()
            self.last_sequence: int = self._one("SELECT coalesce(max(sequence), 0) FROM usage")
            self._gpus = dict(self._db.execute("SELECT uuid, id FROM gpu"))

    @classmethod
    def open(cls, path: str | Path, *, durable: bool) -> MeterStore:
        """Opens or makes the file. StateTooNew, StateFull, StateLocked, StateDirectoryError: each names the file."""
        name = str(path)
        connection = USAGE.connect(name, durable=durable)
        try:
            return cls(connection, name)
        except BaseException:
            connection.close()
            raise

    def kept(self) -> list[Kept]:
        """The GPUs that were part of the node when the last rows were written."""
        with USAGE.translated(self._path):
            rows = self._db.execute("SELECT uuid, model, until_ms FROM gpu WHERE tracked ORDER BY id").fetchall()
        return [Kept(uuid or None, model, until_ms) for uuid, model, until_ms in rows]

    def placement(self) -> PlacementRef | None:
        """The placement in force when the last rows were written."""
        with USAGE.translated(self._path):
            row = self._db.execute(
                "SELECT id, facts FROM placement WHERE id = (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'placement')"
            ).fetchone()
        return None if row is None else PlacementRef(decode_facts(row[1], 0), row[0])

    def interruptions(self) -> list[Taken]:
        """The cloud's announcements that it ends this node."""
        with USAGE.translated(self._path):
            rows = self._db.execute("SELECT * FROM interruption ORDER BY number").fetchall()
        return [Taken(*row[:-1], withdrawn=bool(row[-1])) for row in rows]

    def keep_interruptions(self, changed: Iterable[Taken]) -> None:
        """Writes these, at once."""
        with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO interruption VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changed)

    def append(self, rows: Sequence[Stretch], kept: Iterable[Kept], placement: PlacementRef | None) -> None:
        """Writes rows, gives them the next sequences, and notes where each GPU stands: all or nothing."""
        gpus, holders, refs = dict(self._gpus), {}, {}
        with self._transaction():
            for one in kept:
                self._note(one, gpus)
            for ref in dict.fromkeys(row.placement for row in rows):
                refs[ref] = self._placement_id(ref)
            if placement is not None and placement not in refs:
                refs[placement] = self._placement_id(placement)
            if placement is not None:
                self._db.execute("INSERT OR REPLACE INTO meta VALUES ('placement', ?)", (str(refs[placement]),))
            if HOST_UUID not in gpus and any(row.kind == "cpu" for row in rows):
                self._note(Kept(None, None, 0, tracked=False), gpus)
            self._db.executemany(_INSERT, self._encoded(rows, gpus, holders, refs))
            self._db.executemany("INSERT INTO cpu VALUES (?, ?, ?, ?)", self._cpu(rows))
        self.last_sequence += len(rows)
        self._gpus = gpus
        if len(self._holders) > _HOLDERS_CACHED:
            self._holders.clear()
        self._holders.update(holders)
        for ref, id in refs.items():
            ref.id = id

    def page(self, node: str, after: int, limit: int) -> wire.UsagePage:
        """Up to `limit` rows above `after`, with the placements they name."""
        with USAGE.translated(self._path):
            found = self._db.execute(_SELECT, (after, limit)).fetchall()
            first = self._one("SELECT coalesce(min(sequence), 1) FROM usage")
            placements = {id: self._stored_placement(id) for id in sorted({row[_PLACEMENT] for row in found})}
        return wire.UsagePage(
            node=node,
            meter=self.meter,
            rows=tuple(_decoded(row, placements[row[_PLACEMENT]].node) for row in found),
            placements=tuple(placements.values()),
            last_sequence=self.last_sequence,
            first_sequence=first,
        )

    def prune(self, before_ms: int) -> bool:
        """Deletes the oldest rows, as far as they all end before `before_ms`; the newest row always stays.

        A few thousand a call, so that nobody waits; True when more may be left.
        """
        with self._transaction():
            edge = self._one(
                """SELECT coalesce(min(sequence), ?) FROM (SELECT sequence FROM usage
                   WHERE starts_ms + length_ms >= ? ORDER BY sequence LIMIT 1)""",
                (self.last_sequence, before_ms),
            )
            first = self._one("SELECT coalesce(min(sequence), 0) FROM usage")
            stop = min(edge, first + _PRUNED_AT_ONCE, self.last_sequence)
            self._db.execute("DELETE FROM usage WHERE sequence < ?", (stop,))
            self._db.execute("DELETE FROM cpu WHERE sequence < ?", (stop,))
        return stop < edge

    def close(self) -> None:
        self._db.close()

    def _one(self, sql: str, values: Sequence[object] = ()) -> int:
        return int(self._db.execute(sql, values).fetchone()[0])

    def _meter_id(self) -> str:
        self._db.execute("INSERT OR IGNORE INTO meta VALUES ('meter', ?)", (secrets.token_hex(8),))
        return str(self._db.execute("SELECT value FROM meta WHERE key = 'meter'").fetchone()[0])

    def _note(self, one: Kept, gpus: dict[str, int]) -> None:
        uuid = one.gpu or HOST_UUID
        if uuid not in gpus:
            gpus[uuid] = self._one("SELECT coalesce(max(id), 0) + 1 FROM gpu")
            self._db.execute("INSERT INTO gpu VALUES (?, ?, ?, ?, ?)", (gpus[uuid], uuid, one.model, one.until_ms, one.tracked))
        else:
            self._db.execute(
                "UPDATE gpu SET model = ?, until_ms = ?, tracked = ? WHERE id = ?", (one.model, one.until_ms, one.tracked, gpus[uuid])
            )

    def _holder_id(self, holder: Holder, fresh: dict[Holder, int]) -> int:
        known = self._holders.get(holder) or fresh.get(holder)
        if known is not None:
            return known
        row = self._db.execute("SELECT id FROM holder WHERE user IS ? AND project IS ? AND job IS ?", holder).fetchone()
        if row is None:
            id = self._db.execute("INSERT INTO holder (user, project, job) VALUES (?, ?, ?)", holder).lastrowid
        else:
            id = row[0]
        assert id is not None
        fresh[holder] = id
        return id

    def _placement_id(self, ref: PlacementRef) -> int:
        if ref.id is not None:
            return ref.id
        text = encode_facts(ref.facts)
        self._db.execute("INSERT OR IGNORE INTO placement (facts) VALUES (?)", (text,))
        return self._one("SELECT id FROM placement WHERE facts = ?", (text,))

    def _stored_placement(self, id: int) -> wire.Placement:
        return decode_facts(self._db.execute("SELECT facts FROM placement WHERE id = ?", (id,)).fetchone()[0], id)

    def _encoded(
        self, rows: Sequence[Stretch], gpus: dict[str, int], holders: dict[Holder, int], refs: dict[PlacementRef, int]
    ) -> Iterator[tuple[object, ...]]:
        for sequence, row in enumerate(rows, self.last_sequence + 1):
            yield (
                sequence, row.starts_ms, row.ends_ms - row.starts_ms, gpus[row.gpu or HOST_UUID], KINDS.index(row.kind),
                row.reason, self._holder_id(row.holder, holders), row.share or _UNUSED_SHARE,
                None if row.utilization is None else round(row.utilization * 1_000_000),
                row.energy_mj, None if row.energy_source is None else SOURCES.index(row.energy_source), refs[row.placement],
            )  # fmt: skip

    def _cpu(self, rows: Sequence[Stretch]) -> Iterator[tuple[object, ...]]:
        for sequence, row in enumerate(rows, self.last_sequence + 1):
            if row.kind == "cpu":
                yield sequence, None if row.taken_from is None else KINDS.index(row.taken_from), row.vcpus, row.memory

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with USAGE.translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


class Retention:
    """Deletes old rows, looking once an hour, and again at once while more are left. `kept_ms` None keeps everything."""

    def __init__(self, kept_ms: int | None) -> None:
        self._kept_ms = kept_ms
        self._pruned_ms = 0

    def prune(self, store: MeterStore, at_ms: int) -> None:
        """A fault is said and tried again."""
        if self._kept_ms is None or at_ms - self._pruned_ms < PRUNE_EVERY_MS:
            return
        try:
            more = store.prune(at_ms - self._kept_ms)
        except StateDirectoryError as error:
            log.warning("old usage rows cannot be deleted: %s", error)
            more = False
        if not more:
            self._pruned_ms = at_ms


def _decoded(row: tuple, node: str) -> wire.UsageRow:  # type: ignore[type-arg]
    sequence, starts, length, uuid, kind, reason, share, user, project, job, busy, energy, source, placement, *cpu = row
    of_cpu = kind == _CPU
    return wire.UsageRow(
        node=node,
        sequence=sequence,
        starts_at=utc(starts),
        ends_at=utc(starts + length),
        gpu=uuid or None,
        kind=KINDS[kind],
        reason=reason,
        share=_share(0 if of_cpu else share),
        user=user,
        project=project,
        job=job,
        gpu_seconds=Decimal(share * length).scaleb(-9) if uuid else Decimal(0),
        utilization_ratio=None if busy is None else busy / 1_000_000,
        energy_joules=None if energy is None else energy / 1000,
        energy_source=None if source is None else SOURCES[source],
        placement=placement,
        taken_from=None if cpu[0] is None else KINDS[cpu[0]],
        vcpus=_share(cpu[1]) if of_cpu else None,
        memory_bytes=cpu[2] * MIB if of_cpu else None,
    )


def _damaged(path: str, detail: object) -> StateDirectoryError:
    return StateDirectoryError(
        f"{path} is damaged ({detail}); stop the agent and move the file away to begin a new usage record, "
        "or put a copy of it back; clients keep what they have already read"
    )


def _shared(path: str, detail: object) -> StateDirectoryError:
    return StateLocked(f"another program has written to {path} ({detail}); only one agent may use it, so end the other one and restart")


USAGE = StateDb(MIGRATIONS, _damaged, constraint=_shared)
