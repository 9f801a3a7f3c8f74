"""Which row of the screen shows which part of which line, where long lines go over several rows.

Invariant: each line has at least one row; a row and its line are found in logarithmic time.
"""

from __future__ import annotations

from bisect import bisect_right

from rich.cells import cell_len

from tui.job_log import LogBuffer
from tui.job_search import plain_of


class Rows:
    """Of a buffer at a width; `update` after it changed."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._of: tuple[int, int] = (-1, 0)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def update(self, buffer: LogBuffer, count: int, width: int) -> None:
        """`count`: lines that are shown. Lines that were there are worked out again only where they changed."""
        of = (buffer.generation, width)
        kept = max(0, min(count, len(self._ends)) - 1) if of == self._of else 0
        self._of = of
        del self._ends[kept:]
        at = self._ends[-1] if self._ends else 0
        for text in buffer.lines.texts[kept:count]:
            at += _rows(text, width)
            self._ends.append(at)

    def line_at(self, row: int) -> tuple[int, int]:
        """(line, which of its rows)."""
        line = bisect_right(self._ends, row)
        return line, row - (self._ends[line - 1] if line else 0)

    def row_of(self, line: int) -> int:
        """The first row of a line."""
        if not self._ends or line <= 0:
            return 0
        return self._ends[min(line, len(self._ends)) - 1]


def _rows(text: str, width: int) -> int:
    if width < 1 or (len(text) <= width and text.isascii() and text.isprintable()):
        return 1
    plain = plain_of(text)
    return max(1, -(-(len(plain) if plain.isascii() else cell_len(plain)) // width))
