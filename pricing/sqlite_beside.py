"""Reads of one SQLite file that run beside each other: SQLite works outside Python's lock, so each takes a processor of its own.

Invariant: only reads; each has a connection and a moment of its own. When something fails, all are stopped before the
error goes on. What is in memory only is read on the connection there is, one after the other.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

T = TypeVar("T")


class Beside:
    """Use it as a context manager around what the connection itself reads meanwhile."""

    def __init__(self, connection: sqlite3.Connection, most: int = 2) -> None:
        self._connection = connection
        self._path: str = connection.execute("PRAGMA database_list").fetchone()[2]
        self._pool = ThreadPoolExecutor(most, "rackrate-read") if self._path else None
        self._open: list[sqlite3.Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            for connection in self._open if kind is not None else ():
                with contextlib.suppress(sqlite3.Error):
                    connection.interrupt()
            self._pool.shutdown(cancel_futures=True)
        for connection in self._open:
            connection.close()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Begins it; `result()` waits for what it returns or raises."""
        if self._pool is not None:
            return self._pool.submit(lambda: work(self._another()))
        done: Future[T] = Future()
        try:
            done.set_result(work(self._connection))
        except sqlite3.Error as error:
            done.set_exception(error)
        return done

    def _another(self) -> sqlite3.Connection:
        uri = f"{Path(self._path).as_uri()}?mode=ro"
        made = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False)
        self._open.append(made)
        made.execute("PRAGMA cache_size = -65536")
        made.execute("BEGIN")
        return made
