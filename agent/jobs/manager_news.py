"""Who listens is told of the jobs that changed.

Invariant: what changes together is told once, each job as it stands when it is told; a listener that fails loses one telling
and stops nothing.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable

from agent.jobs.rows import JobRow
from agent.jobs.store import JobStore

MOST_RESTATED = 200


class News:
    """Belongs to the manager's event loop. `tell` is given the row of each job that is told of."""

    def __init__(self, store: JobStore, tell: Callable[[JobRow], None]) -> None:
        self._store = store
        self._tell_of = tell
        self._restated: set[str] = set()
        """Jobs of which only the reason of their waiting changed, or an array's counts: told of a bit later."""
        self._told: set[str] = set()
        self._telling: asyncio.Handle | None = None
        self._closed = False

    def changed(self, id: str) -> None:
        """Told once for all that changed together."""
        self._told.add(id)
        if self._telling is None and not self._closed:
            self._telling = asyncio.get_running_loop().call_soon(self._tell)

    def restated(self, id: str) -> None:
        """Told with one of the next `tell_restated`."""
        self._restated.add(id)

    def tell_restated(self) -> None:
        """So many a second: with each start the reasons of all that wait may change."""
        for _ in range(min(MOST_RESTATED, len(self._restated))):
            row = self._store.find(self._restated.pop())
            if row is not None:
                self._tell_one(row)

    def close(self) -> None:
        """What was not told yet is told to nobody."""
        self._closed = True
        if self._telling is not None:
            self._telling.cancel()

    def _tell(self) -> None:
        self._telling = None
        told, self._told = self._told, set()
        for id in told:
            row = self._store.find(id)
            if row is None:
                continue
            self._restated.discard(id)
            self._tell_one(row)
            if row.array is not None:
                self._restated.add(row.array)
                if row.state == "ended" and (array := self._store.find(row.array)) is not None and array.state == "ended":
                    self._told.add(row.array)
        if self._told:
            self._telling = asyncio.get_running_loop().call_soon(self._tell)

    def _tell_one(self, row: JobRow) -> None:
        try:
            self._tell_of(row)
        except Exception:
            print(f"job {row.id} could not be told of:", file=sys.stderr)
            traceback.print_exc()
