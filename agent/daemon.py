"""`rackrate-agent run`: puts sensors, meter, alerts and HTTP together and keeps them going, once a second, until told to end.

Invariant: the usage record is closed before anything that could hang is waited for, and the process is gone within
`LAST_RESORT_SECONDS` of the signal, whatever a driver call does: sensors run in daemon threads that nobody joins.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from datetime import datetime, timezone
from socket import socket
from typing import Any, Protocol

import msgspec

from agent import identity, state, wire
from agent.alerts import AlertEngine, Thresholds
from agent.certificate import fingerprint
from agent.config import AgentConfig, NodeConfig
from agent.errors import AgentFault
from agent.history import HistoryRing
from agent.history_file import NAME as HISTORY_NAME
from agent.history_file import SAVE_SECONDS, HistoryFile, load
from agent.listener import Listener, bind, bind_unix
from agent.meter import Meter
from agent.private_files import write_private
from agent.runtime import NodeAgent
from agent.sampler import Sampler
from agent.security import Tokens, ensure_token
from agent.sensors import Sensor
from agent.sensors.host import HostSensor
from agent.server import create_app
from agent.version import installed
from agent.workload import Workload

PERIOD_SECONDS = 1.0
IDENTITY_WAIT_SECONDS = 1.5
"""How long the first row waits for the cloud's answer, so that it is priced as what it is."""
IDENTITY_RETRY_SECONDS = 60.0
IDENTITY_TRIES = 5
FIRST_READING_SECONDS = 3.0
SENSOR_CLOSE_SECONDS = 0.3
LAST_RESORT_SECONDS = 1.8
IDLE_SECONDS = 5.0
ANNOUNCEMENT = "agent.json"


class GpuSensor(Sensor, Protocol):
    """What the daemon asks of the sensor of GPUs beside its readings; none of it blocks."""

    driver_version: str | None
    cuda_version: str | None
    gpu_reason: str | None

    def inventory(self) -> tuple[wire.GpuInventory, ...]: ...


class Announcement(msgspec.Struct, frozen=True, omit_defaults=True):
    """`agent.json` in the state directory while an agent serves: how programs of this machine find it."""

    url: str
    pid: int
    fingerprint: str | None = None
    """Of the certificate, where the agent speaks TLS."""


def run(config: AgentConfig) -> None:
    """Runs until SIGTERM, SIGINT or SIGHUP. Raises AgentFault when it cannot start."""
    with state.claim(config.state_dir):
        token = ensure_token(config.state_dir)
        with _bound(config) as bound:
            asyncio.run(_serve(config, token, bound))


def _bound(config: AgentConfig) -> socket:
    return bind_unix(config.socket) if config.socket is not None else bind(config.host, config.port, tls=config.tls)


async def _serve(config: AgentConfig, token: str, bound: socket) -> None:
    ended = _end_on_signals()
    node = Node(config, token)
    try:
        listener = Listener(
            create_app(node.agent, allowed_hosts=_hosts(config)),
            bound,
            certificate=config.tls_certificate,
            key=config.tls_key,
        )
        node.start()
        await listener.start()
        _announce(config, listener.url)
        if config.end_when_idle:
            _end_when(node.is_idle, ended)
        await _until(ended, node.measure(), listener.ended())
        node.agent.close_streams()
        node.close_meter()
        await listener.close()
    finally:
        node.close()
        (config.state_dir / ANNOUNCEMENT).unlink(missing_ok=True)


def _end_when(idle: Callable[[], bool], ended: asyncio.Event) -> None:
    """Sets `ended` once whoever started this process is gone and it has been idle for `IDLE_SECONDS`."""
    starter, loop = os.getppid(), asyncio.get_running_loop()
    busy_at = loop.time()

    def look() -> None:
        nonlocal busy_at
        if os.getppid() == starter or not idle():
            busy_at = loop.time()
        if loop.time() - busy_at >= IDLE_SECONDS:
            ended.set()
        else:
            loop.call_later(PERIOD_SECONDS, look)

    look()


async def _until(ended: asyncio.Event, *endless: Coroutine[Any, Any, None]) -> None:
    """Until `ended` is set. What was meant to go on for ever and stops raises what stopped it."""
    asked = asyncio.create_task(ended.wait())
    tasks = [asyncio.create_task(one) for one in endless]
    done, _ = await asyncio.wait([asked, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (asked, *tasks):
        task.cancel()
    for task in done - {asked}:
        task.result()


def _hosts(config: AgentConfig) -> tuple[str, ...]:
    return config.allowed_hosts if config.socket is not None else (config.host, *config.allowed_hosts)


def _announce(config: AgentConfig, url: str) -> None:
    try:
        known = fingerprint(config.tls_certificate) if config.tls_certificate is not None else None
        announcement = msgspec.json.encode(Announcement(url, os.getpid(), known))
        write_private(config.state_dir / ANNOUNCEMENT, announcement + b"\n")
    except AgentFault as fault:
        _say(str(fault))
    print(f"listening on {url}", flush=True)
    gc.collect()
    gc.freeze()


def _end_on_signals() -> asyncio.Event:
    """Set by the first signal; from then on the process has `LAST_RESORT_SECONDS` to end by itself."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        if not ended.is_set():
            ended.set()
            threading.Thread(target=_last_resort, daemon=True, name="last-resort").start()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup keeps its meaning
            loop.add_signal_handler(number, end)
    return ended


def _last_resort() -> None:
    for _ in range(round(LAST_RESORT_SECONDS / 0.1)):  # each is longer on a machine that is busy, where the end is too
        time.sleep(0.1)
    _say("something did not end in time; the process ends without it")
    os._exit(1)


def _say(text: str) -> None:
    print(f"rackrate-agent: {text}", file=sys.stderr, flush=True)


class Node:
    """This machine as an agent: everything but its HTTP."""

    def __init__(self, config: AgentConfig, token: str) -> None:
        self._config = config
        self._identity = identity.configured(config.node)
        self._settled = asyncio.Event()
        host = HostSensor()
        self._gpus = _gpu_sensor(config, self._identity.name)
        self._static = _static_facts(host, simulated=config.simulate is not None)
        meter = _open_meter(config, self._identity.name)
        self._meter: Meter | None = meter
        self._sampler = Sampler(self._identity.name, [host, self._gpus])
        history = HistoryRing(self._identity.name)
        load(config.state_dir / HISTORY_NAME, history)
        self._history_file = HistoryFile(config.state_dir / HISTORY_NAME, history)
        self.agent = NodeAgent(
            self._current_info(),
            self._meter,
            AlertEngine(self._identity.name, config.thresholds or Thresholds(), config.node.usd_per_hour),
            history,
            token,
        )
        self.agent.token_check = Tokens(config.state_dir).match
        self.agent.keep_orders(config.state_dir)
        self._workload = Workload(config, self._identity.name, self.agent, meter)

    def start(self) -> None:
        """Starts the sensors, takes over the jobs that run, and asks who this machine is; returns at once."""
        self._sampler.start()
        self._workload.start()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._resolve, args=(loop,), daemon=True, name="identity").start()

    def _resolve(self, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config.node
        if self._config.simulate is not None:
            config = msgspec.structs.replace(config, metadata=False)
        for _ in range(IDENTITY_TRIES):
            found = identity.resolve(config)
            if not _call(loop, self._set_identity, found) or not _worth_asking_again(found, config):
                return
            time.sleep(IDENTITY_RETRY_SECONDS)

    def _set_identity(self, found: identity.Identity) -> None:
        self._identity = found
        self._settled.set()
        self._workload.watch(found.cloud)

    def _current_info(self) -> wire.NodeInfo:
        """What is known now. Identity and inventory arrive after the start; NVML may come and go."""
        info = msgspec.structs.replace(
            self._static,
            gpus=self._gpus.inventory(),
            gpu_reason=self._gpus.gpu_reason,
            driver_version=self._gpus.driver_version,
            cuda_version=self._gpus.cuda_version,
        )
        return self._identity.describe(info)

    def is_idle(self) -> bool:
        """Nobody listens or has just asked something, and no job runs or waits."""
        asked_at = self.agent.asked_at
        if asked_at is not None and time.monotonic() - asked_at < IDLE_SECONDS:
            return False
        counts = self.agent.jobs.counts() if self.agent.jobs is not None else wire.JobCounts()
        return not self.agent.listeners and not (counts.queued or counts.starting or counts.running or counts.stopping)

    async def measure(self) -> None:
        """One sample a second, on the second that the first one set; a late one does not push the next."""
        await self._first_readings()
        loop = asyncio.get_running_loop()
        due, sequence = loop.time(), 0
        while True:
            sequence += 1
            self._step(sequence)
            if sequence % SAVE_SECONDS == 0:
                self._history_file.save()
            due = next_due(due, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _first_readings(self) -> None:
        """Waits a moment for identity and first readings: a first row without them would be about another machine."""
        try:
            await asyncio.wait_for(self._settled.wait(), IDENTITY_WAIT_SECONDS)
        except TimeoutError:
            pass
        until = time.monotonic() + FIRST_READING_SECONDS
        while time.monotonic() < until and not self._sampler.wait(0):
            await asyncio.sleep(0.02)

    def _step(self, sequence: int) -> None:
        try:
            if (info := self.agent.with_orders(self._current_info())) != self.agent.info:
                self.agent.set_info(info)
            self.agent.step(self._sampler.sample(sequence))
        except Exception:  # one bad sample must not end the record of the next
            traceback.print_exc()

    def close_meter(self) -> None:
        """Writes the open row. A record that cannot be written is said, not raised: the process ends anyway."""
        if self._meter is not None:
            meter, self._meter = self._meter, None
            try:
                meter.close()
            except AgentFault as fault:
                _say(str(fault))
            self._history_file.close()

    def close(self) -> None:
        """Closes the sensors as far as they answer: a driver that hangs is not waited for. Jobs run on."""
        self._workload.close()
        self.close_meter()
        closing = threading.Thread(target=self._sampler.close, daemon=True, name="close-sensors")
        closing.start()
        closing.join(SENSOR_CLOSE_SECONDS)


def next_due(due: float, now: float, period: float = PERIOD_SECONDS) -> float:
    """The next tick after `now` in the rhythm of `due`, leaving out those that were missed. Seconds of one clock."""
    missed = max(0, int((now - due) // period))
    return due + (missed + 1) * period


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> bool:
    """Whether the loop still takes calls."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return False
    return True


def _worth_asking_again(found: identity.Identity, config: NodeConfig) -> bool:
    """At boot the network may come up after the agent, and a service that is busy then may answer in part."""
    asked = found.sources.get("cloud") != "configuration"
    return config.metadata and (found.cloud is None or (asked and found.instance_type is None))


def _gpu_sensor(config: AgentConfig, name: str) -> GpuSensor:
    if config.simulate is not None:
        from agent.sensors.simulated import SimulatedSensor

        return SimulatedSensor(config.simulate, name=name)
    from agent.jobs.context import cgroup_parent
    from agent.sensors.nvml import NvmlSensor
    from agent.sensors.processes import ProcessTable

    return NvmlSensor(processes=ProcessTable(cgroup_parent=cgroup_parent(config)))


def _static_facts(host: HostSensor, *, simulated: bool) -> wire.NodeInfo:
    return wire.NodeInfo(
        node="",
        agent_version=installed(),
        started_at=datetime.now(timezone.utc),
        gpus=(),
        simulated=simulated,
        **host.describe(),
    )


def _open_meter(config: AgentConfig, name: str) -> Meter:
    return Meter.open(
        config.state_dir / "usage.db",
        name,
        row_seconds=config.row_seconds,
        retention_days=config.retention_days,
        projects=config.projects,
    )
