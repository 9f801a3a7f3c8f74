"""Reading the CSV files that the advice takes (usage, rates): text, header, rows, cells.

Invariant: what is wrong is one AdviceFileError that names the file, the row (the line in the file, the header is 1) and the
column, and says how to write it; a file is read wholly or not at all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from pricing.csv_table import CsvFault, cell_of, columns_of, rows_of, text_of
from pricing.errors import AdviceFileError, BadMoney
from pricing.lookup import did_you_mean
from pricing.money import parse_decimal

LARGEST_FILE = 1 << 30
LONGEST_CELL = 200
EMPTY = ("", "-", "–", "na", "n/a", "nan", "none", "null", "unknown")
"""Cells that say nothing; they are not known."""


class Row(NamedTuple):
    """One row below the header."""

    file: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """The cell, stripped; empty where the file has no such column."""
        return self.cells.get(column, "")

    def filled(self, column: str) -> str:
        text = "".join(filter(str.isprintable, self.text(column)))
        if not text:
            raise self.fault(column, "it is empty")
        return text

    def fault(self, column: str, what: str) -> AdviceFileError:
        return AdviceFileError(f"{self.file}, row {self.line}, column {column}: {what}.")

    def number(self, column: str, what: str) -> Fraction | None:
        """A decimal number that is not negative; None for an empty cell."""
        text = self.text(column)
        if text.lower() in EMPTY:
            return None
        try:
            value = Fraction(parse_decimal(text, what))
        except BadMoney as fault:
            raise self.fault(column, str(fault).rstrip(".")) from None
        if value < 0:
            raise self.fault(column, f"{text} is negative: a {what} is at least 0")
        return value


class Header(NamedTuple):
    """The columns of a file, and sentences about those that are not read."""

    columns: tuple[str, ...]
    notes: tuple[str, ...]


def rows(path: Path, needed: Sequence[str], optional: Sequence[str]) -> tuple[Header, Iterator[Row]]:
    """The header, checked, and the rows. AdviceFileError."""
    name = path.name
    content = _content(path)
    try:
        reader = csv.reader(io.StringIO(text_of(content, name), newline=""), strict=True)
        header = _header(name, next(reader, None), needed, optional)
    except csv.Error as error:
        raise AdviceFileError(f"{name}, row 1: this is no whole CSV file ({error}).") from None
    except CsvFault as fault:
        raise AdviceFileError(str(fault)) from None
    return header, _rows(name, reader, header.columns)


def _content(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise AdviceFileError(f"{path}: this is a folder; name the CSV file in it.")
        content = path.read_bytes() if path.stat().st_size <= LARGEST_FILE else None
    except OSError as error:
        raise AdviceFileError(f"{path}: cannot be read ({error.strerror}).") from None
    if content is None:
        raise AdviceFileError(f"{path.name} has more than {LARGEST_FILE >> 20} MiB: split it by months.")
    return content


def _header(name: str, cells: Sequence[str] | None, needed: Sequence[str], optional: Sequence[str]) -> Header:
    expected = f"it has {', '.join(needed)}" + (f", and may have {', '.join(optional)}" if optional else "")
    if not cells or not any(cell.strip() for cell in cells):
        raise AdviceFileError(f"{name} is empty: {expected}.")
    found = columns_of(cells, name)
    missing = [column for column in needed if column not in found]
    if missing:
        near = [did_you_mean(column, missing) for column in found if column not in (*needed, *optional)]
        hint = next((text for text in near if text), "")
        raise AdviceFileError(f"{name}, row 1: there is no column {', '.join(missing)}{hint}; {expected}.")
    unread = [column for column in found if column not in (*needed, *optional)]
    notes = [f"{name}: the column {column[:40]!r} is not read{did_you_mean(column, optional)}." for column in unread]
    return Header(tuple(found), tuple(notes))


def _rows(name: str, reader: Iterator[list[str]], columns: Sequence[str]) -> Iterator[Row]:
    try:
        for line, cells in rows_of(reader, name):
            if len(cells) != len(columns):
                raise AdviceFileError(f"{name}, row {line}: it has {len(cells)} cells where the header has {len(columns)}.")
            yield Row(name, line, {column: cell_of(cell)[:LONGEST_CELL] for column, cell in zip(columns, cells, strict=True)})
    except CsvFault as fault:
        raise AdviceFileError(str(fault)) from None


def moment(row: Row, column: str) -> tuple[datetime, bool]:
    """The time of a cell, and whether it has an offset of its own."""
    text = row.filled(column)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise row.fault(column, f"{text[:40]!r} is no hour: write it like 2026-03-01T13:00Z") from None
    return found, found.tzinfo is not None
