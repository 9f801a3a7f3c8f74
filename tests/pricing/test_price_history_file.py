"""Spot history from a file: under zone ids only, in its own currency, as old as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from pricing.market_read import read_history
from pricing.price_history_file import HistoryPrices, prices_of
from pricing.pricebook import PriceBook

START = datetime(2026, 11, 1, tzinfo=UTC)
REGIONS = {"use1": "us-east-1", "cnn1": "cn-north-1"}


def row(hour: int, price: str, zone: str | None = "us-east-1a", **more: object) -> dict:
    found = {
        "AvailabilityZone": zone, "InstanceType": "p3.2xlarge", "ProductDescription": "Linux/UNIX", "SpotPrice": price,
        "Timestamp": (START + timedelta(hours=hour)).isoformat(), **more,
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def read(tmp_path: Path, rows: list[dict], ids: dict[str, str] | None = None) -> HistoryPrices:
    file = tmp_path / "history.json"
    file.write_text(json.dumps({"SpotPriceHistory": rows}))
    return prices_of(read_history(file), ids or {}, REGIONS)


def test_a_row_is_priced_under_the_id_that_it_tells_or_that_is_given_for_its_name(tmp_path: Path) -> None:
    rows = [
        row(5, "0.95", AvailabilityZoneId="use1-az4"), row(2, "0.91", "us-east-1b"), row(1, "0.9", None, AvailabilityZoneId="use1-az4"),
        row(0, "6.1", "cn-north-1a", AvailabilityZoneId="cnn1-az1"),
    ]  # fmt: skip
    found = read(tmp_path, rows, {"us-east-1b": "use1-az6"})
    told = sorted((one.zone, one.valid_from.hour, str(one.amount), one.currency, one.region) for one in found.prices)
    assert told == [
        ("cnn1-az1", 0, "6.1", "CNY", "cn-north-1"), ("use1-az4", 1, "0.9", "USD", "us-east-1"),
        ("use1-az4", 5, "0.95", "USD", "us-east-1"), ("use1-az6", 2, "0.91", "USD", "us-east-1"),
    ]  # fmt: skip
    assert {one.fetched_at for one in found.prices} == {START + timedelta(hours=5)} and found.left_out == []
    assert found.prices[0].source == "spot history file history.json"


def test_names_without_an_id_unknown_places_and_other_systems_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        row(1, "0.9"), row(2, "0.8"), row(3, "0.9", "us-east-1f"), row(4, "0.9", None, AvailabilityZoneId="mars1-az1"),
        row(5, "2", AvailabilityZoneId="use1-az1", ProductDescription="Windows"),
    ]  # fmt: skip
    found = read(tmp_path, rows)
    assert found.prices == []
    named, placed, system = found.left_out
    assert "3 rows name a zone of the account that asked (us-east-1a, us-east-1f)" in named and "--zone-id us-east-1a=ID" in named
    assert "1 rows are of the zone mars1-az1" in placed and "1 rows are of 'Windows'" in system


def test_an_older_history_adds_to_the_book_and_takes_the_place_of_nothing_newer(tmp_path: Path) -> None:
    ids = {"us-east-1a": "use1-az4"}
    newer = read(tmp_path, [row(30, "0.95"), row(10, "0.9")], ids).prices
    older = read(tmp_path, [row(12, "0.92"), row(10, "0.91"), row(2, "0.8")], ids).prices
    with PriceBook.open(":memory:") as book:
        book.put(newer, START + timedelta(days=9))
        result = book.put(older, START + timedelta(days=9))
        ((_, why),) = result.refused
        assert "older than what is kept, which corrected it" in why
        at = [book.at("aws", "us-east-1", "use1-az4", "p3.2xlarge", "spot", START + timedelta(hours=hour)) for hour in (2, 10, 12, 30)]
        assert [one.amount if one else None for one in at] == [Decimal(text) for text in ("0.8", "0.9", "0.92", "0.95")]
