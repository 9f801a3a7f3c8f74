"""A cloud's bill against our report: what differs is explained, and the parts add up to the difference exactly."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from pricing import compare_read
from pricing.attribution import attribute
from pricing.catalog import Catalog
from pricing.compare import OUR_KEYS, Comparison, compare
from pricing.compare_read import read
from pricing.compare_text import notes, record, shown, write
from pricing.errors import BillError
from pricing.ledger import Ledger
from pricing.report import Report
from pricing.reports.focus import facts_of, write_csv, write_parquet
from tests.support.focus_samples import sample
from tests.support.sample_ledger import FLEET, fill

START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(days=2)
COLUMNS = (
    "bill_payer_account_id", "line_item_usage_account_id", "line_item_line_item_type", "line_item_usage_start_date",
    "line_item_usage_end_date", "line_item_product_code", "line_item_usage_type", "line_item_resource_id",
    "line_item_usage_amount", "line_item_currency_code", "line_item_unblended_cost", "product_instance_type",
    "product_region_code", "pricing_public_on_demand_cost", "reservation_effective_cost",
    "savings_plan_savings_plan_effective_cost",
)  # fmt: skip
RATES = {"p4d.24xlarge": "21.957642", "g5.xlarge": "1.123"}
Row = dict[str, str]


def line(**changes: str) -> Row:
    usual = {
        "bill_payer_account_id": "111111111111", "line_item_usage_account_id": "222222222222",
        "line_item_line_item_type": "Usage", "line_item_usage_start_date": "2026-11-01T00:00:00Z",
        "line_item_usage_end_date": "2026-11-01T01:00:00Z", "line_item_product_code": "AmazonEC2",
        "line_item_usage_type": "BoxUsage:p4d.24xlarge", "line_item_resource_id": "i-0abc", "line_item_usage_amount": "1",
        "line_item_currency_code": "USD", "line_item_unblended_cost": "21.957642", "product_instance_type": "p4d.24xlarge",
        "product_region_code": "us-east-1",
    }  # fmt: skip
    return dict.fromkeys(COLUMNS, "") | usual | changes


def moment(hour: int) -> str:
    return (START + timedelta(hours=hour)).isoformat().replace("+00:00", "Z")


def hourly(number: int, node: str, hours: range = range(48), rate: str | None = None) -> list[Row]:
    """One node of the sample fleet, as the bill has it."""
    _, region, _, name, purchase, *_ = FLEET[number]
    spot = purchase == "spot"
    return [
        line(
            line_item_usage_start_date=moment(hour), line_item_usage_end_date=moment(hour + 1),
            line_item_usage_type=f"{'SpotUsage' if spot else 'BoxUsage'}:{name}", line_item_resource_id=node,
            line_item_unblended_cost=rate or RATES[name], product_instance_type=name, product_region_code=region,
        )
        for hour in hours
    ]  # fmt: skip


def bill_text(rows: list[Row], delimiter: str = ",") -> str:
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, COLUMNS, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


@pytest.fixture
def ours() -> Iterator[tuple[Report, dict[str, int | None]]]:
    """Two AWS nodes of two days: a p4d on demand and a g5."""
    with Ledger.open(":memory:") as ledger:
        fill(ledger, START, 48, 3)
        ledger_nodes, _ = facts_of(ledger)
        report = attribute(ledger, Catalog.embedded(), START, END, OUR_KEYS)
    rows = tuple(row for row in report.rows if row.keys[4] in ("node-00", "node-02"))
    yield (
        Report(rows, report.totals, START, END, "UTC", "USD", OUR_KEYS, (), ()),
        {node: facts.gpu_count for node, facts in ledger_nodes.items()},
    )


def compared(ours: tuple[Report, dict[str, int | None]], path: Path, text: str | bytes, **options: str) -> Comparison:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    result = compare(*ours, read(path), path.name, **options)
    assert sum(result.parts.values(), Fraction(0)) == result.difference == result.bill_total - result.our_total
    our_total, bill_total, parts = shown(result)
    assert sum(parts.values()) == bill_total - our_total
    return result


def test_a_bill_that_agrees_differs_in_nothing(ours: tuple[Report, dict[str, int | None]], tmp_path: Path) -> None:
    rates = {number: Catalog.embedded().quote(*FLEET[number][:5]).price for number in (0, 2)}
    rows = [row for number, rate in rates.items() if rate for row in hourly(number, f"node-0{number}", rate=str(rate.amount))]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows))
    assert result.parts == {} and result.difference == 0 and result.matched == result.our_total
    assert {match.state for match in result.matches} == {"matched"} and len(result.matches) == 4
    assert record(result)["difference"] == "0.00"


def test_every_kind_of_difference_has_its_part(ours: tuple[Report, dict[str, int | None]], tmp_path: Path) -> None:
    rows = hourly(0, "node-00", range(40), rate="25")  # dearer, and eight hours short; node-02 is missing
    rows += [
        line(product_instance_type="m5.large", line_item_usage_type="BoxUsage:m5.large", line_item_unblended_cost="0.096"),
        line(line_item_usage_type="EBS:VolumeUsage.gp3", product_instance_type="", line_item_unblended_cost="8"),
        line(line_item_usage_type="DataTransfer-Out-Bytes", product_instance_type="", line_item_unblended_cost="0.0000000007"),
        line(line_item_line_item_type="Tax", line_item_usage_type="", line_item_unblended_cost="19.99"),
        line(line_item_line_item_type="Credit", line_item_unblended_cost="-5"),
        line(line_item_product_code="AmazonRoute53", line_item_usage_type="DNS-Queries", line_item_unblended_cost="0.4"),
        line(line_item_usage_account_id="999999999999", line_item_unblended_cost="7", bill_payer_account_id="999999999999"),
        line(line_item_line_item_type="SavingsPlanNegation", line_item_unblended_cost="-3"),
    ]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows), account="222222222222")
    parts = {name: round(float(amount), 4) for name, amount in result.parts.items()}
    assert parts["storage"] == 8 and parts["tax"] == 19.99 and parts["credit"] == -5 and parts["other"] == 0.4
    assert parts["other_account"] == 7 and parts["not_measured"] == 0.096 and parts["amortisation"] == -3
    ours_per_hour = {
        match.key.node: match.ours.cost / match.ours.hours for match in result.matches if match.ours and match.ours.hours
    }  # type: ignore[operator]
    assert result.parts["hours_differ"] == -8 * ours_per_hour["node-00"]
    assert result.parts["rate_differs"] == 40 * (25 - ours_per_hour["node-00"])
    assert result.parts["missing_in_bill"] == -sum(row.total_cost or 0 for row in ours[0].rows if row.keys[4] == "node-02")
    assert result.accounts == ("222222222222", "999999999999")
    said = io.StringIO()
    write(result, said)
    assert "measured here, missing in the bill" in said.getvalue() and "credits and refunds" in said.getvalue()
    assert json.loads(json.dumps(record(result)))["bill_lines"] == 48


def test_a_resource_that_is_no_node_of_ours_is_matched_by_type_and_region(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path
) -> None:
    arns = [row | {"line_item_resource_id": "arn:aws:ec2:us-east-1:2:instance/i-0123"} for row in hourly(0, "x")]
    result = compared(ours, tmp_path / "bill.csv", bill_text(arns))
    matched = [match for match in result.matches if match.state == "matched"]
    assert [(match.key.day, match.key.node, match.key.instance_type) for match in matched] == [
        ("2026-11-01", "", "p4d.24xlarge"),
        ("2026-11-02", "", "p4d.24xlarge"),
    ]
    assert all(match.bill and match.bill.hours == 24 == match.ours.hours for match in matched if match.ours)


def test_commitments_count_as_used_and_what_was_billed_elsewhere_is_a_part(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path
) -> None:
    rows = [
        row
        | {
            "line_item_line_item_type": "DiscountedUsage",
            "line_item_unblended_cost": "0",
            "reservation_effective_cost": "13",
            "pricing_public_on_demand_cost": "21.957642",
        }
        for row in hourly(0, "node-00")
    ]
    rows += [
        line(line_item_line_item_type="RIFee", line_item_unblended_cost="700", line_item_usage_end_date="2026-12-01T00:00:00Z")
    ]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows))
    assert result.bill_total == 700 and result.matched == 48 * 13
    assert result.parts["amortisation"] == -48 * 13 and result.parts["unused_commitment"] == 700
    assert result.parts["discount"] == 48 * (13 - Fraction("21.957642"))


def test_monthly_lines_are_spread_over_their_days(ours: tuple[Report, dict[str, int | None]], tmp_path: Path) -> None:
    rows = [
        line(
            line_item_usage_end_date="2026-11-03T00:00:00Z",
            line_item_usage_amount="48",
            line_item_unblended_cost="100",
            line_item_resource_id="node-00",
        )
    ]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows))
    assert [match.bill.cost for match in result.matches if match.key.node == "node-00" and match.bill] == [50, 50]


def test_lines_of_other_months_are_set_aside_and_counted(ours: tuple[Report, dict[str, int | None]], tmp_path: Path) -> None:
    rows = [
        *hourly(0, "node-00"),
        line(
            line_item_usage_start_date="2026-10-31T23:00:00Z",
            line_item_usage_end_date="2026-11-01T00:00:00Z",
            line_item_unblended_cost="4",
        ),
    ]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows))
    assert (result.outside_lines, result.outside_cost, result.lines) == (1, 4, 48)


def test_older_names_two_byte_order_marks_gzip_and_parquet_say_the_same(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path
) -> None:
    rows = hourly(0, "node-00")
    text = bill_text(rows)
    plain = compared(ours, tmp_path / "bill.csv", text)
    header, rest = text.split("\r\n", 1)
    assert record(compared(ours, tmp_path / "bom.csv", "\ufeff\ufeff" + header + "\r\n\ufeff" + rest)) == record(plain)
    assert record(compared(ours, tmp_path / "bill.csv.gz", gzip.compress(text.encode()))) == record(plain)
    old = (
        header.replace("line_item_line_item_type", "lineItem/LineItemType")
        .replace("line_item_unblended_cost", "lineItem/UnblendedCost")
        .replace("product_instance_type", "product/instanceType")
    )
    assert record(compared(ours, tmp_path / "old.csv", old + "\r\n" + rest)) == record(plain)
    numbers = ("line_item_usage_amount", "line_item_unblended_cost")
    typed = [
        {
            name: float(cell)
            if name in numbers
            else datetime.fromisoformat(cell).replace(tzinfo=None)
            if name.endswith("_date")
            else cell or None
            for name, cell in row.items()
        }
        for row in rows
    ]
    table = pyarrow.Table.from_pylist([row | {"product": {"instance_type": "x"}} for row in typed])
    parquet.write_table(table, tmp_path / "bill.parquet")
    assert record(compare(*ours, read(tmp_path / "bill.parquet"), "bill")) == record(plain)


GOOD = bill_text([line(), line()])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            (",21.957642,p4d", ',"21,957642",p4d'),
            "row 2, column line_item_unblended_cost: The amount '21,957642' has a decimal comma",
        ),
        (
            (",21.957642,p4d", ",$21.95,p4d"),
            "row 2, column line_item_unblended_cost: The amount '\\$21.95' carries a currency sign",
        ),
        ((",21.957642,p4d", ",,p4d"), "row 2, column line_item_unblended_cost: it is empty"),
        (
            ("2026-11-01T00:00:00Z", "2026-11-01 00:00:00"),
            "row 2, column line_item_usage_start_date: '2026-11-01 00:00:00' has no time zone",
        ),
        (("2026-11-01T00:00:00Z", "01.11.2026"), "row 2, column line_item_usage_start_date: '01.11.2026' is no time"),
        (
            ("2026-11-01", "2026-09-01"),
            "row 2, column line_item_usage_start_date / ChargePeriodStart: 2026-09-01T00:00:00Z and all other lines lie outside",
        ),
        ((",USD,", ",EUR,"), "row 2, column line_item_currency_code / BillingCurrency: the bill is in EUR, the report in USD"),
        ((",USD,", ",,"), "row 2, column line_item_currency_code / BillingCurrency: it is empty"),
        (("line_item_unblended_cost", "cost"), "row 1: column line_item_unblended_cost is missing"),
        (("line_item_", "my_"), "row 1: this is neither an AWS CUR 2.0 export nor a FOCUS file"),
        (
            ("222222222222", "333333333333"),
            "row 2, column line_item_usage_account_id / SubAccountId: the bill is of account 333333333333",
        ),
        (("2026-11-01T01:00:00Z", "2026-10-01T01:00:00Z"), "row 2, column line_item_usage_end_date / .*: the line ends before"),
        (("product_region_code", "line_item_usage_type"), "row 1: there are two columns line_item_usage_type"),
        (("us-east-1", "us-east-1,,,,"), "row 2: it has 20 cells, the header 16; is the file cut off?"),
    ],
)
def test_a_bad_bill_is_a_sentence_with_row_and_column(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(GOOD.replace(*change), newline="")
    with pytest.raises(BillError, match=sentence):
        compare(*ours, read(path), "bill.csv", account="222222222222")


def test_mixed_currencies_no_rows_and_damaged_files_are_sentences(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path
) -> None:
    cases: dict[str, tuple[bytes, str]] = {
        "mixed.csv": (
            bill_text([line(), line(line_item_currency_code="CNY")]).encode(),
            "row 3, .*: CNY after USD: currencies are mixed",
        ),
        "empty.csv": (b"", "no row in it"),
        "header.csv": (bill_text([]).encode(), "no row in it"),
        "latin.csv": (GOOD.replace("i-0abc", "k\u00f6ln").encode("latin-1"), "it is not UTF-8"),
        "cut.csv.gz": (gzip.compress(GOOD.encode())[:60], "the compressed file is damaged or cut off"),
        "none.parquet": (b"PAR1", "it is no Parquet file that can be read"),
    }
    for name, (content, sentence) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BillError, match=sentence):
            compare(*ours, read(tmp_path / name), name)
    with pytest.raises(BillError, match="cannot be read \\(no such file"):
        list(read(tmp_path / "nowhere.csv"))


def test_a_bill_that_is_in_the_file_twice_is_refused_where_lines_have_an_identity_and_told_elsewhere(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = hourly(0, "node-00")
    monkeypatch.setattr(compare_read, "REMEMBERED", 20)
    twice = compared(ours, tmp_path / "bill.csv", bill_text(rows + rows))
    assert twice.repeated is not None and twice.repeated[2:] == (50, 2) and twice.repeated.lines == 20
    (account, told) = notes(twice)
    assert "the bill is of account 222222222222" in account
    assert told.startswith("20 lines (439.15 USD) say in every cell what another line says (first row 50, like row 2)")
    assert compared(ours, tmp_path / "bill.csv", bill_text(rows)).repeated is None
    text = bill_text(rows + rows[:1]).splitlines()
    named = "\r\n".join([f"identity_line_item_id,{text[0]}", *(f"id-{place % 48},{one}" for place, one in enumerate(text[1:]))])
    with pytest.raises(BillError, match="row 50, column identity_line_item_id: it is row 2 again, cell for cell"):
        compared(ours, tmp_path / "named.csv", named)


def test_what_is_no_bill_at_all_is_told_by_its_first_row(tmp_path: Path) -> None:
    for text in ("<!DOCTYPE html><html>Sign in</html>", '{"a": 1}\n'):
        (tmp_path / "bill.csv").write_text(text)
        with pytest.raises(BillError, match="row 1: this is neither an AWS CUR 2.0 export nor a FOCUS file"):
            list(read(tmp_path / "bill.csv"))


def test_a_semicolon_bill_with_points_is_read(ours: tuple[Report, dict[str, int | None]], tmp_path: Path) -> None:
    assert compared(ours, tmp_path / "bill.csv", bill_text(hourly(0, "node-00"), ";")).lines == 48


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_our_own_focus_file_agrees_with_our_report(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"bill.{form}"
    with sample(nodes=5) as (source, _):
        if form == "csv":
            with path.open("w", newline="") as stream:
                write_csv(source, stream)
        else:
            with path.open("wb") as stream:
                write_parquet(source, stream)
        report = source.attribute(source.start, source.end, OUR_KEYS)
        counts = {node: facts.gpu_count for node, facts in source.nodes.items()}
    result = compare(report, counts, read(path), path.name)
    for name in ("rate_differs", "hours_differ", "discount", "storage", "unused_commitment"):
        assert abs(result.parts.get(name, Fraction(0))) < Fraction(1, 10**6), name
    assert abs(result.difference - result.parts["amortisation"]) < Fraction(1, 10**6)
    assert not {"missing_in_bill", "not_measured"} & set(result.parts)


def test_a_line_that_crosses_the_end_of_the_range_counts_as_far_as_it_lies_in_it(
    ours: tuple[Report, dict[str, int | None]], tmp_path: Path
) -> None:
    rows = [
        line(
            line_item_usage_start_date="2026-11-02T12:00:00Z",
            line_item_usage_end_date="2026-11-03T12:00:00Z",
            line_item_unblended_cost="10",
            line_item_usage_amount="24",
        )
    ]
    result = compared(ours, tmp_path / "bill.csv", bill_text(rows))
    assert (result.bill_total, result.outside_cost, result.outside_lines) == (5, 5, 0)
    assert [match.bill.hours for match in result.matches if match.bill] == [12]
