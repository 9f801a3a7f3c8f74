"""An agent without sensors: made-up messages, stand-ins for meter and alerts, and a server on a free loopback port."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from agent import wire
from agent.history import HistoryRing
from agent.listener import Listener, bind
from agent.runtime import NodeAgent
from agent.server import create_app

TOKEN = "rr_0123abcd_" + "5" * 64
START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


class FakeAlerts:
    """An alert engine that says what it is told to: `fire` queues events for the next sample."""

    def __init__(self) -> None:
        self.queued: list[wire.Alert] = []
        self.now: dict[str, wire.Alert] = {}
        self.past: list[wire.Alert] = []

    def fire(self, one: wire.Alert) -> None:
        self.queued.append(one)
        if one.ended_at is None:
            self.now[one.key] = one
        else:
            self.now.pop(one.key, None)
            self.past.append(one)

    def evaluate(self, sample: wire.Sample, now: datetime | None = None) -> list[wire.Alert]:
        queued, self.queued = self.queued, []
        return queued

    def active(self) -> tuple[wire.Alert, ...]:
        return tuple(self.now.values())

    def recent(self) -> tuple[wire.Alert, ...]:
        return tuple(self.past)


class FakeMeter:
    """A meter with as many rows as there were samples; `fault` is raised by the next observations, `problem` told."""

    def __init__(self, node: str = "n1") -> None:
        self.node = node
        self.rows: list[wire.UsageRow] = []
        self.fault: Exception | None = None
        self.problem: str | None = None
        self.infos: list[wire.NodeInfo] = []

    def observe(self, sample: wire.Sample, info: wire.NodeInfo, *, at_ms: int | None = None) -> None:
        if self.fault is not None:
            raise self.fault
        self.infos.append(info)
        self.rows.append(row(len(self.rows) + 1))

    def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        return wire.UsagePage(
            node=self.node,
            meter="m1",
            rows=tuple(self.rows[after : after + limit]),
            placements=(wire.Placement(id=1, node=self.node, gpu_count=1),),
            last_sequence=len(self.rows),
        )


def row(sequence: int) -> wire.UsageRow:
    starts_at = START + timedelta(seconds=10 * sequence)
    return wire.UsageRow(
        node="n1",
        sequence=sequence,
        starts_at=starts_at,
        ends_at=starts_at + timedelta(seconds=10),
        gpu="GPU-0",
        kind="held",
        share=Decimal("0.333333"),
        user="alice",
        gpu_seconds=Decimal("3.33333"),
        placement=1,
    )


def gpu(index: int = 0, **fields: Any) -> wire.Gpu:
    return wire.Gpu(**{"index": index, "uuid": f"GPU-{index}", "model": "NVIDIA T4", "state": "ok", **fields})


def sample(sequence: int = 1, *gpus: wire.Gpu, **fields: Any) -> wire.Sample:
    taken_at = fields.pop("taken_at", datetime.now(timezone.utc))
    return wire.Sample(node=fields.pop("node", "n1"), sequence=sequence, taken_at=taken_at, gpus=gpus or (gpu(),), **fields)


def alert(key: str = "gpu_hot:GPU-0", *, ended: bool = False, message: str = "GPU 0 is at 91 °C") -> wire.Alert:
    return wire.Alert(
        key=key,
        rule=key.split(":")[0],
        severity="warning",
        node="n1",
        gpu="GPU-0",
        message=message,
        reading="91 °C",
        since=START,
        fired_at=START,
        ended_at=START if ended else None,
    )


def node_agent(name: str = "n1", *, token: str | None = TOKEN, meter: Any = None, alerts: Any = None) -> NodeAgent:
    inventory = (wire.GpuInventory(index=0, uuid="GPU-0", model="NVIDIA T4", memory_total_bytes=16_106_127_360),)
    info = wire.NodeInfo(node=name, agent_version="0.1.0", started_at=START, gpus=inventory, driver_version="550.54")
    return NodeAgent(info, meter, alerts or FakeAlerts(), HistoryRing(name), token)


@contextlib.asynccontextmanager
async def serving(
    agents: Mapping[str, NodeAgent] | NodeAgent,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    **options: Any,
) -> AsyncIterator[str]:
    """The agent's own app under its own server; gives the base URL."""
    listener = Listener(create_app(agents, **options), bind("127.0.0.1", 0), certificate=certificate, key=key)
    await listener.start()
    try:
        yield listener.url
    finally:
        for one in [agents] if isinstance(agents, NodeAgent) else agents.values():
            one.close_streams()
        await listener.close()
