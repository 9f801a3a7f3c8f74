"""How far a command is, on stderr: one line that is written over on a terminal, else a line per step.

Invariant: the line is gone before anything else is said, also when the work ends in an error.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator

from tui import format as fmt
from tui.output import say


class LiveLine:
    """Use `live_line`, which clears it."""

    def __init__(self) -> None:
        self._width = shutil.get_terminal_size((80, 24)).columns - 1
        self._live = sys.stderr.isatty()
        self._said = ""

    def tell(self, step: str, counts: str = "", brief: str = "") -> None:
        """`step` in words; `counts` only on a terminal, `brief` only elsewhere, where each step is told once."""
        step = fmt.clean(step)
        if self._live:
            sys.stderr.write("\r\x1b[K" + f"{step}{counts}"[: self._width])
            sys.stderr.flush()
        elif step != self._said:
            say(f"{step}{brief}")
        self._said = step

    def clear(self) -> None:
        if self._live and self._said:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextlib.contextmanager
def live_line() -> Iterator[LiveLine]:
    """A line for the block."""
    line = LiveLine()
    try:
        yield line
    finally:
        line.clear()
