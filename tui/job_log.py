"""A window on a job's log: a bounded part of it as lines, that grows at either end.

Invariant: the window is one run of bytes without a hole, and never holds more than `kept_bytes` and a page.
No I/O: pages are given to it.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from agent import wire
from tui.sgr import PLAIN, Look, last_turn, look_after

KEPT_BYTES = 1 << 20
PART_BYTES = 65_536
"""Pages are asked for in this size; small ones are joined until they reach it."""
LONGEST_LINE = 16_384
"""Characters after which a line is cut in two: output without line ends must stay cheap to look at."""


class LogLine(NamedTuple):
    """As the job wrote it, with the look in which it begins."""

    text: str
    look: Look = PLAIN


class _Part(NamedTuple):
    offset: int
    next_offset: int
    text: str


class LogBuffer:
    """Lines between the bytes `start` and `end` of one attempt's log."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self.reset()

    def reset(self, attempt: int | None = None) -> None:
        """Empty: the next page may come from anywhere."""
        self._parts: list[_Part] = []
        self.lines: list[LogLine] = []
        self.attempt = attempt
        self.first = 0
        """The oldest byte that the node still keeps."""
        self.start = self.end = 0
        self.ended = False
        self.dropped_lines = 0
        self.detached = False
        """Newer bytes than `end` were let go to make room for older ones."""

    @property
    def whole_front(self) -> bool:
        """Nothing older is kept anywhere."""
        return self.start <= self.first

    @property
    def full(self) -> bool:
        return self.end - self.start >= self._kept_bytes

    def append(self, page: wire.LogPage) -> int:
        """Adds what comes next; returns how many lines went at the front to make room. A page from elsewhere is left out."""
        self.first, self.dropped_lines = page.first_offset, page.dropped_lines
        if self._parts and page.offset > self.end:
            self.reset(self.attempt)  # the node let go what lies between
            self.first, self.dropped_lines = page.first_offset, page.dropped_lines
        if self._parts and page.offset < self.end:
            return 0
        if not self._parts:
            self.start = self.end = page.offset
        self.attempt, self.ended = page.attempt, page.ended
        if page.next_offset <= page.offset:
            return 0
        self._keep(_Part(page.offset, page.next_offset, page.text))
        self.end = page.next_offset
        before = len(self.lines)
        self._extend(page.text)
        if self.end - self.start <= self._kept_bytes + PART_BYTES:
            return 0
        grown = len(self.lines)
        self._trim_front()
        return min(before, grown - len(self.lines))

    def prepend(self, page: wire.LogPage) -> int:
        """Adds what came before; returns by how many lines the window grew at its front."""
        if page.next_offset != self.start or page.next_offset <= page.offset:
            return 0
        before = len(self.lines)
        self._parts.insert(0, _Part(page.offset, page.next_offset, page.text))
        self.start, self.first = page.offset, page.first_offset
        self._rebuild()
        grown = len(self.lines) - before
        if self.end - self.start > self._kept_bytes + PART_BYTES:
            self._trim_back()
        return grown

    def _keep(self, part: _Part) -> None:
        if self._parts and self._parts[-1].next_offset - self._parts[-1].offset < PART_BYTES:
            last = self._parts[-1]
            self._parts[-1] = _Part(last.offset, part.next_offset, last.text + part.text)
        else:
            self._parts.append(part)

    def _extend(self, text: str) -> None:
        last = self.lines.pop() if self.lines else LogLine("")
        pieces = text.split("\n")
        pieces[0] = last.text + pieces[0]
        if any(len(piece) > LONGEST_LINE for piece in pieces):
            pieces = [part for piece in pieces for part in _cut(last_turn(piece))]
        looks = accumulate(pieces[:-1], lambda look, piece: look_after(piece, look), initial=last.look)
        self.lines += [LogLine(last_turn(piece), look) for piece, look in zip(pieces, looks, strict=True)]

    def _rebuild(self) -> None:
        self.lines = []
        self._extend("".join(part.text for part in self._parts))

    def _trim_front(self) -> None:
        """A quarter more than it must, so that it is done seldom."""
        while len(self._parts) > 1 and self.end - self._parts[0].next_offset >= self._kept_bytes * 3 // 4:
            self._parts.pop(0)
        self.start = self._parts[0].offset
        self._rebuild()

    def _trim_back(self) -> None:
        while len(self._parts) > 1 and self._parts[-1].offset - self.start >= self._kept_bytes:
            self._parts.pop()
        self.end, self.detached, self.ended = self._parts[-1].next_offset, True, False
        self._rebuild()


def _cut(text: str) -> list[str]:
    return [text[at : at + LONGEST_LINE] for at in range(0, len(text), LONGEST_LINE)] or [""]
