"""One thing that a screen reads in a thread: the ledger, the catalog, advice.

Invariant: the app's loop never waits for it; only the newest wish is answered, and an error is a sentence. A daemon
thread, so that leaving the app never waits for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from textual.message import Message
from textual.screen import Screen

from tui import format as fmt

T = TypeVar("T")
REST = 10
"""What takes long is left alone for so many times as long, before it is read again for news alone."""


class Reading(Generic[T]):
    """`value` is the newest answer, `error` what went wrong last; each says by itself what it answers."""

    class Done(Message):
        """An answer came: the screen gives it to `take` and draws."""

        def __init__(self, reading: Reading[Any], key: Hashable, value: Any, error: str | None, thread: threading.Thread) -> None:
            super().__init__()
            self.reading = reading
            self.key = key
            self.value = value
            self.error = error
            self.thread = thread

    def __init__(self, screen: Screen[Any], rest: int = REST) -> None:
        self._screen = screen
        self._rest = rest
        self._wanted: Hashable = None
        self._version = -1
        self._work: Callable[[], T] | None = None
        self._thread: threading.Thread | None = None
        self._read_at = 0.0
        self._took = 0.0
        self._began = 0.0
        self._dropped: threading.Thread | None = None
        self._held = False
        self.value: T | None = None
        self.error: str | None = None
        self.busy = False

    def want(self, key: Hashable, version: int, work: Callable[[], T]) -> None:
        """Reads unless this is what was read last. `version`: grows when there are news that may wait."""
        if not self.due(key, version):
            return
        self._wanted, self._version, self._work, self._held = key, version, work, False
        if not self.busy:
            self._start()

    def due(self, key: Hashable, version: int) -> bool:
        """Whether a wish for this would be read."""
        if self._held and key == self._wanted:
            return False
        rested = time.monotonic() - self._read_at >= self._rest * self._took
        return key != self._wanted or (version != self._version and not self.busy and rested)

    def no_rest(self) -> None:
        """The answer was empty: the next news are read at once."""
        self._took = 0.0

    def again(self) -> None:
        """The next wish is read, whatever it is."""
        self._version, self._held = -1, False
        self.no_rest()

    def doing(self, what: str) -> str:
        """`reading ...`, after two seconds with the time; empty while nothing is read."""
        if not self.busy:
            return ""
        ran = time.monotonic() - self._began
        return f"{what} {fmt.age(ran)} ..." if ran >= 2 else f"{what} ..."

    def break_off(self) -> None:
        """The answer is not waited for; what was read before stays, until `again` or another wish."""
        if self.busy:
            self.busy, self._held, self._dropped = False, True, self._thread
            self.error = "Broken off; u reads it anew."

    def _start(self) -> None:
        key, work = self._wanted, self._work
        assert work is not None
        self.busy, self._began = True, time.monotonic()
        self._thread = threading.Thread(target=self._read, args=(key, work), name="rackrate-reading", daemon=True)
        self._thread.start()

    def _read(self, key: Hashable, work: Callable[[], T]) -> None:
        began, value, error = time.monotonic(), None, None
        try:
            value = work()
        except Exception as fault:  # noqa: BLE001 - whatever the ledger or a file does, the app goes on
            error = str(fault) or type(fault).__name__
        self._read_at = time.monotonic()
        self._took = self._read_at - began
        with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
            self._screen.post_message(self.Done(self, key, value, error, threading.current_thread()))

    def take(self, done: Done) -> None:
        """In the app's loop. An answer to a wish of before is dropped, and the newest is read."""
        if done.thread is self._dropped:
            return
        self.busy = False
        if done.key != self._wanted:
            self._start()
            return
        self.error = done.error
        if done.error is None:
            self.value = done.value
