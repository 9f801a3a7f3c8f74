"""`watch --plain`: what changes in the fleet, a line each, until it is interrupted.

Invariant: no line holds an escape byte or moves a cursor, and each is written at once; Ctrl-C, a signal or a reader that went
away end it within a second, with all streams closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import select
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from tui.commands.context import Context
from tui.exit_codes import ExitCode
from tui.terminal import ending

if TYPE_CHECKING:
    from tui.config import NodeConfig
    from tui.watch import Said, Wanted

LOOK_SECONDS = 1.0


def watch(context: Context, arguments: argparse.Namespace) -> int:
    """Says what changes on the selected nodes."""
    from tui.job_rows import JOB_WORDS
    from tui.query_rows import ALERT_WORDS
    from tui.watch import Wanted

    wanted = Wanted(
        context.query(arguments.query), context.query(_both(arguments.jobs), JOB_WORDS), context.query(_both(arguments.alerts), ALERT_WORDS)
    )
    zone = context.timezone(arguments.tz)
    with context.nodes() as nodes:
        return asyncio.run(_watch(context, arguments, nodes, wanted, Lines(zone, arguments.json, arguments.only)))


def _both(queries: Sequence[str]) -> list[str]:
    """Words of one query, where several were given."""
    return [f"({one})" for one in queries if one.strip()] if len(queries) > 1 else list(queries)


async def _watch(
    context: Context, arguments: argparse.Namespace, nodes: Sequence[NodeConfig], wanted: Wanted, lines: Lines
) -> int:
    from tui.fleet import Fleet
    from tui.live import Live
    from tui.terminal import allow_many_files
    from tui.watch import Watcher

    allow_many_files()
    fleet = Fleet(context.catalog(), silent_seconds=context.config.silent_seconds)
    live = Live(fleet, nodes, context.client_for)
    watcher = Watcher(wanted, every=arguments.every, level=arguments.level)
    ended = ending()
    until = time.monotonic() + arguments.limit if arguments.limit else float("inf")
    live.start()
    try:
        while not ended.done() and time.monotonic() < until and not reader_is_gone():
            lines.write(watcher.look(fleet, time.monotonic()), datetime.now(UTC))
            await asyncio.wait({ended}, timeout=min(LOOK_SECONDS, max(0.0, until - time.monotonic())))
        lines.write(watcher.look(fleet, time.monotonic()), datetime.now(UTC))
    finally:
        await live.close()
    if ended.done() and ended.result() != signal.SIGINT:
        return 128 + ended.result()
    return ExitCode.DONE if any(view.sample is not None for view in fleet) or not len(fleet) else ExitCode.UNREACHABLE


def reader_is_gone() -> bool:
    """Whether the pipe that is written to has no reader: it is not waited for the next line to find out."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(found & (select.POLLERR | select.POLLNVAL) for _, found in poll.poll(0))
    except (OSError, ValueError):
        return False


class Lines:
    """Writes them: `14:05:10 node gpu-01 is live again`, or a JSON object each. The date stands on the first line of each day."""

    def __init__(self, zone: tzinfo, as_json: bool, only: Sequence[str]) -> None:
        self._zone = zone
        self._json = as_json
        self._only = frozenset(only)
        self._day = ""

    def write(self, said: Iterable[Said], at: datetime) -> None:
        """At once: a log or a screen reader waits for them."""
        wrote = False
        for line in said:
            if not self._only or line.kind in self._only:
                sys.stdout.write(self._record(line, at) if self._json else self._plain(line, at))
                wrote = True
        if wrote:
            sys.stdout.flush()

    def _record(self, line: Said, at: datetime) -> str:
        return json.dumps({"at": at.isoformat(timespec="seconds"), "event": line.kind, "text": line.text, **line.facts}, default=str) + "\n"

    def _plain(self, line: Said, at: datetime) -> str:
        local = at.astimezone(self._zone)
        day, self._day = self._day, f"{local:%Y-%m-%d}"
        date = "" if day == self._day else f"{self._day} "
        kind = f"{line.kind}: " if line.kind == "money" else ""
        encoding = sys.stdout.encoding or "utf-8"
        return f"{date}{local:%H:%M:%S} {kind}{line.text}\n".encode(encoding, "replace").decode(encoding)
