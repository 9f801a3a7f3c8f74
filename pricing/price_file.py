"""Prices from a CSV file of the user's, in the columns of the tables that ship.

Columns: region, zone, instance_type, purchase, price, currency, as_of, source; optional cloud, unit, payment, valid_from.

Invariant: a row that is not clear is left out with its row and column; none is guessed right (no decimal comma, no currency
sign, no local time). A file whose columns or encoding are not clear gives nothing at all.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from pricing.csv_table import CsvFault, cell_of, columns_of, rows_of, text_of
from pricing.currencies import CURRENCIES
from pricing.errors import BadMoney, PriceFileError
from pricing.lookup import did_you_mean, region_key
from pricing.money import parse_decimal
from pricing.offers import PURCHASES
from pricing.prices import INSTANCE_HOUR, UNITS, Price

NEEDED = ("region", "zone", "instance_type", "purchase", "price", "currency", "as_of", "source")
OPTIONAL = ("cloud", "unit", "payment", "valid_from")
LARGEST_FILE = 256 << 20
PER_HOUR = {"hour": INSTANCE_HOUR, "hours": INSTANCE_HOUR, "hrs": INSTANCE_HOUR, "h": INSTANCE_HOUR, "1 hour": INSTANCE_HOUR}


class RowFault(NamedTuple):
    """What is wrong with one row."""

    row: int
    """Line in the file, from 1; the header is line 1."""
    column: str
    sentence: str

    def __str__(self) -> str:
        return f"row {self.row}, column {self.column}: {self.sentence}"


class PriceFile(NamedTuple):
    """What a file holds."""

    prices: tuple[Price, ...]
    rows: Mapping[Price, int]
    """Line of each price in the file."""
    faults: tuple[RowFault, ...]


class _Bad(Exception):
    """A cell that is not clear: its column, and a sentence."""


def read_price_file(content: bytes, name: str, cloud: str | None, clouds: Sequence[str], now: datetime) -> PriceFile:
    """The prices of a file. `cloud`: of rows that name none. PriceFileError when it is no such table."""
    if len(content) > LARGEST_FILE:
        raise PriceFileError(f"{name} has {len(content)} bytes: no table of prices is that large; nothing was kept.")
    try:
        reader = csv.reader(io.StringIO(text_of(content, name), newline=""), strict=True)
        header = _header(next(reader, []), name)
        prices, faults = _Rows(header, cloud, clouds, now).read(rows_of(reader, name))
    except csv.Error as error:
        raise PriceFileError(f"{name}, row 1: this is no whole CSV file ({error}). Nothing was kept.") from None
    except CsvFault as fault:
        raise PriceFileError(f"{fault} Nothing was kept.") from None
    return PriceFile(tuple(prices), prices, tuple(faults))


def _header(cells: Sequence[str], name: str) -> list[str]:
    found = columns_of(cells, name)
    missing = [column for column in NEEDED if column not in found and column != "zone"]
    if missing:
        raise PriceFileError(f"{name}, row 1: there is no column {', '.join(missing)}; a price file has {', '.join(NEEDED)}.")
    unknown = [column for column in found if column not in (*NEEDED, *OPTIONAL)]
    if unknown:
        near = did_you_mean(unknown[0], (*NEEDED, *OPTIONAL))
        raise PriceFileError(f"{name}, row 1: column {unknown[0]!r} is not known{near}; optional are {', '.join(OPTIONAL)}.")
    return found


class _Rows:
    """The rows below a header."""

    def __init__(self, header: Sequence[str], cloud: str | None, clouds: Sequence[str], now: datetime) -> None:
        self._header = header
        self._cloud = cloud
        self._clouds = clouds
        self._now = now

    def read(self, rows: Iterator[tuple[int, list[str]]]) -> tuple[dict[Price, int], list[RowFault]]:
        prices: dict[Price, int] = {}
        faults: list[RowFault] = []
        for line, cells in rows:
            if len(cells) != len(self._header):
                faults.append(RowFault(line, "-", _wrong_length(len(cells), len(self._header))))
                continue
            row = dict(zip(self._header, map(cell_of, cells), strict=True))
            try:
                prices.setdefault(self._price(row), line)
            except _Bad as bad:
                column, sentence = bad.args
                faults.append(RowFault(line, column, sentence))
        return prices, faults

    def _price(self, row: Mapping[str, str]) -> Price:
        published = _moment(row, "as_of")
        since = _moment(row, "valid_from") if row.get("valid_from") else published
        if published > self._now + timedelta(days=1):
            raise _Bad("as_of", f"{row['as_of']} lies in the future: it is the day on which the price was published.")
        if since > published + timedelta(days=366):
            raise _Bad("valid_from", f"{row['valid_from']} is more than a year after as_of, {row['as_of']}.")
        return Price(
            self._cloud_of(row), region_key(_filled(row, "region")), row.get("zone", "").lower() or None,
            _filled(row, "instance_type"), _word(row, "purchase", PURCHASES), _amount(row), _currency(row), _unit(row), since,
            published, _filled(row, "source"),
            payment=_word(row, "payment", ("no_upfront", "partial_upfront", "all_upfront")) if row.get("payment") else None,
        )  # fmt: skip

    def _cloud_of(self, row: Mapping[str, str]) -> str:
        cloud = row.get("cloud", "").lower() or self._cloud
        if cloud is None:
            raise _Bad("cloud", "its cloud is not told: add a column cloud, or give --cloud.")
        if cloud not in self._clouds:
            raise _Bad("cloud", f"{cloud!r} is none of {', '.join(self._clouds)}.")
        return cloud


def _wrong_length(cells: int, expected: int) -> str:
    why = "is it cut off?" if cells < expected else 'a comma inside a cell needs quotes, and "0,9" is 0.9.'
    return f"it has {cells} cells where the header has {expected}; {why}"


def _filled(row: Mapping[str, str], column: str) -> str:
    text = "".join(filter(str.isprintable, row[column]))
    if not text:
        raise _Bad(column, "it is empty.")
    return text


def _word(row: Mapping[str, str], column: str, words: Sequence[str]) -> str:
    word = row[column].lower()
    if word not in words:
        raise _Bad(column, f"{row[column]!r} is not known{did_you_mean(word, words)}; expected one of {', '.join(words)}.")
    return word


def _amount(row: Mapping[str, str]) -> Decimal | None:
    """An empty cell is a price that is not told."""
    if not row["price"]:
        return None
    try:
        return parse_decimal(row["price"], "price")
    except BadMoney as fault:
        raise _Bad("price", str(fault)) from None


def _currency(row: Mapping[str, str]) -> str:
    if row["currency"] not in CURRENCIES:
        raise _Bad("currency", f"{row['currency']!r} is no currency: expected an ISO 4217 code like USD.")
    return row["currency"]


def _unit(row: Mapping[str, str]) -> str:
    told = row.get("unit", "").lower()
    unit = PER_HOUR.get(told, told) or INSTANCE_HOUR
    if unit in ("month", "monthly", "year", "yearly", "day", "daily"):
        raise _Bad("unit", f"it is per {told}: a node's price is per hour (a month has 730 hours, a year 8,760); convert it.")
    if unit not in UNITS:
        raise _Bad("unit", f"{told!r} is not known; expected one of {', '.join(UNITS)}, or nothing for instance_hour.")
    return unit


def _moment(row: Mapping[str, str], column: str) -> datetime:
    text = row[column]
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _Bad(column, f"{text!r} is no date: expected 2026-11-29, or a time with its zone.") from None
    if found.tzinfo is None:
        raise _Bad(column, f"{text} has no time zone: write it in UTC, like 2026-11-29T12:00:00Z.")
    return found.astimezone(UTC)
