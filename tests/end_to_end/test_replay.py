"""A recorded hour replays to the same report, byte for byte: a simulated fleet on loopback, recorded by the program itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.pricebook import PriceBook
from pricing.prices import Price
from tests.support.cli import ROOT, Done, rackrate_inside
from tui.commands.context import Context
from tui.errors import Failed
from tui.local import end_agent, read_lines, start_agent
from tui.record_file import RecordFile
from tui.replay import Recording
from tui.replay_time import milliseconds, moment

NODES = 3
FORMATS = ("csv", "json", "html", "focus")
BUDGET = 'timezone = "Europe/Berlin"\n[[budgets]]\nname = "all"\namount = "500"\n\n'


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the nodes of a simulated fleet that looks back on three hours."""
    home = tmp_path_factory.mktemp("home")
    process = start_agent(
        ["simulate", "--nodes", str(NODES), "--gpus", "2", "--seed", "5", "--history", "3h", "--listen", "127.0.0.1:0",
         "--token-file", str(home / "token"), "--die-with-parent"],
        home / "agent.log",
    )  # fmt: skip
    urls: list[str] = []
    for line in read_lines(process, 60):
        urls += [line.strip()] if line.startswith("http") else []
        if len(urls) == NODES:
            break
    tables = [f'[[nodes]]\nname = "{url.split("/")[-2]}"\nurl = "{url}"\ntoken_file = "token"\n' for url in urls]
    (home / "config.toml").write_text(BUDGET + "\n".join(tables))
    put_price(home, "4.00", timedelta(days=2))
    yield home
    end_agent(process)


def put_price(home: Path, amount: str, age: timedelta) -> None:
    """A price of every kind of simulated node, valid since so long ago."""
    now = datetime.now(UTC)
    with PriceBook.open(home / "prices.db") as book:
        kinds = ("p4d.24xlarge", "p5.48xlarge", "g4dn.12xlarge", "p3.16xlarge", "g5.xlarge")
        book.put(
            [
                Price("aws", region, None, kind, "on_demand", Decimal(amount), "USD", "instance_hour", now - age, now, "stand-in")
                for kind in kinds
                for region in ("us-east-1", "us-west-2")
            ],
            now,
            accept=True,
        )


def record(home: Path, file: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tui.cli", "record", *options, str(file)], cwd=ROOT, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "RACKRATE_HOME": str(home)},
    )  # fmt: skip


def report(home: Path, form: str, at: datetime, *options: str) -> bytes:
    """Of the last whole hour before a moment: its rows are all written by then."""
    end = (at - timedelta(minutes=10)).replace(minute=0, second=0, microsecond=0)
    words = ["--from", f"{end - timedelta(hours=1):%Y-%m-%dT%H:%M}Z", "--to", f"{end:%Y-%m-%dT%H:%M}Z"]
    done = rackrate_inside(home, "report", *words, "--by", "node,project,user", "--format", form, "--out", str(home / "report"), *options)
    assert done.code == 0, done.err
    return (home / "report").read_bytes()


@pytest.fixture(scope="module")
def recorded(fleet: Path) -> Path:
    """A recording of some seconds, with the hours before them."""
    file = fleet / "fleet.rec"
    process = record(fleet, file, "--for", "8s")
    said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert rackrate_inside(fleet, "sync").code == 0
    return file


def test_a_recorded_hour_replays_to_the_same_report_byte_for_byte_also_after_prices_changed(
    fleet: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordFile.read(recorded) as opened:
        at = moment(Recording(opened).ends_ms).replace(microsecond=0)

    def live(form: str) -> bytes:
        with monkeypatch.context() as patch:
            patch.setattr(Context, "now", lambda self: at)
            return report(fleet, form, at, "--no-sync")

    given = {form: live(form) for form in FORMATS}
    assert len(given["csv"].splitlines()) > NODES
    put_price(fleet, "11.00", timedelta(days=1))
    (fleet / "terms.toml").write_text('[[discounts]]\ncloud = "aws"\npercent = "50"\n')
    for form in FORMATS:
        assert report(fleet, form, at, "--record", str(recorded), "--at", f"{at:%Y-%m-%dT%H:%M:%S}Z") == given[form], form
    changed = live("csv")
    (fleet / "terms.toml").unlink()
    assert changed != given["csv"]


def test_commands_of_a_recording_tell_of_its_time(fleet: Path, recorded: Path) -> None:
    file = str(recorded)

    def say(*words: str) -> Done:
        return rackrate_inside(fleet, *words, "--record", file)

    nodes = say("nodes", "--json").json()
    assert len(nodes) == NODES and {node["state"] for node in nodes} == {"live"}
    assert nodes == say("nodes", "--json").json(), "also the ages stand still"
    assert len(say("gpus", "--json").json()) == 2 * NODES
    assert say("alerts").code == 0 and say("jobs").code == 0
    assert "all" in say("cost").out and "$" in say("cost", "--at", "-2s").out
    early = say("nodes", "--at", "+1s", "--json")
    assert early.code == 0 and len(early.json()) == NODES
    for words, sentence in (
        (("nodes", "--at", "12:61"), "no time of day"),
        (("nodes", "--at", "-9d"), "the recording goes from"),
        (("nodes", "--at", "soon"), "write it as"),
    ):
        done = say(*words)
        assert done.code == 2 and sentence in done.err, done.err
    assert rackrate_inside(fleet, "nodes", "--at", "-1s").code == 2
    for screen in ("fleet", "costs"):
        pictures = []
        for name in ("one", "two"):
            drawn = fleet / f"{name}.svg"
            assert say("screenshot", "--screen", screen, "--at", "-1s", str(drawn)).code == 0
            pictures.append(drawn.read_bytes())
        assert pictures[0] == pictures[1] and b"REPLAY" in pictures[0]
    assert rackrate_inside(fleet, "nodes", "--record", file + "x").code == 1
    token = (fleet / "token").read_text().strip().encode()
    assert token not in recorded.read_bytes()


def heard(file: Path) -> int:
    """Of how many nodes a sample is in the file by now."""
    try:
        with RecordFile.read(file) as opened:
            recording = Recording(opened)
            return sum(view.sample is not None for view in recording.fleet(recording.ends_ms, 0.0))
    except Failed:
        return 0


def test_a_killed_recorder_loses_the_last_seconds_and_the_next_goes_on(fleet: Path, tmp_path: Path) -> None:
    file = tmp_path / "killed.rec"
    process = record(fleet, file)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and heard(file) < NODES:
        time.sleep(0.5)
    second = record(fleet, file, "--for", "1s")
    said = second.communicate(timeout=60)[1]
    assert second.returncode == 1 and "another program records into this file" in said
    process.send_signal(signal.SIGKILL)
    killed_ms = milliseconds(datetime.now(UTC))
    process.communicate(timeout=30)
    with RecordFile.read(file) as opened:
        recording = Recording(opened)
        assert killed_ms - recording.ends_ms < 9000
        assert all(view.sample is not None for view in recording.fleet(recording.ends_ms, 0.0)) and not recording.damage
    third = record(fleet, file, "--for", "3s")
    assert " new usage row" in third.communicate(timeout=60)[1] and third.returncode == 0
    with RecordFile.read(file) as opened:
        recording = Recording(opened)
        assert len(recording.sessions) == 2 and recording.ends_ms > killed_ms
