"""`rackrate advise`: from a usage file and from the ledger, as text and as JSON, with everything that can be wrong with it."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.ledger import Ledger
from tests.support.advising import START, Node
from tests.support.cli import ROOT, Done, rackrate_here, write_config

KEYS = ["kind", "what", "saving_per_month", "saving_range", "evidence", "break_even", "risks", "how"]
RATES = (
    "instance_type,region,purchase,usd_per_hour,term_months,upfront\n"
    "p4d.24xlarge,us-east-1,on_demand,21.957642,,\n"
    "p4d.24xlarge,us-east-1,reserved_1y,13.8,12,0\n"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home")
    write_config(made, "")
    with Ledger.open(made / "ledger.db") as ledger:
        for node in (
            Node("busy-1", ("ann", 0.9)),
            Node("busy-2", ("cho", 0.8)),
            Node("lazy-1", (None, 0.0)),
            Node("dark-1", ("bob", None)),
        ):
            node.put(ledger, 24 * 9)
    lines = [
        f"{START + timedelta(hours=hour):%Y-%m-%dT%H:00Z},p4d.24xlarge,us-east-1,{4 if hour < 1000 else 3}"
        for hour in range(1440)
    ]
    (made / "usage.csv").write_text("hour_utc,instance_type,region,count\n" + "\n".join(lines) + "\n")
    (made / "rates.csv").write_text(RATES)
    return made


@pytest.fixture
def run(home: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("RACKRATE_HOME", str(home))
    monkeypatch.chdir(home)

    def advise(*arguments: str) -> Done:
        return rackrate_here(capfdbinary, "advise", *arguments)

    yield advise


FILES = ("--usage", "usage.csv", "--rates", "rates.csv")
LEDGER = ("--no-sync", "--from", "2026-10-01", "--to", "2026-10-10")


def test_the_json_has_the_keys_of_the_design_first_and_money_as_decimal_text(run) -> None:  # noqa: ANN001
    done = run(*FILES, "--json")
    assert done.code == 0
    record = done.json()
    assert next(iter(record)) == "actions"
    (action,) = record["actions"]
    assert list(action)[:8] == KEYS and action["kind"] == "commit"
    assert action["what"].startswith("reserve 3 p4d.24xlarge in us-east-1")
    low, high = map(Decimal, action["saving_range"])
    saving = Decimal(action["saving_per_month"])
    assert (
        low <= saving <= high
        and saving == round(3 * (Decimal("21.957642") - Decimal("13.8")) * 730, 2)
        and saving.as_tuple().exponent == -2
    )
    assert action["risks"] and action["how"] and action["break_even"]["utilization_ratio"] == pytest.approx(0.6285, abs=1e-4)
    assert record["together"]["saving_per_month"] == action["saving_per_month"]
    assert record["partial"] is False and record["known_hours"] == 1440


def test_the_list_is_readable_at_80_columns_and_a_card_has_the_evidence(run) -> None:  # noqa: ANN001
    done = run(*LEDGER)
    lines = done.out.splitlines()
    assert done.code == 0 and all(len(line) <= 80 for line in lines), lines
    assert any(line.split()[:2] == ["1*", "stop"] or "stop 1 idle" in line for line in lines)
    assert "note: 1 node could not be judged" in done.err
    stop = next(line.split()[0].rstrip("*+") for line in lines if " stop " in line and line[0].isdigit())
    for words in (("show", stop), ("--why", stop)):
        card = run(*words, *LEDGER)
        assert (
            "lazy-1" in card.out
            and "Evidence" in card.out
            and "Break-even" in card.out
            and "What would make it wrong" in card.out
        )
        assert "aws ec2 stop-instances" in card.out and "utilization ratio" in card.out
        commands = [line for line in card.out.splitlines() if not line.startswith("      ")]
        assert all(len(line) <= 120 for line in commands)


def test_what_is_sure_stands_before_what_rests_on_an_if_however_much_that_would_save(run, home: Path) -> None:  # noqa: ANN001
    (home / "with_spot.csv").write_text(RATES + "p4d.24xlarge,us-east-1,spot,5,,\n")
    files = ("--usage", "usage.csv", "--rates", "with_spot.csv")
    record = run(*files, "--json").json()
    assert [(one["kind"], one["partial"]) for one in record["actions"]] == [("spot", True), ("commit", False)]
    assert [one["counted_in_total"] == 1 for one in record["actions"]] == [False, True], "the sure one is never displaced"
    assert record["together"]["sure_saving_per_month"] == record["actions"][1]["saving_per_month"]
    lines = run(*files).out.splitlines()
    sure, divider, unsure = (next(at for at, line in enumerate(lines) if line.startswith(text)) for text in ("2*", "~ ", "1"))
    assert sure < divider < unsure
    assert "of it without what is marked ~" in " ".join(" ".join(lines).split())
    assert "2*" in run(*files, "--top", "1").out and "(1 more: --top 2)" in run(*files, "--top", "1").out


def test_only_the_kinds_that_are_asked_for_are_told(run) -> None:  # noqa: ANN001
    record = run(*LEDGER, "--kind", "stop", "--kind", "shrink", "--json").json()
    assert {action["kind"] for action in record["actions"]} == {"stop"}
    assert len(run(*LEDGER, "--top", "1", "--json").json()["actions"]) == 1
    assert "more: --top" in run(*LEDGER, "--top", "1").out


def test_what_would_be_is_shown_beside_what_is(run, home: Path) -> None:  # noqa: ANN001
    (home / "cheap.toml").write_text('[[prices]]\npurchase = "on_demand"\nfactor = "0.8"\n[demand]\nfactor = "2"\n')
    done = run(*FILES, "--what-if", "cheap.toml")
    assert "What if: demand of everything x 2" in done.out and "What if: on_demand prices of everything x 0.8" in done.out
    assert "AS IT IS" in done.out and "WHAT IF" in done.out and all(len(line) <= 80 for line in done.out.splitlines())
    record = run(*FILES, "--what-if", "cheap.toml", "--json").json()
    assert (
        record["what_if"]["changes"]
        and record["what_if"]["pairs"][0]["saving_per_month"] == record["actions"][0]["saving_per_month"]
    )
    assert Decimal(record["what_if"]["spend_per_month"]) == pytest.approx(
        Decimal(record["spend_per_month"]) * Decimal("1.6"), abs=1
    )


def test_advice_is_judged_on_later_usage_only(run) -> None:  # noqa: ANN001
    done = run(*FILES, "--to", "2026-11-05", "--judge-on", "usage.csv")
    assert done.code == 0 and "which the advice did" in done.out and "best in hindsight" in done.out
    judged = run(*FILES, "--to", "2026-11-05", "--judge-on", "usage.csv", "--json").json()["judged"]
    assert judged["from"] == "2026-11-05T00:00:00Z" and judged["known_hours"] == 1440 - 35 * 24
    assert Decimal(judged["cost_without"]) - Decimal(judged["cost_with"]) == pytest.approx(
        Decimal(judged["together"]["realised"]), abs=Decimal("0.02")
    )
    late = run(*FILES, "--judge-on", "usage.csv")
    assert late.code == 2 and "tells of no hour after 2026-11-30T00:00Z" in late.err


def test_apply_prints_the_exact_calls_and_makes_none(run) -> None:  # noqa: ANN001
    done = run(*FILES, "--apply")
    assert (
        "purchase_reserved_instances_offering" in done.out and "DryRun = True" in done.out and "InstanceCount = 3" in done.out
    )
    assert "dry run: nothing was called" in done.err
    assert run(*FILES, "--apply", "--json").json()["dry_run"] is True


def test_a_card_of_the_catalogs_prices_adds_to_a_file_only_when_asked(run) -> None:  # noqa: ANN001
    kinds = {action["kind"] for action in run(*FILES, "--json").json()["actions"]}
    more = {action["kind"] for action in run(*FILES, "--add-catalog", "--json").json()["actions"]}
    assert kinds == {"commit"} and more > kinds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("show",), "write `rackrate advise show N`"),
        (("show", "99", *FILES), "There is no advice 99: there are 1"),
        (("show", "0", *FILES), "There is no advice 0"),
        (("tell", "1"), "write `rackrate advise show N`"),
        (("--usage", "none.csv"), "none.csv: cannot be read"),
        (("--usage", "rates.csv"), "there is no column hour_utc"),
        (("--usage", "usage.csv", "--rates", "usage.csv"), "usage.csv, row 1: there is no column purchase, usd_per_hour"),
        ((*FILES, "--days", "0"), "--days 0"),
        ((*FILES, "--days", "3", "--from", "2026-10-01"), "not both"),
        ((*FILES, "--from", "2027-01-01", "--to", "2027-02-01"), "tells of no hour in that range"),
        ((*FILES, "--from", "soon"), "'soon' is no date"),
        (("--no-sync", "--from", "2020-01-01", "--to", "2020-02-01"), "the ledger tells of no hour in that range"),
        ((*FILES, "--idle-below", "0"), "percentage"),
        ((*FILES, "--interruptible", "140"), "--interruptible 140"),
        ((*FILES, "--deadline", "0"), "--deadline 0"),
        ((*FILES, "--what-if", "none.toml"), "none.toml: cannot be read"),
        ((*FILES, "--what-if", "rates.csv"), "not valid TOML"),
        ((*FILES, "--apply", "--judge-on", "usage.csv"), "Give one of"),
        ((*FILES, "--need", "x", "p5.48xlarge", "us-east-1", "2026-12-01", "2026-12-08"), "how many nodes"),
        ((*FILES, "--need", "2", "p5.48xlarge", "us-east-1", "2026-12-08", "2026-12-01"), "not after"),
        ((*FILES, "--spot-history", "none"), "no such file"),
        (("--add-catalog", "--usage", "usage.csv"), "adds to --rates"),
        ((*FILES, "--kind", "magic"), "invalid choice"),
    ],
)
def test_wrong_usage_is_one_sentence(run, arguments: tuple[str, ...], sentence: str) -> None:  # noqa: ANN001
    done = run(*arguments)
    assert done.code == 2 and sentence in done.err and done.out == ""


def test_a_partial_answer_says_so_and_ends_with_4(run, home: Path) -> None:  # noqa: ANN001
    text = (home / "usage.csv").read_text().splitlines()
    (home / "gaps.csv").write_text("\n".join([*text[:300], *text[340:], "2026-10-02T00:00Z,p9.huge,us-east-1,2"]) + "\n")
    done = run("--usage", "gaps.csv", "--rates", "rates.csv")
    assert (
        done.code == 4 and "40 of 1,440 hours" in done.err and "p9.huge in us-east-1 (on demand) has no known price" in done.err
    )
    record = run("--usage", "gaps.csv", "--rates", "rates.csv", "--json").json()
    assert record["partial"] is True and len(record["notes"]) >= 2 and record["actions"]


def on_a_terminal(home: Path, typed: str, *arguments: str) -> str:
    """What a terminal of 80 columns shows; `typed` goes in where the command asks."""
    master, slave = pty.openpty()
    env = {
        **os.environ,
        "RACKRATE_HOME": str(home),
        "COLUMNS": "80",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/none",
    }
    env = {key: value for key, value in env.items() if not key.startswith("AWS_ACCESS") and key != "AWS_PROFILE"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", "advise", *arguments], cwd=ROOT, stdin=slave, stdout=slave, stderr=slave, env=env
    )
    os.close(slave)
    os.write(master, typed.encode())
    shown = io.BytesIO()
    while select.select([master], [], [], 60)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown.write(part)
    assert process.wait(60) is not None
    os.close(master)
    return shown.getvalue().decode()


def test_on_a_terminal_nothing_is_bought_without_the_typed_word(home: Path) -> None:
    files = ("--usage", str(home / "usage.csv"), "--rates", str(home / "rates.csv"))
    shown = on_a_terminal(home, "yes\n", *files, "--apply")
    assert "Type `buy 1` to buy this now" in shown and "left as it is: nothing was called" in shown and "Traceback" not in shown


def test_the_output_is_json_that_other_programs_read(run) -> None:  # noqa: ANN001
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    for arguments in (FILES, (*FILES, "--judge-on", "usage.csv", "--to", "2026-11-05")):
        json.loads(run(*arguments, "--json").out, parse_constant=refuse)


def test_a_ledger_that_holds_nothing_yet_is_no_error(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN001
    write_config(tmp_path, "")
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    done = run("--no-sync")
    assert done.code == 4 and "No advice yet: the ledger tells of no whole hour" in done.out
    record = run("--no-sync", "--json").json()
    assert record["actions"] == [] and record["from"] is None and record["partial"] is True


def test_aws_is_asked_only_with_leave(run) -> None:  # noqa: ANN001
    done = run(*FILES, "--ask-aws")
    assert done.code == 2 and "--yes-spend" in done.err


def test_what_only_the_user_can_tell_changes_the_advice(run) -> None:  # noqa: ANN001
    files = (*FILES, "--add-catalog", "--kind", "spot", "--json")
    (unknown,), (half,) = (run(*files, *more).json()["actions"] for more in ((), ("--interruptible", "50")))
    assert (
        unknown["partial"] and not half["partial"] and Decimal(half["saving_per_month"]) < Decimal(unknown["saving_per_month"])
    )
    assert run(*files, "--interruptible", "0").json()["actions"] == []
    need = run(*FILES, "--need", "2", "p5.48xlarge", "us-east-1", "2026-12-10", "2026-12-17", "--kind", "capacity_block")
    assert "2 x p5.48xlarge in us-east-1: no capacity block price is known" in need.err
