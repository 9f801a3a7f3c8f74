"""A job's log on the screen: how long the app's loop stands still, and how much of a core it takes.

    python tests/bench/bench_log.py [--megabytes 10] [--lines 5000] [--seconds 5]

Invariant: the node is in memory, so that all that is measured is the app's; a stall is the most CPU time of
the loop's thread between two turns of a task that sleeps for 5 ms: others on the same machine do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.jobs import FakeNode, asked_nodes, job_fleet
from tests.support.screens import make_app, press, running, text
from tui.ui.app import RackrateApp
from tui.ui.widgets.log_view import LogView

BUDGET_MS = 100.0
"""Nothing may stall the app for longer."""


class Pulse:
    """The longest that the loop stood still."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def beat(self) -> None:
        while True:
            begin = time.thread_time()
            await asyncio.sleep(0.005)
            self.longest = max(self.longest, time.thread_time() - begin)


def line(number: int, width: int) -> str:
    words = f"step {number:08} loss={number % 997 / 997:.4f} lr=3e-4 "
    return (words + "x" * width)[: width - 1] + "\n"


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not holds():
            await asyncio.sleep(0.005)


async def measured(name: str, work: Awaitable[Any]) -> bool:
    """One line: wall, CPU and the longest stall; whether it kept to the budget."""
    pulse = Pulse()
    task = asyncio.create_task(pulse.beat())
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    task.cancel()
    stall = pulse.longest * 1000
    print(f"{name:<46}{wall:>8.2f} s {cpu / wall:>7.0%} of a core {stall:>7.0f} ms stall  {'ok' if stall <= BUDGET_MS else 'OVER'}", flush=True)
    return stall <= BUDGET_MS


async def search(app: RackrateApp, pilot: Any, words: str) -> None:
    await press(pilot, "slash", *words)
    search = app.screen._search  # type: ignore[attr-defined]
    await until(lambda: search.pattern is not None and search.pattern.text == words and search.whole)
    await press(pilot, "escape")


async def stream(node: FakeNode, lines: int, seconds: float, width: int) -> None:
    number = 0
    for _ in range(round(seconds * 10)):
        node.write("".join(line(number + at, width) for at in range(lines // 10)))
        number += lines // 10
        await asyncio.sleep(0.1)


async def main(arguments: argparse.Namespace) -> bool:
    width, size = 80, arguments.megabytes << 20
    fleet = job_fleet()
    log = "".join(line(number, width) for number in range(size // width))
    node = FakeNode("gpu-01", (view.job for view in fleet["gpu-01"].jobs), log)
    app, _ = make_app(fleet, **asked_nodes(node))
    good = []
    async with running(app, (120, 40)) as pilot:

        async def opened() -> None:
            await press(pilot, "j", "down")
            await press(pilot, "enter")
            await until(lambda: f"step {size // width - 1:08}" in text(app))

        async def top() -> None:
            await press(pilot, "home")
            await until(lambda: "step 00000000" in text(app))
            await press(pilot, "end")
            await until(lambda: f"step {size // width - 1:08}" in text(app))

        good.append(await measured(f"open a log of {arguments.megabytes} MB", opened()))
        good.append(await measured("its first line, and back to its end", top()))
        good.append(await measured("search it for a text (nothing found)", search(app, pilot, "out of memory")))
        good.append(await measured("search it for /loss=0\\.12\\d+ lr/", search(app, pilot, r"/loss=0\.12\d+ lr/")))
        good.append(await measured("search it for /[0-9]+7[0-9]* (no text in it)", search(app, pilot, "/[0-9]+7[0-9]*z/")))
        for wide, words in ((80, f"follow {arguments.lines:,} lines/s"), (12, f"follow {arguments.lines:,} short lines/s")):
            good.append(await measured(words, stream(node, arguments.lines, arguments.seconds, wide)))
        await press(pilot, "w")
        good.append(await measured(f"follow {arguments.lines:,} lines/s, wrapped", stream(node, arguments.lines, arguments.seconds, 300)))
        app.screen.query_one(LogView).wrap(False)
        await press(pilot, "slash", *"777")
        good.append(await measured(f"follow {arguments.lines:,} lines/s while searching", stream(node, arguments.lines, arguments.seconds, 80)))
    return all(good)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--lines", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=5.0)
    raise SystemExit(0 if asyncio.run(main(parser.parse_args())) else 1)
