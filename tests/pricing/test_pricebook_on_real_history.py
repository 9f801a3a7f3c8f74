"""Real price histories go through the price book whole: nothing of them is refused, and every moment has its price.

The data is not part of the repository; where it is not at hand, the other tests of the book speak for it.
"""

from __future__ import annotations

import csv
import itertools
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.pricebook import Key, PriceBook
from pricing.prices import Price

WEEKLY = Path(__file__).parents[3] / "shared/data/prices/gcp_gpu_weekly_2026-05-05_2026-08-03.csv"


def weekly() -> list[Price]:
    prices = []
    with WEEKLY.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            seen = datetime.combine(datetime.fromisoformat(row["date"]).date(), time(), UTC)
            for purchase in ("on_demand", "spot"):
                if row[purchase]:
                    amount = Decimal(row[purchase])
                    prices.append(
                        Price(
                            "gcp",
                            row["region"],
                            None,
                            row["machine"],
                            purchase,
                            amount,
                            "USD",
                            "instance_hour",
                            seen,
                            seen,
                            "weekly",
                        )
                    )
    return prices


@pytest.mark.skipif(not WEEKLY.exists(), reason=f"{WEEKLY.name} is not at hand")
def test_fourteen_weeks_of_google_cloud_prices_are_kept_as_their_changes() -> None:
    told = weekly()
    with PriceBook.open(":memory:") as book:
        for day in sorted({price.fetched_at for price in told}):
            done = book.put([price for price in told if price.fetched_at == day], day)
            assert done.refused == ()
        for price in told[:: max(1, len(told) // 500)]:
            found = book.at("gcp", price.region, None, price.instance_type, price.purchase, price.fetched_at)
            assert found is not None and found.amount == price.amount
        steps = book.rows(Key("gcp", "us-central1", None, "a3-highgpu-8g", "spot"))
        assert 1 < len(steps) < 14
        assert all(a.price.amount != b.price.amount for a, b in itertools.pairwise(steps))
