"""What the commands print: data on stdout, everything else on stderr.

Invariant: no escape byte from outside text reaches a terminal; a table is cut to the terminal only when there is one.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from tui.columns import Column, fit
from tui.format import counted

MOST_FAILURES = 20


def print_json(data: object) -> None:
    """One JSON document with a newline."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2, default=str) + "\n")


def say(text: str) -> None:
    """A line for the person, on stderr."""
    sys.stderr.write(text + "\n")


def say_failures(failed: Mapping[str, str]) -> None:
    """Node -> what went wrong with it; the first of them, where a network took away hundreds at once."""
    for name, error in itertools.islice(failed.items(), MOST_FAILURES):
        say(f"rackrate: {name}: {error}")
    if len(failed) > MOST_FAILURES:
        say(f"rackrate: and {counted(len(failed) - MOST_FAILURES, 'more node')}; `rackrate nodes --json` has the `error` of each")


def print_rows(columns: tuple[Column, ...], rows: Sequence[Any], now: float) -> None:
    """A table by column specifications; on a terminal only the columns that fit, with a note of what is hidden."""
    width = shutil.get_terminal_size((200, 24)).columns if sys.stdout.isatty() else 10_000
    chosen, hidden = fit(columns, width)
    texts = [[column.text(row, now) for column, _ in chosen] for row in rows]
    titles = [column.title for column, _ in chosen]
    limits = [width for _, width in chosen] if sys.stdout.isatty() else None
    print_table(titles, texts, [column.align for column, _ in chosen], limits=limits)
    if hidden:
        say(f"({counted(hidden, 'column')} hidden: make the terminal wider, or use --json)")


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], align: Sequence[str], *, limits: Sequence[int] | None = None
) -> None:
    """Aligned text with two spaces between columns (one when limits apply)."""
    widths = [max(cell_len(text) for text in column) for column in zip(titles, *rows, strict=True)]
    if limits:
        widths = [min(width, limit) for width, limit in zip(widths, limits, strict=True)]
    gap = " " if limits else "  "
    for row in (titles, *rows):
        cells = [_cell(text, width, side) for text, width, side in zip(row, widths, align, strict=True)]
        sys.stdout.write(_encodable(gap.join(cells).rstrip()) + "\n")


def _cell(text: str, width: int, side: str) -> str:
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - length) + text if side == "right" else text + " " * (width - length)


def _encodable(text: str) -> str:
    """Text that stdout can encode; what it cannot becomes `?`."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def quiet_broken_pipe() -> None:
    """`rackrate nodes | head` ends without a traceback: the rest goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
