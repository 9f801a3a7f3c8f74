"""`close` and `terms.toml` on the command line: months frozen once, terms that are read or complained about."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pricing.calendar import milliseconds
from pricing.ledger import Ledger
from pricing.usage import WHOLE_SHARE, Placed, Usage
from tests.support.cli import rackrate, write_config
from tui.cli import main

NOON = milliseconds(datetime(2026, 3, 5, 12, tzinfo=UTC))
HOUR_MS = 3_600_000
RANGE = ("--from", "2026-03-01", "--to", "2026-04-01", "--no-sync", "--tz", "UTC")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ledger holds an hour of p4d.24xlarge in us-east-1 by ann, and one of an Alibaba node by bob."""
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    write_config(tmp_path, "")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        take(ledger, "a", "ann", Placed(1, "a", "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", gpu_count=8))
        take(
            ledger,
            "b",
            "bob",
            Placed(1, "b", "alibaba", "ap-northeast-1", None, "ecs.ebmgn7e.32xlarge", "on_demand", gpu_count=8),
        )
    return tmp_path


def take(ledger: Ledger, node: str, user: str, placed: Placed, at_ms: int = NOON) -> None:
    rows = [
        Usage(
            gpu + 1, at_ms, at_ms + HOUR_MS, f"{node}-{gpu}", "held", None, WHOLE_SHARE, user, None, None, None, None, None, 1
        )
        for gpu in range(8)
    ]
    ledger.take(node, f"{node}-{at_ms}", rows, [placed], 1)


def costs(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """User -> total cost of March, as the CSV says."""
    capsys.readouterr()
    assert main(["report", "--by", "user", "--format", "csv", *RANGE, *options]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out, newline=""))
    return {row["user"]: row["total_cost"] for row in rows}


def test_terms_beside_the_configuration_count_and_others_can_be_tried(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert costs(capsys) == {"ann": "21.96", "bob": ""}
    (home / "terms.toml").write_text('[[discounts]]\ncloud = "aws"\npercent = "50"\n')
    assert costs(capsys) == {"ann": "10.98", "bob": ""}
    tried = home / "tried.toml"
    tried.write_text('[currency]\nCNY = [{ from = 2026-01-01, usd = "0.10" }]\n')
    assert costs(capsys, "--terms", str(tried)) == {"ann": "21.96", "bob": "29.75"}
    assert main(["report", "--by", "user", *RANGE, "--terms", str(tried), "--currency", "cny"]) == 0
    said = capsys.readouterr()
    assert "219.58" in said.out and "517.05" in said.out and "(all in CNY)" in said.out
    assert "note: Prices in USD are told in CNY at 1 CNY = 0.1 USD from 2026-01-01." in said.err


def test_what_cannot_be_told_in_a_currency_is_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *RANGE, "--currency", "EUR"]) == 0
    assert "the report in EUR, and no exchange rate is given" in capsys.readouterr().err
    assert main(["cost", "--no-sync", "--currency", "EUR"]) == 0
    assert main(["report", *RANGE, "--currency", "euro"]) == 2
    assert "The currency 'EURO' is none" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["report", "cost", "close"])
def test_wrong_terms_are_one_sentence_and_wrong_usage(home: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (home / "terms.toml").write_text("[[discounts]]\ncloud = 'aws'\npercent = 50\n")
    assert main([command, "--no-sync"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    assert f"{home / 'terms.toml'}: `discounts[1].percent` must be a decimal number as text" in said.err
    assert main([command, "--no-sync", "--terms", str(home / "none.toml")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_month_is_closed_listed_and_corrected(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["close", "--no-sync"]) == 0
    assert "no month is closed" in capsys.readouterr().err
    assert main(["close", "2026-03", "--no-sync", "--tz", "UTC"]) == 0
    said = capsys.readouterr()
    assert said.out == "closed 2026-03 (UTC): $21.96\n" and "some of its time has no price" in said.err
    before = costs(capsys)
    with Ledger.open(home / "ledger.db") as ledger:
        take(
            ledger,
            "a",
            "cho",
            Placed(1, "a", "aws", "us-east-1", None, "p4d.24xlarge", "on_demand", gpu_count=8),
            NOON + HOUR_MS,
        )
    assert main(["close", "--no-sync"]) == 0
    said = capsys.readouterr()
    assert "2026-03 is closed: 1 corrections of together $21.96 were noticed" in said.err
    assert said.out.splitlines()[1].split()[0] == "2026-03" and said.out.split()[-1] == "1"
    assert costs(capsys) == before
    assert main(["report", "--no-sync", "--by", "user", "--tz", "UTC"]) == 0
    assert "(adjustment)" in capsys.readouterr().out
    assert main(["close", "2026-03", "--no-sync", "--tz", "UTC"]) == 2
    assert "2026-03 was closed on" in capsys.readouterr().err
    assert main(["close", "2999-01", "--no-sync"]) == 2
    assert "a month is closed when it is over" in capsys.readouterr().err


def test_closed_months_as_json(home: Path) -> None:
    assert (
        rackrate(home, "close", "2026-03", "--no-sync", "--tz", "Europe/Berlin", "--json").json()[0]["timezone"]
        == "Europe/Berlin"
    )
    (month,) = rackrate(home, "close", "--no-sync", "--json").json()
    assert (month["month"], month["currency"], month["corrections"]) == ("2026-03", "USD", 0)


def test_cost_shows_unused_commitments_where_there_are_some(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--no-sync"]) == 0
    assert "UNUSED CMT" not in capsys.readouterr().out
    (home / "terms.toml").write_text(
        '[[commitments]]\nid = "ri"\nkind = "reservation"\ncloud = "aws"\nregion = "us-east-1"\ninstance_type = "p4d.24xlarge"\n'
        'hourly = "1000"\nfrom = 2020-01-01\nto = 2199-01-01\n'
    )
    assert main(["cost", "--no-sync"]) == 0
    titles, _, month = capsys.readouterr().out.splitlines()
    assert "UNUSED CMT" in titles and "ADJUSTED" not in titles
    allocated, idle, unused, total = (cell for cell in month.split() if cell.startswith("$"))
    assert (allocated, idle) == ("$0.00", "$0.00") and unused == total != "$0.00"
