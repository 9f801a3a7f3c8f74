"""Looks for something in the whole of a job's log: in the window at once, above and below it by asking the node in pieces.

Invariant: one question at a time and few milliseconds of work between two turns of the loop; whatever is asked next, or leaving
the screen, ends it. What was found so far is in order and can be gone through while the rest is still looked through.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from agent import wire
from agent.client import ClientError
from tui.errors import RackrateError
from tui.job_log import LogBuffer, cut_line, split_lines
from tui.job_search import Wanted, plain_of
from tui.sgr import last_turn
from tui.ui.log_follow import Ask

PIECE_BYTES = 262_144
SLICE_CHARACTERS = 32_768
"""Looked through between two turns of the loop."""
AGAIN_SECONDS = 2.0
MOST_FOUND = 100_000


class LogSearch:
    """`changed` is called when more was found, or looked through."""

    def __init__(self, buffer: LogBuffer, ask: Ask, changed: Callable[[], None]) -> None:
        self._buffer = buffer
        self._ask = ask
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._clear(None)

    def _clear(self, pattern: Wanted | None) -> None:
        self.pattern = pattern
        self.found: list[int] = []
        """Bytes at which lines begin that hold it."""
        self.error: str | None = None
        self.low = self.high = self._first = 0
        """What was looked through, in bytes."""
        self._attempt: int | None = None
        self._at_end = self._again = False

    def begin(self, pattern: Wanted | None, start: Callable[..., asyncio.Task[None]]) -> None:
        """From the window on; None: nothing is looked for any more."""
        self.close()
        self._clear(pattern)
        if pattern is not None:
            self._task = start(self._run())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def log_changed(self) -> None:
        """The window holds something else."""
        self._news.set()

    @property
    def whole(self) -> bool:
        """Everything that is kept was looked through."""
        return self.low <= self._first and self._at_end

    @property
    def capped(self) -> bool:
        return len(self.found) >= MOST_FOUND

    def progress(self) -> float:
        """Share of what is kept that was looked through, 0 to 1."""
        end = max(self.high, self._buffer.end)
        return (self.high - self.low) / (end - self._first) if end > self._first else 1.0

    def rank(self, offset: int) -> int | None:
        """Which of the found ones it is, from 1; None: none of them."""
        at = bisect_left(self.found, offset)
        return at + 1 if at < len(self.found) and self.found[at] == offset else None

    def beyond(self, offset: int, step: int) -> int | None:
        """The next one below (1) or above (-1) this byte; None: none is found there."""
        at = bisect_right(self.found, offset) if step > 0 else bisect_left(self.found, offset) - 1
        return self.found[at] if 0 <= at < len(self.found) else None

    # -- the way through -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._buffer.lines and not self._buffer.ended:
            await self._wait()
        self._settle()
        while not self.capped:
            if self._attempt != self._buffer.attempt:
                pattern = self.pattern
                self._clear(pattern)
                self._settle()
            try:
                if not await self._below() and not await self._above():
                    self._changed()
                    await self._wait()
                self.error = None
            except (ClientError, RackrateError) as error:
                self.error = str(error)
                self._changed()
                await asyncio.sleep(2.0)

    async def _wait(self) -> None:
        """For news; a window that is not at the end of the log hears of none."""
        self._news.clear()
        try:
            async with asyncio.timeout(AGAIN_SECONDS if self._buffer.detached else None):
                await self._news.wait()
        except TimeoutError:
            self._again = True

    def _settle(self) -> None:
        """Where it begins: at the first whole line of the window."""
        buffer = self._buffer
        self._attempt, self._first = buffer.attempt, buffer.first
        starts = buffer.lines.starts
        whole = 0 if buffer.whole_front or len(starts) < 2 else 1
        self.low = self.high = starts[whole] if starts else buffer.end

    async def _below(self) -> bool:
        """Down to the end of the log; False: there is nothing to look at now."""
        buffer, starts = self._buffer, self._buffer.lines.starts
        last = len(starts) - (0 if buffer.ended or not starts else 1)
        if starts and starts[0] <= self.high <= buffer.end:
            at = bisect_left(starts, self.high)
            upto = starts[last] if last < len(starts) else buffer.end
            if at < last and self.high < upto:  # behind the last line of an ended log stands an empty one
                rows = list(zip(buffer.lines.texts[at:last], starts[at:last], strict=True))
                self._take(await self._matching(rows))
                self.high = upto
                self._changed()
                return True
            self._at_end = not buffer.detached
            if self._at_end:
                return False
        elif self._at_end and buffer.detached and not self._again:
            return False
        self._again = False
        return await self._ask_below()

    async def _ask_below(self) -> bool:
        page = await self._ask(self.high, PIECE_BYTES, 0.0, self._attempt)
        rows, end = _whole_lines(page)
        if not rows:
            self._at_end = page.ended or page.next_offset - page.offset < PIECE_BYTES // 2
            return not self._at_end
        self._take(await self._matching(rows, page.text))
        self.high = end
        self._changed()
        return True

    async def _above(self) -> bool:
        """A piece above what was looked through; False: there is none."""
        if self.low <= self._first:
            return False
        at, text, offset = max(self._first, self.low - PIECE_BYTES), "", None
        while at < self.low:
            page = await self._ask(at, self.low - at, 0.0, self._attempt)
            self._first = max(self._first, page.first_offset)
            if page.next_offset <= page.offset or page.offset >= self.low:
                break
            offset = page.offset if offset is None else offset
            text, at = text + page.text, page.next_offset
        if offset is None:
            self.low = self._first
            return False
        rows = list(_lines_of(text, offset, self.low))
        if offset > self._first and len(rows) > 1:
            rows = rows[1:]  # it begins further up
        self._take(await self._matching(rows, text), front=True)
        self.low = rows[0][1] if rows and offset > self._first else offset
        self._changed()
        return True

    async def _matching(self, rows: list[tuple[str, int]], block: str | None = None) -> list[int]:
        pattern, found, since = self.pattern, [], 0
        assert pattern is not None
        await asyncio.sleep(0)
        if block is not None and not pattern.may_be_in(block):
            return []
        for text, start in rows:
            if pattern.matches(plain_of(text)):
                found.append(start)
            since += len(text) + 20
            if since > SLICE_CHARACTERS:
                since = 0
                await asyncio.sleep(0)
        return found

    def _take(self, found: list[int], *, front: bool = False) -> None:
        if front:
            self.found[:0] = found
        else:
            self.found += found
        del self.found[MOST_FOUND:]


def _whole_lines(page: wire.LogPage) -> tuple[list[tuple[str, int]], int]:
    """The lines of a page that are at their end, and where the next one begins."""
    rows = list(_lines_of(page.text, page.offset, page.next_offset))
    if page.ended or len(rows) < 2:
        whole = page.ended or page.next_offset - page.offset >= PIECE_BYTES // 2  # one line as long as a page is taken in parts
        return (rows, page.next_offset) if whole and page.text else ([], page.offset)
    return rows[:-1], rows[-1][1]


def _lines_of(text: str, offset: int, end: int) -> Iterator[tuple[str, int]]:
    """As the window has them: cut, and as at their end; behind the last line end there is none."""
    pieces, starts = split_lines(text, offset, end)
    if not pieces[-1]:
        pieces, starts = pieces[:-1], starts[:-1]
    for piece, start in zip(pieces, starts, strict=True):
        yield from cut_line(last_turn(piece), start)
