"""A report as one JSON object. Money is a decimal string, hours, ratios and kWh are numbers, times are ISO 8601 UTC.

Invariant: the keys and columns are those of the CSV; what is not known is null, never 0. Rows are written piece by piece,
as they would be in one: memory holds a piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import TextIO

from pricing.report import Report
from pricing.reports.pages import Source, head_of, tables_and_totals, whole
from pricing.reports.table import MEASURES, Cell, Table


def write(source: Source, stream: TextIO) -> None:
    """Writes `{"from", "to", "timezone", "currency", "group_by", "rows", "totals", "complete", "unpriced",
    "missing", "notes"}`."""
    pieces, totals = tables_and_totals(source)
    record = _document(head_of(source), [], _record(totals))
    for place, (name, value) in enumerate(record.items()):
        stream.write(f'{"," if place else "{"}\n  {json.dumps(name)}: ')
        if name == "rows":
            _write_rows(pieces, stream)
        else:
            stream.write(json.dumps(value, indent=2).replace("\n", "\n  "))
    stream.write("\n}\n")


def _write_rows(pieces: Iterable[Table], stream: TextIO) -> None:
    before = "["
    for shown in pieces:
        names = [(name, f"      {json.dumps(name)}: ") for name in shown.columns]
        for row in shown.rows:
            cells = ",\n".join([title + _text(name, row[name]) for name, title in names])
            stream.write(f"{before}\n    {{\n{cells}\n    }}")
            before = ","
    stream.write("[]" if before == "[" else "\n  ]")


def _text(name: str, cell: Cell) -> str:
    """As `json.dumps` writes it; most cells are amounts of at most four places, which need no such care."""
    if isinstance(cell, Decimal):
        return repr(float(cell)) if name in MEASURES else f'"{cell}"'
    return json.dumps(cell)


def document(source: Source) -> dict[str, object]:
    """The same as an object, with all rows in memory."""
    shown = whole(source)
    return _document(head_of(source), [_record(row) for row in shown.rows], _record(shown.totals))


def _document(report: Report, rows: list[object], totals: object) -> dict[str, object]:
    return {
        "from": _utc(report.start),
        "to": _utc(report.end),
        "timezone": report.tz,
        "currency": report.currency,
        "group_by": list(report.group_by),
        "rows": rows,
        "totals": totals,
        "complete": report.complete,
        "unpriced": list(report.unpriced),
        "missing": list(report.missing),
        "notes": list(report.notes),
    }


def _record(cells: dict[str, Cell]) -> dict[str, object]:
    return {name: _value(name, cell) for name, cell in cells.items()}


def _value(name: str, cell: Cell) -> object:
    if isinstance(cell, Decimal):
        return float(cell) if name in MEASURES else f"{cell:f}"
    return cell


def _utc(instant: datetime) -> str:
    return instant.replace(tzinfo=None).isoformat() + "Z"
