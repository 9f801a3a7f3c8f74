"""Writes down what a fleet is heard to do: it listens beside the fleet, and gives what is new to a file every few seconds.

Invariant: what is not yet written is bounded by the seconds between two writes; a sample costs what changed in it. No clock
of its own: `now_ms` is UTC milliseconds.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from agent import wire
from tui.errors import Failed
from tui.fleet import NodeView
from tui.record_codec import growth, pack
from tui.record_file import Change, Chunk, RecordFile

SEGMENT_MS = 60_000
"""A segment begins with everything as it is, and goes on with what changes: so far a jump has to be read."""
MOST_CHANGES = 30_000
"""Of a large fleet a segment ends sooner: with so many changes."""
TICK_MS = 100
"""Moments of samples are kept in these."""
EARLY_MS = 300
"""A sample that comes so much before it is due is taken."""
MOST_KNOWN = 500_000
LEVEL = 6

encode = msgspec.msgpack.encode


def _raw(change: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(change))


_UNCHANGED = _raw({})

Key = tuple[int, str, str]
"""Number of the node, kind (`sample`, `job`), and the job's id."""


class Named(Protocol):
    """What is recorded of a node's configuration."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


class Piece(NamedTuple):
    """Of a segment's stream: number of a document, and by turns moments and changes. `begins`: the segment starts with it,
    and each change is the whole document, not yet packed."""

    segment_ms: int
    begins: bool
    records: list[Any]


class Batch(NamedTuple):
    """What is new."""

    until_ms: int
    pieces: list[Piece]
    changes: list[Change]
    heard: int
    """Samples in it."""


class ForwardClock:
    """UTC milliseconds that never go back: where the machine's clock was set back, they go on from where they were."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last = self._ahead = 0

    def __call__(self) -> int:
        now_ms = self._now_ms()
        if now_ms >= self._last:
            self._ahead = 0
        elif now_ms + self._ahead < self._last:
            self._ahead = self._last - now_ms
        self._last = now_ms + self._ahead
        return self._last


class Recorder:
    """The tap of a fleet. `ids`: the file's numbers of the nodes; `every_seconds`: how often a node's sample is kept."""

    def __init__(self, ids: Mapping[str, int], now_ms: Callable[[], int], every_seconds: float = 1.0) -> None:
        self._ids = ids
        self._now_ms = ForwardClock(now_ms)
        self._every_ms = round(every_seconds * 1000)
        self._docs: dict[Key, msgspec.Struct] = {}
        self._numbers: dict[Key, int] = {}
        self._records: dict[int, list[Any]] = {}
        self._heard_ms: dict[Key, int] = {}
        self._next = 0
        self._segment_ms = 0
        self._changed = 0
        self._changes: list[Change] = []
        self._known: dict[Key, int] = {}
        self._jobs: dict[int, set[str]] = {}
        self._alerts: dict[int, set[str]] = {}
        self._sampled_ms: dict[int, int] = {}
        self._doubted: set[int] = set()
        self._failing: set[int] = set()
        self._heard = 0

    # -- what is heard -----------------------------------------------------------------------------------------------

    def heard(self, view: NodeView, event: wire.Event) -> None:
        """An event was applied to the view."""
        ident = self._ids.get(view.name)
        if ident is None:
            return
        if type(event) is wire.SampleEvent:  # nearly all are: before what takes longer to tell apart
            self._take_sample(ident, event.sample, view)
            if ident in self._failing:
                self._answers(ident)
            if ident in self._doubted:
                self._doubted.discard(ident)
                self._reconcile(ident, view)
            return
        match event:
            case wire.NodeEvent(node=info):
                self._note(ident, "info", "", msgspec.json.encode(info))
                self._answers(ident)
                self._doubted.add(ident)
            case wire.AlertEvent(alert=alert):
                self._take_alert(ident, alert)
            case wire.JobEvent(job=job):
                self._take_job(ident, job)
            case wire.NoticeEvent(notice=notice):
                self._note(ident, "notice", "", None if notice.ended_at else msgspec.json.encode(notice))

    def failed(self, view: NodeView) -> None:
        """The connection to a node broke."""
        ident = self._ids.get(view.name)
        if ident is not None:
            self._failing.add(ident)
            self._note(ident, "error", "", msgspec.json.encode(view.error or ""))

    def _answers(self, ident: int) -> None:
        """There is no error any more."""
        self._failing.discard(ident)
        self._note(ident, "error", "", None)

    def seeded(self, view: NodeView) -> None:
        """A whole list of jobs came."""
        ident = self._ids.get(view.name)
        if ident is None:
            return
        for job in reversed([one.job for one in view.jobs]):
            self._take_job(ident, job)
        self._reconcile(ident, view)

    def _take_sample(self, ident: int, sample: wire.Sample, view: NodeView) -> None:
        now_ms, key = self._now_ms(), (ident, "sample", "")
        self._heard += 1
        due = self._sampled_ms.get(ident, 0) + self._every_ms - EARLY_MS
        if now_ms < due and key in self._numbers:
            self._put(key, now_ms, _UNCHANGED)  # heard, so that its age is right
            return
        self._sampled_ms[ident] = now_ms
        self._document(key, now_ms, view.links.whole(sample))  # a stream tells of links only when they are news

    def _take_alert(self, ident: int, alert: wire.Alert) -> None:
        keys = self._alerts.setdefault(ident, set())
        if alert.ended_at is None:
            keys.add(alert.key)
            self._note(ident, "alert", alert.key, msgspec.json.encode(alert))
        elif alert.key in keys:
            keys.discard(alert.key)
            self._note(ident, "alert", alert.key, None)

    def _take_job(self, ident: int, job: wire.Job) -> None:
        jobs, key = self._jobs.setdefault(ident, set()), (ident, "job", job.id)
        if job.state == "ended":
            if job.id in jobs:
                jobs.discard(job.id)
                self._gone(key)
            self._note(ident, "job", job.id, msgspec.json.encode(job))
            return
        if (ident, "job", job.id) in self._known:
            self._note(ident, "job", job.id, None)
        jobs.add(job.id)
        self._document(key, self._now_ms(), job)

    def _reconcile(self, ident: int, view: NodeView) -> None:
        """What the node did not tell of again is no more."""
        jobs = self._jobs.setdefault(ident, set())
        for gone in jobs - {one.job.id for one in view.jobs if one.job.state != "ended"}:
            jobs.discard(gone)
            self._gone((ident, "job", gone))
        alerts = self._alerts.setdefault(ident, set())
        for key in alerts - view.alerts.keys():
            alerts.discard(key)
            self._note(ident, "alert", key, None)
        if view.notice is None:
            self._note(ident, "notice", "", None)

    # -- what is kept until it is written ----------------------------------------------------------------------------

    def _note(self, ident: int, kind: str, key: str, body: bytes | None) -> None:
        place = (ident, kind, key)
        if body is None:
            if self._known.pop(place, None) is None:
                return
        else:
            mark = hash(body)
            if self._known.get(place) == mark:
                return
            if len(self._known) >= MOST_KNOWN:  # only jobs that ended grow without end; of the others it must be told when they end
                self._known = {key: found for key, found in self._known.items() if key[1] != "job"}
            self._known[place] = mark
        self._changes.append(Change(ident, kind, key, self._now_ms(), None if body is None else zlib.compress(body)))

    def _document(self, key: Key, now_ms: int, doc: msgspec.Struct) -> None:
        before = self._docs.get(key)
        self._docs[key] = doc
        if before is not None and key in self._numbers:
            self._put(key, now_ms, _raw(growth(before, doc)))
        elif self._segment_ms:
            self._numbers[key], self._next = self._next, self._next + 1
            self._put(key, now_ms, _raw([*key, pack(doc)]))
        self._heard_ms[key] = now_ms

    def _gone(self, key: Key) -> None:
        self._heard_ms.pop(key, None)
        if self._docs.pop(key, None) is not None and key in self._numbers:
            self._put(key, self._now_ms(), _raw(None))
            del self._numbers[key]

    def _put(self, key: Key, now_ms: int, change: msgspec.Raw) -> None:
        at = (now_ms - self._segment_ms) // TICK_MS
        self._changed += change is not _UNCHANGED
        self._records.setdefault(self._numbers[key], []).extend((at, change))
        self._heard_ms[key] = now_ms

    def take(self) -> Batch:
        """What is new since the last time. To be called every few seconds."""
        now_ms, pieces = self._now_ms(), []
        records, self._records = self._records, {}
        changes, self._changes = self._changes, []
        heard, self._heard = self._heard, 0
        if records:
            pieces.append(Piece(self._segment_ms, False, list(records.items())))
        if now_ms - self._segment_ms >= SEGMENT_MS or self._changed >= MOST_CHANGES:
            pieces.append(Piece(now_ms, True, self._begin(now_ms)))
        return Batch(now_ms, pieces, changes, heard)

    def _begin(self, now_ms: int) -> list[Any]:
        """Everything as it is now, and when it was heard; not yet packed: that takes long, and is for another thread."""
        self._segment_ms, self._changed = now_ms, 0
        self._numbers = {key: number for number, key in enumerate(self._docs)}
        self._next = len(self._numbers)
        return [(number, [(self._heard_ms[key] - now_ms) // TICK_MS, [*key, self._docs[key]]]) for key, number in self._numbers.items()]


class Writer:
    """Puts batches into a file; may be called from other threads than the recorder's, in the order of the batches."""

    def __init__(self, file: RecordFile, session_ms: int) -> None:
        self._file = file
        self._session_ms = session_ms
        self._stream: Any = None
        self._number = 0
        self._turn = threading.Lock()

    def write(self, batch: Batch) -> None:
        """All of it, or nothing. Failed: the disk is full; then a new segment is needed before more can be read."""
        with self._turn:  # the last batch may come while the one before is being packed: both are of one stream
            self._put(batch)

    def _put(self, batch: Batch) -> None:
        chunks = [self._chunk(piece, batch.until_ms) for piece in batch.pieces]
        with self._file.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)", chunks)
            connection.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)", batch.changes)
            connection.execute("UPDATE sessions SET until_ms = ? WHERE from_ms = ?", (batch.until_ms, self._session_ms))

    def _chunk(self, piece: Piece, until_ms: int) -> Chunk:
        if piece.begins or self._stream is None:
            self._stream, self._number = zlib.compressobj(LEVEL), 0
        if piece.begins:
            raw = encode([(number, (at, [*key, pack(doc)])) for number, (at, [*key, doc]) in piece.records])
        else:
            raw = encode(piece.records)
        body = self._stream.compress(len(raw).to_bytes(4) + raw) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        chunk = Chunk(piece.segment_ms, self._number, until_ms, body)
        self._number += 1
        return chunk


def begin_session(file: RecordFile, nodes: Iterable[Named], about: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """A recorder starts: the numbers of its nodes. Nothing that was recorded before counts as the state of now."""
    with file.writing() as connection:
        newest = connection.execute("SELECT MAX(until_ms) FROM sessions").fetchone()[0]
        if newest is not None and newest >= now_ms:
            raise Failed(f"{file.path}: it ends later than it is now by this machine's clock. Name another file, or set the clock.")
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?)", (now_ms, now_ms, msgspec.json.encode(about)))
        for node in nodes:
            connection.execute(
                "INSERT INTO nodes (name, url, tags) VALUES (?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET url = excluded.url, tags = excluded.tags",
                (node.name, without_password(node.url), msgspec.json.encode(dict(node.tags)).decode()),
            )
        return dict(connection.execute("SELECT name, id FROM nodes"))


def without_password(url: str) -> str:
    """The address of a node without what stands before an `@`."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def prune(file: RecordFile, before_ms: int) -> int:
    """Drops what ended before a moment, except what was still so then; returns how many segments went."""
    with file.writing() as connection:
        newest = connection.execute("SELECT MAX(segment_ms) FROM chunks WHERE segment_ms <= ?", (before_ms,)).fetchone()[0]
        if newest is None:
            return 0
        count = connection.execute("SELECT COUNT(DISTINCT segment_ms) FROM chunks WHERE segment_ms < ?", (newest,)).fetchone()[0]
        connection.execute("DELETE FROM chunks WHERE segment_ms < ?", (newest,))
        connection.execute(
            "DELETE FROM events WHERE at_ms < ?1 AND (body IS NULL OR EXISTS (SELECT 1 FROM events AS later WHERE"
            " later.node_id = events.node_id AND later.kind = events.kind AND later.key = events.key"
            " AND later.at_ms > events.at_ms AND later.at_ms <= ?1))",
            (newest,),
        )
        connection.execute("DELETE FROM sessions WHERE until_ms < ? AND from_ms < (SELECT MAX(from_ms) FROM sessions)", (newest,))
        connection.execute("PRAGMA incremental_vacuum")
    return count
