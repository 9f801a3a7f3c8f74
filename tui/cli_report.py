"""The options of `rackrate report`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tui.cli_time import add_record_options
from tui.spending import add_spending_options

FORMATS = ("text", "csv", "json", "parquet", "html", "markdown", "focus")

EPILOG = """formats:
  text      the main columns, for a terminal
  csv       all columns; --bom for an Excel that takes UTF-8 for something else
  json      all columns, totals, and what is not counted
  parquet   all columns with explicit types (needs the extra `report`)
  html      one file to read, print and sign: charts, tables, light and dark
  markdown  the main columns, for a chat or a wiki
  focus     FOCUS 1.2, one charge a day, node and holder; --out FILE.parquet for Parquet

  rackrate report --format html --from 2026-11-01 --to 2026-12-01 --out november.html
  rackrate report --compare aws --from 2026-11-01 --to 2026-11-15       (asks first: 2 requests, $0.02)
  rackrate report --compare cur.parquet --from 2026-11-01 --to 2026-12-01 --account 123456789012
"""


def add_report_command(
    commands,
    command: Callable[..., argparse.ArgumentParser],
    money: Callable,
    json: Callable,  # noqa: ANN001
) -> None:
    """Adds `report`."""
    report = command(commands, "report", "report:report", "attribute the cost of a range to who caused it")
    report.epilog, report.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    report.add_argument("--format", choices=FORMATS, default="text")
    report.add_argument("--from", dest="start", metavar="DATE", help="first day or ISO time (default: the 1st of this month)")
    report.add_argument("--to", dest="end", metavar="DATE", help="end, exclusive: a day means its midnight (default: now)")
    report.add_argument(
        "--by", default="project,user", metavar="KEYS",
        help="user, project, node, job, gpu_model, instance_type, cloud, region, purchase, day, tag:NAME; comma-separated",
    )  # fmt: skip
    report.add_argument("--out", metavar="FILE", help="write there (default: stdout)")
    report.add_argument("--bom", action="store_true", help="begin a CSV with a byte-order mark, for Excel")
    report.add_argument(
        "--compare", metavar="BILL",
        help="reconcile with a cloud's bill: AWS CUR 2.0 or FOCUS, as .csv, .csv.gz or .parquet; `aws` asks Cost Explorer",
    )  # fmt: skip
    add_spending_options(report)
    report.add_argument(
        "--account", metavar="ID", help="with --compare: only what this account is charged is ours; with focus: its id"
    )
    money(report)
    add_record_options(report)
    json(report)
