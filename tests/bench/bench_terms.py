"""What terms cost a month's report: discounts, owned commitments, spot prices that change, and closed months.

Invariant: prints figures (seconds of a processor), asserts none. `python tests/bench/bench_terms.py [NODES ...]` (default 100 1000; the
ledger of 1,000 nodes takes minutes to write and 1 GB of the temporary directory).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.closing import close, notice
from pricing.contracts import Discount
from pricing.ledger import Ledger
from pricing.ledger_merge import HOUR_MS
from pricing.money import PerHour
from pricing.owned import Commitment
from pricing.rates import Pricing
from pricing.terms import Terms
from tests.bench.bench_ledger import START, START_MS, fill, timed

END = START + timedelta(days=30)


class SpotBook:
    """Spot prices that change five times a day, at any minute; nothing else changes."""

    def steps(
        self,
        cloud: str,
        region: str | None,
        zone: str | None,
        instance_type: str,
        purchase: str,
        start: datetime,
        end: datetime,
    ) -> Sequence[tuple[datetime, PerHour | None]]:
        if purchase != "spot":
            return []
        rng = Random(f"{region}{instance_type}")
        moments = sorted(START + timedelta(minutes=rng.randrange(30 * 1440)) for _ in range(150))
        return [(at, PerHour(Decimal(rng.randrange(60_000, 90_000)).scaleb(-4))) for at in moments]


def owned(nodes: int) -> Terms:
    """Reservations for a quarter of the on-demand nodes of one region, and a savings plan for as much."""
    span = (START_MS, START_MS + 8760 * HOUR_MS)
    return Terms(
        (Discount("aws", Fraction(7)),),
        (
            Commitment(
                "ri", "reservation", "aws", *span, Fraction(13), region="us-east-1", instance_type="p4d.24xlarge",
                count=max(1, nodes // 12),
            ),
            Commitment("sp", "savings_plan", "aws", *span, Fraction(nodes), percent=Fraction(35)),
        ),
    )  # fmt: skip


def bench(folder: Path, nodes: int) -> None:
    catalog = Catalog.embedded()
    with Ledger.open(folder / f"terms{nodes}.db") as ledger:
        print(f"{nodes} nodes, 30 days; written in {timed(lambda: fill(ledger, nodes, 720)):.0f} s")
        ways = {
            "list prices": {},
            "a discount": {"terms": Terms((Discount("aws", Fraction(7)),))},
            "reservation + savings plan": {"terms": owned(nodes)},
            "spot prices, 5 changes a day": {"book": SpotBook()},
        }
        for name, options in ways.items():
            for by in ("user,project", "day,node,user"):
                seconds = timed(lambda: attribute(ledger, catalog, START, END, by, now=END, **options))  # noqa: B023
                print(f"  {name:<30} by {by:<14} {seconds:7.2f} s")
        pricing = Pricing(catalog, terms=owned(nodes))
        later = END + timedelta(days=3)
        print(
            f"  close the month                                {timed(lambda: close(ledger, pricing, '2026-03', later)):7.2f} s"
        )
        print(f"  look for corrections, nothing changed          {timed(lambda: notice(ledger, pricing, later)):7.2f} s")
        for by in ("user,project", "day,node,user"):
            seconds = timed(lambda: attribute(ledger, catalog, START, later, by))  # noqa: B023
            print(f"  {'the closed month':<30} by {by:<14} {seconds:7.2f} s")


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for nodes in [int(argument) for argument in arguments] or [100, 1000]:
            bench(Path(name), nodes)


if __name__ == "__main__":
    main(sys.argv[1:])
