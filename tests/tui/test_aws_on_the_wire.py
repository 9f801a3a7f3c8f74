"""Whole commands against AWS on the loopback: what boto3 really sends, what it makes of the answers, what a person sees."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.ledger import Ledger
from tests.support.aws_stubs import cost_group, cost_period, owned_rate_row, plan_row
from tests.support.aws_wire import CALLER, REGIONS, reserved_xml, wire
from tests.support.cli import rackrate
from tests.support.sample_ledger import fill

NOW = datetime.now(UTC).replace(microsecond=0)
START = NOW - timedelta(days=100)


def test_what_is_owned_is_read_kept_and_priced_by(tmp_path: Path) -> None:
    plan = plan_row(start=f"{START:%Y-%m-%dT%H:%M:%S.000Z}", end=f"{START + timedelta(days=365, seconds=-1):%Y-%m-%dT%H:%M:%S.000Z}")
    answers = {
        "GetCallerIdentity": CALLER, "DescribeRegions": REGIONS,
        "DescribeReservedInstances": reserved_xml(Start=START, End=START + timedelta(days=365, seconds=-1)),
        "DescribeSavingsPlans": {"savingsPlans": [plan]},
        "DescribeSavingsPlanRates": [{"savingsPlanId": "sp-1", "searchResults": [owned_rate_row("11.5")]}, {"searchResults": []}],
    }  # fmt: skip
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, NOW.replace(minute=0, second=0) - timedelta(hours=3), 2, 1)
    with wire(answers) as aws:
        done = rackrate(tmp_path, "prices", "owned", "--write", env=aws.env)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["p4d.24xlarge", "us-east-1", "2", "1y", "partial", "$13.6986", "$27.3973", "in", "264", "d", "active"] in lines
    assert "2 commitments of account 123456789012" in done.err
    (asked,) = [sent for name, sent in aws.asked if name == "DescribeReservedInstances"]
    assert [asked[f"Filter.1.Value.{number}"] for number in (1, 2, 3)] == ["active", "queued", "payment-pending"]
    since = f"{NOW - timedelta(days=2):%Y-%m-%d}"
    shown = rackrate(tmp_path, "report", "--no-sync", "--from", since, "--format", "json")
    assert shown.code == 0 and float(shown.json()["totals"]["unused_commitment_cost"]) > 0


def test_cost_explorer_is_asked_and_compared(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, datetime(2026, 11, 1, tzinfo=UTC), 24, 1)
    use = cost_period(1, cost_group("p4d.24xlarge", "us-east-1", billed="526.983408", used="526.983408", hours="24"), month="2026-11")
    charges = cost_period(1, cost_group("Usage", billed="526.983408", used="526.983408"), month="2026-11")
    span = ("report", "--no-sync", "--from", "2026-11-01", "--to", "2026-11-02", "--compare", "aws")
    with wire({"GetCostAndUsage": [{"ResultsByTime": [use]}, {"ResultsByTime": [charges]}]}) as aws:
        refused = rackrate(tmp_path, *span, env=aws.env)
        assert refused.code == 2 and "--yes-spend 2" in refused.err and aws.asked == []
        done = rackrate(tmp_path, *span, "--yes-spend", "2", env=aws.env)
    assert done.code == 0, done.err
    assert "1 of 1 agree to the cent (lines by day, region, type, node)" in done.out and "(Cost Explorer: 2 requests, $0.02)" in done.err
    (by_type, by_kind) = [sent for _, sent in aws.asked]
    assert by_type["GroupBy"] == [{"Type": "DIMENSION", "Key": "INSTANCE_TYPE"}, {"Type": "DIMENSION", "Key": "REGION"}]
    assert by_kind["GroupBy"] == [{"Type": "DIMENSION", "Key": "RECORD_TYPE"}]


def test_a_key_without_permission_is_a_sentence_with_the_permission(tmp_path: Path) -> None:
    with wire({}) as aws:
        done = rackrate(tmp_path, "prices", "recommended", "--yes-spend", "3", env=aws.env)
    assert done.code == 1 and "allow ce:GetReservationPurchaseRecommendation in its policy" in done.err
    assert "(Cost Explorer: 1 request, $0.01)" in done.err
