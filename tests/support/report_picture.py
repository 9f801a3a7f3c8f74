"""Draws screenshots/report.png and report-dark.png: the HTML report of a sample month, by a headless Chromium.

Invariant: Chromium is no dependency of the project: without one, the pages are written and nothing is drawn.
`python -m tests.support.report_picture FOLDER`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.reports.charts import Burn
from pricing.reports.html import HtmlReport, write_page
from tests.support.sample_ledger import fill

START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(days=30)
SIZE = (1200, 3000)


def page() -> HtmlReport:
    """A month of six nodes."""
    catalog = Catalog.embedded()
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, 720)
        made = [attribute(ledger, catalog, START, END, by) for by in ("project,user", "day,project", "job")]
    return HtmlReport(*made, budgets=(_burn(),), made_at=END + timedelta(hours=9))


def _burn() -> Burn:
    spent = tuple(Decimal(day * 1180 + 40 * (day % 5)) if day <= 21 else None for day in range(1, 31))
    labels = tuple(f"{day} Nov" for day in range(1, 31))
    return Burn("vision, November", Decimal(32000), labels, spent, (Decimal(31200), Decimal(34900), Decimal(38800)))


def main(folder: Path) -> None:
    html = folder / "report.html"
    with html.open("w", encoding="utf-8") as stream:
        write_page(page(), stream)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("no Chromium here: only the page was written\n")
        return
    for name, options in (("report.png", ()), ("report-dark.png", ("--blink-settings=preferredColorScheme=0",))):
        subprocess.run(
            [
                chromium, "--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}",
                "--disable-gpu", f"--screenshot={folder / name}", *options, html.absolute().as_uri(),
            ],
            check=True, capture_output=True, timeout=180,
        )  # fmt: skip
    subprocess.run(
        [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={folder / 'report.pdf'}", html.absolute().as_uri()],
        check=True, capture_output=True, timeout=180,
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
