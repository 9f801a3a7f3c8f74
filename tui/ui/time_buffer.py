"""The last minutes of a live fleet, kept beside it by the recorder in a temporary file, to step back into.

Invariant: never more than `MOST_BYTES` and `MOST_SECONDS`; of a large fleet each node's sample is kept less often, so that it
costs the app about as much as fifty nodes a second. The file is gone when the app ends, however it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tui.errors import RackrateError
from tui.fleet import Fleet
from tui.record import Batch, Named, Recorder, Writer, begin_session, prune
from tui.record_file import RecordFile
from tui.replay import Recording

MOST_SECONDS = 1800
MOST_BYTES = 32 << 20
NODES_A_SECOND = 50
WRITE_SECONDS = 5.0
PRUNE_WRITES = 12
"""Every so many writes the oldest is dropped."""


class TimeBuffer:
    """`complain` is told once why nothing is kept any more."""

    def __init__(
        self, fleet: Fleet, nodes: Sequence[Named], now_ms: Callable[[], int], *, silent_seconds: float = 15.0,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:  # fmt: skip
        self._now_ms = now_ms
        self._complain = complain
        self._file: RecordFile | None = RecordFile.scratch()
        about = {"nodes": [node.name for node in nodes], "silent_seconds": silent_seconds}
        began = now_ms()
        ids = begin_session(self._file, nodes, about, began)
        self._recorder = Recorder(ids, now_ms, max(1.0, len(nodes) / NODES_A_SECOND))
        self._writer = Writer(self._file, began)
        self._mutex = asyncio.Lock()
        self._due = 0.0
        self._count = 0
        self._written: asyncio.Task[None] | None = None
        self._writer.write(self._recorder.take())  # the first segment begins now, not with the first write
        fleet.tap = self._recorder

    @property
    def has_any(self) -> bool:
        """Whether there is something to step back into."""
        return self._file is not None

    def tick(self, clock: float) -> None:
        """Called each second: writes what is new when it is time."""
        if self._file is not None and clock >= self._due and (self._written is None or self._written.done()):
            self._due = clock + WRITE_SECONDS
            self._written = asyncio.create_task(self._write())

    async def _write(self) -> None:
        async with self._mutex:
            if self._file is None:
                return
            batch = self._recorder.take()
            try:
                await asyncio.to_thread(self._put, self._file, batch)
            except RackrateError as error:
                self._complain(f"The last minutes are no longer kept: {error}")
                self._close()

    def _put(self, file: RecordFile, batch: Batch) -> None:
        self._writer.write(batch)
        self._count += 1
        if self._count % PRUNE_WRITES == 0:
            prune(file, batch.until_ms - MOST_SECONDS * 1000)
            while file.size_bytes > MOST_BYTES and self._halve(file):
                pass

    @staticmethod
    def _halve(file: RecordFile) -> int:
        """Drops the older half; 0: there is nothing left to drop."""
        segments = [segment for (segment,) in file.rows("SELECT DISTINCT segment_ms FROM chunks ORDER BY 1")]
        return prune(file, segments[len(segments) // 2]) if len(segments) > 1 else 0

    async def recording(self) -> Recording:
        """All that is kept, up to now. RackrateError: nothing is."""
        await self._write()
        if self._file is None:
            raise RackrateError("Nothing of the past is kept any more.")
        return await asyncio.to_thread(Recording, self._file)

    async def close(self) -> None:
        """Forgets all."""
        async with self._mutex:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
