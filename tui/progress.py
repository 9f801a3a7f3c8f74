"""How far a command is, on stderr: one line that is written over on a terminal, else a line per step.

Invariant: the line is gone before anything else is said, also when the work ends in an error or is broken off; a step that
takes long tells for how long it runs, and how it is broken off.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Iterator

from tui import format as fmt
from tui.output import say

ELAPSED_FROM_SECONDS = 2.0
"""From then on the line tells the time."""


class BrokenOff(KeyboardInterrupt):
    """Ctrl+C, with a sentence about what became of the work."""


class LiveLine:
    """Use `live_line`, which clears it."""

    def __init__(self, *, step_only: bool = False, ticks: bool = True) -> None:
        self._width = shutil.get_terminal_size((80, 24)).columns - 1
        self._live = sys.stderr.isatty()
        self._step_only = step_only
        self._said = self._counts = ""
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        if self._live and ticks:
            threading.Thread(target=self._tick, name="rackrate-progress", daemon=True).start()

    def tell(self, step: str, counts: str = "", brief: str = "") -> None:
        """`step` in words; `counts` only on a terminal, `brief` only elsewhere, where each step is told once."""
        step = fmt.clean(step)
        if self._live:
            with self._lock:
                self._said, self._counts = step, counts
                self._paint()
        elif step != self._said and not self._step_only:
            say(f"{step}{brief}")
        self._said = step

    def _paint(self) -> None:
        ran = time.monotonic() - self._began
        passed = f"  {fmt.age(ran)}, Ctrl+C breaks it off" if ran >= ELAPSED_FROM_SECONDS else ""
        room = max(0, self._width - len(passed))
        sys.stderr.write("\r\x1b[K" + f"{self._said}{self._counts}"[:room] + passed)
        sys.stderr.flush()

    def _tick(self) -> None:
        """Paints each second, so that a long step is seen to go on."""
        while not self._ended.wait(1.0):
            with self._lock:
                if self._said and not self._ended.is_set():
                    self._paint()

    def clear(self) -> None:
        """Takes the line away until something is told again."""
        with self._lock:
            if self._live and self._said:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            self._said = self._counts = ""

    def end(self) -> None:
        """No line any more."""
        self._ended.set()
        self.clear()


@contextlib.contextmanager
def live_line(*, step_only: bool = False, ticks: bool = True) -> Iterator[LiveLine]:
    """A line for the block. `step_only`: where stderr is no terminal nothing is told. `ticks`: it is painted each second."""
    line = LiveLine(step_only=step_only, ticks=ticks)
    try:
        yield line
    finally:
        line.end()


@contextlib.contextmanager
def broken_off(sentence: str) -> Iterator[None]:
    """Where the block is broken off, this sentence says what became of the work."""
    try:
        yield
    except BrokenOff:
        raise
    except KeyboardInterrupt:
        raise BrokenOff(sentence) from None
