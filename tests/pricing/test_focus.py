"""FOCUS 1.2: every rule of the specification that our files could break, and sums that are the report's."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from pyarrow import parquet

from pricing.report import Report, Row
from pricing.reports import focus
from pricing.reports.focus import FocusSource, write_csv, write_parquet
from pricing.reports.focus_charges import KEYS
from pricing.reports.focus_columns import COLUMNS, COSTS
from tests.support.focus_rules import violations
from tests.support.focus_samples import START, TERMS, sample

LONE_RESERVATION = TERMS.replace('instance_type = "p4d.24xlarge"', 'instance_type = "p5.48xlarge"')


def text_of(source: FocusSource) -> str:
    stream = io.StringIO(newline="")
    write_csv(source, stream)
    return stream.getvalue()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def total(rows: list[dict[str, str]], column: str, **only: str) -> Decimal:
    return sum((Decimal(row[column]) for row in rows if all(row[key] == value for key, value in only.items())), Decimal(0))


@pytest.mark.parametrize("terms", [TERMS, LONE_RESERVATION, ""], ids=["covered", "unused", "no terms"])
@pytest.mark.parametrize("tz", ["UTC", "America/New_York"])
def test_a_file_breaks_no_rule_and_its_effective_cost_is_the_reports_total_to_the_last_digit(terms: str, tz: str) -> None:
    with sample(text=terms, tz=tz) as (source, report):
        text = text_of(source)
    assert violations(text) == []
    assert report.totals.total_cost is not None
    off = Fraction(total(rows_of(text), "EffectiveCost")) - report.totals.total_cost
    assert abs(off) <= Fraction(1, 2 * 10**focus.PLACES)


def test_commitments_are_told_as_the_specification_wants() -> None:
    with sample(text=LONE_RESERVATION) as (source, report):
        rows = rows_of(text_of(source))
    assert report.totals.unused_commitment_cost is not None
    unused = total(rows, "EffectiveCost", CommitmentDiscountId="ri-p4d", CommitmentDiscountStatus="Unused")
    assert abs(Fraction(unused) - report.totals.unused_commitment_cost) < Fraction(1, 10**8) and unused > 500
    plan = {"CommitmentDiscountId": "sp-a"}
    assert total(rows, "EffectiveCost", ChargeCategory="Usage", **plan) == total(
        rows, "BilledCost", ChargeCategory="Purchase", **plan
    )
    upfront = [row for row in rows if row["ChargeFrequency"] == "One-Time"]
    assert [(row["BilledCost"], row["EffectiveCost"], row["ChargePeriodEnd"]) for row in upfront] == [
        ("20000", "0", "2027-11-01T00:00:00Z")
    ]
    used = [row for row in rows if row["CommitmentDiscountStatus"] == "Used"]
    assert used and all(
        Decimal(row["EffectiveCost"]) < Decimal(row["ContractedCost"]) <= Decimal(row["ListCost"]) for row in used
    )


def test_of_usage_without_commitments_all_prices_are_those_of_the_report_and_spot_is_dynamic() -> None:
    with sample(text="") as (source, _):
        rows = rows_of(text_of(source))
    assert {row["PricingCategory"] for row in rows if row["x_Purchase"] == "spot"} == {"Dynamic"}
    assert all(row["EffectiveCost"] == row["BilledCost"] == row["ContractedCost"] == row["ListCost"] for row in rows)
    assert {row["ServiceCategory"] for row in rows} == {"Compute"}
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows} == {
        ("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z")
    }
    assert any(row["Tags"] == '{"cost center": "4000", "team": "blue"}' for row in rows)
    assert {row["ResourceId"] for row in rows} == {f"node-{number:02}" for number in range(6)}


def test_the_rules_checker_finds_what_is_broken() -> None:
    with sample(days=1, nodes=1) as (source, _):
        text = text_of(source)
    header, *_ = text.split("\r\n")
    assert len(violations(text.replace("T00:00:00Z", " 00:00:00"))) > 2
    broken = {
        ",Committed,": ",Reserved,", ",USD,": ",$,", ",Used,": ",Unused,", "Usage-Based": "Hourly", ",Compute,": ",GPU,",
        ",Purchase,": ",Usage,", ",aws,": ",n/a,", "{": "[{", header: header.replace("EffectiveCost", "effective_cost"),
    }  # fmt: skip
    for old, new in broken.items():
        assert old in text
        try:
            assert violations(text.replace(old, new)), old
        except (KeyError, ValueError):
            pass  # a missing column, or no JSON at all


def test_parquet_has_explicit_types_and_the_rows_of_the_csv(tmp_path: Path) -> None:
    with sample(days=1, nodes=3) as (source, _):
        rows = rows_of(text_of(source))
        with (tmp_path / "x.parquet").open("wb") as stream:
            write_parquet(source, stream)
    table = parquet.read_table(tmp_path / "x.parquet")
    assert len([name for name in table.column_names if not name.startswith("x_")]) == 57
    assert table.column_names == [column.name for column in COLUMNS] == list(rows[0])
    assert {str(table.schema.field(name).type) for name in COSTS} == {"double"}
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[us, tz=UTC]"
    assert not table.schema.field("BilledCost").nullable
    for told, row in zip(table.to_pylist(), rows, strict=True):
        for name in COSTS:
            assert Decimal(repr(told[name])) == Decimal(row[name])
        assert told["ChargePeriodStart"] == datetime.fromisoformat(row["ChargePeriodStart"])
        assert (told["x_Job"] or "") == row["x_Job"] and (told["Tags"] or "") == row["Tags"]


def test_an_account_can_be_named_and_names_from_outside_stay_as_they_are() -> None:
    with sample(days=1, nodes=1) as (source, _):
        named = FocusSource(
            source.attribute, source.start, source.end, commitments=source.commitments, nodes=source.nodes,
            tags=source.tags, account="123456789012",
        )  # fmt: skip
        rows = rows_of(text_of(named))
    assert {row["BillingAccountId"] for row in rows} == {"123456789012"}
    assert START == datetime(2026, 11, 1, tzinfo=UTC)


def test_progress_is_told_day_by_day_and_only_a_day_is_asked_for_at_once() -> None:
    told: list[tuple[int, int]] = []
    with sample(days=3, nodes=1) as (source, _):
        asked = []

        def attribute(since: datetime, until: datetime, by: object) -> object:
            asked.append((until - since).days)
            return source.attribute(since, until, by)  # type: ignore[arg-type]

        counted = FocusSource(
            attribute, source.start, source.end, commitments=source.commitments, nodes=source.nodes, tags=source.tags,  # type: ignore[arg-type]
            on_progress=lambda done, count: told.append((done, count)),
        )  # fmt: skip
        assert list(counted.rows())
    assert asked == [1, 1, 1] and told == [(0, 3), (1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("0E-10", "0"), ("1E+3", "1000"), ("-0.0000000000", "0"), ("786.5424000000", "786.5424"), ("-3.10", "-3.1")],
)
def test_numbers_are_plain(value: str, shown: str) -> None:
    assert focus.plain(Decimal(value)) == shown


def test_a_commitment_that_the_terms_no_longer_have_is_still_named() -> None:
    """As of a closed month."""
    with sample(days=1) as (source, report):
        forgetful = replace(source, commitments=())
        text = text_of(forgetful)
    assert violations(text) == []
    rows = rows_of(text)
    assert {row["CommitmentDiscountId"] for row in rows} == {"", "ri-p4d", "sp-a"}
    assert report.totals.total_cost is not None
    assert abs(Fraction(total(rows, "EffectiveCost")) - report.totals.total_cost) <= Fraction(1, 10**10)


HOUR = 3_600_000 * 10**6


def plain_row(names: dict[str, str], **changes: object) -> Row:
    keys = tuple(names.get(key, "(none)") for key in KEYS)
    whole = Row(keys, 0, 0, 0, 0, None, *[Fraction(0)] * 4, True, list_cost=None)
    return whole._replace(**changes)  # type: ignore[arg-type]


def test_hosts_corrections_monthly_items_and_what_has_no_price() -> None:
    """By hand: a node without GPUs, a correction, egress, an unpriced row, and a user who is called like a label of ours."""
    box = {"node": "cpu-1", "cloud": "on_premises", "instance_type": "(unknown)", "user": '"(idle)"', "job": "=1+1"}
    rows = (
        plain_row({**box, "job": "(host)", "user": "(host)"}, host_share_ms=5 * HOUR, allocated_cost=Fraction(1, 3)),
        plain_row(box, held_share_ms=HOUR, allocated_cost=Fraction(2)),
        plain_row(dict.fromkeys(KEYS, "(adjustment)"), adjustment_cost=Fraction(-7, 2)),
        plain_row({**dict.fromkeys(KEYS, "(egress)"), "project": "vision"}, allocated_cost=Fraction(4)),
        plain_row({"node": "n"}, **dict.fromkeys(("allocated_cost", "idle_unallocated_cost", "idle_lost_cost", "idle_down_cost")), complete=False),
    )  # fmt: skip
    report = Report(rows, rows[0], START, START, "UTC", "USD", KEYS, (), ())
    text = text_of(FocusSource(lambda start, end, by: report, START, START + timedelta(days=1)))
    assert violations(text) == []
    told = rows_of(text)
    kinds = [(row["x_CostKind"], row["ServiceCategory"], row["ChargeCategory"], row["EffectiveCost"]) for row in told]
    assert kinds == [
        ("host", "Compute", "Usage", "0.3333333333"), ("allocated", "Compute", "Usage", "2"),
        ("adjustment", "Compute", "Adjustment", "-3.5"), ("egress", "Networking", "Usage", "4"),
    ]  # fmt: skip
    assert (told[0]["PricingQuantity"], told[0]["PricingUnit"], told[0]["ConsumedUnit"]) == ("5", "Hours", "Hours")
    assert (told[1]["x_User"], told[1]["x_Job"], told[1]["ProviderName"]) == ("(idle)", "=1+1", "On premises")
    assert told[2]["ChargeClass"] == "Correction" and told[3]["x_Project"] == "vision" and told[3]["ResourceId"] == ""
