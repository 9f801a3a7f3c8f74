"""How long the catalog takes to load, alone and with a price book over it, and what it keeps in memory.

`python tests/bench/bench_catalog.py`

Invariant: every figure comes from a fresh interpreter, because the catalog is read once per process.
The target is 60 ms CPU for all four tables; a node needs only its own cloud's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from pricing.catalog import Catalog
from pricing.pricebook import PriceBook
from pricing.prices import Price

PROBE = """
import json, sys, time, tracemalloc
start = time.process_time()
from pricing.catalog import CLOUDS, Catalog
imported = time.process_time()
catalog = Catalog.embedded()
wanted = sys.argv[1]
if wanted == "book":
    from pricing.pricebook import Shelf
    catalog, wanted = catalog.with_book(Shelf(sys.argv[2])), "all"
if wanted == "memory":
    tracemalloc.start()
if wanted == "aws":
    catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
else:
    for cloud in CLOUDS:
        catalog.quote(cloud, "us-east-1", None, next(iter(catalog.instances(cloud))).instance_type, "on_demand")
loaded = time.process_time()
kept = tracemalloc.get_traced_memory()[0] if wanted == "memory" else None
again = time.process_time()
for _ in range(1000):
    catalog.quote("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot")
quoted = time.process_time()
print(json.dumps({"import": imported - start, "load": loaded - imported,
    "kept": kept, "quote": (quoted - again) / 1e3}))
"""


BOOKED = 10_000
"""Offers that the price book keeps, besides those that ship."""


def fill(path: Path) -> float:
    """A price book with every offer that ships and many more; returns prices per second of CPU."""
    now = datetime(2026, 11, 29, tzinfo=UTC)
    offers = [offer for offer in Catalog.embedded().offers() if offer.price]
    prices = [
        Price(
            offer.cloud, offer.region if turn == 0 else f"{offer.region}-{turn}", offer.zone, offer.instance_type, offer.purchase,
            offer.price.amount, offer.price.currency, "instance_hour", now, now, "benchmark",
        )
        for turn in range(1 + BOOKED // len(offers)) for offer in offers if offer.price
    ][:BOOKED]  # fmt: skip
    with PriceBook.open(path) as book:
        book.put(prices[:1], now)
        started = time.process_time()
        book.put(prices, now)
        return len(prices) / (time.process_time() - started)


def probe(wanted: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", PROBE, wanted, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.db"
        print(f"book: {fill(path):,.0f} prices put per second of CPU")
        _compare(str(path))
    print(f"all: {probe('memory')['kept'] / 1e6:.1f} MB kept")


def _compare(path: str) -> None:
    """`book`: all tables, with a price book of `BOOKED` offers over them."""
    for wanted in ("aws", "all", "book"):
        runs = [probe(wanted, path) for _ in range(7)]
        load, start, quote = (statistics.median(run[key] for run in runs) for key in ("load", "import", "quote"))
        print(f"{wanted:>4}: load {load * 1e3:5.1f} ms CPU ({load / 0.060:.2f} of 60 ms), import {start * 1e3:.1f} ms, "
              f"quote {quote * 1e6:.0f} us")  # fmt: skip


if __name__ == "__main__":
    main()
