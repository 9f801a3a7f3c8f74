"""Drained nodes and paused alerts: kept, told, audited, ended; through the real server where a client sees it."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import metrics, wire
from agent.alert_pauses import MOST, RULES, AlertPausing
from agent.client import AgentClient, AgentRefused
from agent.drain import FILE, NodeDrain, named
from agent.errors import JobConflict, JobRefused, JobUnknown, StateDirectoryError
from agent.security import Tokens, add_token, ensure_token
from tests.agent.test_client import mocked, says
from tests.support.agents import TOKEN, FakeAlerts, alert, node_agent, sample, serving
from tests.support.job_agent import JobAgent
from tests.support.job_node import NODE, JobNode, sh
from tests.support.job_service import JobService

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Moving:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = AT

    def __call__(self) -> datetime:
        return self.at


def pause(**fields: Any) -> wire.PauseOrder:
    return wire.PauseOrder(**{"seconds": 3600.0, **fields})


# -- a drain -----------------------------------------------------------------------------------------------------


def test_a_drain_outlives_the_agent_and_keeps_its_beginning(tmp_path: Path) -> None:
    clock = Moving()
    drain = NodeDrain(tmp_path, clock)
    assert drain.now is None and drain.sentence is None
    assert drain.order("token node", "new fan") and not drain.order("token ops", "new fan")
    clock.at += timedelta(hours=1)
    assert drain.order("token ops", None)
    again = NodeDrain(tmp_path, clock)
    assert again.now == wire.Drain(since=AT, by="token ops") and again.sentence == "the node is drained (by token ops)"
    assert again.lift() and not again.lift()
    assert NodeDrain(tmp_path).now is None and not (tmp_path / FILE).exists()


def test_a_file_that_is_damaged_keeps_the_node_drained_and_says_why(tmp_path: Path) -> None:
    for damaged in (b"{", b"", b"\0" * 60, b"\xff\xfe"):
        (tmp_path / FILE).write_bytes(damaged)
        (tmp_path / FILE).chmod(0o600)
        drain = NodeDrain(tmp_path)
        assert drain.now is not None and str(tmp_path / FILE) in (drain.now.reason or "")
        assert drain.lift() and NodeDrain(tmp_path).now is None


def test_what_an_agent_that_was_killed_while_it_wrote_left_is_removed(tmp_path: Path) -> None:
    for name in (FILE, "alert_pauses.json"):
        (tmp_path / f".{name}.0a1b2c3d").write_bytes(b"{")
    NodeDrain(tmp_path), AlertPausing(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_ordered_that_could_not_be_kept(tmp_path: Path) -> None:
    drain = NodeDrain(tmp_path / "gone")
    with pytest.raises(StateDirectoryError):
        drain.order("token node", "fan")
    assert drain.now is None


def test_who_ordered_it_is_said_before_what_was_checked() -> None:
    assert named("ops", "ada") == "ada (token ops)" and named("ops", None) == named("ops", "\x1b") == "token ops"


# -- pauses ------------------------------------------------------------------------------------------------------


def test_a_pause_covers_its_rule_and_gpu_and_ends_by_itself_over_a_restart(tmp_path: Path) -> None:
    clock = Moving()
    pauses = AlertPausing(tmp_path, clock)
    one = pauses.pause(pause(rule="gpu_hot", gpu="GPU-0"), "token node", "new fan", ("GPU-0",))
    hot, other = alert(), msgspec.structs.replace(alert(), rule="gpu_lost", key="x")
    assert pauses.shown(hot).paused_until == one.until == AT + timedelta(hours=1) and pauses.shown(hot).paused_reason == "new fan"
    assert pauses.shown(other) is other and pauses.shown(alert(ended=True)).paused_until is None
    longer = pauses.pause(pause(seconds=7200), "token node", None, ())
    assert pauses.shown(hot).paused_until == pauses.shown(other).paused_until == longer.until, "the longest counts"
    again = AlertPausing(tmp_path, clock)
    assert again.now == (one, longer)
    clock.at += timedelta(hours=1, seconds=1)
    assert again.expire() and again.now == (longer,) and not again.expire()
    clock.at += timedelta(hours=2)
    assert AlertPausing(tmp_path, clock).now == ()


def test_a_pause_for_the_same_replaces_the_one_before_and_there_are_not_endlessly_many() -> None:
    pauses = AlertPausing(None, Moving())
    pauses.pause(pause(), "a", None, ())
    second = pauses.pause(pause(seconds=60), "b", None, ())
    assert pauses.now == (second,)
    gpus = tuple(f"GPU-{number}" for number in range(MOST))
    for uuid in gpus[: MOST - 1]:
        pauses.pause(pause(gpu=uuid), "a", None, gpus)
    with pytest.raises(JobRefused, match="100 pauses"):
        pauses.pause(pause(gpu=gpus[-1]), "a", None, gpus)
    with pytest.raises(JobUnknown, match="no GPU"):
        pauses.pause(pause(gpu="GPU-x"), "a", None, gpus)
    with pytest.raises(JobRefused, match="there are gpu_idle_held"):
        pauses.pause(pause(rule="gpu_warm"), "a", None, gpus)
    with pytest.raises(JobUnknown, match="no pause"):
        pauses.end("nope")
    assert len(pauses.end()) == MOST and pauses.now == () and pauses.end() == ()
    assert {"gpu_lost", "node_silent", "cloud_notice"} <= set(RULES)


def test_a_list_of_pauses_that_is_damaged_pauses_nothing(tmp_path: Path) -> None:
    pauses = AlertPausing(tmp_path)
    pauses.pause(pause(), "a", None, ())
    one = b'[{"id":"a","since":"2026-03-01T12:00:00Z","until":"2036-03-01T12:00:00","by":"a"}]'
    for damaged in (b"[", b"", b"\0" * 60, b"\xff\xfe", one):
        (tmp_path / "alert_pauses.json").write_bytes(damaged)
        assert AlertPausing(tmp_path).now == (), damaged


# -- through the server ------------------------------------------------------------------------------------------


async def _event(events: Any, kind: type[Any]) -> Any:
    async with asyncio.timeout(60):
        async for event in events:
            if isinstance(event, kind):
                return event


async def test_a_drain_is_told_in_the_stream_at_once_and_jobs_wait_with_its_reason() -> None:
    agent = node_agent()
    agent.jobs = jobs = JobService()
    noted: list[tuple[Any, ...]] = []
    agent.record = lambda *line: noted.append(line)
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        events = client.stream()
        assert (await _event(events, wire.NodeEvent)).node.drain is None
        told = await client.drain("new fan", who="ada")
        assert (await _event(events, wire.NodeEvent)).node.drain == told.drain == (await client.node()).drain
        assert told.drain is not None and (told.drain.reason, told.drain.by) == ("new fan", "ada (token node)")
        waiting = await client.submit(wire.JobSpec(command=("true",)))
        assert (waiting.state, waiting.reason) == ("queued", "the node is drained: new fan"), "it is not refused"
        assert not (await client.dry_run(wire.JobSpec(command=("true",)))).starts_now
        await client.drain("new fan")
        agent.set_info(msgspec.structs.replace(agent.info, drain=None, driver_version="1"))
        assert agent.info.drain == told.drain, "what the node is does not change what was ordered"
        assert b'rackrate_node_drained{node="n1"} 1.0' in metrics.render(agent)
        assert (await client.undrain()).drain is None and (await client.undrain()).drain is None and jobs.taken is None
        assert b'rackrate_node_drained{node="n1"} 0.0' in metrics.render(agent)
        for reason in ("two\nlines", "\x1b[2J"):
            with pytest.raises(AgentRefused, match="one line of printable text"):
                await client.drain(reason)
        with pytest.raises(AgentRefused, match="length"):
            await client.drain("x" * 201)
        await events.aclose()
    assert noted == [
        ("node", "127.0.0.1", "drain", "n1", "new fan"), ("node", "127.0.0.1", "undrain", "n1", "takes jobs again"),
    ]  # fmt: skip


async def test_paused_alerts_are_told_as_paused_and_no_metric_fires() -> None:
    agent = node_agent(alerts=(alerts := FakeAlerts()))
    noted: list[tuple[Any, ...]] = []
    agent.record = lambda *line: noted.append(line)
    alerts.fire(alert())
    agent.step(sample())
    active, held = b"rackrate_alert_active{", b"rackrate_alert_paused{"
    async with serving(agent) as url, AgentClient(url, TOKEN) as client:
        events = client.stream()
        assert (await _event(events, wire.AlertEvent)).alert.paused_until is None and active in metrics.render(agent)
        told = await client.pause_alerts(pause(rule="gpu_hot", gpu="GPU-0", reason="new fan"))
        assert (await client.alert_pauses()).pauses == told.pauses and len(told.pauses) == 1
        assert (await _event(events, wire.AlertEvent)).alert.paused_until == told.pauses[0].until
        (listed,) = (await client.alerts()).alerts
        assert (listed.paused_until, listed.paused_reason) == (told.pauses[0].until, "new fan")
        assert active not in metrics.render(agent) and held in metrics.render(agent)
        assert (await client.resume_alerts(told.pauses[0].id)).pauses == ()
        assert (await _event(events, wire.AlertEvent)).alert.paused_until is None and active in metrics.render(agent)
        clock = agent.pauses._clock = Moving()
        await client.pause_alerts(pause(seconds=1))
        clock.at += timedelta(seconds=2)
        agent.step(sample(2))
        assert agent.info.pauses == () and active in metrics.render(agent), "it ends by itself"
        await client.pause_alerts(pause())
        assert (await client.resume_alerts()).pauses == ()
        with pytest.raises(AgentRefused, match="no GPU"):
            await client.pause_alerts(pause(gpu="GPU-9"))
        with pytest.raises(AgentRefused, match="seconds"):
            await client.pause_alerts(pause(seconds=1e9))
        await events.aclose()
    assert [line[2:4] for line in noted][:2] == [("pause_alerts", "gpu_hot GPU-0"), ("resume_alerts", "gpu_hot GPU-0")]


async def test_a_token_that_stands_for_one_user_orders_nothing(tmp_path: Path) -> None:
    ensure_token(tmp_path)
    _, token = add_token(tmp_path, "ada", user="ada")
    agent = node_agent()
    agent.token_check = Tokens(tmp_path).match
    async with serving(agent) as url, AgentClient(url, token) as client:
        for call in (client.drain(), client.undrain(), client.pause_alerts(pause()), client.resume_alerts()):
            with pytest.raises(AgentRefused, match="stands for one user") as refused:
                await call
            assert refused.value.status == 403
        assert (await client.alert_pauses()).pauses == () and agent.info.drain is None


async def test_an_older_agent_is_told_as_one_and_an_older_client_reads_a_drained_node() -> None:
    older = mocked(says(b'{"error":"there is nothing at /v1/drain; /schema lists what there is","status":404}', 404))
    with pytest.raises(AgentRefused, match="too old to be told so"):
        await older.drain()

    class Older(msgspec.Struct):
        node: str

    info = wire.NodeInfo(node="n1", gpus=(), drain=wire.Drain(since=AT, by="x"))
    assert msgspec.json.decode(msgspec.json.encode(info), type=Older).node == "n1"
    assert b"drain" not in msgspec.json.encode(wire.NodeInfo(node="n1", gpus=()))


# -- with the queue ----------------------------------------------------------------------------------------------


async def test_the_queue_of_a_drained_node_starts_nothing_and_what_runs_goes_on() -> None:
    node = JobNode(gpus=1)
    try:
        node.open()
        running = node.submit(sh("echo ready; sleep 60"))
        await node.begun(running)
        node.jobs.drain("the node is drained: new fan")
        waiting = node.submit(("true",), retries=1)
        await node.when(lambda: node.jobs.job(waiting).reason == "the node is drained: new fan")
        assert node.jobs.job(running).state == "running" and node.jobs.job(waiting).state == "queued"
        part = wire.JobSpec(command=("true",), gang=wire.Gang(id="g", nodes=2, least_nodes=2))
        with pytest.raises(JobConflict, match="drained"):
            node.jobs.reserve(part, NODE)
        node.jobs.drain(None)
        assert (await node.until(waiting)).exit_code == 0
        reserved = node.jobs.reserve(part, NODE).id
        node.jobs.drain("the node is drained")
        with pytest.raises(JobConflict, match="does not start: the node is drained"):
            node.jobs.start_reserved(reserved, "h:29500", NODE)
        node.jobs.record("ops", None, "drain", "n1", "new fan")
        lines = [json.loads(line) for line in (node.config.state_dir / "jobs" / "audit.jsonl").read_text().splitlines()]
        assert (lines[-1]["actor"], lines[-1]["action"], lines[-1]["object"]) == ("ops", "drain", "n1")
    finally:
        await node.clear()


def test_a_drained_agent_that_is_killed_comes_back_drained_with_its_queue_waiting(tmp_path: Path) -> None:
    box = JobAgent(tmp_path)
    try:
        box.start()
        assert box.http.put("/v1/drain", json={"reason": "new fan", "who": "ada"}).status_code == 200
        assert box.http.post("/v1/alerts/pauses", json={"seconds": 600, "rule": "disk_full"}).status_code == 200
        id = box.submit("true")
        box.kill()
        box.start()
        info = box.http.get("/v1/node").json()
        assert info["drain"]["reason"] == "new fan" and info["drain"]["by"] == "ada (token node)"
        assert [one["rule"] for one in info["pauses"]] == ["disk_full"]
        job = box.until(id, "queued")
        assert job["state"] == "queued" and "drained" in (job.get("reason") or "drained")
        assert os.stat(box.state / FILE).st_mode & 0o077 == 0
        assert box.http.delete("/v1/drain").status_code == 200
        assert box.ended(id)["exit_code"] == 0
        actions = [json.loads(line)["action"] for line in (box.state / "jobs" / "audit.jsonl").read_text().splitlines()]
        assert actions.index("drain") < actions.index("pause_alerts") < actions.index("undrain")
    finally:
        box.close()


async def test_a_node_without_jobs_has_an_audit_of_its_orders_too(tmp_path: Path) -> None:
    from agent.config import AgentConfig, JobsTable
    from agent.jobs.audit import verify
    from agent.workload import Workload

    agent = node_agent()
    Workload(AgentConfig(state_dir=tmp_path, jobs=JobsTable(enabled=False)), "n1", agent, None)  # type: ignore[arg-type]
    for action in ("drain", "undrain"):
        agent.record("node", None, action, "n1", "x")
    assert verify(tmp_path / "jobs" / "audit.jsonl").lines == 2

