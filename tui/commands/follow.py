"""Follows jobs from a terminal: the log of one, the end of all, and what Ctrl-C means meanwhile.

Invariant: on a terminal a log can colour text and do nothing else; to a file or a pipe it goes byte for byte. What was
written is never written again, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.output import say

if TYPE_CHECKING:
    from agent import wire
    from agent.client import AgentClient
    from tui.config import NodeConfig

INTERRUPTED = 130


def asking(call: Any) -> Any:
    """Runs it; what an agent refuses becomes its sentence with its exit code."""
    from agent.client import AgentRefused
    from tui.job_nodes import Refused

    try:
        return asyncio.run(call)
    except AgentRefused as error:
        raise Refused(fmt.clean(error.text), error.status) from None


def end_line(node: NodeConfig, job: wire.Job) -> str:
    evidence = f": {fmt.clean(job.evidence)}" if job.evidence and job.cause != "exit:0" else ""
    cost = f", {fmt.usd(job.cost)}" if job.cost is not None else ""
    return f"job {job.id} on {fmt.clean(node.name)} ended ({fmt.clean(job.cause or 'well')}{cost}){evidence}"


class LogOut:
    """Where a log goes: made safe on a terminal, as it is elsewhere."""

    def __init__(self, *, raw: bool = False) -> None:
        from tui.safe_text import SafeText

        self._safe = SafeText() if sys.stdout.isatty() and not raw else None

    def __enter__(self) -> LogOut:
        return self

    def __exit__(self, *_: object) -> None:
        if self._safe is not None:
            self._put(self._safe.close())

    def write(self, text: str) -> None:
        self._put(self._safe.feed(text) if self._safe is not None else text)

    def _put(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8" if self._safe is not None else "utf-8", "replace")
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Lines:
    """One of several logs that go to the same place: `whole`: no line of another one comes into the middle of one."""

    def __init__(self, put: Callable[[str], None], *, whole: bool) -> None:
        self._put, self._whole, self._rest = put, whole, ""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rest:
            self._put(self._rest)
        self._rest = ""

    def write(self, text: str) -> None:
        """Up to the last end of a line; a carriage return is one too, as progress bars have it."""
        text = self._rest + text
        end = max(text.rfind("\n"), text.rfind("\r")) + 1 if self._whole else len(text)
        self._rest = text[end:]
        if end:
            self._put(text[:end])


def follow_parts(
    context: Context,
    parts: Sequence[tuple[NodeConfig, str]],
    *,
    out: LogOut | None = None,
    first: int = 0,
    only: int | None = None,
    lines: int | None = None,
    quiet: bool = False,
) -> int:
    """Follows all parts of one run to their ends. Ctrl-C asks whether to leave it. `quiet`: no log, only the ends.

    Of several parts each line stands whole: which of them speaks (rank 0 does) is nothing that could be known before.
    """
    following = _Following(context, parts, out or LogOut(), first, only, lines, quiet)
    while True:
        try:
            return asking(following.run())
        except KeyboardInterrupt:
            answer = _ask_person()
        if answer == "cancel":
            asyncio.run(following.cancel())
        elif answer == "leave":
            say(f"left running; `rackrate job logs -f {parts[0][1]}` follows it again")
            return INTERRUPTED


class _Following:
    """May be run again after Ctrl-C: it goes on where it was."""

    def __init__(
        self,
        context: Context,
        parts: Sequence[tuple[NodeConfig, str]],
        out: LogOut,
        first: int,
        only: int | None,
        lines: int | None,
        quiet: bool,
    ) -> None:
        self._context = context
        self._parts = parts
        self._out = out
        self._first, self._only, self._lines, self._quiet = first, only, lines, quiet
        self._places: dict[str, tuple[int, int]] = {}
        """Job -> (attempt, offset) where we were."""

    async def run(self) -> int:
        from tui.job_follow import exit_code

        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self._context.client_for(node)) for node, _ in self._parts]
            calls = [asyncio.ensure_future(self._part(*one)) for one in zip(clients, self._parts, strict=True)]
            try:
                ended = await asyncio.gather(*calls)
            finally:
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
        return next((code for job in ended if (code := exit_code(job))), 0)

    async def _part(self, client: AgentClient, part: tuple[NodeConfig, str]) -> wire.Job:
        from tui.job_follow import wait_for_end

        node, id = part
        tell = self._teller(node)
        job = await (wait_for_end(client, id, tell) if self._quiet else self._follow(client, id, tell))
        if job.state == "ended":
            say(end_line(node, job))
        return job

    async def _follow(self, client: AgentClient, id: str, tell: Callable[[str], None]) -> wire.Job:
        from tui.job_follow import Follower

        with Lines(self._out.write, whole=len(self._parts) > 1) as lines:
            follower = Follower(client, id, lines.write, tell, only=self._only, start=self._first)
            if id in self._places:
                follower.attempt, follower.offset = self._places[id]
            elif self._lines is not None:
                await self._tail(client, follower)
            try:
                return await follower.run()
            finally:
                self._places[id] = (follower.attempt, follower.offset)

    async def _tail(self, client: AgentClient, follower: Any) -> None:
        from tui.job_follow import tail

        attempt = self._only or (await client.job(follower.id)).attempt
        if attempt:
            text, offset = await tail(client, follower.id, attempt, self._lines or 0)
            self._out.write(text)
            follower.attempt, follower.offset = attempt, offset

    def _teller(self, node: NodeConfig) -> Callable[[str], None]:
        return lambda text: say(f"rackrate: {fmt.clean(node.name)}: {text}")

    async def cancel(self) -> None:
        from agent.client import ClientError

        for node, id in self._parts:
            try:
                async with self._context.client_for(node) as client:
                    await client.cancel(id)
            except ClientError as error:
                say(f"rackrate: {fmt.clean(node.name)}: {error}")


def _ask_person() -> str:
    """`leave`, `cancel` or `go on`; without a terminal: leave."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "leave"
    sys.stderr.write("\nLeave it running [Enter], cancel it [c], or go on following [f]? ")
    sys.stderr.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        return "leave"
    return {"c": "cancel", "f": "go on"}.get(answer[:1], "leave")
