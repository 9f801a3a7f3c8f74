"""`rackrate-agent simulate`: a whole fleet in one process, each node a real agent under its own URL prefix.

Invariant: only the sensors are made up. Meter, alerts, history, HTTP and streams are the ones that real nodes run,
and a node's readings depend on (plan, seed, time) alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent import state, wire
from agent.alerts import AlertEngine, Thresholds
from agent.config import split_listen
from agent.errors import ConfigurationError
from agent.history import FEW, LEVELS, HistoryRing, row_of
from agent.history_level import LevelSpec
from agent.listener import Listener, bind
from agent.meter import Meter
from agent.private_files import create_once, read_private
from agent.runtime import NodeAgent
from agent.security import ensure_token, new_token
from agent.server import create_app
from agent.simulation.demo import plan_demo
from agent.simulation.fleet import plan_fleet
from agent.simulation.model import NO_GPU_REASON, NodeModel, NodePlan
from agent.simulation.outage import Outages
from agent.simulation.people import PROJECTS
from agent.version import installed

BACKFILL_STEP_MS = 60_000
ROW_SECONDS = 60.0
"""Usage rows of a simulated day are this long at most."""
RECENT_MS = 3_600_000
"""The last hour of a backfill is given to alerts (enough for every hold time) and plots step by step."""
PLOT_EVERY, ALERT_EVERY = 3, 15
"""Before that they get every so many steps: what nobody looks at closely need not delay the start."""
SMALL_FLEET = 64
"""Up to here each node keeps a day of history; a larger one keeps minutes, or memory would run to gigabytes."""
DRAWN_MS = 180_000
"""What the app's plots show."""
TICK_SLICES = 20
RECALL_SLICE, RECALL_PAUSE_SECONDS = 20, 0.01
"""Readings of the past between two rests."""
QUIET_SECONDS = 90.0
"""No HTTP outage before this: a report made right after the start finds every node."""


class SimulatedNode:
    """One node: its model, and the agent that reports what the model says."""

    def __init__(self, model: NodeModel, agent: NodeAgent, meter: Meter, alerts: AlertEngine, history: HistoryRing) -> None:
        self.model = model
        self.agent = agent
        self.meter = meter
        self._alerts = alerts
        self._history = history
        self._sequence = 0
        self._boot = model.boot_seconds(time.time())

    @property
    def name(self) -> str:
        return self.model.plan.name

    def sample(self, at_ms: int, sequence: int = 0, *, host: bool = True) -> wire.Sample:
        """The node's readings at `at_ms` (UTC milliseconds); `host` False leaves the machine out."""
        taken_at = datetime.fromtimestamp(at_ms / 1000, UTC)
        return wire.Sample(
            node=self.name, sequence=sequence, taken_at=taken_at, host=self.model.host_at(at_ms) if host else None,
            gpus=self.model.gpus_at(at_ms), gpu_reason=None if self.model.board else NO_GPU_REASON,
            sensors=(wire.SensorReport(name="simulated", ok=True, taken_at=taken_at),), ancestors=self.model.ancestors_at(at_ms),
        )

    def step(self, at_ms: int) -> None:
        """One live second: read, meter, alert, publish."""
        self._sequence += 1
        self.agent.step(self.sample(at_ms, self._sequence))
        boot = self.model.boot_seconds(at_ms / 1000)
        if boot != self._boot:
            self._boot = boot
            fresh = self.model.node_info(datetime.fromtimestamp(at_ms / 1000, UTC), self.agent.info.agent_version)
            self.agent.set_info(fresh)

    def backfill(self, start_ms: int, end_ms: int, step_ms: int, drawn_ms: int = 0) -> None:
        """Samples of the past into meter and history, and the last hour of them into the alerts.

        The last `drawn_ms` are left out of the history: `draw` gives them second by second.
        """
        info, fine_ms = self.agent.info, max(start_ms, end_ms - drawn_ms)
        for turn, at_ms in enumerate(range(start_ms, end_ms, step_ms)):
            recent = at_ms >= end_ms - RECENT_MS
            drawn, judged = recent or turn % PLOT_EVERY == 0, recent or turn % ALERT_EVERY == 0
            sample = self.sample(at_ms, host=drawn)
            self.meter.observe(sample, info, at_ms=at_ms)
            if drawn and at_ms < fine_ms:
                self._history.add(sample)
            if judged:
                self._alerts.evaluate(sample, sample.taken_at)

    def draw(self, start_ms: int, end_ms: int) -> None:
        """A past of one second a point into the history alone, so that a plot is full from the start."""
        for at_ms in range(start_ms, end_ms, 1000):
            self._history.add(self.sample(at_ms))

    def recall(self, level: LevelSpec, end_ms: int) -> Iterator[None]:
        """The past of the plots at one step up to `end_ms`, a reading at each turn; ends with all of it in place."""
        step_ms, found = level.step_seconds * 1000, []
        last = end_ms - end_ms % step_ms
        for at_ms in range(last - level.rows * step_ms, last, step_ms):
            found.append(row_of(self.sample(at_ms)))
            yield
        self._history.refill(level.step_seconds, found)

    @property
    def has_record(self) -> bool:
        """Whether usage was recorded before (a state directory that is used again)."""
        return self.meter.usage(0, 1).last_sequence > 0


def backfill(nodes: Sequence[SimulatedNode], start_ms: int, end_ms: int, step_ms: int = BACKFILL_STEP_MS) -> None:
    """Gives each node a past from `start_ms` (inclusive) to `end_ms` (exclusive), UTC milliseconds, a sample a step.

    A node that already has a record keeps it: time in which its agent did not run stays `down`.
    """
    for node in nodes:
        if not node.has_record:
            node.backfill(start_ms, end_ms, step_ms, DRAWN_MS if len(nodes) <= SMALL_FLEET else 0)


def build_nodes(
    plans: Sequence[NodePlan], seed: int, token: str | None, *,
    state_dir: Path | None = None, row_seconds: float = ROW_SECONDS, started_at: datetime | None = None,
) -> list[SimulatedNode]:
    """An agent for each plan, since `started_at` (default: now).

    Meters live in memory, or in `state_dir`/NAME/usage.db; the caller closes them.
    """
    started_at = started_at or datetime.now(UTC)
    nodes: list[SimulatedNode] = []
    try:
        for plan in plans:
            nodes.append(_build_node(plan, seed, token, started_at, state_dir, row_seconds, len(plans)))
    except BaseException:
        close_nodes(nodes)
        raise
    return nodes


def _build_node(
    plan: NodePlan, seed: int, token: str | None, started_at: datetime, state_dir: Path | None, row_seconds: float, fleet: int
) -> SimulatedNode:
    model = NodeModel(plan, seed, watched_since=started_at.timestamp())
    path = ":memory:" if state_dir is None else state.prepare(state_dir / plan.name) / "usage.db"
    meter = Meter.open(path, plan.name, row_seconds=row_seconds, durable=state_dir is not None, projects=PROJECTS)
    alerts = AlertEngine(plan.name, Thresholds(), plan.usd_per_hour)
    history = HistoryRing(plan.name) if fleet <= SMALL_FLEET else HistoryRing(plan.name, FEW)
    agent = NodeAgent(model.node_info(started_at, installed()), meter, alerts, history, token)
    if state_dir is not None:
        agent.keep_orders(state_dir / plan.name)
    return SimulatedNode(model, agent, meter, alerts, history)


def close_nodes(nodes: Sequence[SimulatedNode]) -> None:
    for node in nodes:
        node.agent.close_streams()
        node.meter.close()


def simulate(
    nodes: int = 12,
    gpus: int = 8,
    seed: int = 1,
    listen: str = "127.0.0.1:0",
    *,
    preset: str | None = None,
    history_seconds: float = 0,
    state_dir: Path | None = None,
    token_file: Path | None = None,
    die_with_parent: bool = False,
) -> int:
    """Runs a fleet until SIGTERM, SIGINT or SIGHUP; prints one node URL a line on stdout once it serves. Returns 0.

    `preset` "demo": the twelve nodes of the demo (`nodes` and `gpus` are not used). `history_seconds` of usage are there
    from the start. Raises AgentFault (ConfigurationError, ListenRefused, StateDirectoryError).
    """
    parent = os.getppid() if die_with_parent else None
    with contextlib.suppress(_EndAsked), _signals_before_the_loop():
        _run(_plans(preset, nodes, gpus, seed), seed, listen, history_seconds, state_dir, token_file, parent)
    return 0


def _run(
    plans: Sequence[NodePlan], seed: int, listen: str, history_seconds: float,
    state_dir: Path | None, token_file: Path | None, parent: int | None,
) -> None:
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(_bind(listen))
        if state_dir is not None:
            stack.enter_context(state.claim(state_dir))
        token = _token(stack, state_dir, token_file)
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - int(history_seconds * 1000)
        fleet = build_nodes(plans, seed, token, state_dir=state_dir, started_at=datetime.fromtimestamp(start_ms / 1000, UTC))
        stack.callback(close_nodes, fleet)
        backfill(fleet, start_ms, now_ms)
        if history_seconds and len(fleet) <= SMALL_FLEET:
            for node in fleet:
                node.draw(max(start_ms, now_ms - DRAWN_MS), time.time_ns() // 1_000_000)
        asyncio.run(_serve(fleet, bound, parent, remembers=history_seconds > 0 and len(fleet) <= SMALL_FLEET))


class _EndAsked(BaseException):
    """A signal came before the event loop ran: the folders and files made so far are still put away."""


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _ending_signals() -> list[signal.Signals]:
    """Those that nobody told us to ignore (nohup)."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def _signals_before_the_loop() -> Iterator[None]:
    def end(*_: object) -> None:
        raise _EndAsked

    numbers = _ending_signals() if threading.current_thread() is threading.main_thread() else []
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plans(preset: str | None, nodes: int, gpus: int, seed: int) -> list[NodePlan]:
    match preset:
        case None:
            return plan_fleet(nodes, gpus, seed, time.time())
        case "demo":
            return plan_demo(time.time())
        case _:
            raise ConfigurationError(f"--preset: there is no simulated fleet {preset!r}; the only one is demo")


def _bind(listen: str) -> socket.socket:
    host, port = split_listen(listen, "--listen")
    return bind(host, port)


def _token(stack: contextlib.ExitStack, state_dir: Path | None, token_file: Path | None) -> str:
    """One token for all nodes: from `token_file`, from the state directory, or a fresh one in a folder that goes away."""
    if token_file is None and state_dir is None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rackrate-simulate-"))
        token_file = Path(folder) / "token"
    if token_file is None:
        assert state_dir is not None
        token, path = ensure_token(state_dir), state_dir / "token"
    else:
        token, path = _token_in(token_file), token_file
    print(f"token file: {path}", file=sys.stderr, flush=True)
    return token


def _token_in(path: Path) -> str:
    if not os.path.lexists(path):
        create_once(path, new_token().encode() + b"\n")
    token = read_private(path, "token").decode("ascii", "replace").strip()
    if not token:
        raise ConfigurationError(f"the token file {path} is empty; remove it, and a new token is written there")
    return token


# -- one event loop for all -------------------------------------------------------------------------------------------


async def _serve(nodes: Sequence[SimulatedNode], bound: socket.socket, parent: int | None, *, remembers: bool = False) -> None:
    stop = asyncio.Event()
    for number in _ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _allow_many_connections(len(nodes))
    for node in nodes:
        node.step(time.time_ns() // 1_000_000)
    faults = {node.name: node.model.plan.faults for node in nodes}
    app = create_app({node.name: node.agent for node in nodes})
    outages = Outages(app, faults, not_before=time.time() + QUIET_SECONDS)
    listener = Listener(outages, bound)
    await listener.start()
    _settle_memory()
    tasks = [asyncio.create_task(tick(nodes)), asyncio.create_task(stop.wait())]
    if parent is not None:
        tasks.append(asyncio.create_task(_watch_parent(parent)))
    past = asyncio.create_task(recall(nodes if remembers else ()))
    print("\n".join(f"{listener.url}/nodes/{node.name}/" for node in nodes), flush=True)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (*tasks, past):
            task.cancel()
        outages.release()
        for node in nodes:
            node.agent.close_streams()
        await listener.close()


async def tick(nodes: Sequence[SimulatedNode]) -> None:
    """Every node once a second for ever, in slices over the second: no burst that would delay the streams of others."""
    loop = asyncio.get_running_loop()
    slices = max(1, min(TICK_SLICES, len(nodes)))
    turn, begun = 0, loop.time()
    while True:
        for node in nodes[turn % slices :: slices]:
            node.step(time.time_ns() // 1_000_000)
        turn += 1
        behind = loop.time() - (begun + turn / slices)
        if behind > 1.0:  # the machine slept or is too slow: leave out what is past
            begun += behind
        await asyncio.sleep(max(0.0, -behind))


async def recall(nodes: Sequence[SimulatedNode]) -> None:
    """Fills the plots of the past beside the nodes' work, in slices that delay nobody."""
    for level, node in itertools.product(LEVELS, nodes):
        for turn, _ in enumerate(node.recall(level, time.time_ns() // 1_000_000)):
            if turn % RECALL_SLICE == 0:
                await asyncio.sleep(RECALL_PAUSE_SECONDS)


async def _watch_parent(parent: int) -> None:
    """Returns when the process that started this one is gone."""
    while os.getppid() == parent:
        await asyncio.sleep(0.25)


def _allow_many_connections(nodes: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = nodes * 4 + 256
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _settle_memory() -> None:
    """What exists now stays: the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
