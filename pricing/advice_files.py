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

from pricing.errors import AdviceFileError, BadMoney
from pricing.lookup import did_you_mean
from pricing.money import parse_decimal

BOM = "\ufeff"
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
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        header = _header(name, next(reader, None), needed, optional)
    except csv.Error as error:
        raise AdviceFileError(f"{name}, row 1: this is no whole CSV file ({error}).") from None
    return header, _rows(name, reader, header.columns)


def _text(path: Path) -> str:
    name = path.name
    try:
        if path.is_dir():
            raise AdviceFileError(f"{path}: this is a folder; name the CSV file in it.")
        content = path.read_bytes() if path.stat().st_size <= LARGEST_FILE else None
    except OSError as error:
        raise AdviceFileError(f"{path}: cannot be read ({error.strerror}).") from None
    if content is None:
        raise AdviceFileError(f"{name} has more than {LARGEST_FILE >> 20} MiB: split it by months.")
    if content[:2] == b"\x1f\x8b":
        raise AdviceFileError(f"{name} is compressed: unpack it first (gzip -d).")
    if b"\x00" in content[:4096]:
        raise AdviceFileError(f"{name} is not UTF-8 text (is it UTF-16, or a workbook?): save it as CSV UTF-8.")
    try:
        return content.decode("utf-8").lstrip(BOM)  # some exports begin with two
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise AdviceFileError(f"{name}, row {line}: this is not UTF-8 text; save it as CSV UTF-8.") from None


def _header(name: str, cells: Sequence[str] | None, needed: Sequence[str], optional: Sequence[str]) -> Header:
    expected = f"it has {', '.join(needed)}" + (f", and may have {', '.join(optional)}" if optional else "")
    if not cells or not any(cell.strip() for cell in cells):
        raise AdviceFileError(f"{name} is empty: {expected}.")
    found = [cell.strip().strip(BOM).strip().lower().replace(" ", "_") for cell in cells]
    if len(found) == 1 and (";" in found[0] or "\t" in found[0]):
        raise AdviceFileError(f"{name}, row 1: its cells are not separated by commas; save it as CSV with commas.")
    missing = [column for column in needed if column not in found]
    if missing:
        near = [did_you_mean(column, missing) for column in found if column not in (*needed, *optional)]
        hint = next((text for text in near if text), "")
        raise AdviceFileError(f"{name}, row 1: there is no column {', '.join(missing)}{hint}; {expected}.")
    twice = [column for column in found if found.count(column) > 1]
    if twice:
        raise AdviceFileError(f"{name}, row 1: column {twice[0]} stands there twice.")
    unread = [column for column in found if column not in (*needed, *optional)]
    notes = [f"{name}: the column {column[:40]!r} is not read{did_you_mean(column, optional)}." for column in unread]
    return Header(tuple(found), tuple(notes))


def _rows(name: str, reader: Iterator[list[str]], columns: Sequence[str]) -> Iterator[Row]:
    line = 1
    try:
        for cells in reader:
            line = getattr(reader, "line_num", line + 1)
            if not any(cell.strip(f" {BOM}") for cell in cells):
                continue
            if len(cells) != len(columns):
                raise AdviceFileError(f"{name}, row {line}: it has {len(cells)} cells where the header has {len(columns)}.")
            yield Row(name, line, dict(zip(columns, map(_cell, cells), strict=True)))
    except csv.Error as error:
        raise AdviceFileError(f"{name}, row {line + 1}: this is no whole CSV file ({error}).") from None


def _cell(cell: str) -> str:
    return cell.strip().strip(BOM).strip()[:LONGEST_CELL]


def moment(row: Row, column: str) -> tuple[datetime, bool]:
    """The time of a cell, and whether it has an offset of its own."""
    text = row.filled(column)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise row.fault(column, f"{text[:40]!r} is no hour: write it like 2026-03-01T13:00Z") from None
    return found, found.tzinfo is not None
