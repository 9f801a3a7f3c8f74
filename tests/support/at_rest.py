"""When an app under test has done all that it was told, known from its loop and its threads.

Textual's own pilot sleeps 20 ms at a time until the process took no CPU, twice a key: slow, and wrong where other processes
take the CPU meanwhile. Invariant: nothing is ready in the loop, no timer is due within `SOON` from now, and no thread of the app
works or wants to, however seldom this process is given a core.
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
"""A frame is painted within 17 ms of what it shows."""
LONGEST = 60.0
STANDS_STILL, LOOKS = 0.1, 30
"""Threads that neither ran nor wanted to for so long, and so often, wait for somebody else: for the test, perhaps. One look alone may
be one before and one after the whole process stood still."""
QUIET_TURNS = 3
OURS = ("rackrate-reading", "rackrate-ledger", "rackrate-catalog", "rackrate-copy")


async def at_rest(*_: Any) -> None:
    """Returns when nothing is left to do, or when something has not stopped for a minute."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST
    quiet, since, looks, worked = 0, loop.time(), 0, -1
    while quiet < QUIET_TURNS and loop.time() < deadline:
        await asyncio.sleep(0 if quiet else 0.0005)
        threads = list(_at_work(loop))
        if loop._ready:  # type: ignore[attr-defined]
            quiet = 0
        elif (due := _next_timer(loop)) <= loop.time() + SOON:
            await asyncio.sleep(max(0.0, due - loop.time()))
            quiet = 0
        elif threads:
            looks += 1
            if (now := _worked(threads)) != worked:
                since, looks, worked = loop.time(), 0, now
            elif loop.time() - since > STANDS_STILL and looks > LOOKS:
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
            if about.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "DR":
                return time.monotonic_ns()
        except OSError:  # it has ended, or this is not Linux
            told += int(time.process_time() * 1000)
    return told


def install() -> None:
    """From now on pilots wait in this way."""
    textual_pilot.wait_for_idle = textual_app.wait_for_idle = at_rest  # type: ignore[assignment]
