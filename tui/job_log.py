"""A window on a job's log: a bounded part of it as lines, that grows at either end.

Invariant: the window is one run of bytes without a hole, and never holds more than `kept_bytes` and a page.
No I/O: pages are given to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, overload

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


class Lines(Sequence[LogLine]):
    """Lines that are made when they are looked at: a window of short ones holds a hundred thousand."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.looks: list[Look] = []
        self.starts: list[int] = []
        """The byte at which each line begins; exact where the log is valid UTF-8."""

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, at: int) -> LogLine: ...
    @overload
    def __getitem__(self, at: slice) -> list[LogLine]: ...
    def __getitem__(self, at: int | slice) -> LogLine | list[LogLine]:
        if isinstance(at, slice):
            return list(map(LogLine, self.texts[at], self.looks[at]))
        return LogLine(self.texts[at], self.looks[at])

    def put(self, at: slice, texts: list[str], looks: list[Look], starts: list[int]) -> None:
        """In the place of those."""
        self.texts[at], self.looks[at], self.starts[at] = texts, looks, starts


class _Part(NamedTuple):
    offset: int
    next_offset: int
    text: str


class LogBuffer:
    """Lines between the bytes `start` and `end` of one attempt's log."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self.generation = 0
        """Grows when lines change that were there already, not when some come at the end."""
        self.appended = 0
        """Lines that ever came at the end."""
        self.reset()

    def reset(self, attempt: int | None = None) -> None:
        """Empty: the next page may come from anywhere."""
        self._parts: list[_Part] = []
        self.lines = Lines()
        self.attempt = attempt
        self.first = 0
        """The oldest byte that the node still keeps."""
        self.start = self.end = 0
        self.ended = False
        self.dropped_lines = 0
        self.detached = False
        """Newer bytes than `end` were let go to make room for older ones."""
        self.generation += 1

    @property
    def whole_front(self) -> bool:
        """Nothing older is kept anywhere."""
        return self.start <= self.first

    @property
    def full(self) -> bool:
        return self.end - self.start >= self._kept_bytes

    def line_at(self, offset: int) -> int:
        """Index of the line that holds this byte."""
        return max(0, bisect_right(self.lines.starts, offset) - 1)

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
        self._extend(page)
        self.appended += page.text.count("\n")
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
        joined = self._join(page)
        self._parts.insert(0, _Part(page.offset, page.next_offset, page.text))
        self.start, self.first = page.offset, page.first_offset
        if not joined:
            self._rebuild()
        self.generation += 1
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

    def _extend(self, part: _Part | wire.LogPage) -> None:
        """The lines of what comes behind."""
        pieces, starts = split_lines(part.text, part.offset, part.next_offset)
        look, lines = PLAIN, self.lines
        if lines:
            pieces[0], starts[0], look = lines.texts[-1] + pieces[0], lines.starts[-1], lines.looks[-1]
        lines.put(slice(max(0, len(lines) - 1), None), *_made(pieces, starts, look))

    def _join(self, page: wire.LogPage) -> bool:
        """Puts the lines of the page before the others; False where that is not plain: then all are made anew."""
        if not self.lines or "\n" not in self._parts[0].text:
            return False
        rest = self._parts[0].text.partition("\n")[0]
        pieces, starts = split_lines(page.text, page.offset, page.next_offset)
        pieces[-1] += rest
        if len(pieces[-1]) > LONGEST_LINE:
            return False
        texts, looks, starts = _made(pieces, starts, PLAIN)
        look, at = look_after(pieces[-1], looks[-1]), len(texts)
        self.lines.put(slice(0, 1), texts, looks, starts)
        while at < len(self.lines) and self.lines.looks[at] != look:
            self.lines.looks[at] = look
            look, at = look_after(self.lines.texts[at], look), at + 1
        return True

    def _rebuild(self) -> None:
        self.lines = Lines()
        for part in self._parts:
            self._extend(part)
        self.generation += 1

    def _trim_front(self) -> None:
        """A quarter more than it must, so that it is done seldom."""
        while len(self._parts) > 1 and self.end - self._parts[0].next_offset >= self._kept_bytes * 3 // 4:
            self._parts.pop(0)
        self.start = self._parts[0].offset
        rest, found, _ = self._parts[0].text.partition("\n")
        if not found or len(rest) > LONGEST_LINE:
            self._rebuild()
            return
        at = self.line_at(self.start)
        self.lines.put(slice(0, at + 1), [last_turn(rest)], [self.lines.looks[at]], [self.start])
        self.generation += 1

    def _trim_back(self) -> None:
        while len(self._parts) > 1 and self._parts[-1].offset - self.start >= self._kept_bytes:
            self._parts.pop()
        self.end, self.detached, self.ended = self._parts[-1].next_offset, True, False
        _, found, rest = self._parts[-1].text.rpartition("\n")
        if not found or len(rest) > LONGEST_LINE:
            self._rebuild()
            return
        at = bisect_left(self.lines.starts, self.end)
        look = self.lines.looks[at] if at < len(self.lines) else PLAIN
        if rest:
            self.lines.put(slice(at - 1, None), [last_turn(rest)], [self.lines.looks[at - 1]], [self.lines.starts[at - 1]])
        else:
            self.lines.put(slice(at, None), [""], [look], [self.end])
        self.generation += 1


def split_lines(text: str, offset: int, end: int) -> tuple[list[str], list[int]]:
    """The lines of the bytes from `offset` to `end`, and the byte at which each begins: bytes that were replaced make the text
    longer, then the beginnings are spread evenly."""
    pieces = text.split("\n")
    lengths = map(len, pieces) if text.isascii() else (len(piece.encode("utf-8", "replace")) for piece in pieces)
    starts = list(accumulate((length + 1 for length in lengths), initial=0))
    size, told = end - offset, starts.pop() - 1
    if told != size and told > 0:
        return pieces, [offset + at * size // told for at in starts]
    return pieces, [offset + at for at in starts]


def _made(pieces: list[str], starts: list[int], look: Look) -> tuple[list[str], list[Look], list[int]]:
    """Texts, looks and starts: lines that are begun anew are as at their end, long ones are cut, each has the look in which it begins."""
    if max(map(len, pieces)) > LONGEST_LINE or "\r" in "".join(pieces):
        cut = [(part, start) for piece, start in zip(pieces, starts, strict=True) for part, start in cut_line(last_turn(piece), start)]
        pieces, starts = [part for part, _ in cut], [start for _, start in cut]
    if look == PLAIN and not any("\x1b" in piece or "\x9b" in piece for piece in pieces):
        return pieces, [PLAIN] * len(pieces), starts
    return pieces, list(accumulate(pieces[:-1], lambda before, piece: look_after(piece, before), initial=look)), starts


def cut_line(text: str, start: int) -> list[tuple[str, int]]:
    """(part, byte at which it begins) of a line."""
    if len(text) <= LONGEST_LINE:
        return [(text, start)]
    return [(text[at : at + LONGEST_LINE], start + at) for at in range(0, len(text), LONGEST_LINE)]
