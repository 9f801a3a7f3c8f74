"""`rackrate report`: each format from the command line, pipes and files, and a bill to compare with."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyarrow import parquet

from pricing.ledger import Ledger
from tests.support.cli import ROOT, Done, rackrate_here, write_config
from tests.support.focus_rules import violations
from tests.support.focus_samples import TERMS
from tests.support.sample_ledger import fill

START = datetime(2026, 10, 30, tzinfo=UTC)
SPAN = ("--no-sync", "--tz", "UTC", "--from", "2026-10-30", "--to", "2026-11-03")
BUDGET = '[[budgets]]\nname = "vision"\nproject = "vision"\namount = "900"\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four days of five nodes, a budget, and terms that are used only where they are named."""
    made = tmp_path_factory.mktemp("home")
    write_config(made, BUDGET)
    with Ledger.open(made / "ledger.db") as ledger:
        fill(ledger, START, 96, 5)
    (made / "contract.toml").write_text(TERMS)
    return made


@pytest.fixture
def run(home: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.setenv("RACKRATE_HOME", str(home))

    def report(*arguments: str) -> Done:
        return rackrate_here(capfdbinary, "report", *SPAN, *arguments)

    yield report


def test_all_formats_say_the_same_total(run, tmp_path: Path) -> None:  # noqa: ANN001
    total = Decimal(run("--format", "json", "--by", "user").json()["totals"]["total_cost"])
    by = ("--by", "day,project,user")
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv", *by).out, newline="")))
    assert sum(Decimal(row["total_cost"]) for row in rows) == total
    for name, format in (
        ("x.parquet", "parquet"),
        ("x.html", "html"),
        ("x.md", "markdown"),
        ("f.csv", "focus"),
        ("f.parquet", "focus"),
    ):
        done = run("--format", format, *by, "--out", str(tmp_path / name))
        assert (done.code, done.out) == (0, "") and f"wrote {tmp_path / name}" in done.err
    assert sum(parquet.read_table(tmp_path / "x.parquet")["total_cost"].to_pylist()) == total
    assert f"**{total:,.2f}**" in (tmp_path / "x.md").read_text()
    page = (tmp_path / "x.html").read_text()
    assert f"${total:,.2f}" in page and "Budget: vision" in page
    with (tmp_path / "f.csv").open(newline="") as stream:
        charges = list(csv.DictReader(stream))
    assert round(sum(Decimal(row["EffectiveCost"]) for row in charges), 2) == total
    assert violations((tmp_path / "f.csv").read_bytes().decode()) == []
    effective = parquet.read_table(tmp_path / "f.parquet")["EffectiveCost"].to_pylist()
    assert [Decimal(repr(cost)) for cost in effective] == [Decimal(row["EffectiveCost"]) for row in charges]


def test_focus_under_terms_tells_commitments(run, home: Path) -> None:  # noqa: ANN001
    done = run("--format", "focus", "--terms", str(home / "contract.toml"), "--account", "123")
    rows = list(csv.DictReader(io.StringIO(done.out, newline="")))
    assert {row["CommitmentDiscountId"] for row in rows} == {"", "ri-p4d", "sp-a"}
    assert {row["BillingAccountId"] for row in rows} == {"123"} and violations(done.out) == []


def test_a_csv_begins_with_a_mark_where_it_is_asked_for(run, tmp_path: Path) -> None:  # noqa: ANN001
    run("--format", "csv", "--bom", "--out", str(tmp_path / "x.csv"))
    assert (tmp_path / "x.csv").read_bytes().startswith(b"\xef\xbb\xbfproject,user,")
    assert not run("--format", "csv").out.startswith("\ufeff")


def test_our_focus_file_agrees_with_our_report(run, tmp_path: Path) -> None:  # noqa: ANN001
    for name in ("bill.csv", "bill.parquet"):
        run("--format", "focus", "--out", str(tmp_path / name))
        said = run("--compare", str(tmp_path / name), "--json").json()
        assert said["difference"] == "0.00" and said["parts"] == {} and {row["state"] for row in said["rows"]} == {"matched"}
    text = run("--compare", str(tmp_path / "bill.csv")).out
    assert "20 of 20 agree to the cent (lines by day, region, type, node)" in text


def test_a_wrong_bill_is_a_sentence(run, tmp_path: Path) -> None:  # noqa: ANN001
    bill = tmp_path / "bill.csv"
    bill.write_text("when,what\n1,2\n")
    done = run("--compare", str(bill))
    assert done.code == 1 and "row 1: this is neither an AWS CUR 2.0 export nor a FOCUS file" in done.err and done.out == ""
    done = run("--compare", str(tmp_path / "none.csv"))
    assert done.code == 1 and "cannot be read (no such file" in done.err


def test_a_wrong_key_is_told_before_anything_is_written(run, tmp_path: Path) -> None:  # noqa: ANN001
    done = run("--format", "csv", "--by", "day,usre", "--out", str(tmp_path / "x.csv"))
    assert done.code == 2 and "usre" in done.err and not (tmp_path / "x.csv").exists()


def command(home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-m", "tui.cli", "report", *SPAN, *arguments], {**os.environ, "RACKRATE_HOME": str(home)}


def test_parquet_goes_into_a_pipe_but_not_onto_a_terminal(home: Path, tmp_path: Path) -> None:
    words, env = command(home, "--format", "parquet")
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, timeout=120)
    assert parquet.read_table(io.BytesIO(done.stdout)).num_rows > 3
    master, slave = pty.openpty()
    try:
        shown = subprocess.run(words, cwd=ROOT, env=env, stdout=slave, stderr=subprocess.PIPE, timeout=120)
    finally:
        os.close(slave)
        os.close(master)
    assert shown.returncode == 2 and b"parquet is no text: write it to a file with --out FILE." in shown.stderr


def test_progress_is_shown_on_a_terminal_only(home: Path, tmp_path: Path) -> None:
    words, env = command(home, "--format", "csv", "--by", "day", "--out", str(tmp_path / "x.csv"))
    master, slave = pty.openpty()
    try:
        subprocess.run(words, cwd=ROOT, env=env, stderr=slave, timeout=120, check=True)
        os.close(slave)
        said = os.read(master, 4096)
    finally:
        os.close(master)
    assert b"1 of 4 days" in said
    assert b"days" not in subprocess.run(words, cwd=ROOT, env=env, capture_output=True, timeout=120).stderr
    assert json.loads(
        subprocess.run([*words[:-4], "--by", "day", "--json"], cwd=ROOT, env=env, capture_output=True, timeout=120).stdout
    )
