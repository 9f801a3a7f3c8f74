"""A price file of the user's: what is not clear is said with its row and column, the rest is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from pricing.catalog import CLOUDS, SNAPSHOT
from pricing.errors import PriceFileError
from pricing.price_file import PriceFile, read_price_file

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HEADER = "region,zone,instance_type,purchase,price,currency,as_of,source"
GOOD = "us-east-1,use1-az1,p4d.24xlarge,spot,8.1203,USD,2026-11-28,our own"


def read(text: str | bytes, cloud: str | None = "aws") -> PriceFile:
    content = text.encode() if isinstance(text, str) else text
    return read_price_file(content, "prices.csv", cloud, CLOUDS, NOW)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_tables_that_ship_are_price_files(cloud: str) -> None:
    found = read((SNAPSHOT / f"{cloud}.csv").read_bytes(), cloud)
    assert found.faults == () and len(found.prices) > 100
    assert {price.cloud for price in found.prices} == {cloud}


def test_two_byte_order_marks_windows_lines_and_blank_lines_do_no_harm() -> None:
    found = read(b"\xef\xbb\xbf\xef\xbb\xbf" + f"{HEADER}\r\n\r\n\ufeff{GOOD}\r\n,,,,,,,\r\n".encode())
    (price,) = found.prices
    assert found.faults == () and price.region == "us-east-1" and price.amount == Decimal("8.1203")
    assert price.valid_from == price.fetched_at == datetime(2026, 11, 28, tzinfo=UTC) and found.rows[price] == 3


def test_optional_columns_tell_cloud_unit_payment_and_since_when() -> None:
    header = f"{HEADER},cloud,unit,payment,valid_from"
    row = "East US,,Standard_NC6s_v3,reserved_1y,1.9,USD,2026-11-28,ours,azure,hour,no_upfront,2026-10-01T02:00:00+02:00"
    (price,) = read(f"{header}\n{row}\n", None).prices
    assert (price.cloud, price.region, price.unit, price.payment) == ("azure", "eastus", "instance_hour", "no_upfront")
    assert price.valid_from == datetime(2026, 10, 1, tzinfo=UTC)


def test_an_empty_price_is_not_told() -> None:
    (price,) = read(f"{HEADER}\n{GOOD.replace('8.1203', '')}\n").prices
    assert price.amount is None


@pytest.mark.parametrize(
    ("cell", "wrong", "column", "says"),
    [
        ("8.1203", '"8,12"', "price", "decimal comma: write a point, like '8.12'"),
        ("8.1203", "$8.12", "price", "carries a currency sign"),
        ("8.1203", "8.12 EUR", "price", "carries a currency sign"),
        ("8.1203", '"1,234.50"', "price", "thousands separators"),
        ("8.1203", "NaN", "price", "not a number"),
        ("8.1203", "8.12/h", "price", "not a decimal number"),
        ("USD", "US$", "currency", "no currency: expected an ISO 4217 code"),
        ("USD", "XXX", "currency", "no currency"),
        ("2026-11-28", "28.11.2026", "as_of", "no date"),
        ("2026-11-28", "2026-11-28T10:00:00", "as_of", "has no time zone: write it in UTC"),
        ("2026-11-28", "2027-01-01", "as_of", "lies in the future"),
        ("spot", "sport", "purchase", "did you mean spot?"),
        ("us-east-1", "", "region", "it is empty"),
        ("our own", "", "source", "it is empty"),
        ("our own", "our,own", "-", "9 cells where the header has 8"),
    ],
)
def test_a_cell_that_is_not_clear_is_said_and_the_other_rows_are_kept(cell: str, wrong: str, column: str, says: str) -> None:
    found = read(f"{HEADER}\n{GOOD}\n{GOOD.replace(cell, wrong)}\n{GOOD.replace('az1', 'az2')}\n")
    (fault,) = found.faults
    assert (fault.row, fault.column) == (3, column) and says in str(fault)
    assert len(found.prices) == 2


@pytest.mark.parametrize(
    ("unit", "says"), [("month", "is per month: a node's price is per hour"), ("fortnight", "'fortnight' is not known")]
)
def test_a_wrong_period_is_said(unit: str, says: str) -> None:
    (fault,) = read(f"{HEADER},unit\n{GOOD},{unit}\n").faults
    assert (fault.row, fault.column) == (2, "unit") and says in str(fault)


def test_a_validity_long_after_the_publication_and_a_cloud_that_is_not_told_are_said() -> None:
    (fault,) = read(f"{HEADER},valid_from\n{GOOD},2028-11-01\n").faults
    assert fault.column == "valid_from"
    assert [fault.column for fault in read(f"{HEADER}\n{GOOD}\n", None).faults] == ["cloud"]
    assert [fault.column for fault in read(f"{HEADER},cloud\n{GOOD},lambda\n").faults] == ["cloud"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no column region"),
        (HEADER.replace(",price", "").encode(), "no column price"),
        (HEADER.replace("price", "prise").encode(), "no column price"),
        (f"{HEADER},valid_form\n".encode(), "did you mean valid_from?"),
        (f"{HEADER},price\n".encode(), "column price stands there twice"),
        (HEADER.replace(",", ";").encode(), "not separated by commas"),
        (HEADER.encode("utf-16"), "is not UTF-8 text"),
        (f"{HEADER}\n{GOOD}\n".encode() + b"\xff\xfe\n", "row 3: this is not UTF-8"),
        (f"{HEADER}\n{GOOD.replace('our own', chr(34) + 'our own')}".encode(), "no whole CSV file"),
    ],
)
def test_a_file_that_is_no_such_table_gives_nothing_and_says_why(content: bytes, says: str) -> None:
    with pytest.raises(PriceFileError, match=r"prices\.csv") as caught:
        read(content)
    assert says in str(caught.value)
