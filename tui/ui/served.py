"""The app at the end of two pipes: `rackrate serve` shows it in a browser.

Invariant: the app's loop never waits for a browser that takes no bytes, and the app ends with the server.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

from textual.drivers.web_driver import WebDriver

from tui import terminal
from tui.ui.governor import Governor

STOP_SECONDS = 1.0


class ServedDriver(WebDriver):
    """Writes in a thread, and counts."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._governor: Governor = getattr(app, "governor", None) or Governor()
        self._packets: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._write = self._queue  # type: ignore[assignment]
        self._writer = threading.Thread(target=self._write_packets, name="rackrate-served", daemon=True)
        self._writer.start()

    def _queue(self, packet: bytes) -> int:
        self._governor.queued(len(packet))
        self._packets.put(packet)
        return len(packet)

    def _write_packets(self) -> None:
        while (packet := self._packets.get()) is not None:
            rest = memoryview(packet)
            try:
                while rest:
                    rest = rest[os.write(self.fileno, rest) :]
            except OSError:  # the server is gone
                self._app.call_later(getattr(self._app, "end", self._app.exit), terminal.LOST_TTY_CODE)
                return
            self._governor.written(len(packet))

    def close(self) -> None:
        """What was written last reaches the browser."""
        self._packets.put(None)
        self._writer.join(STOP_SECONDS)
