"""`record`: keeps what a fleet does in a file, without a screen, until it is ended.

Invariant: a node that hangs or a price book that cannot be read is said and waited for; a full disk ends it with a sentence,
and what was written stays readable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tui import format as fmt
from tui.commands.context import Context
from tui.errors import Failed
from tui.exit_codes import ExitCode
from tui.output import say

if TYPE_CHECKING:
    from tui.config import NodeConfig
    from tui.fleet import Fleet
    from tui.record import Batch, Recorder, Writer
    from tui.record_file import RecordFile
    from tui.record_money import PageKeeper, Prices

WRITE_SECONDS = 5.0
"""So much is lost at most when it is killed."""
SYNC_SECONDS = 60.0
FIRST_SYNC_SECONDS = 2.0
LIST_SECONDS = 600.0
"""Between two lists of all jobs, those that ended before among them."""
LISTS_AT_ONCE = 8
PRUNE_SECONDS = 600.0


def record(context: Context, arguments: argparse.Namespace) -> int:
    """Records the selected nodes."""
    with context.nodes() as nodes:
        chosen = _chosen(context, arguments.query, nodes)
        return record_nodes(
            context, chosen, Path(arguments.file).expanduser(), every=arguments.every, seconds=arguments.limit, keep=arguments.keep
        )


def _chosen(context: Context, words: Sequence[str], nodes: Sequence[NodeConfig]) -> list[NodeConfig]:
    if not words:
        return list(nodes)
    wanted, fleet, now = context.query(words), context.fleet(), context.clock()
    chosen = [node for node in nodes if wanted(fleet[node.name], now)]
    if not chosen:
        raise Failed("No node that answers is selected by this query; nothing was recorded.")
    say(f"selected as they are now: {len(chosen)} of {fmt.counted(len(nodes), 'node')}")
    return chosen


def record_nodes(
    context: Context, nodes: Sequence[NodeConfig], path: Path, *, every: float = 1.0, seconds: float | None = None,
    keep: float | None = None, until: Callable[[], bool] = lambda: False,
) -> int:  # fmt: skip
    """Records `nodes` for so long, or until it is ended; `until` is asked each second. Failed: the file cannot be used."""
    from tui.record_file import RecordFile

    with RecordFile.write(path) as file:
        one = _Recording(context, nodes, file, every, keep)
        return asyncio.run(one.run(seconds, until))


def now_ms() -> int:
    """UTC."""
    return time.time_ns() // 1_000_000


class _Recording:
    """One run. What blocks is done in threads, one after the other."""

    def __init__(self, context: Context, nodes: Sequence[NodeConfig], file: RecordFile, every: float, keep: float | None) -> None:
        from tui.fleet import Fleet
        from tui.record import Recorder, Writer, begin_session
        from tui.record_money import PageKeeper, Prices

        self._context = context
        self._nodes = nodes
        self._file = file
        self._keep = keep
        self._began_ms = began = now_ms()
        ids = begin_session(file, nodes, _about(context, nodes, every), began)
        self.fleet: Fleet = Fleet(silent_seconds=context.config.silent_seconds)
        self._recorder: Recorder = Recorder(ids, now_ms, every)
        self.fleet.tap = self._recorder
        self._writer: Writer = Writer(file, began)
        self._keeper: PageKeeper = PageKeeper(file)
        self._prices: Prices = Prices(file, context.prices_path, context.terms_path)
        self._faults: dict[str, str] = {}
        self._heard = self._size_bytes = 0

    async def run(self, seconds: float | None, until: Callable[[], bool]) -> int:
        from tui.live import Live
        from tui.terminal import allow_many_files, ending

        allow_many_files()
        await asyncio.to_thread(self._begin)
        ended, live = ending(), Live(self.fleet, self._nodes, self._context.client_for)
        live.start()
        work = [asyncio.create_task(one) for one in (self._writing(), self._syncing(), self._listing(), self._pruning())]
        try:
            limit = time.monotonic() + seconds if seconds is not None else float("inf")
            while not ended.done() and time.monotonic() < limit and not until():
                wait = min(1.0, max(0.0, limit - time.monotonic()))
                await asyncio.wait({ended, *work}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for task in work:
                    if task.done():
                        task.result()
                self._tell()
            await self._sync()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            await live.close()
        await self._finish()
        return ExitCode.DONE if self._heard or not self._nodes else ExitCode.UNREACHABLE

    def _begin(self) -> None:
        """The ledger that is there already, and the prices."""
        from tui.record_money import keep_ledger

        context, at_ms = self._context, self._began_ms
        keep_ledger(self._file, context.paths.ledger_path(context.config), at_ms)
        self._prices.keep_shipped(at_ms)
        self._prices.look(at_ms)
        self._write(self._recorder.take())

    async def _finish(self) -> None:
        await asyncio.to_thread(self._write, self._recorder.take())
        self._line_clear()
        size, hours = self._file.size_bytes, (now_ms() - self._began_ms) / 3_600_000
        say(f"recorded {fmt.counted(len(self._nodes), 'node')} for {fmt.age(hours * 3600)} in {self._file.path}: {size / 1e6:,.1f} MB in all, "
            f"{fmt.counted(self._keeper.rows, 'new usage row')}; `rackrate replay {self._file.path}` shows it")  # fmt: skip

    # -- what is done again and again ----------------------------------------------------------------------------

    async def _writing(self) -> None:
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            await asyncio.to_thread(self._write, self._recorder.take())

    def _write(self, batch: Batch) -> None:
        self._heard += batch.heard
        self._writer.write(batch)
        self._prices.look(batch.until_ms)
        self._size_bytes = self._file.size_bytes  # here, as the file may be held for long while it is written

    async def _syncing(self) -> None:
        await asyncio.sleep(FIRST_SYNC_SECONDS)
        while True:
            await self._sync()
            await asyncio.sleep(SYNC_SECONDS)

    async def _sync(self) -> None:
        from tui.sync import sync

        results = await sync(self._nodes, self._keeper, client_for=self._context.client_for)  # type: ignore[arg-type]
        for result in results:
            if result.error is not None and self._faults.get(result.node) != result.error:
                say(f"rackrate: {fmt.clean(result.node)}: {fmt.clean(result.error)}")
            self._faults[result.node] = result.error or ""

    async def _listing(self) -> None:
        gate = asyncio.Semaphore(LISTS_AT_ONCE)
        while True:
            await asyncio.sleep(FIRST_SYNC_SECONDS)
            await asyncio.gather(*(self._list(node, gate) for node in self._nodes))
            await asyncio.sleep(LIST_SECONDS)

    async def _list(self, node: NodeConfig, gate: asyncio.Semaphore) -> None:
        from agent.client import ClientError
        from tui.errors import RackrateError

        view = self.fleet[node.name]
        if view.info is None or view.info.simulated or not view.connected:
            return
        async with gate:
            with contextlib.suppress(ClientError, RackrateError):
                async with self._context.client_for(node) as client:
                    self.fleet.seed_jobs(node.name, await client.jobs(), time.monotonic())

    async def _pruning(self) -> None:
        from tui.record import prune
        from tui.record_money import fold

        while self._keep is not None:
            await asyncio.sleep(min(PRUNE_SECONDS, max(1.0, self._keep / 10)))
            before = now_ms() - round(self._keep * 1000)
            await asyncio.to_thread(prune, self._file, before)
            await asyncio.to_thread(fold, self._file, before)

    # -- what is said -------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        if not sys.stderr.isatty():
            return
        span = (now_ms() - self._began_ms) / 1000
        totals = self.fleet.totals(time.monotonic())
        sys.stderr.write(
            f"\r\x1b[Krecording {totals.live} of {fmt.counted(totals.nodes, 'node')} for {fmt.age(span)}: {self._size_bytes / 1e6:,.1f} MB; Ctrl-C ends it"
        )
        sys.stderr.flush()

    def _line_clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


def _about(context: Context, nodes: Sequence[NodeConfig], every: float) -> dict[str, Any]:
    config = context.config
    return {
        "nodes": [node.name for node in nodes], "every_seconds": every, "timezone": context.timezone_name(),
        "silent_seconds": config.silent_seconds, "filters": config.filters,
        "budgets": [msgspec.to_builtins(one) for one in config.budgets],
    }  # fmt: skip
