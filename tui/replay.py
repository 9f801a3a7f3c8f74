"""What a recording says of a moment: the fleet as it was then, and what happened until the next.

Invariant: a fleet is made through `Fleet.apply`, as a live one is; of a damaged recording everything before and after the
damage is shown. `clock` is the caller's monotonic seconds: what was heard a second before the moment is a second old.
"""

from __future__ import annotations

import contextlib
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agent import wire
from tui.errors import Failed
from tui.fleet import LOST_SECONDS, Fleet
from tui.past import POINTS
from tui.record import SEGMENT_MS, TICK_MS, Key
from tui.record_codec import Doc, alter, copied, patch, unpack
from tui.record_file import RecordFile, faults
from tui.replay_events import Happened, apply, decoded, over
from tui.replay_past import PastRows

if TYPE_CHECKING:
    from pricing.catalog import Catalog

_decode = msgspec.msgpack.Decoder(strict=False).decode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEPT_SEGMENTS = 6
MOST_POINTS = 40_000
"""Samples of before a moment that are gone through for the plots."""
FINE_SECONDS = 900
"""Of longer histories only the beginnings of segments are read."""


class Record(NamedTuple):
    """One document at one moment: new as a whole, changed (a patch), or gone (None)."""

    at_ms: int
    key: Key
    whole: bool
    change: Doc

    def begins(self, segment_ms: int) -> bool:
        """It was heard before the segment, which only says so again."""
        return self.whole and self.at_ms <= segment_ms


class Node(NamedTuple):
    """As the configuration named it."""

    name: str
    url: str
    tags: dict[str, str]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's recorder says of itself."""

    nodes: tuple[str, ...]
    every_seconds: float = 1.0
    timezone: str = "UTC"
    silent_seconds: float = LOST_SECONDS
    filters: dict[str, str] = {}
    budgets: tuple[dict[str, Any], ...] = ()


class Recording:
    """`starts_ms` and `ends_ms` are the first and the last moment of it. Failed: nothing of it can be read."""

    def __init__(self, file: RecordFile) -> None:
        self.file = file
        self._segments: list[int] = []
        self._read: dict[int, tuple[int, list[tuple[int, list[Any]]]]] = {}
        self.damage = file.damage
        """Sentences: what could not be read."""
        self.look_again()
        if not self.sessions:
            raise Failed(f"{file.path}: nothing can be read from this recording.")

    def look_again(self) -> None:
        """Takes notice of what was written since. Failed: its tables are damaged."""
        with faults(self.file.path):
            self._look()

    def _look(self) -> None:
        self.sessions = [
            (from_ms, until_ms, self._about(about))
            for from_ms, until_ms, about in self.file.rows("SELECT from_ms, until_ms, about FROM sessions ORDER BY 1")
        ]
        self._nodes = {
            ident: Node(name, url, msgspec.json.decode(tags, type=dict[str, str]))
            for ident, name, url, tags in self.file.rows("SELECT id, name, url, tags FROM nodes ORDER BY id")
        }
        bounds = self.file.rows("SELECT segment_ms, COUNT(*) FROM chunks GROUP BY 1 ORDER BY 1")
        self._segments = [segment for segment, _ in bounds]
        self._lengths = dict(bounds)

    @staticmethod
    def _about(body: bytes) -> About:
        return msgspec.json.decode(body, type=About)

    @property
    def starts_ms(self) -> int:
        """The first moment."""
        return self._segments[0] if self._segments else self.sessions[0][0]

    @property
    def ends_ms(self) -> int:
        """The last moment."""
        return max(until for _, until, _ in self.sessions)

    def session(self, at_ms: int) -> tuple[int, int, About]:
        """The session of a moment: the one that began last before it, else the first."""
        place = bisect_right([from_ms for from_ms, _, _ in self.sessions], at_ms)
        return self.sessions[max(0, place - 1)]

    def nodes(self, at_ms: int) -> list[Node]:
        """Of the session of a moment."""
        named = set(self.session(at_ms)[2].nodes)
        return [node for node in self._nodes.values() if node.name in named]

    # -- the streams of the segments -----------------------------------------------------------------------------------

    def _frames(self, segment: int) -> list[tuple[int, list[Any]]]:
        """Number of a document, and by turns moments and changes; a document's are in their order."""
        known = self._read.get(segment)
        if known is not None and known[0] == self._lengths.get(segment, 0):
            return known[1]
        chunks = self.file.rows("SELECT body FROM chunks WHERE segment_ms = ? ORDER BY number", (segment,))
        frames: list[tuple[int, list[Any]]] = []
        with self._telling(segment):
            for frame in _pieces([body for (body,) in chunks]):
                frames.append(frame)
        while len(self._read) >= KEPT_SEGMENTS:
            del self._read[next(iter(self._read))]
        self._read[segment] = len(chunks), frames
        return frames

    @contextlib.contextmanager
    def _telling(self, segment: int) -> Iterator[None]:
        """Damage of a segment is a sentence, and what was read of it counts."""
        try:
            yield
        except (zlib.error, msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
            at = _EPOCH + timedelta(milliseconds=segment)
            self.file.tell(f"{self.file.path}: what was recorded in the minute from {at:%Y-%m-%d %H:%M:%S} UTC is damaged ({error}).")

    def _records(self, segment: int) -> list[Record]:
        """All changes of a segment by time."""
        return sorted(self._decoded(segment, self._frames(segment)), key=lambda record: record.at_ms)

    def _decoded(self, segment: int, frames: Iterable[tuple[int, list[Any]]]) -> Iterator[Record]:
        keys: dict[int, Key] = {}
        with self._telling(segment):
            for number, pieces in frames:
                for at, change in zip(pieces[::2], pieces[1::2], strict=True):
                    whole = type(change) is list
                    if whole:
                        keys[number] = (change[0], change[1], change[2])
                    yield Record(segment + at * TICK_MS, keys[number], whole, change[3] if whole else change)

    def _documents(self, at_ms: int, since_ms: int, past: dict[int, PastRows]) -> dict[Key, tuple[int, Doc]]:
        """Every document at a moment with when it was heard; utilisations since another go to `past`."""
        first = max(0, bisect_right(self._segments, since_ms) - 1)
        last = bisect_right(self._segments, at_ms)
        session = self.session(at_ms)[0]
        found: dict[Key, tuple[int, Doc]] = {}
        for segment in self._segments[first:last]:
            if segment >= session:
                found = {}
                with self._telling(segment):
                    self._go_through(segment, at_ms, since_ms, found, past)
        return found

    def _go_through(
        self, segment: int, at_ms: int, since_ms: int, found: dict[Key, tuple[int, Doc]], past: dict[int, PastRows]
    ) -> None:
        keys: dict[int, Key] = {}
        for number, pieces in self._frames(segment):
            for place in range(0, len(pieces), 2):
                moment_ms, change = segment + pieces[place] * TICK_MS, pieces[place + 1]
                if moment_ms > at_ms:
                    break
                if type(change) is list:
                    key = keys[number] = (change[0], change[1], change[2])
                    found[key] = moment_ms, copied(change[3])
                    if moment_ms <= segment:
                        continue
                elif change is None:
                    found.pop(keys[number], None)
                    continue
                else:
                    key = keys[number]
                    doc = found[key][1]
                    alter(doc, change)
                    found[key] = moment_ms, doc
                if moment_ms > since_ms and key[1] == "sample":
                    past.setdefault(key[0], PastRows()).add(found[key][1])

    @staticmethod
    def _apply(record: Record, found: dict[Key, tuple[int, Doc]]) -> None:
        if record.whole:
            found[record.key] = record.at_ms, record.change
        elif record.change is None:
            found.pop(record.key, None)
        elif record.key in found:
            before = found[record.key][1]
            found[record.key] = record.at_ms, patch(before, record.change) if record.change else before

    # -- a moment --------------------------------------------------------------------------------------------------------

    def fleet(self, at_ms: int, clock: float, catalog: Catalog | None = None) -> Fleet:
        """The fleet as it was at a moment; of a large one the plots begin with fewer seconds."""
        past_seconds = min(POINTS, MOST_POINTS // max(1, len(self._nodes)))
        session, _, about = self.session(at_ms)
        fleet = Fleet(catalog, silent_seconds=about.silent_seconds)
        for node in self.nodes(at_ms):
            fleet.add(node.name, node.url, node.tags)

        def then(heard_ms: int) -> float:
            return clock - (at_ms - heard_ms) / 1000

        past: dict[int, PastRows] = {}
        documents = self._documents(at_ms, at_ms - past_seconds * 1000, past)
        changes = self._state(session, at_ms)
        for happened in self._in_order(changes, documents):
            if happened.node in fleet:
                apply(fleet, happened, then(happened.at_ms))
        for ident, rows in past.items():
            if (node := self._nodes.get(ident)) is not None and node.name in fleet:
                rows.fill(fleet[node.name])
        return fleet

    def _state(self, session_ms: int, at_ms: int) -> list[tuple[Any, ...]]:
        """The newest change of each thing, the oldest first; what was over is left out."""
        rows = self.file.rows(
            "SELECT node_id, kind, key, MAX(at_ms), body FROM events WHERE at_ms >= ? AND at_ms <= ? GROUP BY 1, 2, 3",
            (session_ms, at_ms),
        )
        return sorted((row for row in rows if row[4] is not None), key=lambda row: row[3])

    def _in_order(self, changes: Sequence[tuple[Any, ...]], documents: dict[Key, tuple[int, Doc]]) -> Iterator[Happened]:
        """Who a node is comes first, whether it is still heard last."""
        for kinds in (("info",), ("alert", "notice", "job")):
            yield from (one for row in changes if row[1] in kinds and (one := self._happened(*row)) is not None)
        for kind in ("job", "sample"):
            for key, (at_ms, doc) in documents.items():
                if key[1] == kind and (one := self._of_document(key, at_ms, doc)) is not None:
                    yield one
        yield from (one for row in changes if row[1] == "error" and (one := self._happened(*row)) is not None)

    def _happened(self, ident: int, kind: str, key: str, at_ms: int, body: bytes | None) -> Happened | None:
        node = self._nodes.get(ident)
        if node is None:
            return None
        try:
            text = None if body is None else zlib.decompress(body)
            return None if text is None else Happened(at_ms, node.name, decoded(kind, text))
        except (zlib.error, msgspec.DecodeError) as error:
            self.file.tell(f"{self.file.path}: an event of {node.name} is damaged ({error}).")
            return None

    def _of_document(self, key: Key, at_ms: int, doc: Doc) -> Happened | None:
        node = self._nodes.get(key[0])
        if node is None:
            return None
        try:
            event: wire.Event = (
                wire.SampleEvent(sample=unpack(doc, wire.Sample)) if key[1] == "sample" else wire.JobEvent(job=unpack(doc, wire.Job))
            )
        except (msgspec.ValidationError, LookupError, TypeError, OverflowError) as error:
            self.file.tell(f"{self.file.path}: what {node.name} told is damaged ({error}).")
            return None
        return Happened(at_ms, node.name, event)

    # -- from a moment to the next --------------------------------------------------------------------------------------

    def between(self, from_ms: int, until_ms: int) -> list[Happened]:
        """What happened after `from_ms` and up to `until_ms`, in its order."""
        found = self._documents(from_ms, from_ms, {})
        happened: list[Happened] = []
        for segment in self._segments[max(0, bisect_right(self._segments, from_ms) - 1) : bisect_right(self._segments, until_ms)]:
            with self._telling(segment):
                for record in self._records(segment):
                    if segment > from_ms and record.at_ms < segment:
                        found.setdefault(record.key, (record.at_ms, record.change))
                    if from_ms < record.at_ms <= until_ms:
                        happened += self._step(record, found)
        rows = self.file.rows("SELECT * FROM events WHERE at_ms > ? AND at_ms <= ? ORDER BY at_ms", (from_ms, until_ms))
        happened += [one for row in rows if (one := self._changed(*row)) is not None]
        return sorted(happened, key=lambda one: one.at_ms)

    def _step(self, record: Record, found: dict[Key, tuple[int, Doc]]) -> Iterator[Happened]:
        self._apply(record, found)
        node = self._nodes.get(record.key[0])
        if node is None:
            return
        if record.change is None:
            yield Happened(record.at_ms, node.name, None, record.key[2])
        elif record.key in found and (one := self._of_document(record.key, record.at_ms, found[record.key][1])) is not None:
            yield one

    def _changed(self, ident: int, kind: str, key: str, at_ms: int, body: bytes | None) -> Happened | None:
        if body is not None:
            return self._happened(ident, kind, key, at_ms, body)
        node = self._nodes.get(ident)
        if node is None or kind in ("error", "info"):
            return None
        if kind == "job":
            return Happened(at_ms, node.name, None, key)
        return Happened(at_ms, node.name, over(node.name, kind, key, _EPOCH + timedelta(milliseconds=at_ms)))

    # -- a node's readings over time ----------------------------------------------------------------------------------------

    def history(self, name: str, at_ms: int, seconds: float) -> wire.History:
        """Of each GPU a point a sample; of more than a quarter of an hour a point a minute."""
        ident = next((ident for ident, node in self._nodes.items() if node.name == name), None)
        since = at_ms - round(seconds * 1000)
        segments = self._segments[max(0, bisect_right(self._segments, since) - 1) : bisect_right(self._segments, at_ms)]
        fine = seconds <= FINE_SECONDS
        points: dict[str, list[wire.HistoryPoint]] = {}
        host: list[tuple[datetime, float | None]] = []
        for segment in segments:
            records = self._records(segment) if fine else self._beginning(segment)
            found: dict[Key, tuple[int, Doc]] = {}
            for record in records:
                if record.key[:2] != (ident, "sample") or record.at_ms > at_ms:
                    continue
                self._apply(record, found)
                if record.at_ms > since and not (fine and record.begins(segment)) and (happened := self._of_document(record.key, *found[record.key])):
                    assert isinstance(happened.event, wire.SampleEvent)
                    _add_points(happened.event.sample, points, host)
        return wire.History(
            node=name, step_seconds=1.0 if fine else SEGMENT_MS / 1000, gpus={uuid: tuple(one) for uuid, one in points.items()},
            cpu=tuple(host),
        )  # fmt: skip

    def _beginning(self, segment: int) -> list[Record]:
        """Everything as it was when the segment began."""
        chunk = self.file.rows("SELECT body FROM chunks WHERE segment_ms = ? AND number = 0", (segment,))
        frames: list[tuple[int, list[Any]]] = []
        with self._telling(segment):
            frames += _pieces([body for (body,) in chunk])
        return list(self._decoded(segment, frames))


def _add_points(sample: wire.Sample, points: dict[str, list[wire.HistoryPoint]], host: list[tuple[datetime, float | None]]) -> None:
    for gpu in sample.gpus:
        points.setdefault(gpu.uuid, []).append(wire.HistoryPoint(
            taken_at=sample.taken_at, utilization_ratio=gpu.utilization_ratio, memory_used_bytes=gpu.memory_used_bytes,
            power_watts=gpu.power_watts, temperature_celsius=gpu.temperature_celsius,
        ))  # fmt: skip
    host.append((sample.taken_at, sample.host.cpu_utilization_ratio if sample.host else None))


def _pieces(chunks: Iterable[bytes]) -> Iterator[tuple[int, list[Any]]]:
    """(number of the document, moments and changes by turns) of a segment's stream."""
    stream, data = zlib.decompressobj(), bytearray()
    for chunk in chunks:
        data += stream.decompress(chunk)
        place = 0
        while len(data) - place >= 4 and len(data) - place - 4 >= (length := int.from_bytes(data[place : place + 4])):
            yield from _decode(bytes(data[place + 4 : place + 4 + length]))
            place += 4 + length
        del data[:place]
