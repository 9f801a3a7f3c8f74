"""Budgets in config.toml and in `rackrate cost`: each fault names the file and the budget; the figures are the report's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import time_machine
from msgspec import structs
from pytest import CaptureFixture, MonkeyPatch

from pricing.calendar import milliseconds
from pricing.ledger import Ledger
from pricing.usage import Placed, Usage
from tests.support.cli import rackrate_here, write_config
from tui.budgets import budgets_of
from tui.config import Paths, load, resolve_paths
from tui.errors import ConfigurationError
from tui.ui.ledger import read_costs

DAY_MS, START = 86_400_000, datetime(2026, 1, 25, tzinfo=UTC)
NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)
HEAD = '[[budgets]]\nname = "v"\namount = "5000"\n'
BUDGETS = """\
timezone = "UTC"

[[budgets]]
name = "everything"
amount = 5000

[[budgets]]
name = "vision"
project = "vision"
amount = "700"

[[budgets]]
name = "red team"
"tag:team" = "red"
amount = "1500.50"
thresholds = [50, 90.5]

[[budgets]]
name = "ada in yen"
user = "ada"
amount = "10"
currency = "JPY"
timezone = "Asia/Tokyo"
"""


def read(folder: Path, text: str) -> tuple[str, ...]:
    write_config(folder, text)
    config = load(Paths(config_file=folder / "config.toml", data_dir=folder))
    return tuple(f"{one.scope}: {one.amount} {one.tz}" for one in budgets_of(config, "Europe/Berlin"))


def test_a_budget_is_of_a_project_a_user_a_tag_or_everything(tmp_path: Path) -> None:
    assert read(tmp_path, BUDGETS) == (
        "everything: $5,000.00 Europe/Berlin",
        "project vision: $700.00 Europe/Berlin",
        "tag team=red: $1,500.50 Europe/Berlin",
        "user ada: JPY 10.00 Asia/Tokyo",
    )
    assert read(tmp_path, HEAD + 'tag = { team = "red" }') == ("tag team=red: $5,000.00 Europe/Berlin",)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (HEAD + 'projekt = "vision"', "did you mean `project`"),
        (HEAD + "x = 1", "allowed here: name, amount, currency, project, user, tag, thresholds, timezone"),
        ('[[budgets]]\nname = "v"', "missing required field `amount`"),
        ('[[budgets]]\nname = "v"\namount = 50.5', "amount"),
        ('[[budgets]]\nname = "v"\namount = "5.000,00"', "budget `v`: The amount"),
        ('[[budgets]]\nname = "v"\namount = "$5"', "carries a currency sign"),
        ('[[budgets]]\nname = "v"\namount = "0"', "above 0"),
        ('[[budgets]]\nname = "v"\namount = "-5"', "above 0"),
        (HEAD + 'currency = "dollars"', "three capital letters"),
        (HEAD + 'project = "a"\nuser = "b"', "is of project and user"),
        (HEAD + 'project = "a"\n"tag:team" = "b"', "is of project and tag:team"),
        (HEAD + '"tag:team" = "a"\n"tag:room" = "b"', "budgets"),
        (HEAD + 'project = ""', "does not say which project"),
        (HEAD + '"tag:" = "x"', "can be of a project"),
        (HEAD + '"tag:team" = 5', "budgets"),
        (HEAD + "thresholds = [0]", "threshold that is none"),
        (HEAD + "thresholds = [inf]", "threshold that is none"),
        (HEAD + 'thresholds = ["50"]', "thresholds"),
        (HEAD + 'timezone = "Mars/Base"', "no IANA time zone"),
        (HEAD + HEAD, "two budgets are named `v`"),
        ("budgets = 5", "budgets"),
        ("budgets = [5]", "budgets"),
    ],
)
def test_a_fault_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path, text)
    assert "config.toml" in str(error.value) and part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """54 days of one node at $2 an hour: 12 hours a day held by ada for `vision`, 12 idle; until noon of the 20th of March."""
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    rows = []
    for place in range(2 * 54 + 1):
        begin = milliseconds(START) + place * DAY_MS // 2
        holder = ("ada", "vision") if place % 2 == 0 else (None, None)
        rows.append(
            Usage(
                place + 1, begin, begin + DAY_MS // 2, "GPU-1", "held" if holder[0] else "idle", None, 1_000_000, *holder, None,
                None, None, None, 1,
            )
        )  # fmt: skip
    placed = Placed(1, "a", "on_premises", None, None, None, None, "2.00", None, 1, "T4", {"team": "red"})
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.take("a", "meter-a", rows, [placed], 1)
    return tmp_path


@time_machine.travel(NOON, tick=False)
def test_cost_shows_the_budgets_below_today_and_this_month(home: Path, capfdbinary: CaptureFixture[bytes]) -> None:
    write_config(home, BUDGETS)
    done = rackrate_here(capfdbinary, "cost", "--no-sync")
    assert done.code == 0
    table = [" ".join(line.split()) for line in done.out.splitlines()]
    begin = table.index("") + 1
    assert table[begin].split() == ["BUDGET", "OF", "SPENT", "AMOUNT", "USED", "FORECAST", "FROM", "TO", "STATE"]
    assert table[begin + 1].startswith("everything everything $936.00 $5,000.00 19% $1,488.00 $1,") and table[
        begin + 1
    ].endswith("ok")
    assert (
        table[begin + 2].startswith("vision project vision $480.00 $700.00 69% $756.00") and "likely over" in table[begin + 2]
    )
    assert table[begin + 3].startswith("red team tag team=red $936.00 $1,500.50 62%")
    assert table[begin + 4].startswith("ada in yen * user ada – JPY 10.00 – –"), "unknown is not 0"
    assert table[begin + 4].endswith("not known")
    assert "note: budget ada in yen: some of its time has no price in JPY" in done.err
    assert "no forecast, there are only 0 whole days with cost" in done.err


@time_machine.travel(NOON, tick=False)
def test_cost_as_json_has_the_budgets_with_the_figures_of_the_report(home: Path, capfdbinary: CaptureFixture[bytes]) -> None:
    write_config(home, BUDGETS)
    record = rackrate_here(capfdbinary, "cost", "--no-sync", "--json", "--tz", "UTC").json()
    everything, vision, red, yen = record["budgets"]
    assert everything["spent"] == record["month"]["total_cost"] == "936.00"
    assert (vision["of"], vision["value"], vision["month"], vision["timezone"]) == ("project", "vision", "2026-03", "UTC")
    forecast = vision["forecast"]
    low, expected, high = (Decimal(forecast[key]) for key in ("low", "expected", "high"))
    assert Decimal(vision["spent"]) < low < expected < high and forecast["confidence"] == 0.8
    assert vision["crossed"] == [{"kind": "spent", "percent": 50.0}, {"kind": "forecast", "percent": 100.0}]
    assert vision["projected_exhaustion"].startswith("2026-03-29") and not vision["over"]
    assert [one["percent"] for one in red["crossed"]] == [50.0]
    assert yen["forecast"]["expected"] is None and yen["forecast"]["reason"] and not yen["complete"]
    assert yen["spent"] is None and yen["spent_ratio"] is None and yen["state"] == "not known"
    assert [(one["budget"], one["kind"], one["percent"]) for one in record["alerts"]] == [
        ("vision", "spent", 50.0), ("vision", "forecast", 100.0), ("red team", "spent", 50.0),
    ]  # fmt: skip


@time_machine.travel(NOON, tick=False)
def test_only_fail_over_makes_an_exit_code_of_a_budget_that_is_spent(home: Path, capfdbinary: CaptureFixture[bytes]) -> None:
    write_config(home, 'timezone = "UTC"\n' + HEAD)
    assert rackrate_here(capfdbinary, "cost", "--no-sync", "--fail-over").code == 0
    write_config(home, 'timezone = "UTC"\n' + HEAD.replace("5000", "900"))
    done = rackrate_here(capfdbinary, "cost", "--no-sync")
    assert done.code == 0 and done.out.splitlines()[-3].endswith("over")
    assert done.out.splitlines()[-1].startswith("alert: budget v (everything): $936.00 of $900.00 spent in 2026-03, 104%")
    assert rackrate_here(capfdbinary, "cost", "--no-sync", "--fail-over").code == 1
    assert rackrate_here(capfdbinary, "cost", "--no-sync", "--fail-over", "--json").code == 1
    write_config(home, "")
    assert rackrate_here(capfdbinary, "cost", "--no-sync", "--json").json()["budgets"] == []


@time_machine.travel(NOON, tick=False)
def test_alerts_lists_what_is_spent_of_budgets_beside_the_nodes(home: Path, capfdbinary: CaptureFixture[bytes]) -> None:
    write_config(home, BUDGETS + '[[nodes]]\nname = "a"\nurl = "http://127.0.0.1:9"\n')
    done = rackrate_here(capfdbinary, "alerts", "--json", "rule:budget severity:warning")
    told = {(alert["rule"], alert["holders"][0], alert["threshold"]) for alert in done.json()}
    assert told == {("budget", "vision", "50 %"), ("budget_forecast", "vision", "100 %"), ("budget", "red team", "50 %")}
    assert {alert["since"] for alert in done.json()} == {alert["node"] for alert in done.json()} == {None}, "nobody looked before"
    lines = rackrate_here(capfdbinary, "alerts").out.splitlines()
    assert "node_silent" in lines[1] and "Budget vision" in "".join(lines)
    (home / "ledger.db").write_bytes(b"no ledger, but as long as the header of one: " * 9)
    done = rackrate_here(capfdbinary, "alerts")
    assert "the alerts of budgets are missing" in done.err and "node_silent" in done.out and "Traceback" not in done.err


@time_machine.travel(NOON, tick=False)
def test_the_app_tells_the_same_budgets_as_alerts_and_keeps_since_when(home: Path) -> None:
    write_config(home, BUDGETS)
    budgets = load(resolve_paths(None)).budgets

    def none(node: object) -> Any:
        raise AssertionError("there are no nodes to ask")

    first = read_costs(home / "ledger.db", (), none, "UTC", None, None, budgets)
    assert [(alert.severity, alert.rule, alert.holders, alert.threshold) for alert in first.alerts] == [
        ("warning", "budget_forecast", ("vision",), "100 %"), ("warning", "budget", ("vision",), "50 %"),
        ("warning", "budget", ("red team",), "50 %"),
    ]  # fmt: skip
    assert [alert.reading for alert in first.alerts] == ["108% likely", "69%", "62%"] and "$480.00 of $700.00 spent" in first.alerts[0].message
    assert first.budgets is not None
    with time_machine.travel(NOON + timedelta(minutes=5), tick=False):
        slow = structs.replace(first, budgets=structs.replace(first.budgets, took_seconds=1e9))
        assert read_costs(home / "ledger.db", (), none, "UTC", None, None, budgets, slow).budgets is slow.budgets
        rested = structs.replace(first, budgets=structs.replace(first.budgets, at=-1e9))
        later = read_costs(home / "ledger.db", (), none, "UTC", None, None, budgets, rested)
    assert [alert.since for alert in later.alerts] == [alert.since for alert in first.alerts]
    assert later.budgets is not None and later.budgets.states[0].at > first.budgets.states[0].at
