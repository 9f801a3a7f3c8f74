"""When an app under test has done all that it was told, known from its loop and its threads.

Textual's own pilot sleeps 20 ms at a time until the process took no CPU, twice a key: slow, and wrong where other processes
take the CPU meanwhile. Invariant: nothing is ready in the loop, no timer is due within `SOON`, and no thread of the app works
or wants to.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from textual import app as textual_app
from textual import pilot as textual_pilot

SOON = 0.02
LONGEST = 20.0
STANDS_STILL = 0.1
"""Threads that neither ran nor wanted to for so long wait for somebody else: for the test, perhaps."""
QUIET_TURNS = 3
OURS = ("rackrate-reading", "rackrate-ledger", "rackrate-catalog", "rackrate-copy")


async def at_rest(*_: Any) -> None:
    """Returns when nothing is left to do, or when something has not stopped for twenty seconds."""
    loop = asyncio.get_running_loop()
    deadline, soon = loop.time() + LONGEST, loop.time() + SOON
    quiet, since, worked = 0, loop.time(), -1
    while quiet < QUIET_TURNS and loop.time() < deadline:
        await asyncio.sleep(0 if quiet else 0.0005)
        threads = list(_at_work(loop))
        if loop._ready:  # type: ignore[attr-defined]
            quiet = 0
        elif (due := _next_timer(loop)) <= soon:
            await asyncio.sleep(max(0.0, due - loop.time()))
            quiet = 0
        elif threads:
            if (now := _worked(threads)) != worked:
                since, worked = loop.time(), now
            elif loop.time() - since > STANDS_STILL:
                return
            await asyncio.sleep(0.002)
            quiet = 0
        else:
            quiet += 1


def _next_timer(loop: asyncio.AbstractEventLoop) -> float:
    return min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=float("inf"))  # type: ignore[attr-defined]


def _at_work(loop: asyncio.AbstractEventLoop) -> Iterator[threading.Thread]:
    """The app's own, and those that `asyncio.to_thread` uses while one of them has something to do."""
    pool = loop._default_executor  # type: ignore[attr-defined]
    if pool is not None and (pool._work_queue.qsize() or pool._idle_semaphore._value < len(pool._threads)):
        yield from tuple(pool._threads)
    yield from (thread for thread in threading.enumerate() if thread.name in OURS)


def _worked(threads: list[threading.Thread]) -> int:
    """Grows while one of them runs, waits for a core or for a disk."""
    told = 0
    for thread in threads:
        about = Path(f"/proc/self/task/{thread.native_id}")
        try:
            ran, waited, _ = about.joinpath("schedstat").read_text().split()
            told += int(ran) + int(waited)
            if about.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "D":
                return time.monotonic_ns()
        except OSError:  # it has ended, or this is not Linux
            told += int(time.process_time() * 1000)
    return told


def install() -> None:
    """From now on pilots wait in this way."""
    textual_pilot.wait_for_idle = textual_app.wait_for_idle = at_rest  # type: ignore[assignment]
