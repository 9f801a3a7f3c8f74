"""Follows a job's log: asks its node for what comes next, and for what came before when somebody scrolls there.

Invariant: one question for newer and one for older bytes at a time; a node that does not answer is asked again, ever more
slowly, and what was read stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agent import wire
from agent.client import ClientError
from tui.errors import RackrateError
from tui.job_log import PART_BYTES, LogBuffer

WAIT_SECONDS = 20.0
"""The node answers an empty question for news after so long."""
SOON_SECONDS = 1.0
"""Between questions to a node that answers them at once with nothing."""
GATHER_SECONDS = 0.2
"""After news, so that a job that writes line by line is not asked, and painted, line by line."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0)
Ask = Callable[[int, int, float, "int | None"], Coroutine[Any, Any, wire.LogPage]]
"""(offset, limit, wait, attempt) -> page."""


class LogFollower:
    """`ask` reads pages, `size` tells how many bytes there are (None: not known). `changed(shift)` is called after each
    change, with the number of lines that came (or, below 0, went) at the front of the window."""

    def __init__(
        self,
        buffer: LogBuffer,
        ask: Ask,
        size: Callable[[], Coroutine[Any, Any, int | None]],
        changed: Callable[[int], None],
        *,
        reads_end: Callable[[], bool] = lambda: True,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        gather: Callable[[float], float] = lambda usual: usual,
    ) -> None:
        self.buffer = buffer
        self.error: str | None = None
        """Why the log cannot be read now, in a sentence."""
        self.loading_older = False
        self.loading_newer = False
        self._ask = ask
        self._size = size
        self._changed = changed
        self._reads_end = reads_end
        self._retry_seconds = retry_seconds
        self._gather = gather
        """How long news are gathered: longer on a slow line."""
        self._wake = asyncio.Event()
        self._wanted: int | None = None
        """The attempt that is followed; None: the newest."""
        self._at_tail = False
        self._question: asyncio.Future[wire.LogPage] | None = None
        self._turned = False
        """What is asked now is no longer of interest."""

    async def run(self) -> None:
        """Until cancelled."""
        faults = 0
        while True:
            try:
                await self._step()
                faults = 0
            except (ClientError, RackrateError) as error:
                self.error = str(error)
                self._changed(0)
                await self._pause(self._retry_seconds[min(faults, len(self._retry_seconds) - 1)])
                faults += 1

    async def _step(self) -> None:
        """One question, or a wait where there is nothing to ask."""
        if not self._at_tail:
            await self._go_to_tail()
            return
        buffer = self.buffer
        if buffer.ended or buffer.detached or (buffer.full and not self._reads_end()):
            await self._pause(WAIT_SECONDS)
            return
        began, asked = time.monotonic(), buffer.end
        page = await self._news(asked)
        if page is None or not self._at_tail or buffer.detached or buffer.end != asked:
            return
        self._take(page)
        if page.next_offset <= asked and not page.ended and time.monotonic() - began < SOON_SECONDS:
            await self._pause(SOON_SECONDS)
        elif page.next_offset - asked < PART_BYTES:
            await self._pause(self._gather(GATHER_SECONDS))

    async def _news(self, offset: int) -> wire.LogPage | None:
        """What comes next, which may take long; None when somebody wants something else meanwhile."""
        self._turned = False
        self._question = asyncio.ensure_future(self._ask(offset, PART_BYTES, WAIT_SECONDS, self.buffer.attempt))
        try:
            return await self._question
        except asyncio.CancelledError:
            if not self._turned:
                raise
            return None
        finally:
            self._question = None

    def _turn(self) -> None:
        """Begins anew at the end of the log, at once."""
        self._at_tail, self._turned = False, True
        if self._question is not None:
            self._question.cancel()
        self._wake.set()

    async def _go_to_tail(self) -> None:
        size = await self._size() or 0
        page = await self._ask(max(0, size - PART_BYTES), PART_BYTES, 0.0, self._wanted)
        self._at_tail = True
        self.buffer.reset(page.attempt)
        self._take(page)

    def _take(self, page: wire.LogPage) -> None:
        self.error = None
        self._changed(-self.buffer.append(page))

    async def _pause(self, seconds: float) -> None:
        """Waits, or until somebody wants something else."""
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def wake(self) -> None:
        """Somebody reads the end again."""
        self._wake.set()

    def to_tail(self) -> None:
        """The newest lines, wherever the window is."""
        if self.buffer.detached or self.error:
            self._turn()
        self._wake.set()

    def follow_attempt(self, number: int | None) -> None:
        """Another attempt's log, from its end; None: the newest one's."""
        self._wanted = number
        self.buffer.reset(number)
        self._changed(0)
        self._turn()

    async def go_to(self, offset: int) -> None:
        """A window around this byte, wherever it is; who reads on from there comes to the end again."""
        buffer, attempt = self.buffer, self.buffer.attempt
        try:
            page = await self._ask(max(buffer.first, offset - PART_BYTES // 2), PART_BYTES, 0.0, attempt)
        except (ClientError, RackrateError) as error:
            self.error = str(error)
            self._changed(0)
            return
        if buffer.attempt != attempt or not self._at_tail:
            return
        buffer.reset(page.attempt)
        buffer.append(page)
        self._join_end(page, PART_BYTES)
        self._changed(0)

    async def newer(self) -> None:
        """Brings the page behind a window that newer bytes were let go from."""
        buffer, attempt, asked = self.buffer, self.buffer.attempt, self.buffer.end
        if self.loading_newer or not buffer.detached or not self._at_tail:
            return
        self.loading_newer = True
        try:
            page = await self._ask(asked, PART_BYTES, 0.0, attempt)
        except (ClientError, RackrateError) as error:
            self.error = str(error)
            self._changed(0)
            return
        finally:
            self.loading_newer = False
        if (buffer.end, buffer.attempt) != (asked, attempt) or not buffer.detached:
            return
        gone = buffer.append(page)
        self._join_end(page, PART_BYTES)
        self._changed(-gone)

    def _join_end(self, page: wire.LogPage, limit: int) -> None:
        """A page that is short, or the last one, brings the window to the end of the log, where it grows again."""
        self.buffer.detached = not page.ended and page.next_offset - page.offset >= limit - 8
        if not self.buffer.detached:
            self._wake.set()

    async def older(self) -> None:
        """Brings the page before the window. Does nothing while one is on its way, or where there is none."""
        buffer = self.buffer
        if self.loading_older or buffer.whole_front or not self._at_tail:
            return
        self.loading_older = True
        try:
            shift = await self._read_older(buffer.start, buffer.attempt)
        except (ClientError, RackrateError) as error:
            self.error, shift = str(error), 0
        finally:
            self.loading_older = False
        self._changed(shift)

    async def _read_older(self, end: int, attempt: int | None) -> int:
        """Pages may come shorter than asked for: they are cut between characters."""
        buffer, at, text = self.buffer, max(self.buffer.first, end - PART_BYTES), ""
        first: int | None = None
        while at < end:
            page = await self._ask(at, end - at, 0.0, attempt)
            if page.next_offset <= page.offset or page.offset >= end:
                break
            first = page.offset if first is None else first
            text, at = text + page.text, page.next_offset
        if first is None:
            buffer.first = end
            return 0
        if buffer.start != end or buffer.attempt != attempt:
            return 0
        return buffer.prepend(
            wire.LogPage(job=page.job, attempt=page.attempt, first_offset=page.first_offset, offset=first, next_offset=end,
                         text=text, ended=False)
        )  # fmt: skip
