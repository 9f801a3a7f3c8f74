"""A CSV file of somebody's, whatever made it: its text, the names of its columns, its rows.

Invariant: what is no UTF-8 CSV with commas is one CsvFault, a sentence that names the file and the row (its line; the header
is 1); nothing is guessed. Byte order marks that exports leave behind are no part of any cell.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

BOM = "\ufeff"


class CsvFault(Exception):
    """What is wrong with the file as a whole. Readers raise it as their own error."""


def text_of(content: bytes, name: str) -> str:
    """The text of a file. CsvFault."""
    if content[:2] == b"\x1f\x8b":
        raise CsvFault(f"{name} is compressed: unpack it first (gzip -d).")
    if b"\x00" in content[:4096]:
        raise CsvFault(f"{name} is not UTF-8 text (is it UTF-16, or a workbook?): save it as CSV UTF-8.")
    try:
        return content.decode("utf-8").lstrip(BOM)  # some exports begin with two
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CsvFault(f"{name}, row {line}: this is not UTF-8 text; save it as CSV UTF-8.") from None


def columns_of(cells: Sequence[str], name: str) -> list[str]:
    """The columns that a header names: small letters, blanks as `_`. CsvFault."""
    found = [cell_of(cell).lower().replace(" ", "_") for cell in cells]
    if len(found) == 1 and (";" in found[0] or "\t" in found[0]):
        raise CsvFault(f"{name}, row 1: its cells are not separated by commas; save it as CSV with commas.")
    twice = [column for column in found if found.count(column) > 1]
    if twice:
        raise CsvFault(f"{name}, row 1: column {twice[0]} stands there twice.")
    return found


def cell_of(text: str) -> str:
    return text.strip().strip(BOM).strip()


def rows_of(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of each row that says anything, below the header. CsvFault."""
    line = 1
    try:
        for cells in reader:
            line = getattr(reader, "line_num", line + 1)
            if any(map(cell_of, cells)):
                yield line, cells
    except csv.Error as error:
        raise CsvFault(f"{name}, row {line + 1}: this is no whole CSV file ({error}).") from None
