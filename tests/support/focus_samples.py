"""Small FOCUS sources: a ledger of some days with owned commitments, discounts, monthly items and every kind of time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pricing import terms
from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.report import Report
from pricing.reports.focus import FocusSource, facts_of
from tests.support.sample_ledger import fill

START = datetime(2026, 11, 1, tzinfo=UTC)
TERMS = """
[[discounts]]
cloud = "aws"
percent = "10"
from = 2026-01-01
[[commitments]]
id = "ri-p4d"
kind = "reservation"
cloud = "aws"
region = "us-east-1"
instance_type = "p4d.24xlarge"
upfront = "20000"
hourly = "11.20"
from = 2026-11-01
to = 2027-11-01
[[commitments]]
id = "sp-a"
kind = "savings_plan"
cloud = "aws"
usd_per_hour = "1.5"
percent = "30"
from = 2026-06-01
to = 2027-06-01
[[storage]]
name = "datasets"
per_month = "160"
project = "vision"
from = 2026-01-01
"""


@contextmanager
def sample(days: int = 2, nodes: int = 6, text: str = TERMS, tz: str = "UTC") -> Iterator[tuple[FocusSource, Report]]:
    """(the source, the report of the same range without groups)."""
    import tomllib

    read, catalog, end = terms.parse(tomllib.loads(text)), Catalog.embedded(), START + timedelta(days=days)
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, days * 24, nodes)

        def attributed(since: datetime, until: datetime, by: object) -> Report:
            return attribute(ledger, catalog, since, until, by, tz=tz, terms=read, now=end)  # type: ignore[arg-type]

        names, tags = facts_of(ledger)
        yield (
            FocusSource(attributed, START, end, tz, commitments=read.commitments, nodes=names, tags=tags),
            attributed(START, end, ()),
        )
