"""AWS through a refresh: its spot history is stitched to what is kept, and its price list is believed."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from pricing.catalog import Catalog
from pricing.money import PerHour
from pricing.pricebook import Key, PriceBook, Shelf
from pricing.refresh import OVERLAP, refresh
from pricing.sources.aws import AwsSource
from pricing.sources.aws_products import Place, Reading, read_products
from tests.support.aws_stubs import NOW, P4D, Aws, product, reservation, spot_row, wanted, zone_rows

CALL = "describe_spot_price_history"
HOUR = timedelta(hours=1)
LINE = Key("aws", "us-east-1", "use1-az2", "p4d.24xlarge", "spot")


def spot_answers(*pages: list[dict]) -> Aws:
    aws = Aws()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    for at, rows in enumerate(pages, 1):
        aws.lay("ec2", CALL, {"SpotPriceHistory": rows, "NextToken": str(at) if at < len(pages) else ""})
    return aws


def test_spot_history_is_stitched_over_refreshes(tmp_path: Path) -> None:
    question = wanted("spot")
    with PriceBook.open(tmp_path / "prices.db") as book:
        first = spot_answers(
            [spot_row("8.1", NOW - HOUR)], [spot_row("7.2", NOW - 30 * HOUR), spot_row("8.1", NOW - 900 * HOUR)]
        )
        done = refresh(book, [(AwsSource(first.session, NOW), question)], NOW)
        assert done.whole and [str(kept.price.amount) for kept in book.rows(LINE)] == ["8.1", "7.2", "8.1"]
        later = NOW + 24 * HOUR
        second = spot_answers([spot_row("6.9", later - HOUR), spot_row("8.1", NOW - HOUR)])
        done = refresh(book, [(AwsSource(second.session, later), question)], later)
        (aws,) = done.clouds
        assert (aws.result.changed, aws.result.unchanged) == (1, 1)
        assert second.asked(CALL)[0]["StartTime"] == NOW - OVERLAP
        steps = book.steps(LINE, NOW - 40 * HOUR, later)
        assert steps == [
            (NOW - 40 * HOUR, Decimal("8.1")),
            (NOW - 30 * HOUR, Decimal("7.2")),
            (NOW - HOUR, Decimal("8.1")),
            (later - HOUR, Decimal("6.9")),
        ]


def test_the_price_list_goes_whole_into_the_book_and_over_the_catalog(tmp_path: Path) -> None:
    terms = [
        reservation(1, "No Upfront", hourly="13.8333000000"),
        reservation(3, "Partial Upfront", hourly="5.0000000000", upfront="131400"),
        reservation(3, "All Upfront", hourly="0.0000000000", upfront="250000"),
    ]
    options = frozenset({"on_demand", "reserved_1y", "reserved_3y"})
    reading = Reading(Place("us-east-1", "us-east-1"), "USD", options, P4D, NOW, "aws price list api 2026-08-01")
    prices, _ = read_products([product(reserved=terms)], reading)
    with PriceBook.open(tmp_path / "prices.db") as book:
        result = book.put(prices, NOW)
    assert (result.new, result.refused, result.warned) == (4, (), ())
    catalog = Catalog.embedded().with_book(Shelf(tmp_path / "prices.db"))
    quote = catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "reserved_3y")
    assert (quote.price, quote.source) == (PerHour(Decimal(10)), "aws price list api 2026-08-01 (partial upfront)")
    assert catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "reserved_1y").price == PerHour(Decimal("13.8333"))
