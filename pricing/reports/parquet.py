"""A report as a Parquet file: the columns of the CSV with explicit types, readable by pandas, polars, DuckDB and Spark.

Invariant: the schema depends on the group keys alone, never on the values. Money is decimal128(18, 2), hours and kWh are
decimal128(18, 4), ratios double, `day` date32; what is not known is null. Range, time zone, currency and what is not
complete stand in the file's own metadata, under `rackrate`.
"""

from __future__ import annotations

import importlib
import json
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

from pricing.errors import ReportError
from pricing.report import Report
from pricing.reports.pages import Source, head_of, tables
from pricing.reports.table import COLUMNS, SUMMED, Cell

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_GROUP = 64_000


def write(source: Source, stream: BinaryIO) -> None:
    """Writes the rows, piece by piece. ReportError when pyarrow is not installed."""
    arrow = import_arrow()
    head = head_of(source)
    schema = schema_of(head.group_by).with_metadata({"rackrate": json.dumps(_facts(head))})
    with arrow.parquet.ParquetWriter(stream, schema, compression="zstd", version="2.6") as writer:
        for piece in tables(source):
            for begin in range(0, max(1, len(piece.rows)), ROWS_PER_GROUP):
                rows = piece.rows[begin : begin + ROWS_PER_GROUP]
                columns = [arrow.array([_value(field.name, row[field.name]) for row in rows], field.type) for field in schema]
                writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def import_arrow() -> Any:
    """pyarrow with its Parquet part, or a ReportError that says how to get it."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError:
        raise ReportError(
            "Parquet needs the package pyarrow, which is not installed: run `pip install 'rackrate[report]'`, "
            "or use --format csv."
        ) from None


def schema_of(group_by: tuple[str, ...]) -> pyarrow.Schema:
    """Group keys, then `table.COLUMNS`."""
    arrow = import_arrow()
    keys = [arrow.field(key, arrow.date32() if key == "day" else arrow.string(), nullable=False) for key in group_by]
    return arrow.schema(keys + [arrow.field(name, _type(arrow, name), nullable=name != "complete") for name in COLUMNS])


def _type(arrow: Any, name: str) -> Any:
    if name == "complete":
        return arrow.bool_()
    if name == "utilization_ratio":
        return arrow.float64()
    return arrow.decimal128(18, 4 if name in SUMMED else 2)


def _value(name: str, cell: Cell) -> object:
    if name == "day":
        return date.fromisoformat(str(cell))
    if name == "utilization_ratio" and isinstance(cell, Decimal):
        return float(cell)
    return cell.encode("utf-8", "replace").decode("utf-8") if isinstance(cell, str) else cell


def _facts(head: Report) -> dict[str, object]:
    return {
        "from": head.start.isoformat(),
        "to": head.end.isoformat(),
        "timezone": head.tz,
        "currency": head.currency,
        "group_by": list(head.group_by),
        "complete": head.complete,
        "unpriced": list(head.unpriced),
        "missing": list(head.missing),
    }
