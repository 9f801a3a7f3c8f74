"""Line mode: each change is said once, nothing moves a cursor, and it ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import wire
from tests.support.cli import ROOT, write_config
from tests.support.fleets import (
    AT,
    NOW,
    StubCatalog,
    alert,
    gpu,
    idle_gpu,
    info,
    put,
    sample,
)
from tests.support.jobs import job
from tui.commands.watch import Lines
from tui.fleet import Fleet
from tui.job_rows import JOB_WORDS
from tui.query import parse
from tui.query_rows import ALERT_WORDS
from tui.watch import Level, Wanted, Watcher

BUSY = (gpu(0, node="n1"), gpu(1, node="n1"))
FREE = (idle_gpu(0, node="n1"), idle_gpu(1, node="n1"))


def two_nodes() -> Fleet:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "n1", BUSY)
    put(fleet, "n2", (gpu(0, node="n2"),), instance_type="g4dn.12xlarge")
    return fleet


def hear(fleet: Fleet, now: float, gpus: tuple[wire.Gpu, ...] = BUSY, name: str = "n1") -> None:
    fleet.apply(name, wire.SampleEvent(sample=sample(name, gpus)), now)


def started(fleet: Fleet, query: str = "", **options: Any) -> Watcher:
    watcher = Watcher(parse(query), **options)
    assert watcher.look(fleet, NOW)[0].kind == "watch"
    return watcher


def texts(watcher: Watcher, fleet: Fleet, now: float) -> list[str]:
    return [line.text for line in watcher.look(fleet, now)]


def test_the_beginning_is_one_line_and_then_nothing_is_said_while_nothing_changes() -> None:
    fleet = two_nodes()
    watcher = Watcher(parse(""))
    assert texts(watcher, fleet, NOW) == [
        "watching 2 nodes: 2 live, 0 stale, 0 lost; 3 of 3 GPUs held; $36.68/h, idle $0.00/h; 0 jobs running, 0 waiting"
    ]
    for second in range(1, 5):
        hear(fleet, NOW + second)
        hear(fleet, NOW + second, (gpu(0, node="n2", util=second / 10),), "n2")
        assert texts(watcher, fleet, NOW + second) == []


def test_it_waits_some_seconds_for_nodes_that_are_still_connecting() -> None:
    fleet = two_nodes()
    fleet.add("n3", "http://127.0.0.1:1/")
    watcher = Watcher(parse(""))
    assert texts(watcher, fleet, NOW) == [] == texts(watcher, fleet, NOW + 1)
    fleet.failed("n3", "127.0.0.1:1 is not reachable: refused")
    said = texts(watcher, fleet, NOW + 2)
    assert said[0].startswith("watching 3 nodes: 2 live, 0 stale, 1 lost")
    assert said[1:] == ["node n3 is lost, never heard: 127.0.0.1:1 is not reachable: refused"]
    assert texts(watcher, fleet, NOW + 2) == []


def test_a_node_goes_stale_lost_and_comes_back() -> None:
    fleet = two_nodes()
    watcher = started(fleet, "node:n1")
    assert texts(watcher, fleet, NOW + 4) == ["node n1 is stale: nothing heard for 4s"]
    fleet.failed("n1", "the connection broke")
    assert texts(watcher, fleet, NOW + 20) == ["node n1 is lost, nothing heard for 20s: the connection broke"]
    assert texts(watcher, fleet, NOW + 21) == []
    fleet.apply("n1", wire.NodeEvent(node=info("n1", BUSY)), NOW + 22)
    hear(fleet, NOW + 22)
    assert texts(watcher, fleet, NOW + 22) == ["node n1 is live again"]


def test_a_node_becomes_idle_and_is_used_again() -> None:
    fleet = two_nodes()
    watcher = started(fleet)
    hear(fleet, NOW + 1, FREE)
    assert texts(watcher, fleet, NOW + 1) == ["node n1 became idle: nobody holds its 2 GPUs, $32.77/h"]
    hear(fleet, NOW + 2)
    assert texts(watcher, fleet, NOW + 2) == ["node n1 is in use again, by ada"]


def test_an_alert_is_said_once_also_when_the_stream_opens_anew_and_once_more_when_it_is_over() -> None:
    fleet = two_nodes()
    watcher = started(fleet)
    fired = alert("n1", reading="3 %")
    fleet.apply("n1", wire.AlertEvent(alert=fired), NOW)
    said = texts(watcher, fleet, NOW + 1)
    assert len(said) == 1 and said[0].startswith("warning alert gpu_idle_held on n1 (3 %, $16.39/h): GPU 1 is held by bob")
    fleet.apply("n1", wire.NodeEvent(node=info("n1", BUSY)), NOW + 1)  # clears them, then tells them anew
    assert texts(watcher, fleet, NOW + 1) == []
    fleet.apply("n1", wire.AlertEvent(alert=fired), NOW + 2)
    assert texts(watcher, fleet, NOW + 2) == []
    fleet.apply("n1", wire.AlertEvent(alert=msgspec.structs.replace(fired, ended_at=AT)), NOW + 3)
    hear(fleet, NOW + 6)
    assert [line for line in texts(watcher, fleet, NOW + 6) if "n1" in line][0].startswith("alert gpu_idle_held on n1 is over: ")
    assert not [line for line in texts(watcher, fleet, NOW + 7) if "alert" in line]


def test_jobs_are_said_from_waiting_to_their_end_and_those_of_before_are_not() -> None:
    fleet = two_nodes()
    fleet.apply("n1", wire.JobEvent(job=job(1, state="running", started_at=AT)), NOW)
    watcher = started(fleet)
    new = job(2, id="2", state="queued", name="vit", user="bob", started_at=None, reason="2 GPUs are not free")
    fleet.apply("n1", wire.JobEvent(job=new), NOW)
    assert texts(watcher, fleet, NOW) == ["job 2 (vit, bob) on n1 waits: 2 GPUs are not free"]
    for state in ("starting", "running", "stopping"):
        fleet.apply("n1", wire.JobEvent(job=msgspec.structs.replace(new, state=state, started_at=AT)), NOW)
        assert texts(watcher, fleet, NOW) == (["job 2 (vit, bob) on n1 started"] if state == "starting" else [])
    end = msgspec.structs.replace(
        new, state="ended", cause="oom", evidence="the kernel killed it", started_at=AT, ended_at=AT + timedelta(minutes=3),
        cost=Decimal("1.5"),
    )  # fmt: skip
    fleet.apply("n1", wire.JobEvent(job=end), NOW)
    line = watcher.look(fleet, NOW)[0]
    assert line.text == "job 2 (vit, bob) on n1 ended: oom, ran 3m00s, $1.50: the kernel killed it"
    assert line.facts["cause"] == "oom" and line.facts["cost"] == "1.5" and line.facts["run_seconds"] == 180


def test_a_notice_of_the_cloud_is_said_and_its_withdrawal() -> None:
    fleet = two_nodes()
    watcher = started(fleet)
    notice = wire.Notice(kind="terminate", at=AT + timedelta(seconds=103), noticed_at=AT, cloud="aws", message="save your work")
    fleet.apply("n1", wire.NoticeEvent(notice=notice), NOW)
    assert texts(watcher, fleet, NOW) == ["notice for n1: terminate in 1m43s: save your work"]
    assert texts(watcher, fleet, NOW + 1) == []
    fleet.apply("n1", wire.NoticeEvent(notice=msgspec.structs.replace(notice, ended_at=AT)), NOW + 2)
    assert texts(watcher, fleet, NOW + 2) == ["the notice for n1 (terminate) is withdrawn"]


def test_money_is_said_every_so_often_for_exactly_what_is_selected() -> None:
    fleet = two_nodes()
    watcher = started(fleet, "node:n2", every=10)
    said = []
    for second in range(1, 32):
        hear(fleet, NOW + second)
        hear(fleet, NOW + second, (gpu(0, node="n2"),), "n2")
        said += [(second, line) for line in watcher.look(fleet, NOW + second)]
    assert [second for second, _ in said] == [10, 20, 30]
    assert said[0][1].text == "$3.91/h, idle $0.00/h; 1 of 1 GPU held on 1 node" and said[0][1].facts["usd_per_hour"] == "3.912"


def test_what_happens_on_nodes_that_are_not_selected_is_not_said() -> None:
    fleet = two_nodes()
    watcher = started(fleet, "node:n2")
    fleet.apply("n1", wire.AlertEvent(alert=alert("n1")), NOW)
    fleet.apply("n1", wire.JobEvent(job=job(9, state="queued")), NOW)
    hear(fleet, NOW + 1, FREE)
    assert texts(watcher, fleet, NOW + 1) == []


def test_jobs_and_alerts_are_said_as_their_own_queries_select_them() -> None:
    fleet = two_nodes()
    wanted = Wanted(jobs=parse("user:bob", JOB_WORDS), alerts=parse("severity:critical", ALERT_WORDS))
    watcher = Watcher(wanted)
    watcher.look(fleet, NOW)
    for number, user in enumerate(("ada", "bob")):
        fleet.apply("n1", wire.JobEvent(job=job(number, id=user, name=user, user=user, state="queued", started_at=None)), NOW)
    fleet.apply("n1", wire.AlertEvent(alert=alert("n1", key="a")), NOW)
    fleet.apply("n2", wire.AlertEvent(alert=alert("n2", key="b", severity="critical")), NOW)
    said = [(line.kind, line.facts["node"]) for line in watcher.look(fleet, NOW + 1)]
    assert sorted(said) == [("alert", "n2"), ("job", "n1")]
    for second in range(2, 5):
        for name, severity in (("n1", "warning"), ("n2", "critical")):
            fleet.apply(name, wire.AlertEvent(alert=alert(name, key=name, severity=severity)), NOW + second)
        hear(fleet, NOW + second)
    kinds = [(line.kind, line.facts["node"]) for line in watcher.look(fleet, NOW + 5)]
    assert kinds.count(("alert", "n2")) == 1 and ("alert", "n1") not in kinds
    assert watcher.look(fleet, NOW + 5) == []


def test_a_low_level_says_what_somebody_should_see_to_and_a_high_one_what_each_node_does() -> None:
    def happened(level: Level) -> list[str]:
        fleet = two_nodes()
        watcher, ended = started(fleet, every=5, level=level), []
        hear(fleet, NOW + 1, FREE)
        fleet.apply("n1", wire.AlertEvent(alert=alert("n1")), NOW + 1)
        for number, cause in enumerate(("exit:0", "oom")):
            fleet.apply("n1", wire.JobEvent(job=job(number, id=cause, state="queued", started_at=None)), NOW + 1)
            end = job(number, id=cause, state="ended", cause=cause, started_at=AT, ended_at=AT)
            watcher.look(fleet, NOW + 1)
            fleet.apply("n1", wire.JobEvent(job=end), NOW + 1)
            ended += watcher.look(fleet, NOW + 1)
        hear(fleet, NOW + 6, FREE)
        fleet.apply("n2", wire.SampleEvent(sample=sample("n2", (gpu(0, node="n2", util=0.5),))), NOW + 6)
        found: list[str] = []
        for line in [*ended, *watcher.look(fleet, NOW + 6)]:
            found.append(f"{line.kind} {line.facts.get('cause') or line.facts.get('node') or ''}".strip())
            if line.kind == "use":
                assert line.text.startswith(("node n1: 0 of 2 GPUs held, util 0%", "node n2: 1 of 1 GPU held, util 50%, ada, $3.91/h"))
        return sorted(found)

    assert happened("low") == ["job oom"]
    assert happened("normal") == ["job exit:0", "job oom", "money"]
    assert [line for line in happened("high") if line.startswith("use")] == ["use n1", "use n2"]


def test_outside_text_brings_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = two_nodes()
    watcher = started(fleet)
    fleet.apply("n1", wire.AlertEvent(alert=alert("n1", message="\x1b[2Jgone\nnew line", reading="\x07")), NOW)
    fleet.apply("n1", wire.JobEvent(job=job(2, id="2\u202e", state="queued", name="\x1b]0;x\x07", reason="\r\n", user="\x9b")), NOW)
    fleet.failed("n2", "\x1b[31mred")
    lines = Lines(UTC, False, ())
    lines.write(watcher.look(fleet, NOW), AT)
    lines.write(watcher.look(fleet, NOW + 60), AT + timedelta(hours=10))
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.split("\n")) and len(out.splitlines()) >= 4
    assert out.startswith("2026-11-30 14:05:10 ") and "\n2026-12-01 00:05:10 " in out, "the date once a day"


def test_json_has_a_line_each_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = two_nodes()
    lines = Lines(UTC, True, ("node", "watch"))
    watcher = Watcher(parse(""))
    lines.write(watcher.look(fleet, NOW), AT)
    lines.write(watcher.look(fleet, NOW + 5), AT)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"] for one in records] == ["watch", "node", "node"]
    assert records[1] == {
        "at": "2026-11-30T14:05:10+00:00", "event": "node", "text": "node n1 is stale: nothing heard for 5s", "node": "n1",
        "state": "stale", "before": "live",
    }  # fmt: skip


# -- the real command ----------------------------------------------------------------------------------------------------------


class Nodes:
    """Two simulated nodes in a process of their own."""

    def __init__(self, home: Path) -> None:
        words = ["simulate", "--nodes", "2", "--gpus", "2", "--seed", "3", "--listen", "127.0.0.1:0", "--token-file", str(home / "token"),
                 "--die-with-parent"]  # fmt: skip
        self.process = subprocess.Popen([sys.executable, "-m", "agent.cli", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        urls = [self.process.stdout.readline().strip() for _ in range(2)]
        tables = [f'[[nodes]]\nname = "n{i}"\nurl = "{url}"\ntoken_file = "token"\n' for i, url in enumerate(urls)]
        write_config(home, "silent_seconds = 4\n" + "".join(tables))

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    nodes = Nodes(tmp_path)
    (tmp_path / "pid").write_text(str(nodes.process.pid))
    yield tmp_path
    nodes.close()


def watching(home: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tui.cli", "watch", "--plain", *words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "RACKRATE_HOME": str(home)},
    )  # fmt: skip
    assert process.stdout is not None
    return process


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def begun(process: subprocess.Popen[str]) -> None:
    """Both nodes are live: the first line says it, or lines of their own behind it where a busy machine took its time."""
    said = first_line(process)
    found = re.search(r"watching 2 nodes: (\d) live", said)
    assert found is not None, said
    live = int(found[1])
    while live < 2:
        said = first_line(process)
        assert said, "it ended"
        live += len(re.findall(r"node n\d is live", said)) - len(re.findall(r"node n\d is (?:stale|lost)", said))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_at_once_without_a_word(home: Path, number: int, code: int) -> None:
    process = watching(home, "--every", "1h")
    begun(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code and err == "" and "\x1b" not in out


def test_it_ends_when_its_reader_goes_away_and_does_not_wait_for_the_next_line(home: Path) -> None:
    process = watching(home, "--every", "1h")
    assert "watching 2 nodes" in first_line(process)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 0 and process.stderr.read() == ""
    process.stderr.close()


def test_nodes_that_die_are_said_and_nodes_that_never_answered_are_exit_code_3(home: Path) -> None:
    process = watching(home, "--json")
    begun(process)
    os.kill(int((home / "pid").read_text()), signal.SIGKILL)
    said = (json.loads(line) for line in iter(lambda: first_line(process), ""))
    lost = list(islice((one for one in said if one["event"] == "node" and one["state"] == "lost"), 2))
    assert {one["node"] for one in lost} == {"n0", "n1"}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    never = watching(home, "--for", "6s")
    out, err = never.communicate(timeout=60)
    assert never.returncode == 3 and "0 live, 0 stale, 2 lost" in out and out.count("never heard") == 2 and not err
