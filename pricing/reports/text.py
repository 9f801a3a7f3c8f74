"""A report as an aligned table for a terminal: the main columns, and the totals below a line.

Invariant: the cost columns that are shown sum to the total: those that most reports have no money in appear when theirs
have. Text from outside is shown without control characters, so it cannot steer the terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import TextIO

from pricing.report import Report
from pricing.reports.pages import Source, head_of, whole
from pricing.reports.table import Cell, Table

_TITLES = {
    "gpu_hours": "GPU-HOURS",
    "idle_gpu_hours": "IDLE GPU-H",
    "utilization_ratio": "UTIL",
    "energy_kwh": "KWH",
    "allocated_cost": "ALLOCATED",
    "idle_cost": "IDLE",
    "unused_commitment_cost": "UNUSED CMT",
    "adjustment_cost": "ADJUSTED",
    "total_cost": "TOTAL",
}
_RARE = ("unused_commitment_cost", "adjustment_cost")
UNKNOWN = "–"
PARTLY = "*"


def write(source: Source, stream: TextIO) -> None:
    """Writes the table; a cost with `*` leaves out time that has no price."""
    shown, report = whole(source), head_of(source)
    titles = {name: title for name, title in _TITLES.items() if name not in _RARE or _has_money(shown, name)}
    names = [*shown.group_by, *titles]
    lines = [[clean(name).upper() for name in shown.group_by] + list(titles.values())]
    lines += [_line(names, row) for row in shown.rows]
    lines.append(_totals(names, shown))
    widths = [max(width(line[place]) for line in lines) for place in range(len(names))]
    rule = "  ".join("─" * wide for wide in widths)
    printed = [_aligned(line, widths, len(shown.group_by)) for line in lines]
    body = [printed[0], *printed[1:-1], rule, printed[-1]]
    stream.write("\n".join([*body, *_notes(report)]) + "\n")


def _has_money(shown: Table, name: str) -> bool:
    return any(row[name] for row in (*shown.rows, shown.totals))


def _notes(report: Report) -> list[str]:
    if report.totals.complete:
        return [] if report.currency == "USD" else [f"(all in {clean(report.currency)})"]
    return [f"{PARTLY} not complete: some time has no price and is in no cost (all in {clean(report.currency)})"]


def _totals(names: Sequence[str], shown: Table) -> list[str]:
    line = _line(names, {**dict.fromkeys(shown.group_by, ""), **shown.totals})
    if shown.group_by:
        line[0] = "total"
    return line


def _line(names: Sequence[str], row: dict[str, Cell]) -> list[str]:
    mark = "" if row["complete"] else PARTLY
    return [_cell(name, row[name], mark) for name in names]


def _cell(name: str, cell: Cell, mark: str) -> str:
    if isinstance(cell, str):
        return clean(cell)
    if not isinstance(cell, Decimal):
        return UNKNOWN + (mark if name.endswith("_cost") else "")
    if name == "utilization_ratio":
        return f"{cell * 100:.0f} %"
    return f"{cell:,.2f}" + (mark if name.endswith("_cost") else "")


def _aligned(line: Sequence[str], widths: Sequence[int], texts: int) -> str:
    cells = (
        cell + " " * (wide - width(cell)) if place < texts else " " * (wide - width(cell)) + cell
        for place, (cell, wide) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def clean(text: str) -> str:
    """Without control and format characters, which could move the cursor or reverse the line."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter
        for letter in text
    )


def width(text: str) -> int:
    """Terminal cells that `text` takes: wide letters two, combining marks none."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )
