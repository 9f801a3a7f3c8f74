"""The streams of a recording's segments: every document at a moment, and what changed until the next.

Invariant: a document at a moment is the same whichever moment was asked for before; of a damaged segment what can be read
counts. Nothing is decoded that is not needed: a jump in a large fleet reads from the nearest moment that is kept in memory.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from pricing import garbage
from tui.record import TICK_MS, Key
from tui.record_codec import Doc, alter
from tui.record_file import RecordFile

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEPT_SEGMENTS = 4
KEPT_MARKS = 6
"""Whole states that are kept: each is as large as all that the fleet tells at once (4 MB of 1,000 nodes of 8 GPUs)."""
MARK_CHUNKS = 4
"""After so many chunks a state is kept on the way; it takes about as long as going through a chunk."""
_frames = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]], strict=False).decode
_parts = msgspec.msgpack.Decoder(list[msgspec.Raw], strict=False).decode
_decode = msgspec.msgpack.Decoder(strict=False).decode
_encode = msgspec.msgpack.Encoder().encode
_key = msgspec.msgpack.Decoder(tuple[int, str, str, msgspec.Raw], strict=False).decode
_ARRAY = frozenset((*range(0x90, 0xA0), 0xDC, 0xDD))
"""First bytes of an array: a document as a whole, with its key."""


SELDOM = 20_000
"""Objects between two searches for garbage that are seldom enough."""


def seldom_searched() -> contextlib.AbstractContextManager[None]:
    """Around what makes 100,000s of objects. The app searches seldom by itself: one long search at the end would hold its loop."""
    return contextlib.nullcontext() if gc.get_threshold()[0] >= SELDOM else garbage.paused()


class Chunk(NamedTuple):
    """What was written at once: up to when, and of each document its number and what it went through."""

    until_ms: int
    frames: list[tuple[int, msgspec.Raw]]


class State:
    """Of a segment up to a moment: whole chunks before `chunk`, and of that one what is not after `at_ms`."""

    __slots__ = ("at_ms", "chunk", "docs", "segment")

    def __init__(self, segment: int, chunk: int, at_ms: int, docs: dict[int, tuple[Key, int, Doc]]) -> None:
        self.segment = segment
        self.chunk = chunk
        self.at_ms = at_ms
        self.docs = docs
        """By number: its key, when it was heard, and itself."""

    def by_key(self) -> dict[Key, tuple[int, Doc]]:
        """When each was heard, and what it told."""
        return {key: (heard_ms, doc) for key, heard_ms, doc in self.docs.values()}


Watch = Callable[[Key, int, Doc | None], None]
"""Is told of each change: whose it is, when it was heard, and the document after it (None: it is no more)."""


class Streams:
    """May be used from any thread; one question waits for the other."""

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self.turn = threading.RLock()
        """Held for as long as documents of a state are read: they are changed in place."""
        self.segments: list[int] = []
        """Their first moments."""
        self._lengths: dict[int, int] = {}
        self._read: dict[int, tuple[int, list[Chunk]]] = {}
        self._marks: dict[tuple[int, int], list[tuple[int, Key, int, bytes]]] = {}
        self._last: State | None = None

    def look(self) -> None:
        """Takes notice of what was written since."""
        bounds = self._file.rows("SELECT segment_ms, COUNT(*) FROM chunks GROUP BY 1 ORDER BY 1")
        with self.turn:
            self._lengths = dict(bounds)
            self.segments = [segment for segment, _ in bounds]

    def within(self, from_ms: int, until_ms: int) -> list[int]:
        """The segments that tell of the time between two moments."""
        return self.segments[max(0, bisect_right(self.segments, from_ms) - 1) : bisect_right(self.segments, until_ms)]

    # -- what is in the file -------------------------------------------------------------------------------------------

    def _chunks(self, segment: int) -> list[Chunk]:
        known = self._read.get(segment)
        if known is not None and known[0] == self._lengths.get(segment, 0):
            return known[1]
        rows = self._file.rows("SELECT until_ms, body FROM chunks WHERE segment_ms = ? ORDER BY number", (segment,))
        chunks: list[Chunk] = []
        with self._telling(segment):
            chunks.extend(_read(rows))
        while len(self._read) >= KEPT_SEGMENTS:
            del self._read[next(iter(self._read))]
        self._read[segment] = len(rows), chunks
        return chunks

    @contextlib.contextmanager
    def _telling(self, segment: int) -> Iterator[None]:
        """Damage of a segment is a sentence, and what was read of it counts."""
        try:
            yield
        except (zlib.error, msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
            at = _EPOCH + timedelta(milliseconds=segment)
            self._file.tell(f"{self._file.path}: what was recorded in the minute from {at:%Y-%m-%d %H:%M:%S} UTC is damaged ({error}).")

    # -- a moment --------------------------------------------------------------------------------------------------------

    def state(self, segment: int, at_ms: int, since_ms: int | None = None, watch: Watch | None = None) -> State:
        """All documents of a segment at a moment; `watch` is told of what happened after `since_ms`."""
        base_ms = at_ms if since_ms is None else min(since_ms, at_ms)
        with self.turn, seldom_searched():
            state = self._nearest(segment, base_ms)
            if watch is not None:
                self.advance(state, base_ms)
            self.advance(state, at_ms, watch)
            self._last = state
        return state

    def _nearest(self, segment: int, at_ms: int) -> State:
        """One that is kept, not after a moment; it may be changed."""
        last, chunks = self._last, self._chunks(segment)
        if last is not None and last.segment == segment and last.at_ms <= at_ms:
            self._last = None
            if not any(last.at_ms < chunks[one].until_ms <= at_ms for kept, one in self._marks if kept == segment and one < len(chunks)):
                return last
        for index in range(len(chunks) - 1, -1, -1):
            kept = self._marks.get((segment, index)) if chunks[index].until_ms <= at_ms else None
            if kept is not None:
                return State(segment, index, chunks[index].until_ms, {number: (key, heard, _decode(body)) for number, key, heard, body in kept})
        return State(segment, 0, -(1 << 62), {})

    def advance(self, state: State, until_ms: int, watch: Watch | None = None) -> None:
        """On to a later moment of its segment."""
        chunks = self._chunks(state.segment)
        with self._telling(state.segment):
            for index in range(state.chunk, len(chunks)):
                if index > state.chunk and chunks[index - 1].until_ms - TICK_MS > until_ms:
                    break
                after_ms = state.at_ms if index == state.chunk else -(1 << 62)
                told = watch if index else None  # a segment begins with what was there already
                for number, raw in chunks[index].frames:
                    _apply(state, number, _decode(raw), after_ms, until_ms, told)
                state.chunk, state.at_ms = index, min(until_ms, chunks[index].until_ms)
                if chunks[index].until_ms <= until_ms and (index % MARK_CHUNKS == 0 or _is_last(chunks, index, until_ms)):
                    self._keep(state, index)
        state.at_ms = until_ms

    def _keep(self, state: State, index: int) -> None:
        place = state.segment, index
        if place not in self._marks:
            while len(self._marks) >= KEPT_MARKS:
                del self._marks[next(iter(self._marks))]
            self._marks[place] = [(number, key, heard, _encode(doc)) for number, (key, heard, doc) in state.docs.items()]

    # -- one document over time --------------------------------------------------------------------------------------------

    def of(self, wanted: Key, segment: int, until_ms: int, *, beginning: bool = False) -> Iterator[tuple[int, Doc]]:
        """When a document was heard in a segment, and what it told then; it is changed in place. `beginning`: only the first."""
        state, found = State(segment, 0, 0, {}), []
        with self.turn, self._telling(segment):
            numbers: set[int] = set()
            others: set[int] = set()
            chunks = self._first(segment) if beginning else self._chunks(segment)
            for chunk in chunks:
                for number, raw in chunk.frames:
                    if number not in numbers and number not in others:
                        (numbers if _key_of(raw) == wanted else others).add(number)
                    if number in numbers:
                        found.append((number, raw))
        with self._telling(segment):
            for number, raw in found:
                pieces = _decode(raw)
                for place in range(0, len(pieces), 2):
                    _apply(state, number, pieces[place : place + 2], -(1 << 62), until_ms, None)
                    told = state.docs.get(number)
                    if told is not None and segment + pieces[place] * TICK_MS <= until_ms:
                        yield told[1], told[2]

    def _first(self, segment: int) -> list[Chunk]:
        if segment in self._read:
            return self._read[segment][1][:1]
        rows = self._file.rows("SELECT until_ms, body FROM chunks WHERE segment_ms = ? AND number = 0", (segment,))
        return list(_read(rows))


def _apply(state: State, number: int, pieces: list[Any], after_ms: int, until_ms: int, watch: Watch | None) -> None:
    """What a document went through after a moment and up to another."""
    segment, docs = state.segment, state.docs
    for place in range(0, len(pieces), 2):
        moment_ms, change = segment + pieces[place] * TICK_MS, pieces[place + 1]
        if moment_ms > until_ms:
            return
        if moment_ms <= after_ms:
            continue
        if type(change) is list:
            key, doc = (change[0], change[1], change[2]), change[3]
        elif change is None:
            gone = docs.pop(number)
            if watch is not None:
                watch(gone[0], moment_ms, None)
            continue
        else:
            key, _, doc = docs[number]
            if change:
                alter(doc, change)
        docs[number] = (key, moment_ms, doc)
        if watch is not None:
            watch(key, moment_ms, doc)


def _is_last(chunks: list[Chunk], index: int, until_ms: int) -> bool:
    """Of those that are whole at a moment."""
    return index + 1 == len(chunks) or chunks[index + 1].until_ms > until_ms


def _key_of(raw: msgspec.Raw) -> Key | None:
    """The key in the first change of a frame, where it is a document as a whole."""
    for change in islice(_parts(raw), 1, None, 2):
        if bytes(memoryview(change)[:1])[0] in _ARRAY:
            ident, kind, name, _ = _key(change)
            return ident, kind, name
    return None


def _read(rows: list[tuple[int, bytes]]) -> Iterator[Chunk]:
    stream, data = zlib.decompressobj(), bytearray()
    for until_ms, body in rows:
        data += stream.decompress(body)
        place, frames = 0, []
        while len(data) - place >= 4 and len(data) - place - 4 >= (length := int.from_bytes(data[place : place + 4])):
            frames += _frames(bytes(data[place + 4 : place + 4 + length]))
            place += 4 + length
        del data[:place]
        yield Chunk(until_ms, frames)
