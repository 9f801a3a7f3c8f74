"""What a recording says of a moment: the fleet as it was then, and what happened until the next.

Invariant: a fleet is made through `Fleet.apply`, as a live one is; of a damaged recording everything before and after the
damage is shown. `clock` is the caller's monotonic seconds: what was heard a second before the moment is a second old.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agent import wire
from tui.errors import Failed
from tui.fleet import LOST_SECONDS, Fleet
from tui.past import POINTS
from tui.record import SEGMENT_MS, Key
from tui.record_codec import WORDS, Doc, unpack
from tui.record_file import RecordFile, faults
from tui.replay_events import Happened, apply, decoded, over
from tui.replay_past import PastRows
from tui.replay_streams import Streams, seldom_searched

if TYPE_CHECKING:
    from pricing.catalog import Catalog

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FEW_NODES = 50
"""Of a larger fleet a moment comes without the minutes before: a node that is looked at is asked for them (`history`)."""
FINE_SECONDS = 900
"""Of longer histories only the beginnings of segments are read."""
MOST_COARSE = 720
"""Of so many segments."""
MOST_ALERTS = 10_000
_TAKEN_AT = WORDS.index("taken_at")


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
        self._streams = Streams(file)
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
        self._streams.look()

    @staticmethod
    def _about(body: bytes) -> About:
        return msgspec.json.decode(body, type=About)

    @property
    def starts_ms(self) -> int:
        """The first moment."""
        return self._streams.segments[0] if self._streams.segments else self.sessions[0][0]

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

    # -- a moment --------------------------------------------------------------------------------------------------------

    def fleet(self, at_ms: int, clock: float, catalog: Catalog | None = None) -> Fleet:
        """The fleet as it was at a moment, of a small one with the minutes before."""
        past_seconds = POINTS if len(self._nodes) <= FEW_NODES else 0
        session, _, about = self.session(at_ms)
        fleet = Fleet(catalog, silent_seconds=about.silent_seconds)
        for node in self.nodes(at_ms):
            fleet.add(node.name, node.url, node.tags)

        def then(heard_ms: int) -> float:
            return clock - (at_ms - heard_ms) / 1000

        changes = self._state(session, at_ms)
        with self._streams.turn, seldom_searched():
            documents, past = self._documents(at_ms, at_ms - past_seconds * 1000)
            for happened in self._in_order(changes, documents):
                if happened.node in fleet:
                    apply(fleet, happened, then(happened.at_ms))
        for ident, rows in past.items():
            if (node := self._nodes.get(ident)) is not None and node.name in fleet:
                rows.fill(fleet[node.name])
        return fleet

    def _documents(self, at_ms: int, since_ms: int) -> tuple[dict[Key, tuple[int, Doc]], dict[int, PastRows]]:
        """Every document at a moment with when it was heard, and utilisations since another."""
        past: dict[int, PastRows] = {}

        def watch(key: Key, heard_ms: int, doc: Doc | None) -> None:
            if key[1] == "sample" and doc is not None:
                past.setdefault(key[0], PastRows()).add(doc)

        found: dict[Key, tuple[int, Doc]] = {}
        segments = [one for one in self._streams.within(since_ms, at_ms) if one >= self.session(at_ms)[0]]
        for segment in segments:
            found = self._streams.state(segment, at_ms, since_ms, watch).by_key()
        return found, past

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

    def between(self, from_ms: int, until_ms: int, matters: Callable[[Key, Doc], bool] = lambda key, doc: True) -> list[Happened]:
        """What happened after `from_ms` and up to `until_ms`, in its order. Of samples that do not matter only their time."""
        happened: list[Happened] = []

        def watch(key: Key, heard_ms: int, doc: Doc | None) -> None:
            node = self._nodes.get(key[0])
            if node is not None and doc is None:
                happened.append(Happened(heard_ms, node.name, None, key[2]))
            elif node is not None and doc is not None and key[1] == "sample" and not matters(key, doc):
                happened.append(Happened(heard_ms, node.name, _EPOCH + timedelta(milliseconds=doc[_TAKEN_AT])))
            elif doc is not None and (one := self._of_document(key, heard_ms, doc)) is not None:
                happened.append(one)

        with self._streams.turn:
            for segment in self._streams.within(from_ms, until_ms):
                self._streams.state(segment, until_ms, from_ms, watch)
        rows = self.file.rows("SELECT * FROM events WHERE at_ms > ? AND at_ms <= ? ORDER BY at_ms", (from_ms, until_ms))
        happened += [one for row in rows if (one := self._changed(*row)) is not None]
        return sorted(happened, key=lambda one: one.at_ms)

    def _changed(self, ident: int, kind: str, key: str, at_ms: int, body: bytes | None) -> Happened | None:
        if body is not None:
            return self._happened(ident, kind, key, at_ms, body)
        node = self._nodes.get(ident)
        if node is None or kind in ("error", "info"):
            return None
        if kind == "job":
            return Happened(at_ms, node.name, None, key)
        return Happened(at_ms, node.name, over(node.name, kind, key, _EPOCH + timedelta(milliseconds=at_ms)))

    def ended_alerts(self, until_ms: int) -> dict[str, list[wire.Alert]]:
        """Of each node what was over by a moment, in its session; the newest of them."""
        rows = self.file.rows(
            "SELECT node_id, 'alert', key, at_ms, body FROM events WHERE kind = 'alert' AND at_ms >= ? AND at_ms <= ? ORDER BY at_ms DESC LIMIT ?",
            (self.session(until_ms)[0], until_ms, MOST_ALERTS),
        )  # fmt: skip
        standing: dict[tuple[int, str], wire.Alert] = {}
        over: dict[str, list[wire.Alert]] = {}
        for ident, kind, key, at_ms, body in reversed(rows):
            if body is not None and (one := self._happened(ident, kind, key, at_ms, body)) and isinstance(one.event, wire.AlertEvent):
                standing[ident, key] = one.event.alert
            elif (began := standing.pop((ident, key), None)) is not None:
                ended = msgspec.structs.replace(began, ended_at=_EPOCH + timedelta(milliseconds=at_ms))
                over.setdefault(self._nodes[ident].name, []).append(ended)
        return over

    # -- a node's readings over time ----------------------------------------------------------------------------------------

    def history(self, name: str, at_ms: int, seconds: float) -> wire.History:
        """Of each GPU a point a sample; of more than a quarter of an hour a point a minute."""
        ident = next((ident for ident, node in self._nodes.items() if node.name == name), None)
        since = at_ms - round(seconds * 1000)
        fine = seconds <= FINE_SECONDS
        segments = self._streams.within(since, at_ms)
        step = 1 if fine else max(1, -(-len(segments) // MOST_COARSE))
        points: dict[str, list[wire.HistoryPoint]] = {}
        host: list[tuple[datetime, float | None]] = []
        key: Key = (-1 if ident is None else ident, "sample", "")
        for segment in segments[::step]:
            for heard_ms, doc in self._streams.of(key, segment, at_ms, beginning=not fine):
                if heard_ms > since and (heard_ms > segment or not fine) and (happened := self._of_document(key, heard_ms, doc)):
                    assert isinstance(happened.event, wire.SampleEvent)
                    _add_points(happened.event.sample, points, host)
        return wire.History(
            node=name, step_seconds=1.0 if fine else _step(segments[::step]), gpus={uuid: tuple(one) for uuid, one in points.items()},
            cpu=tuple(host),
        )  # fmt: skip


def _step(segments: Sequence[int]) -> float:
    """Seconds from one to the next, on average."""
    return (segments[-1] - segments[0]) // (len(segments) - 1) / 1000 if len(segments) > 1 else SEGMENT_MS / 1000


def _add_points(sample: wire.Sample, points: dict[str, list[wire.HistoryPoint]], host: list[tuple[datetime, float | None]]) -> None:
    for gpu in sample.gpus:
        points.setdefault(gpu.uuid, []).append(wire.HistoryPoint(
            taken_at=sample.taken_at, utilization_ratio=gpu.utilization_ratio, memory_used_bytes=gpu.memory_used_bytes,
            power_watts=gpu.power_watts, temperature_celsius=gpu.temperature_celsius,
        ))  # fmt: skip
    host.append((sample.taken_at, sample.host.cpu_utilization_ratio if sample.host else None))
