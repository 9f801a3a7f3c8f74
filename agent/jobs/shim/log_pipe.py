"""The pipe from the job's output to its log.

Invariant: reading never waits; after the end everything that is in the pipe is kept, but a process elsewhere that holds the
pipe open cannot keep the shim alive.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False  # the module `typing` would cost a tenth of the shim's memory
if TYPE_CHECKING:
    from agent.jobs.shim.log_writer import LogWriter

_PIPE_BYTES = 1024 * 1024
_BLOCK_BYTES = 64 * 1024
_BLOCKS_A_TURN = 64
"""Then the shim looks at its other duties."""


class LogPipe:
    """`source` for poll (None after its end), `sink` for the child; the shim lets go of that after the fork."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        source, self.sink = os.pipe()
        self.source: int | None = source
        os.set_blocking(source, False)
        try:
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:  # a user without rights has a budget for pipes; the usual 64 KiB do as well
            pass
        self._view = memoryview(bytearray(_BLOCK_BYTES))

    def let_go(self) -> None:
        os.close(self.sink)

    def take(self, blocks: int = _BLOCKS_A_TURN) -> bool:
        """Moves what is there, but not for ever; False: nothing is there now, or ever again."""
        for _ in range(blocks):
            if self.source is None:
                return False
            try:
                size = os.readv(self.source, [self._view])
            except BlockingIOError:
                return False
            except OSError:
                size = 0
            if size == 0:
                return self._end()
            self._writer.write(self._view[:size])
        return True

    def finish(self) -> None:
        """After the job's end: what is in the pipe now, and no more than twice of what it can hold."""
        self.take(2 * _PIPE_BYTES // 4096)
        self._end()

    def _end(self) -> bool:
        if self.source is not None:
            os.close(self.source)
            self.source = None
        return False
