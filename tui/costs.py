"""Today's and this month's cost as the commands show it.

Invariant: the figures are the totals of the same reports that `rackrate report` writes.
"""

from __future__ import annotations

from typing import Any

from pricing.attribution import CostSummary
from pricing.report import Report
from pricing.reports.json import document
from pricing.reports.table import table
from tui import format as fmt


def summary_record(summary: CostSummary) -> dict[str, Any]:
    """For `--json`: the totals of both ranges, with what is not counted."""
    return {name: _record(report) for name, report in (("today", summary.today), ("month", summary.month))}


def _record(report: Report) -> dict[str, Any]:
    whole: dict[str, Any] = document(report)
    kept = ("from", "to", "timezone", "currency", "complete", "unpriced", "missing")
    return {**{key: whole[key] for key in kept}, **whole["totals"]}


def summary_rows(summary: CostSummary) -> list[tuple[str, ...]]:
    """Cells of `rackrate cost`; `*` marks a range that is not complete."""
    return [_cells("today", summary.today), _cells("this month", summary.month)]


def _cells(name: str, report: Report) -> tuple[str, ...]:
    shown, totals = table(report).totals, report.totals
    money = [shown[key] for key in ("allocated_cost", "idle_cost", "total_cost")]
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
