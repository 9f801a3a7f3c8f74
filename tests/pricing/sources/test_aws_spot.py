"""AWS spot price history: steps with their carry-in, zone ids, pages to the end, and pages that are cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from pricing.sources import TruncatedPage
from pricing.sources.aws import AwsSource
from pricing.sources.aws_spot import HISTORY, spot_history
from tests.support.aws_stubs import NOW, US_EAST_1, Aws, Told, spot_row, wanted, zone_rows

CALL = "describe_spot_price_history"
HOUR = timedelta(hours=1)


def page(rows: list[dict], token: str = "") -> dict:
    return {"SpotPriceHistory": rows, "NextToken": token}


def test_history_is_read_to_the_end_by_zone_id_with_the_price_in_force_at_its_start() -> None:
    aws = Aws()
    before = NOW - HISTORY - HOUR * 30
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page([spot_row("8.1915", NOW - HOUR)], "one"))
    aws.lay("ec2", CALL, page([], "two"))
    aws.lay("ec2", CALL, page([spot_row("2.4655", before), spot_row("3.06", before, "us-east-1-atl-2a")], ""))
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("spot"), Told()))
    aws.all_used()
    assert [(price.zone, str(price.amount), price.valid_from) for price in prices] == [
        ("use1-az2", "8.1915", NOW - HOUR),
        ("use1-az2", "2.4655", before),
        ("use1-atl2-az1", "3.06", before),
    ]
    first, *others = aws.asked(CALL)
    assert (first["StartTime"], first["EndTime"], first["MaxResults"]) == (NOW - HISTORY, NOW, 1000)
    assert (first["ProductDescriptions"], first["InstanceTypes"]) == (["Linux/UNIX"], ["p4d.24xlarge"])
    assert [other["NextToken"] for other in others] == ["one", "two"]
    assert {(price.purchase, price.currency, price.unit, price.source) for price in prices} == {
        ("spot", "USD", "instance_hour", "aws spot price history 2026-08-01")
    }


def test_history_starts_where_the_kept_one_ends() -> None:
    aws = Aws()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page([]))
    assert list(AwsSource(aws.session, NOW).fetch(wanted("spot", since=NOW - HOUR), Told())) == []
    assert aws.asked(CALL)[0]["StartTime"] == NOW - HOUR


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (spot_row("0.0", NOW - HOUR), "which is no price"),
        (spot_row("", NOW - HOUR), "is missing"),
        (spot_row("1", NOW - HOUR, "us-west-2a"), "none of us-east-1"),
        (spot_row("1", NOW - HOUR, system="Windows"), "'Windows'"),
        (spot_row("8.2", NOW - HOUR), "twice at one moment: 8.1 is kept, 8.2 is left out"),
        ({"SpotPrice": "1", "ProductDescription": "Linux/UNIX"}, "names no instance type"),
        ({**spot_row("1", NOW - HOUR), "AvailabilityZoneId": "use1-az6"}, "use1-az2 and use1-az6 at once"),
    ],
)
def test_a_bad_row_is_skipped_with_a_sentence(row: dict, says: str) -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    good = [spot_row("8.1", NOW - HOUR), spot_row("8.1", NOW - HOUR)]
    aws.lay("ec2", CALL, page([*good, row, spot_row("7", NOW - 2 * HOUR)]))
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("spot"), told))
    assert [price.amount for price in prices] == [Decimal("8.1"), Decimal(7)]
    ((where, reason),) = told.skipped
    assert where.startswith("aws spot history us-east-1")
    assert says in reason


def minutes(first: int, count: int) -> list[dict]:
    """Rows a minute apart, newest first."""
    return [spot_row(f"{number + 1}.5", NOW - timedelta(minutes=number)) for number in range(first, first + count)]


def test_a_page_of_exactly_1000_rows_without_a_token_is_read_on_from_its_oldest_row() -> None:
    aws = Aws()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page(minutes(0, 1000)))
    aws.lay("ec2", CALL, page(minutes(999, 1000)))
    aws.lay("ec2", CALL, page(minutes(1998, 3)))
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("spot"), Told()))
    assert len(prices) == len({price.valid_from for price in prices}) == 2001
    assert [call["EndTime"] for call in aws.asked(CALL)] == [
        NOW,
        NOW - 999 * timedelta(minutes=1),
        NOW - 1998 * timedelta(minutes=1),
    ]


def test_a_cut_among_the_prices_from_before_the_start_asks_for_those_in_force_then() -> None:
    aws = Aws()
    start = NOW - timedelta(minutes=500)
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page(minutes(0, 1000)))
    aws.lay("ec2", CALL, page([spot_row("4", NOW - timedelta(minutes=5000), "us-east-1b")]))
    prices = list(AwsSource(aws.session, NOW).fetch(wanted("spot", since=start), Told()))
    assert (len(prices), prices[-1].zone) == (1001, "use1-az4")
    oldest = NOW - timedelta(minutes=999)
    assert (aws.asked(CALL)[1]["StartTime"], aws.asked(CALL)[1]["EndTime"]) == (oldest, oldest)


@pytest.mark.parametrize("rows", [[spot_row("1", NOW)] * 1000, minutes(0, 1000)[::-1]], ids=["one moment", "oldest first"])
def test_a_cut_page_that_cannot_be_read_on_is_a_fault(rows: list[dict]) -> None:
    aws = Aws()
    aws.lay("ec2", CALL, page(rows))
    with pytest.raises(TruncatedPage, match="cut after 1000 rows"):
        list(spot_history(aws.session, US_EAST_1, wanted("spot"), NOW, None))


def test_many_types_are_asked_for_in_chunks_and_a_stopped_fetch_goes_on_with_the_next() -> None:
    names = frozenset(f"p{number}.large" for number in range(150))
    aws, told = Aws(), Told()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page([spot_row("1", NOW - HOUR)]))
    aws.lay("ec2", CALL, page([spot_row("2", NOW - 3 * HOUR)], "next"))
    fetch = AwsSource(aws.session, NOW).fetch(wanted("spot", types=names), told)
    for price in fetch:
        if price.amount == 2:
            break
    fetch.close()
    again = Aws()
    again.lay("ec2", "describe_availability_zones", zone_rows())
    again.lay("ec2", CALL, page([spot_row("2", NOW - 3 * HOUR)]))
    later = datetime(2026, 8, 2, tzinfo=UTC)
    rest = list(AwsSource(again.session, later).fetch(wanted("spot", types=names, resume=told[-1].resume), told))
    assert [price.amount for price in rest] == [2]
    assert [len(call["InstanceTypes"]) for call in (*aws.asked(CALL), *again.asked(CALL))] == [100, 50, 50]
    assert told[-1].resume is None


def test_a_resumed_history_keeps_its_window_and_restarts_when_its_page_is_forgotten() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", "describe_availability_zones", zone_rows())
    aws.lay("ec2", CALL, page([spot_row("1", NOW - HOUR)], "one"))
    aws.refuse("ec2", CALL, "RequestExpired")
    with pytest.raises(Exception, match="expired"):
        list(AwsSource(aws.session, NOW).fetch(wanted("spot"), told))
    again, later = Aws(), NOW + timedelta(days=1)
    again.lay("ec2", "describe_availability_zones", zone_rows())
    again.refuse("ec2", CALL, "InvalidNextToken")
    again.lay("ec2", CALL, page([spot_row("1", NOW - HOUR), spot_row("2", NOW - 2 * HOUR)]))
    prices = list(AwsSource(again.session, later).fetch(wanted("spot", resume=told[-1].resume), told))
    assert len(prices) == 2
    resumed, anew = again.asked(CALL)
    assert (resumed["NextToken"], resumed["EndTime"]) == ("one", NOW)
    assert (anew.get("NextToken"), anew["EndTime"]) == (None, later)
