"""A report as a Markdown table for a chat or a wiki: the main columns, the totals in the last line, notes below.

Invariant: a cell from outside stays one cell of one line: `|`, backslashes and what Markdown or HTML would read as
markup are escaped, control and format characters are shown as U+FFFD.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TextIO

from pricing.calendar import zone
from pricing.report import Report
from pricing.reports.pages import Source, head_of, whole
from pricing.reports.table import Cell
from pricing.reports.text import PARTLY, UNKNOWN, clean

TITLES = {
    "gpu_hours": "GPU-hours",
    "idle_gpu_hours": "Idle GPU-h",
    "utilization_ratio": "Utilisation",
    "energy_kwh": "kWh",
    "allocated_cost": "Allocated",
    "idle_cost": "Idle",
    "unused_commitment_cost": "Unused commitment",
    "adjustment_cost": "Adjustment",
    "total_cost": "Total",
}
OPTIONAL = ("unused_commitment_cost", "adjustment_cost")
"""Shown only where they are not 0."""
_MARKUP = re.compile(r"([\\`*_\[\]<>#!|~&$])")
_LINKED = {"@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
"""What chats and wikis turn into mentions and links; a backslash does not stop them."""


def write(source: Source, stream: TextIO) -> None:
    """A heading, the table, and what is not counted."""
    shown, head = whole(source), head_of(source)
    names = [name for name in TITLES if name not in OPTIONAL or any(row[name] for row in (*shown.rows, shown.totals))]
    keys = list(shown.group_by)
    lines = [
        f"**Cost {_span(head)}** (in {escaped(head.currency)})",
        "",
        _line([escaped(key) for key in keys] + [TITLES[name] for name in names] if keys else [TITLES[name] for name in names]),
        _line(["---"] * len(keys) + ["---:"] * len(names)),
        *[_line([_cell(name, row[name], row) for name in (*keys, *names)]) for row in shown.rows],
    ]
    if keys:
        totals = [f"**{_cell(name, shown.totals[name], shown.totals)}**" for name in names]
        lines.append(_line(["**Total**", *[""] * (len(keys) - 1), *totals]))
    elif not shown.rows:
        lines.append(_line([_cell(name, shown.totals[name], shown.totals) for name in names]))
    stream.write("\n".join([*lines, *_notes(head)]) + "\n")


def _span(head: Report) -> str:
    """`2026-03-01 to 2026-04-01 (Europe/Berlin)`; the end is exclusive."""
    ends = [instant.astimezone(zone(head.tz)) for instant in (head.start, head.end)]
    form = "%Y-%m-%d" if all((end.hour, end.minute, end.second) == (0, 0, 0) for end in ends) else "%Y-%m-%d %H:%M"
    return f"{ends[0]:{form}} to {ends[1]:{form}}, {escaped(head.tz)}"


def _notes(head: Report) -> list[str]:
    sentences = [*head.unpriced, *head.missing, *head.notes]
    marked = [] if head.totals.complete else [f"\\{PARTLY} not complete: some time has no price and is in no cost"]
    lines = [*marked, *map(escaped, sentences)]
    return ["", *[f"- {line}" for line in lines]] if lines else []


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(name: str, cell: Cell, row: dict[str, Cell]) -> str:
    mark = "\\*" if name.endswith("_cost") and not row["complete"] else ""
    if isinstance(cell, str):
        return escaped(cell)
    if not isinstance(cell, Decimal):
        return UNKNOWN + mark
    return f"{cell * 100:.0f} %" if name == "utilization_ratio" else f"{cell:,.2f}{mark}"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    said = _MARKUP.sub(r"\\\1", clean(text))
    for part, entity in _LINKED.items():
        said = said.replace(part, entity)
    return said.strip() or "\N{NO-BREAK SPACE}"
