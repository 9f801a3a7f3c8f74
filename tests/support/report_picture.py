"""Draws screenshots/report.png and report-dark.png: the HTML report of a sample fleet, by a headless Chromium.

Invariant: Chromium is no dependency of the project: without one, nothing is drawn and the pictures stay as they are.
`python -m tests.support.report_picture FOLDER`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.attribution import attribute
from pricing.budgets import Budget, budget_states
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.money import Money
from pricing.report import Report
from pricing.reports.burns import burn_of
from pricing.reports.html import HtmlReport, write_page
from tests.support.sample_ledger import fill

START = datetime(2026, 11, 1, tzinfo=UTC)
END = datetime(2026, 11, 23, tzinfo=UTC)
HISTORY = START - timedelta(days=30)
SIZE = (1160, 2560)


def page() -> HtmlReport:
    """Three weeks of six nodes, with a budget that will not last."""
    catalog = Catalog.embedded()
    with Ledger.open(":memory:") as ledger:
        fill(ledger, HISTORY, (END - HISTORY) // timedelta(hours=1))

        def report_for(keys: Sequence[str], start: datetime, end: datetime, tz: str, currency: str) -> Report:
            return attribute(ledger, catalog, start, end, keys, tz=tz, currency=currency)

        made = [attribute(ledger, catalog, START, END, by) for by in ("project,user", "day,project", "job")]
        (state,) = budget_states([Budget("vision", Money.parse("16000"), "project", "vision")], report_for, END)
        burn = burn_of(state, report_for(("day", "project"), START, END, "UTC", "USD"))
    return HtmlReport(*made, budgets=(burn,), made_at=END + timedelta(hours=9))


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        draw(Path(made) / "report.html", folder)


def draw(html: Path, folder: Path) -> None:
    with html.open("w", encoding="utf-8") as stream:
        write_page(page(), stream)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("no Chromium here: report.png stays as it is\n")
        return
    for name, options in (("report.png", ()), ("report-dark.png", ("--blink-settings=preferredColorScheme=0",))):
        subprocess.run(
            [
                chromium, "--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}",
                "--disable-gpu", f"--screenshot={folder / name}", *options, html.absolute().as_uri(),
            ],
            check=True, capture_output=True, timeout=180,
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
