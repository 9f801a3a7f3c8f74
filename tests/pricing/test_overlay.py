"""A catalog with a price book over it: newer evidence counts, what ships serves elsewhere, and a moment has its own price."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.catalog import Catalog
from pricing.money import PerHour
from pricing.pricebook import PriceBook, Shelf
from pricing.prices import Price

SHIPPED = Catalog.embedded()
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
P4D = ("aws", "us-east-1", None, "p4d.24xlarge", "on_demand")
SPOT = ("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot")


def price(amount: str | None, of: tuple[str, str, str | None, str, str] = P4D, **more: object) -> Price:
    cloud, region, zone, name, purchase = of
    value = None if amount is None else Decimal(amount)
    told = Price(cloud, region, zone, name, purchase, value, "USD", "instance_hour", NOW, NOW, "a live source")
    return told._replace(**more)  # type: ignore[arg-type]


def day(month: int, day: int, year: int = 2026) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


@pytest.fixture
def overlaid(tmp_path: Path):
    """A function that keeps prices and gives the catalog over them; nothing is left open."""

    def made(*prices: Price) -> Catalog:
        with PriceBook.open(tmp_path / "prices.db") as book:
            done = book.put(prices, NOW)
            assert done.refused == ()
        return SHIPPED.with_book(Shelf(tmp_path / "prices.db"))

    return made


def test_an_empty_book_changes_nothing(overlaid) -> None:
    catalog = overlaid()
    assert catalog.offers() == SHIPPED.offers()
    assert catalog.quote(*P4D) == SHIPPED.quote(*P4D) == catalog.quote(*P4D, at=NOW)
    assert catalog.instances("aws") == SHIPPED.instances("aws")


def test_a_newer_price_of_the_book_counts_with_its_own_date_and_source(overlaid) -> None:
    catalog = overlaid(price("20.5", valid_from=day(9, 1)))
    assert catalog.quote(*P4D)[:3] == (PerHour(Decimal("20.5")), NOW.date(), "a live source")
    assert SHIPPED.quote(*P4D).price == PerHour(Decimal("21.957642"))
    (offer,) = catalog.offers("aws", "us-east-1", None, "p4d.24xlarge", purchase="on_demand")
    assert (offer.valid_from, offer.as_of) == (day(9, 1), NOW.date())
    assert len(catalog.offers("aws")) == len(SHIPPED.offers("aws"))


def test_an_older_price_of_the_book_or_one_that_was_not_told_hides_nothing(overlaid) -> None:
    old = day(1, 1)
    catalog = overlaid(price("30", valid_from=old, fetched_at=old), price(None, SPOT))
    assert catalog.quote(*P4D) == SHIPPED.quote(*P4D)
    assert catalog.quote(*SPOT) == SHIPPED.quote(*SPOT)


def test_prices_that_do_not_ship_are_found_by_zone_region_and_type(overlaid) -> None:
    reserved = ("aws", "us-east-1", None, "p4d.24xlarge", "reserved_1y")
    catalog = overlaid(
        price("2.9", ("aws", "us-east-1", "use1-az3", "p4d.24xlarge", "spot")),
        price("14", reserved, payment="no_upfront"),
        price("13", reserved, payment="all_upfront", upfront=Decimal(113880), term_hours=8760),
        price("44", ("aws", "eu-west-9", None, "p9.48xlarge", "on_demand")),
    )
    assert catalog.quote("aws", "us-east-1", "use1-az3", "P4D.24xlarge", "spot").price == PerHour(Decimal("2.9"))
    assert "5 zones" in catalog.quote("aws", "us-east-1", None, "p4d.24xlarge", "spot").source
    quote = catalog.quote(*reserved)
    assert (quote.price, quote.source) == (PerHour(Decimal(14)), "a live source (no upfront)")
    assert catalog.quote("aws", "eu-west-9", None, "p9.48xlarge", "on_demand").price == PerHour(Decimal(44))
    assert "unknown instance type" in (catalog.quote("aws", "eu-west-9", None, "p10.48xlarge", "on_demand").reason or "")


def test_names_are_one_offer_however_they_are_written(overlaid) -> None:
    catalog = overlaid(price("3.1", ("azure", "eastus", None, "standard_nc6s_v3", "on_demand")))
    (offer,) = catalog.offers("azure", "eastus", None, "NC6s_v3", purchase="on_demand")
    assert offer.price == PerHour(Decimal("3.1"))


def test_a_moment_has_the_price_of_its_time(overlaid) -> None:
    shipped = PerHour(Decimal("21.957642"))  # as of 2026-07-20
    catalog = overlaid(
        price("32.7726", valid_from=day(1, 1, 2024), fetched_at=day(1, 1, 2025)),
        price("20.5", valid_from=day(9, 1), fetched_at=NOW),
    )
    for moment, expected in (
        (day(6, 1, 2024), PerHour(Decimal("32.7726"))),
        (day(6, 1), PerHour(Decimal("32.7726"))),
        (day(8, 1), shipped),
        (day(9, 1), PerHour(Decimal("20.5"))),
        (NOW + timedelta(days=9), PerHour(Decimal("20.5"))),
    ):
        assert catalog.quote(*P4D, at=moment).price == expected, moment
    first = catalog.quote(*P4D, at=day(1, 1, 2023))
    assert (first.price, first.estimated) == (PerHour(Decimal("32.7726")), True)
    assert "the first price known, of 2024-01-01" in first.source
    assert catalog.quote(*P4D).price == PerHour(Decimal("20.5"))
    assert catalog.steps(*P4D, day(1, 1), NOW) == [
        (day(1, 1), PerHour(Decimal("32.7726"))), (day(7, 20), shipped), (day(9, 1), PerHour(Decimal("20.5")))
    ]  # fmt: skip


def test_what_ships_holds_at_all_times_where_the_book_has_nothing(overlaid) -> None:
    catalog = overlaid(price("20.5", ("aws", "us-west-2", None, "p4d.24xlarge", "on_demand")))
    assert catalog.quote(*P4D, at=day(1, 1, 2024)) == SHIPPED.quote(*P4D)
    assert catalog.steps(*P4D, day(1, 1), NOW) == [(day(1, 1), PerHour(Decimal("21.957642")))]
    assert SHIPPED.steps(*P4D, day(1, 1), NOW) == catalog.steps(*P4D, day(1, 1), NOW)


def test_spot_without_a_zone_is_the_median_at_each_moment(overlaid) -> None:
    zones = [("aws", "us-west-9", f"usw9-az{number}", "p4d.24xlarge", "spot") for number in (1, 2, 3)]
    catalog = overlaid(
        *(price(str(amount), of, valid_from=day(11, 1)) for amount, of in zip((3, 4, 5), zones, strict=True)),
        price("8", zones[0], valid_from=day(11, 10)),
    )
    where = ("aws", "us-west-9", None, "p4d.24xlarge", "spot")
    steps = catalog.steps(*where, day(11, 5), NOW)
    assert steps == [(day(11, 5), PerHour(Decimal(4))), (day(11, 10), PerHour(Decimal(5)))]
    assert catalog.quote(*where, at=day(11, 6)).estimated
    assert catalog.history is not None and SHIPPED.history is None
    assert catalog.history.steps(*where, day(11, 5), NOW) == []  # type: ignore[arg-type]
    unheard = ("aws", "us-west-9", None, "x9.unheard", "on_demand")
    assert catalog.history.steps(*unheard, day(11, 5), NOW) == [] and catalog.steps(*unheard, day(11, 5), NOW) == [
        (day(11, 5), None)
    ]
    one = catalog.steps("aws", None, "usw9-az1", "p4d.24xlarge", "spot", day(11, 5), NOW)
    assert one == [(day(11, 5), PerHour(Decimal(3))), (day(11, 10), PerHour(Decimal(8)))]
    assert one == catalog.history.steps("aws", None, "usw9-az1", "p4d.24xlarge", "spot", day(11, 5), NOW)


def test_a_price_that_begins_in_the_future_is_not_the_price_of_now(overlaid) -> None:
    catalog = overlaid(price("20.5"), price("22", valid_from=NOW + timedelta(days=30)))
    assert catalog.quote(*P4D).price == PerHour(Decimal("20.5"))
    assert catalog.quote(*P4D, at=NOW + timedelta(days=31)).price == PerHour(Decimal(22))


def test_a_book_that_cannot_be_read_any_more_leaves_what_ships(overlaid, tmp_path: Path) -> None:
    catalog = overlaid(price("20.5"))
    (tmp_path / "prices.db").write_bytes(b"no database, and long enough to be read as one" * 200)
    for file in tmp_path.glob("prices.db-*"):
        file.unlink()
    assert catalog.quote(*P4D) == SHIPPED.quote(*P4D)
    assert catalog.problem is not None and "prices.db" in catalog.problem


def test_the_same_question_is_looked_up_once(overlaid) -> None:
    catalog = overlaid(price("20.5"))
    assert catalog.quote(*P4D) is catalog.quote(*P4D)
    assert catalog.quote(*P4D, at=NOW) is catalog.quote(*P4D, at=NOW)
    assert catalog.quote(*P4D).as_of == date(2026, 11, 29)
