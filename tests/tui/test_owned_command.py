"""`prices owned`: what is shown, what is kept in owned.toml, and that every command that prices takes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from pricing.ledger import Ledger
from tests.support.aws_stubs import Aws, owned_rate_row, owned_row, plan_row
from tests.support.cli import Done
from tests.support.sample_ledger import fill

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
START = NOW - timedelta(days=100)
RESERVED = owned_row(Start=START, End=START + timedelta(days=365), State="active")
PLAN = plan_row(start=f"{START:%Y-%m-%dT%H:%M:%S}Z", end=f"{START + timedelta(days=365, seconds=-1):%Y-%m-%dT%H:%M:%S}Z")
Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def a_second_later() -> Iterator[None]:
    """Between two commands no midnight passes, and nothing grows old."""
    with time_machine.travel(NOW + timedelta(seconds=1), tick=False):
        yield


def lay(aws: Aws, reservations: list[dict], plans: list[dict], regions: tuple[str, ...] = ("us-east-1",), account="123456789012"):
    aws.lay("sts", "get_caller_identity", {"Account": account, "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/u"})
    aws.lay("ec2", "describe_regions", {"Regions": [{"RegionName": name} for name in regions]})
    aws.lay("ec2", "describe_reserved_instances", {"ReservedInstances": reservations})
    aws.lay("savingsplans", "describe_savings_plans", {"savingsPlans": plans})
    for plan in plans:
        for page in range(4):  # of 50 types each
            rows = [owned_rate_row("11.5")] if page == 0 else []
            aws.lay("savingsplans", "describe_savings_plan_rates", {"savingsPlanId": plan["savingsPlanId"], "searchResults": rows})


def test_what_is_owned_is_shown_with_its_amortised_price_and_how_long_it_lasts(run: Run, aws: Aws) -> None:
    pending = owned_row(ReservedInstancesId="ri-2", State="payment-pending", Start=NOW, End=NOW + timedelta(days=365))
    old = owned_row(ReservedInstancesId="ri-3", State="retired", Start=NOW - timedelta(days=400), End=NOW - timedelta(days=35))
    lay(aws, [RESERVED, pending, old, owned_row(ProductDescription="Windows")], [PLAN])
    done = run("prices", "owned")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["WHAT", "WHERE", "N", "TERM", "UPFRONT", "EACH/H", "ALL/H", "ENDS", "STATE"]
    assert ["p4d.24xlarge", "us-east-1", "2", "1y", "partial", "$13.6986", "$27.3973", "in", "264", "d", "active"] in lines
    assert ["compute", "plan", "any", "1", "1y", "no", "$12.5000", "$12.5000", "in", "264", "d", "active"] in lines
    assert len(lines) == 4 and max(map(len, done.out.splitlines())) <= 80
    for says in (
        "ri-2: its payment is not through: it covers nothing until AWS says active", "not Linux on shared hosts",
        "2 active cost $39.8973 an hour, $29,125.02 a month, used or not", "(1 that ended within the last 400 days",
    ):  # fmt: skip
        assert says in done.err
    assert "owned.toml" not in done.err


def test_what_is_kept_is_taken_by_every_command_that_prices(run: Run, aws: Aws, tmp_path: Path) -> None:
    (tmp_path / "terms.toml").write_text("# mine\n")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        fill(ledger, NOW.replace(minute=0, second=0) - timedelta(days=2), 24, 2)
    span = ("report", "--no-sync", "--format", "json", "--from", f"{NOW - timedelta(days=2):%Y-%m-%d}")
    before = run(*span).json()["totals"]["total_cost"]
    lay(aws, [RESERVED], [PLAN])
    done = run("prices", "owned", "--write")
    assert done.code == 0 and "2 commitments of account 123456789012" in done.err
    after = run(*span).json()["totals"]
    assert after["total_cost"] != before and float(after["unused_commitment_cost"]) > 0
    assert (tmp_path / "terms.toml").read_text() == "# mine\n"
    kept = run("prices", "owned", "--kept")
    assert "p4d.24xlarge" in kept.out and re.search(r"was read from AWS 0s ago", kept.err)
    records = run("prices", "owned", "--kept", "--json").json()["commitments"]
    assert [(one["id"], one["state"], one["payment"], one["rates"]) for one in records] == [
        ("ri-1", "active", "partial_upfront", 0), ("sp-1", "active", "no_upfront", 1),
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_a_reading_that_fails_keeps_the_file_and_its_age_is_told(run: Run, aws: Aws, tmp_path: Path) -> None:
    lay(aws, [RESERVED], [])
    run("prices", "owned", "--write")
    file = tmp_path / "owned.toml"
    aged = re.sub(r"read_at = \S+", f"read_at = {NOW - timedelta(days=30):%Y-%m-%dT%H:%M:%SZ}", file.read_text())
    file.write_text(aged)
    aws.refuse("sts", "get_caller_identity", "ExpiredToken")
    failed = run("prices", "owned", "--write")
    assert failed.code == 1 and "expired" in failed.err and file.read_text() == aged
    aws.lay("sts", "get_caller_identity", {"Account": "123456789012", "UserId": "u", "Arn": "arn:aws:iam::123456789012:user/u"})
    aws.lay("ec2", "describe_regions", {"Regions": [{"RegionName": "us-east-1"}]})
    aws.refuse("ec2", "describe_reserved_instances", "UnauthorizedOperation")
    aws.lay("savingsplans", "describe_savings_plans", {"savingsPlans": []})
    partly = run("prices", "owned", "--write")
    assert partly.code == 4 and "reservations of account 123456789012 in us-east-1 (1 commitment)" in partly.err
    assert "allow ec2:DescribeReservedInstances" in partly.err and "ri-1" in file.read_text()
    assert "were read 30 days ago" in run("cost", "--no-sync").err


def test_a_contradiction_is_told_at_once_and_a_damaged_file_is_not_overwritten(run: Run, aws: Aws, tmp_path: Path) -> None:
    mine = (
        '[[commitments]]\nid="ri-1"\nkind="reservation"\ncloud="aws"\nregion="us-east-1"\ninstance_type="p4d.24xlarge"\n'
        f'count=5\nupfront="60000.1"\nhourly="6.849315"\nfrom={START:%Y-%m-%d}\nto={START + timedelta(days=365):%Y-%m-%d}\n'
    )
    (tmp_path / "terms.toml").write_text(mine)
    lay(aws, [RESERVED], [])
    done = run("prices", "owned", "--write")
    assert "commitment ri-1: terms.toml says 5, and aws said 2" in done.err
    assert "commitment ri-1: terms.toml says 5" in run("cost", "--no-sync").err
    (tmp_path / "owned.toml").write_text("[[read")
    lay(aws, [RESERVED], [])
    failed = run("prices", "owned", "--write")
    assert failed.code == 1 and "owned.toml: is not valid TOML" in failed.err and (tmp_path / "owned.toml").read_text() == "[[read"


def test_nothing_owned_and_nothing_kept_are_sentences(run: Run, aws: Aws) -> None:
    lay(aws, [], [])
    done = run("prices", "owned")
    assert (done.code, done.out) == (0, "account 123456789012 owns no reservation and no savings plan of EC2 now\n")
    none = run("prices", "owned", "--kept")
    assert none.code == 1 and "nothing is kept yet" in none.err
    assert run("prices", "owned", "--kept", "--write").code == 2
