"""The FIFO by which the agent wakes the shim: lines `stop`, `stop {order}` and `signal N`.

Invariant: whatever is written into it, the shim reads on; what is not a command is passed over. It is held open for reading
and writing, so that it never ends when an agent goes.
"""

from __future__ import annotations

import os

from agent.jobs.shim.records import remove

CONTROL_FILE = "control"
_MAX_LINE_BYTES = 4096


class Control:
    """Made in the working directory; `fileno` is for poll."""

    def __init__(self) -> None:
        remove(CONTROL_FILE)
        os.mkfifo(CONTROL_FILE, 0o600)
        self.fileno = os.open(CONTROL_FILE, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._rest = b""

    def lines(self) -> list[bytes]:
        """The whole lines that have come."""
        try:
            data = self._rest + os.read(self.fileno, 65536)
        except BlockingIOError:
            return []
        *lines, rest = data.split(b"\n")
        self._rest = rest if len(rest) <= _MAX_LINE_BYTES else b""
        return lines

    def close(self) -> None:
        remove(CONTROL_FILE)
        os.close(self.fileno)
