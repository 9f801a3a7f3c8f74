"""Requests that cost money: `report --compare aws` and `prices recommended` ask first, and never exceed what was allowed."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pricing.ledger import Ledger
from tests.support.aws_stubs import Aws, cost_group, cost_period
from tests.support.cli import Done
from tests.support.sample_ledger import fill

USAGE = "get_cost_and_usage"
SPAN = ("report", "--no-sync", "--compare", "aws", "--from", "2026-10-30", "--to", "2026-11-01")
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days of a p4d on demand, a p4d on spot, a g5, and a node on another cloud."""
    made = tmp_path_factory.mktemp("home")
    with Ledger.open(made / "ledger.db") as ledger:
        fill(ledger, datetime(2026, 10, 30, tzinfo=UTC), 48, 4)
    return made


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    def answers(text: str) -> Terminal:
        said = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(text))
        monkeypatch.setattr(sys, "stderr", said)
        return said

    return answers


def days(*groups: dict) -> dict:
    return {"ResultsByTime": [cost_period(day, *groups, month="2026-10") | {"TimePeriod": span} for day, span in SPANS]}


SPANS = ((30, {"Start": "2026-10-30", "End": "2026-10-31"}), (31, {"Start": "2026-10-31", "End": "2026-11-01"}))
USE = [
    cost_group("p4d.24xlarge", "us-east-1", billed="734.4", used="734.4", hours="48"),
    cost_group("g5.xlarge", "eu-west-1", billed="26.95", used="26.95", hours="24"),
]


def lay(aws: Aws, currency: str = "USD") -> None:
    aws.lay("ce", USAGE, days(*USE))
    aws.lay("ce", USAGE, days(cost_group("Usage", billed="770", used="770", currency=currency), cost_group("RIFee", billed="0", used="5")))


def test_where_nobody_can_be_asked_nothing_is_sent_without_the_option(run: Run, aws: Aws) -> None:
    done = run(*SPAN)
    assert done.code == 2 and done.out == ""
    assert "needs 2 requests to Cost Explorer, which charges $0.02 for them: allow them with --yes-spend 2" in done.err
    capped = run(*SPAN, "--yes-spend", "1")
    assert capped.code == 1 and "exceed the cap of 1" in capped.err and aws.calls == []


def test_the_ledger_is_compared_with_cost_explorer_by_day_type_and_region(run: Run, aws: Aws) -> None:
    lay(aws)
    done = run(*SPAN, "--yes-spend", "2", "--json")
    found = done.json()
    assert done.code == 0 and "(Cost Explorer: 2 requests, $0.02)" in done.err
    assert "of other clouds are ours alone and were not compared" in done.err
    assert found["bill_total"] == "1540.00" and {row["state"] for row in found["rows"]} == {"matched"}
    assert float(found["difference"]) == pytest.approx(float(found["bill_total"]) - float(found["our_total"]))
    assert sum(map(float, found["parts"].values())) == pytest.approx(float(found["difference"]), abs=0.011)
    assert found["parts"]["unused_commitment"] == "10.00" and float(found["parts"]["other"]) == pytest.approx(17.3)
    (p4d, _) = [row for row in found["rows"] if row["instance_type"] == "p4d.24xlarge"]
    assert (p4d["bill_hours"], p4d["our_hours"], p4d["region"]) == (48.0, 48.0, "us-east-1")
    assert [one["period"] for one in found["periods"]] == ["2026-10-30", "2026-10-31"]
    lay(aws)
    text = run(*SPAN, "--yes-spend", "2").out
    assert text.splitlines()[0].split() == ["INSTANCES", "AWS", "OURS", "DIFFERENCE"] and "2026-10-30  761.35  750.53" in text


def test_whoever_pays_is_asked_with_the_number_and_the_price(
    run: Run, aws: Aws, somebody: Callable[[str], Terminal]
) -> None:
    said = somebody("n\n")
    assert run(*SPAN).code == 1 and aws.calls == []
    assert "needs 2 requests to Cost Explorer, which charges $0.02 for them. Send them? [y/N]" in said.getvalue()
    assert "2 more were not allowed" in said.getvalue()
    lay(aws)
    somebody("yes\n")
    assert run(*SPAN).code == 0


def test_further_pages_are_asked_for_again_up_to_the_cap(run: Run, aws: Aws, somebody: Callable[[str], Terminal]) -> None:
    for token in ("one", "two", "three"):
        aws.lay("ce", USAGE, {**days(*USE), "NextPageToken": token})
    said = somebody("y\ny\n")
    assert run(*SPAN, "--spend-cap", "3").code == 1
    assert len(aws.calls) == 3 and "1 more request to" in said.getvalue() and "exceed the cap of 3" in said.getvalue()


def test_another_currency_and_an_empty_answer_are_sentences(run: Run, aws: Aws) -> None:
    lay(aws, "CNY")
    done = run(*SPAN, "--yes-spend", "2")
    assert done.code == 2 and "amounts in CNY, and the report is in USD: use --currency CNY" in done.err and done.out == ""
    for _ in range(2):
        aws.lay("ce", USAGE, days())
    empty = run(*SPAN, "--yes-spend", "2", "--account", "210987654321")
    assert empty.code == 1 and "from 2026-10-30 to 2026-10-31 for the account 210987654321" in empty.err


def test_no_day_is_asked_for_that_has_not_begun(run: Run, aws: Aws) -> None:
    today = datetime.now(UTC).date()
    span = ("report", "--no-sync", "--compare", "aws", "--yes-spend", "2")
    later = run(*span, "--from", "2199-01-01", "--to", "2199-01-05")
    assert later.code == 2 and "has not begun yet" in later.err and aws.calls == []
    for _ in range(2):
        aws.lay("ce", USAGE, days())
    run(*span, "--from", "2026-10-30", "--to", "2199-01-01")
    assert aws.asked(USAGE)[0]["TimePeriod"]["End"] in {f"{today + timedelta(days=later)}" for later in (1, 2)}


def recommend(aws: Aws, times: int = 1) -> None:
    money = {"UpfrontCost": "0", "EstimatedMonthlySavingsAmount": "812.5", "CurrencyCode": "USD"}
    machine = {"EC2InstanceDetails": {"InstanceType": "g5.xlarge", "Region": "eu-west-1"}}
    row = {**money, "InstanceDetails": machine, "RecommendedNumberOfInstancesToPurchase": "3"}
    plan = {**money, "SavingsPlansDetails": {}, "HourlyCommitmentToPurchase": "2.75", "EstimatedMonthlySavingsAmount": "900"}
    for _ in range(times):
        aws.lay("ce", "get_reservation_purchase_recommendation", {"Recommendations": [{"RecommendationDetails": [row]}]})
        for rows in ([plan], []):
            answer = {"SavingsPlansPurchaseRecommendation": {"SavingsPlansPurchaseRecommendationDetails": rows}}
            aws.lay("ce", "get_savings_plans_purchase_recommendation", answer)


def test_recommendations_of_aws_are_alternatives_with_their_look_back(run: Run, aws: Aws) -> None:
    assert "needs 3 requests" in run("prices", "recommended").err and aws.calls == []
    recommend(aws, 2)
    done = run("prices", "recommended", "--lookback", "7", "--lookback", "30", "--yes-spend", "6")
    lines = [line.split() for line in done.out.splitlines()]
    assert done.code == 0 and [line[-1] for line in lines[1:]] == ["7d", "30d", "7d", "30d"]
    assert lines[1][:2] == ["$900.00", "$0.00"] and "not to be added up" in done.err and "$0.06" in done.err
    recommend(aws)
    (plan, reserved) = run("prices", "recommended", "--yes-spend", "3", "--json").json()["recommendations"]
    assert (plan["per_hour"], reserved["count"], reserved["region"]) == ("2.75", "3", "eu-west-1")
