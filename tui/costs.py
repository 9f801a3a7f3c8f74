"""Today's and this month's cost as the commands show it.

Invariant: the figures are the totals of the same reports that `rackrate report` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pricing.attribution import CostSummary
from pricing.report import Report
from pricing.reports.json import document
from pricing.reports.table import Cell, table
from tui import format as fmt


def summary_record(summary: CostSummary) -> dict[str, Any]:
    """For `--json`: the totals of both ranges, with what is not counted."""
    return {name: _record(report) for name, report in (("today", summary.today), ("month", summary.month))}


def _record(report: Report) -> dict[str, Any]:
    whole: dict[str, Any] = document(report)
    kept = ("from", "to", "timezone", "currency", "complete", "unpriced", "missing")
    return {**{key: whole[key] for key in kept}, **whole["totals"]}


_TITLES = {
    "allocated_cost": "ALLOCATED",
    "idle_cost": "IDLE",
    "unused_commitment_cost": "UNUSED CMT",
    "adjustment_cost": "ADJUSTED",
    "total_cost": "TOTAL",
}
_RARE = ("unused_commitment_cost", "adjustment_cost")


def summary_table(summary: CostSummary) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Titles and cells of `rackrate cost`; `*` marks a range that is not complete.

    The costs that are shown sum to the total: unused commitments and corrections appear where there are some.
    """
    ranges = (("today", summary.today), ("this month", summary.month))
    shown = [table(report).totals for _, report in ranges]
    names = [name for name in _TITLES if name not in _RARE or any(cells[name] for cells in shown)]
    titles = ("", *(_TITLES[name] for name in names), "GPU-HOURS", "IDLE GPU-H", "UTIL")
    return titles, [
        _cells(name, report, [cells[key] for key in names]) for (name, report), cells in zip(ranges, shown, strict=True)
    ]


def _cells(name: str, report: Report, money: Sequence[Cell]) -> tuple[str, ...]:
    totals = report.totals
    return (
        name if report.complete else f"{name} *",
        *(fmt.UNKNOWN if cell is None else _money(cell, report.currency) for cell in money),
        f"{float(totals.gpu_hours):,.1f}",
        f"{float(totals.idle_gpu_hours):,.1f}",
        fmt.percent(totals.utilization_ratio),
    )


def _money(amount: Any, currency: str) -> str:
    return f"${amount:,}" if currency == "USD" else f"{currency} {amount:,}"


def notes(*reports: Report) -> list[str]:
    """Sentences on what is not counted, each once."""
    return list(dict.fromkeys(sentence for report in reports for sentence in (*report.unpriced, *report.missing)))
