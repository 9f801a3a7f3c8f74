"""Finished usage rows on their way to the disk: when they are due, and how they wait while it takes none.

Invariant: a row leaves only when it was written; while it waits it may become part of a longer one, never less time.
"""

from __future__ import annotations

import time

from agent.meter_track import Stretch, merge

RETRY_SECONDS = 5.0
BATCH_ROWS = 1_000
BATCH_SECONDS = 1.0
"""A past that is fed in (`at_ms`), or a record that need not be durable, is written in batches of so much."""
MAX_WAITING_ROWS = 50_000
"""Rows kept in memory while the disk is full: hours of 8 shared GPUs. Beyond it neighbours are merged into longer rows."""


class Waiting:
    """`rows` is one list for good: tracks append to it."""

    def __init__(self) -> None:
        self.rows: list[Stretch] = []
        self._written_at = time.monotonic()
        self._retry_at = 0.0
        self._merge_above = MAX_WAITING_ROWS

    def due(self, *, batched: bool, settled: bool) -> bool:
        """Whether to write now. `settled`: what the rows are of is known well enough."""
        if not self.rows:
            return False
        now = time.monotonic()
        if len(self.rows) > self._merge_above:
            self.rows[:] = merge(self.rows)
            self._merge_above = max(MAX_WAITING_ROWS, 2 * len(self.rows))
        if now < self._retry_at:
            return False
        if batched:
            return len(self.rows) >= BATCH_ROWS or now - self._written_at >= BATCH_SECONDS
        return settled

    def failed(self) -> None:
        """Nothing could be written: not again before a while."""
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def written(self) -> None:
        """All of them are on the disk."""
        self.rows.clear()
        self._merge_above = MAX_WAITING_ROWS
        self._written_at = time.monotonic()
