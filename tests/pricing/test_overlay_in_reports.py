"""What was used is priced by what it cost at that time: the price book through the ledger to the report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.attribution import attribute
from pricing.calendar import milliseconds
from pricing.catalog import Catalog
from pricing.ledger import Ledger
from pricing.pricebook import PriceBook, Shelf
from pricing.prices import Price
from pricing.usage import WHOLE_SHARE, Placed, Usage

START = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
NODES = {
    "zoned": Placed(1, "zoned", "aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot", gpu_count=1),
    "stated": Placed(1, "stated", "aws", "us-east-1", None, "p4d.24xlarge", "spot", usd_per_hour="5", gpu_count=1),
    "unheard": Placed(1, "unheard", "aws", "us-east-1", None, "x9.unheard", "on_demand", usd_per_hour="3", gpu_count=1),
    "listed": Placed(1, "listed", "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", gpu_count=1),
}


def price(amount: str, since: datetime, purchase: str = "spot") -> Price:
    zone = "use1-az1" if purchase == "spot" else None
    return Price(
        "aws",
        "us-east-1",
        zone,
        "p4d.24xlarge",
        purchase,
        Decimal(amount),
        "USD",
        "instance_hour",
        since,
        START + 9 * HOUR,
        "fake",
    )


def test_each_hour_costs_what_it_cost_then_and_a_stated_price_beats_an_estimate(tmp_path: Path) -> None:
    with PriceBook.open(tmp_path / "prices.db") as book:
        told = [price("8", START - HOUR), price("6", START + HOUR / 2), price("7", START + 3 * HOUR)]
        assert book.put([*told, price("20", START + HOUR, "on_demand")], START).refused == ()
    catalog = Catalog.embedded().with_book(Shelf(tmp_path / "prices.db"))
    with Ledger.open(":memory:") as ledger:
        for node, placed in NODES.items():
            row = Usage(
                1, milliseconds(START), milliseconds(START + 2 * HOUR), f"gpu of {node}", "held", None, WHOLE_SHARE, "ada", "p", None,
                None, None, None, 1,
            )  # fmt: skip
            ledger.take(node, "meter", [row], [placed], 1)
        report = attribute(ledger, catalog, START, START + 24 * HOUR, ["node"], book=catalog.history)
    costs = {row.keys[0]: row.total_cost for row in report.rows}
    assert costs == {
        "zoned": Decimal(8) / 2 + Decimal(6) * 3 / 2,
        "stated": 10,
        "unheard": 6,
        "listed": Decimal("21.957642") + 20,  # what ships until the book knows better
    }
    assert report.unpriced == ()
