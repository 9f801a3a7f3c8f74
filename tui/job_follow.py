"""Follows a job to its end: its log as it grows, over retries, lost connections and restarts of the agent.

Invariant: each byte of a log is written once and in order, whatever breaks in between: what is asked for is always the
byte after the last one that was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agent import wire
from agent.client import AgentClient, AgentRefused, ClientError, Unreachable
from tui import format as fmt

WAIT_SECONDS = 25.0
PAGE_BYTES = 256 * 1024
POLL_SECONDS = 0.5
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
WELL = (None, "exit:0")
TAIL_BYTES = 64 * 1024
MOST_TAIL_BYTES = 64 * 1024**2
BEYOND = 2**53 - 1
"""An offset after every log's end."""


class Follower:
    """Where in the log of which attempt we are; `run` may be called again after it was cancelled.

    `write` gets the log, `tell` sentences for the person.
    """

    def __init__(
        self,
        client: AgentClient,
        id: str,
        write: Callable[[str], None],
        tell: Callable[[str], None],
        *,
        only: int | None = None,
        start: int = 0,
        offset: int = 0,
    ) -> None:
        """`only`: this attempt alone. `start`: the first attempt whose log is wanted (0: the newest)."""
        self._client = client
        self.id = id
        self._write = write
        self._tell = tell
        self._only = only
        self._start = start
        self.attempt = only or 0
        self.offset = offset
        self._told: str | None = None
        self._faults = 0

    async def run(self) -> wire.Job:
        """Until the job has ended (or the one attempt, if one was named)."""
        while True:
            job = await self._steady(lambda: self._client.job(self.id))
            if self._only is None and job.attempt > self.attempt:
                self._next_attempt(job)
            if self.attempt:
                await self._read_attempt()
                job = await self._steady(lambda: self._client.job(self.id))
            if job.state == "ended" and job.attempt <= self.attempt:
                return job
            if self._only is not None and self._only < job.attempt:
                return job
            if job.state == "ended" and not job.attempt:
                return job
            self._tell_waiting(job)
            await asyncio.sleep(POLL_SECONDS)

    def _next_attempt(self, job: wire.Job) -> None:
        if not self.attempt:
            self.attempt = self._start or job.attempt
            return
        self.attempt, self.offset = self.attempt + 1, 0
        self._tell(f"attempt {self.attempt} begins")

    async def _read_attempt(self) -> None:
        while True:
            page = await self._steady(
                lambda: self._client.log(self.id, self.offset, limit=PAGE_BYTES, wait=WAIT_SECONDS, attempt=self.attempt)
            )
            if page.offset > self.offset:
                self._tell(f"{page.offset - self.offset:,} bytes of the log are no longer kept")
            if page.text:
                self._write(page.text)
            self.offset = max(self.offset, page.next_offset)
            if page.ended:
                return

    async def _steady(self, ask: Callable):  # noqa: ANN202
        """Asks until the node answers; what the agent itself refuses is raised."""
        while True:
            try:
                answer = await ask()
            except AgentRefused as error:
                if error.status < 500:
                    raise
                await self._wait(error)
            except Unreachable as error:
                await self._wait(error)
            else:
                if self._faults:
                    self._tell("it answers again")
                self._faults = 0
                return answer

    async def _wait(self, error: ClientError) -> None:
        if not self._faults:
            self._tell(f"{error}; trying again")
        await asyncio.sleep(RETRY_SECONDS[min(self._faults, len(RETRY_SECONDS) - 1)])
        self._faults += 1

    def _tell_waiting(self, job: wire.Job) -> None:
        if job.state == "queued" and job.reason and job.reason != self._told:
            self._told = job.reason
            self._tell(f"waits: {fmt.clean(job.reason)}")


async def wait_for_end(client: AgentClient, id: str, tell: Callable[[str], None]) -> wire.Job:
    """The job once it has ended."""
    follower = Follower(client, id, lambda text: None, tell)
    while (job := await follower._steady(lambda: client.job(id))).state != "ended":
        await asyncio.sleep(POLL_SECONDS)
    return job


def exit_code(job: wire.Job) -> int:
    """What a command that stands for the job ends with: 0 only if it ended well."""
    if job.cause in WELL and not job.exit_code and job.signal is None:
        return 0
    if job.exit_code:
        return min(job.exit_code, 255)
    return 128 + job.signal if job.signal else 1


async def tail(client: AgentClient, id: str, attempt: int, lines: int) -> tuple[str, int]:
    """The last `lines` lines of an attempt's log, and the offset after them."""
    end = (await client.log(id, BEYOND, attempt=attempt)).next_offset
    span = TAIL_BYTES
    while lines > 0:
        first, text, upto = await _stretch(client, id, attempt, max(0, end - span), end)
        kept = text.split("\n")
        wanted = lines + (not kept[-1])
        if len(kept) > wanted or first > end - span or span >= MOST_TAIL_BYTES:
            return "\n".join(kept[-wanted:]), upto
        span *= 8
    return "", end


async def _stretch(client: AgentClient, id: str, attempt: int, begin: int, end: int) -> tuple[int, str, int]:
    """(where it really begins, the text, the offset after it) of about `begin` to `end`."""
    parts: list[str] = []
    first, offset = begin, begin
    while offset < end:
        page = await client.log(id, offset, limit=PAGE_BYTES, attempt=attempt)
        first = page.offset if offset == begin else first
        if page.next_offset <= offset:
            break
        parts.append(page.text)
        offset = page.next_offset
    return first, "".join(parts), offset
