"""Reads the trials of a sweep from its job's log as they come.

Invariant: the log is read once from its first byte, and then only what is new; a node that does not answer is asked again later,
and what was read stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent import wire
from agent.client_errors import ClientError
from tui.sweep_show import Gathering, Swept

PAGE_BYTES = 262_144
WAIT_SECONDS = 20.0
AGAIN_SECONDS = 5.0
"""After a node that did not answer."""
MODULE = "agent.recipes.sweep"
Ask = Callable[[int, int, float, int | None], Awaitable[wire.LogPage]]
"""offset, limit, wait, attempt."""


def is_sweep(job: wire.Job) -> bool:
    """Whether its command is that of a sweep."""
    return MODULE in job.command


class SweepFollower:
    """`changed` is called when there is more to show."""

    def __init__(self, ask: Ask, changed: Callable[[], None]) -> None:
        self._ask, self._changed = ask, changed
        self._gathering = Gathering()
        self._rest, self._offset = "", 0
        self._attempt: int | None = None

    @property
    def swept(self) -> Swept | None:
        """None until the sweep has said something."""
        return self._gathering.result() if self._gathering.is_sweep else None

    async def run(self) -> None:
        """Until the log has ended."""
        while True:
            try:
                page = await self._ask(self._offset, PAGE_BYTES, WAIT_SECONDS, None)
            except ClientError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if self.take(page):
                return

    def take(self, page: wire.LogPage) -> bool:
        """Whether that was the end. A new attempt's log begins anew; what an earlier one told of trials stays."""
        if self._attempt not in (None, page.attempt):
            self._rest, self._offset, self._attempt = "", 0, page.attempt
            return False
        self._attempt = page.attempt
        if page.next_offset > self._offset:
            *lines, self._rest = (self._rest + page.text).split("\n")
            self._offset = page.next_offset
            self._gathering.feed(lines)
            self._changed()
            return False
        return page.ended
