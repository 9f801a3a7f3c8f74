"""A report as CSV: UTF-8, a header, one line per row, `.` decimals, no totals line (a reader would add it up twice).

Invariant: a text cell never starts a formula in a spreadsheet. One that begins with = + - @, a tab or a carriage return
gets an apostrophe in front, which spreadsheets take as "this is text"; the JSON format keeps the text as it was.
What is not known is an empty cell. With a byte-order mark (`bom`), Excel reads the file as UTF-8 wherever it is opened;
pandas and every `utf-8-sig` reader drop the mark, so it is written only where it is asked for.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from decimal import Decimal
from typing import TextIO

from pricing.reports.pages import Source, tables
from pricing.reports.table import Cell, Table

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write(source: Source, stream: TextIO, *, bom: bool = False) -> None:
    """Writes the rows, piece by piece."""
    if bom:
        stream.write("\ufeff")
    write_tables(tables(source), stream)


def write_tables(pieces: Iterable[Table], stream: TextIO) -> None:
    """The same for cells that are made already. All pieces have the same columns."""
    writer = csv.writer(stream)  # lines end in CR LF: only then does it quote a lone carriage return in a cell
    for place, shown in enumerate(pieces):
        if not place:
            writer.writerow([_text(name) for name in shown.columns])
        writer.writerows([_cell(row[name]) for name in shown.columns] for row in shown.rows)


def _cell(cell: Cell) -> str:
    if isinstance(cell, Decimal):
        return str(cell)  # of at most four places: never with an exponent
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return _text(cell)


def _text(text: str) -> str:
    clean = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return f"'{clean}" if clean.startswith(_FORMULA) else clean
