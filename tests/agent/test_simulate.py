"""A simulated fleet as a process: what it prints, serves, records, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from agent import wire
from agent.errors import AgentFault, ConfigurationError
from agent.history_level import LevelSpec
from agent.simulate import SimulatedNode, backfill, build_nodes, close_nodes, simulate, tick
from agent.simulation.demo import LOST_NODE, plan_demo
from agent.simulation.fleet import plan_fleet, plan_preset

ROOT = Path(__file__).resolve().parents[2]
NOON = 1_790_596_800 + 12 * 3600  # Monday 28 September 2026, UTC
NOON_MS = NOON * 1000
HOUR_MS = 3_600_000
START = "import sys; from pathlib import Path; from agent.simulate import simulate; sys.exit(simulate(**eval(sys.argv[1])))"


@contextmanager
def fleet(**options: Any) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A running fleet and its node URLs."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, repr(options).replace("PosixPath", "Path")], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout and process.stderr
    try:
        count = 12 if options.get("preset") == "demo" else options.get("nodes", 12)
        urls = [process.stdout.readline().strip() for _ in range(count)]
        assert all(urls), process.stderr.read()
        yield process, urls
    finally:
        process.kill()
        process.communicate()


@contextmanager
def built(*arguments: Any, **options: Any) -> Iterator[list[SimulatedNode]]:
    nodes = build_nodes(*arguments, **options)
    try:
        yield nodes
    finally:
        close_nodes(nodes)


def get(url: str, token: str) -> httpx.Response:
    return httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def rows_of(node: SimulatedNode) -> list[wire.UsageRow]:
    rows: list[wire.UsageRow] = []
    while True:
        page = node.agent.usage(rows[-1].sequence if rows else 0, 1000)
        rows += page.rows
        if not page.rows:
            return rows


def check_tiles(rows: list[wire.UsageRow], start: datetime, end: datetime) -> None:
    """Every GPU's rows cover [start, end) once, with shares that sum to 1."""
    for gpu in {row.gpu for row in rows}:
        mine = [row for row in rows if row.gpu == gpu]
        covered = start
        for begins, ends in sorted({(row.starts_at, row.ends_at) for row in mine}):
            assert begins == covered
            assert sum(row.share for row in mine if row.starts_at == begins) == 1
            covered = ends
        assert covered == end


def test_it_prints_one_url_a_node_and_each_answers_with_the_token(tmp_path: Path) -> None:
    with fleet(nodes=3, gpus=2, seed=5, token_file=tmp_path / "token") as (process, urls):
        token = (tmp_path / "token").read_text().strip()
        assert [url.rstrip("/").rpartition("/")[2] for url in urls] == ["node-0001", "node-0002", "node-0003"]
        for url in urls:
            info = msgspec.json.decode(get(url + "v1/node", token).content, type=wire.NodeInfo)
            sample = msgspec.json.decode(get(url + "v1/sample", token).content, type=wire.Sample)
            assert info.simulated and len(info.gpus) == len(sample.gpus) == 2
            assert [gpu.uuid for gpu in info.gpus] == [gpu.uuid for gpu in sample.gpus]
            assert httpx.get(url + "v1/sample", timeout=60).status_code == 401
        assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
        assert process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_with_0_even_while_a_stream_is_open(tmp_path: Path, number: signal.Signals) -> None:
    with fleet(nodes=2, gpus=1, token_file=tmp_path / "token") as (process, urls):
        headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        with httpx.stream("GET", urls[0] + "v1/stream", headers=headers, timeout=60) as stream:
            lines = stream.iter_lines()
            assert '"event":"node"' in next(lines)
            process.send_signal(number)
            assert process.wait(timeout=60) == 0
        assert process.stderr and "Traceback" not in process.stderr.read()


def test_samples_keep_coming_on_the_stream(tmp_path: Path) -> None:
    with fleet(nodes=1, gpus=4, token_file=tmp_path / "token") as (_, urls):
        headers = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        sequences: list[int] = []
        with httpx.stream("GET", urls[0] + "v1/stream", headers=headers, timeout=60) as stream:
            for line in stream.iter_lines():
                event = wire.event_decoder.decode(line)
                if isinstance(event, wire.SampleEvent):
                    sequences.append(event.sample.sequence)
                if len(sequences) == 3:
                    break
        assert sequences == list(range(sequences[0], sequences[0] + 3))


def test_the_fresh_token_file_is_named_on_stderr_and_removed_at_the_end() -> None:
    with fleet(nodes=1, gpus=1) as (process, urls):
        assert process.stderr
        label, _, path = process.stderr.readline().strip().partition(": ")
        assert label == "token file"
        assert get(urls[0] + "v1/node", Path(path).read_text().strip()).status_code == 200
        process.terminate()
        process.wait(timeout=60)
        assert not Path(path).exists()


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
        f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {START!r}, sys.argv[1]]);"
        "print(p.pid, flush=True); p.wait()"
    )
    options = repr({"nodes": 1, "gpus": 1, "token_file": tmp_path / "token", "die_with_parent": True}).replace("PosixPath", "Path")
    with subprocess.Popen(
        [sys.executable, "-c", child, options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout
        pid, url = int(parent.stdout.readline()), parent.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        parent.kill()
        deadline = time.monotonic() + 60
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_after_kill_9_the_same_record_goes_on(tmp_path: Path) -> None:
    options = {"nodes": 1, "gpus": 2, "state_dir": tmp_path / "fleet", "token_file": tmp_path / "token", "history_seconds": 1800}
    pages = []
    for _ in range(2):
        with fleet(**options) as (process, urls):
            token = (tmp_path / "token").read_text().strip()
            pages.append(msgspec.json.decode(get(urls[0] + "v1/usage?after=0&limit=10000", token).content, type=wire.UsagePage))
            process.kill()
    first, second = pages
    assert first.meter == second.meter and len(first.rows) > 50
    assert second.rows[: len(first.rows)] == first.rows
    assert (tmp_path / "fleet" / "node-0001" / "usage.db").exists()


def test_a_day_of_history_is_there_before_it_serves_and_tiles() -> None:
    start, end = NOON_MS - 24 * HOUR_MS, NOON_MS
    with built([plan for plan in plan_demo(NOON) if plan.name in (LOST_NODE, "t4-serve-01", "cpu-head-01")], 7, None) as nodes:
        backfill(nodes, start, end)
        for node in nodes:
            node.meter.observe(node.sample(end), node.agent.info, at_ms=end)
            node.meter.flush()
            rows = rows_of(node)
            first = min(row.starts_at for row in rows)
            assert first.timestamp() * 1000 == start
            check_tiles(rows, first, first + timedelta(hours=24))
        kinds = {row.kind for node in nodes for row in rows_of(node)}
        assert {"held", "idle", "lost", "host"} <= kinds and "down" not in kinds


def test_energy_of_a_simulated_day_comes_from_the_counter_and_fits_the_boards() -> None:
    with built([plan_demo(NOON)[2]], 7, None) as nodes:
        backfill(nodes, NOON_MS - 6 * HOUR_MS, NOON_MS)
        nodes[0].meter.flush()
        rows = [row for row in rows_of(nodes[0]) if row.energy_joules is not None]
    assert rows and {row.energy_source for row in rows} == {"counter"}
    for row in rows:
        seconds = (row.ends_at - row.starts_at).total_seconds()
        assert 40 * seconds < row.energy_joules < 405 * seconds


def test_live_samples_follow_the_history_without_a_gap() -> None:
    now_ms = time.time_ns() // 1_000_000
    with built(plan_fleet(1, 2, 1, now_ms / 1000), 1, None) as nodes:
        backfill(nodes, now_ms - HOUR_MS, now_ms)
        nodes[0].step(time.time_ns() // 1_000_000)
        nodes[0].step(time.time_ns() // 1_000_000)
        nodes[0].meter.flush()
        assert "down" not in {row.kind for row in rows_of(nodes[0])}
        assert nodes[0].agent.sample is not None and nodes[0].agent.sample.sequence == 2


def test_a_record_that_exists_is_not_given_a_second_past(tmp_path: Path) -> None:
    plans = plan_fleet(1, 1, 1, NOON)
    with built(plans, 1, None, state_dir=tmp_path) as nodes:
        backfill(nodes, NOON_MS - HOUR_MS, NOON_MS)
        nodes[0].meter.flush()
        before = len(rows_of(nodes[0]))
    with built(plans, 1, None, state_dir=tmp_path) as nodes:
        backfill(nodes, NOON_MS - HOUR_MS, NOON_MS)
        nodes[0].meter.flush()
        assert before <= len(rows_of(nodes[0])) <= before + 2


def test_history_and_alerts_know_the_simulated_past() -> None:
    with built([plan for plan in plan_demo(NOON) if plan.name == LOST_NODE], 7, None) as nodes:
        backfill(nodes, NOON_MS - 4 * HOUR_MS, NOON_MS)
        history = nodes[0].agent.history_of(4 * 3600)
        assert all(len(points) > 100 for points in history.gpus.values()) and len(history.gpus) == 8
        rules = {alert.rule for alert in nodes[0].agent.alert_list().alerts if alert.ended_at is None}
        assert {"gpu_lost", "disk_full"} <= rules


async def test_no_node_of_a_fleet_waits_for_its_tick_while_others_get_a_third() -> None:
    with built(plan_fleet(50, 1, 1, time.time()), 1, None) as nodes:
        task = asyncio.create_task(tick(nodes))
        async with asyncio.timeout(60):
            while min(ticks := {node.agent.sample.sequence if node.agent.sample else 0 for node in nodes}) < 1:
                await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert max(ticks) <= 2


def test_nodes_of_one_process_share_one_token_and_answer_for_themselves(tmp_path: Path) -> None:
    with fleet(preset="demo", seed=7, token_file=tmp_path / "token") as (_, urls):
        token = (tmp_path / "token").read_text().strip()
        names = [plan.name for plan in plan_demo(time.time())]
        assert [msgspec.json.decode(get(url + "v1/node", token).content, type=wire.NodeInfo).node for url in urls] == names


@pytest.mark.parametrize(
    ("options", "word"),
    [({"preset": "huge"}, "demo"), ({"listen": "nonsense"}, "nonsense"), ({"listen": "0.0.0.0:0"}, "0.0.0.0")],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], word: str) -> None:
    with pytest.raises(AgentFault) as caught:
        simulate(**options)
    assert word in str(caught.value) and caught.value.exit_code == 2


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").touch(mode=0o600)
    with pytest.raises(ConfigurationError, match="is empty"):
        simulate(nodes=1, token_file=tmp_path / "token")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    os.chmod(path, 0o644)
    with pytest.raises(AgentFault, match="chmod 600"):
        simulate(nodes=1, token_file=path)


def test_the_past_of_the_plots_is_filled_at_each_of_its_steps_and_goes_on_with_what_was_measured() -> None:
    (node,) = build_nodes([plan_preset("1xL4", "past")], 1, None)
    now_ms = 1_780_000_000_000
    node.step(now_ms + 500)
    for level in (LevelSpec(10, 360), LevelSpec(600, 1008)):
        assert sum(1 for _ in node.recall(level, now_ms)) == level.rows
        points = next(iter(node.agent.history_of(level.reach_seconds).gpus.values()))
        assert len(points) >= level.rows - 1
        assert all(b.taken_at - a.taken_at <= timedelta(seconds=level.step_seconds) for a, b in pairwise(points))
    assert node.agent.history_of(60).gpus, "the second that was measured is there still"
    close_nodes([node])
