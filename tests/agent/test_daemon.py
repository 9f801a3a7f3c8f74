"""`agent.daemon` as a process of its own, as systemd would start it: it serves, it ends, and it survives what it must."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import httpx
import msgspec
import pytest

from agent import wire
from agent.client import AgentClient, AgentRefused
from agent.daemon import _until, next_due
from agent.meter import Meter
from agent.routes import Health
from tests.support.fake_nvml.state import State
from tests.support.nvml import ROOT, FakeNvml, fake_nvml  # noqa: F401  (a fixture)

PATIENCE_SECONDS = 120.0
"""For machines that are busy; nothing here is expected to need it."""


class Agent:
    """A `rackrate-agent run` of which the first line was read."""

    def __init__(self, process: subprocess.Popen[str], state_dir: Path) -> None:
        self.process = process
        self.state_dir = state_dir
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            pytest.fail(f"did not start: {line} {process.communicate()[1]}")
        self.url = line.removeprefix("listening on ").strip()

    @property
    def token(self) -> str:
        return (self.state_dir / "token").read_text().strip()

    def client(self) -> AgentClient:
        return AgentClient(self.url, self.token)

    def health(self) -> Health:
        return msgspec.json.decode(httpx.get(f"{self.url}/healthz", trust_env=False, timeout=60).content, type=Health)

    def wait_until(self, holds: Callable[[Health], bool]) -> Health:
        until = time.monotonic() + PATIENCE_SECONDS
        while not holds(health := self.health()):
            assert time.monotonic() < until, health
            time.sleep(0.1)
        return health

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and standard error."""
        self.process.send_signal(number)
        error = self.process.communicate(timeout=PATIENCE_SECONDS)[1]
        return self.process.returncode, error


def command(state_dir: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "agent.cli", "run", "--state-dir", str(state_dir), *options]


def environment(folder: Path, **extra: str) -> dict[str, str]:
    return {**os.environ, "RACKRATE_HOME": str(folder / "home"), "RACKRATE_METADATA": "off", "PYTHONPATH": str(ROOT), **extra}


@contextlib.contextmanager
def running(folder: Path, *options: str, env: dict[str, str] | None = None) -> Iterator[Agent]:
    arguments = options if "--listen" in options or "--socket" in options else (*options, "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        command(folder / "state", *arguments), env=env or environment(folder), cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        try:
            yield Agent(process, folder / "state")
        finally:
            process.kill()


def refused(folder: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        command(folder / "state", *options), env=environment(folder), cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


async def first_sample(client: AgentClient) -> wire.Sample:
    """The first one with the readings of all sensors: an agent on a busy machine begins with those that it has."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                sample = await client.sample()
            except AgentRefused as refusal:
                assert refusal.status == 503
            else:
                if sample.gpus and sample.host is not None:
                    return sample
            await asyncio.sleep(0.05)


async def test_a_simulated_node_answers_everything(tmp_path: Path) -> None:
    with running(tmp_path, "--simulate", "4xT4") as agent:
        async with agent.client() as client:
            sample = await first_sample(client)
            node = await client.node()
            assert node.simulated and len(node.gpus) == 4 and node.started_at is not None and node.cpu_count
            assert [gpu.uuid for gpu in sample.gpus] == [gpu.uuid for gpu in node.gpus]
            assert sample.node == node.node and sample.host is not None
            assert {report.name for report in sample.sensors} == {"host", "simulated"}
            assert (await client.usage()).node == node.node
            assert len((await client.history(60)).gpus) == 4
            assert (await client.alerts()).node == node.node
            async with aclosing(client.stream()) as events:
                kinds = [type(await anext(events))]
                while kinds.count(wire.SampleEvent) < 2:  # an alert of this very machine may come between
                    kinds.append(type(await anext(events)))
            assert kinds[0] is wire.NodeEvent
        bearer = {"authorization": f"Bearer {agent.token}"}
        assert "rackrate_gpu_utilization_ratio" in httpx.get(f"{agent.url}/metrics", headers=bearer, trust_env=False, timeout=60).text
        assert httpx.get(f"{agent.url}/v1/node", trust_env=False, timeout=60).status_code == 401
        assert agent.health().status == "ok"
        announced = json.loads((agent.state_dir / "agent.json").read_text())
        assert announced == {"url": agent.url, "pid": agent.process.pid}
        assert (agent.state_dir / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_cleanly_with_streams_open_and_the_last_row_written(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--simulate", "1xL4") as agent:
        async with agent.client() as client, aclosing(client.stream()) as events:
            async with asyncio.timeout(PATIENCE_SECONDS):
                for _ in range(3):  # so more than a second was measured
                    while not isinstance(await anext(events), wire.SampleEvent):
                        pass
            agent.process.send_signal(number)
            async for _ in events:
                pass
        status, error = agent.end()
    assert (status, error) == (0, "")
    assert not (agent.state_dir / "agent.json").exists()
    meter = Meter.open(agent.state_dir / "usage.db", "n1")
    rows = meter.usage().rows
    meter.close()
    assert rows and {row.kind for row in rows} <= {"held", "idle"}
    assert sum(row.gpu_seconds for row in rows) >= 1


def test_a_signal_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running(tmp_path, "--simulate", "none") as agent:
            agent.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)
            assert agent.process.poll() is None
            assert agent.end()[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_agent_on_the_same_state_directory_is_refused(tmp_path: Path) -> None:
    with running(tmp_path, "--simulate", "none") as agent:
        status, error = refused(tmp_path, "--listen", "127.0.0.1:0")
        assert status == 1 and f"process {agent.process.pid}" in error and error.count("\n") == 1
        assert agent.health().status in ("ok", "starting")


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, error = refused(tmp_path, "--listen", f"127.0.0.1:{port}")
    assert status == 1 and f"port {port}" in error and f"process {os.getpid()}" in error and error.count("\n") == 1


def test_listening_for_others_without_tls_is_refused(tmp_path: Path) -> None:
    status, error = refused(tmp_path, "--listen", "0.0.0.0:0")
    assert status == 2 and "rackrate-agent init" in error and error.count("\n") == 1


def test_an_agent_that_was_killed_starts_again_on_the_same_record(tmp_path: Path) -> None:
    with running(tmp_path, "--simulate", "1xL4") as agent:
        agent.wait_until(lambda health: health.status == "ok")
        token = agent.token
        agent.process.kill()
    with running(tmp_path, "--simulate", "1xL4") as again:
        assert again.token == token
        assert json.loads((again.state_dir / "agent.json").read_text())["pid"] == again.process.pid
        again.wait_until(lambda health: health.status == "ok")
        assert again.end() == (0, "")


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
def test_a_disk_that_fills_up_is_told_and_stops_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--simulate", "1xL4") as agent:
        agent.wait_until(lambda health: health.status == "ok")
        limits = resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        full = agent.wait_until(lambda health: health.status == "degraded")
        assert "usage is not being written" in full.problems[0]
        headers = {"authorization": f"Bearer {agent.token}"}
        sample = httpx.get(f"{agent.url}/v1/sample", headers=headers, trust_env=False, timeout=60).json()
        assert [one["ok"] for one in sample["sensors"] if one["name"] == "meter"] == [False]
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, limits)
        agent.wait_until(lambda health: health.status == "ok")
        status, error = agent.end()
    assert status == 0 and "usage: is written again" in error


async def test_a_driver_that_hangs_delays_neither_the_host_nor_the_end(tmp_path: Path, fake_nvml: FakeNvml) -> None:  # noqa: F811
    fake_nvml.use(State.machine("H100", 8))
    own = fake_nvml.environment(RACKRATE_HOME=str(tmp_path / "home"), RACKRATE_METADATA="off")
    with running(tmp_path, env=own) as agent:
        async with agent.client() as client:
            assert len((await first_sample(client)).gpus) == 8
            assert (await client.node()).driver_version is not None
            fake_nvml.state["delay.nvmlDeviceGetUtilizationRates"] = 600_000_000
            fake_nvml.write()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (sample := await client.sample()).gpus[0].state == "ok" or sample.host is None:
                    await asyncio.sleep(0.1)
            assert "driver unresponsive" in (sample.gpus[0].reason or "")
            assert sample.host is not None and sample.host.memory_used_bytes
        begun = time.monotonic()
        assert agent.end()[0] == 0
        assert time.monotonic() - begun < 60


async def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    with running(tmp_path, "--simulate", "none", "--socket", "agent.sock") as agent:
        path = tmp_path / "agent.sock"
        assert agent.url == f"unix:{path}" and path.stat().st_mode & 0o777 == 0o660
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport) as lent:
            assert (await AgentClient("http://localhost", agent.token, client=lent).node()).gpu_reason
        assert agent.end()[0] == 0
        assert not path.exists()


async def test_tls_as_init_made_it_is_served(tmp_path: Path) -> None:
    options = ["init", "--json", "--name", "gpu-01", "--host", "127.0.0.1", "--state-dir", str(tmp_path / "state")]
    made = subprocess.run(
        [sys.executable, "-m", "agent.cli", *options], env=environment(tmp_path), cwd=tmp_path, check=True, capture_output=True, text=True
    )
    fingerprint = json.loads(made.stdout)["fingerprint"]
    with running(tmp_path, "--simulate", "none") as agent:
        assert agent.url.startswith("https://127.0.0.1:")
        async with AgentClient(agent.url, agent.token, fingerprint=fingerprint) as client:
            assert (await client.node()).node == "gpu-01"
        assert agent.end() == (0, "")


def test_ticks_keep_their_rhythm_and_leave_out_what_was_missed() -> None:
    assert next_due(10.0, 10.02) == 11.0
    assert next_due(11.0, 11.9) == 12.0
    assert next_due(12.0, 15.5) == 16.0
    due = now = 0.0
    for _ in range(1000):
        now = due + 0.3
        due = next_due(due, now)
    assert due == 1000.0


async def test_an_end_that_nobody_asked_for_is_raised() -> None:
    async def breaks() -> None:
        raise RuntimeError("broken")

    async def goes_on() -> None:
        await asyncio.sleep(PATIENCE_SECONDS)

    with pytest.raises(RuntimeError, match="broken"):
        await _until(asyncio.Event(), goes_on(), breaks())
    asked = asyncio.Event()
    asked.set()
    await _until(asked, goes_on())
