"""A report as one JSON object. Money is a decimal string, hours, ratios and kWh are numbers, times are ISO 8601 UTC.

Invariant: the keys and columns are those of the CSV; what is not known is null, never 0.
"""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from typing import TextIO

from pricing.reports.pages import Source, head_of, whole
from pricing.reports.table import MEASURES, Cell


def write(source: Source, stream: TextIO) -> None:
    """Writes `{"from", "to", "timezone", "currency", "group_by", "rows", "totals", "complete", "unpriced",
    "missing", "notes"}`."""
    json.dump(document(source), stream, indent=2)
    stream.write("\n")


def document(source: Source) -> dict[str, object]:
    """The same as an object."""
    shown, report = whole(source), head_of(source)
    return {
        "from": _utc(report.start),
        "to": _utc(report.end),
        "timezone": report.tz,
        "currency": report.currency,
        "group_by": list(shown.group_by),
        "rows": [_record(row) for row in shown.rows],
        "totals": _record(shown.totals),
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
