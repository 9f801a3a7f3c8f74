"""One look at all nodes, for the commands: asked at once, each with its own time limit.

Invariant: a node that fails is in the fleet with its error; it never hides the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from agent import wire
from agent.client import AgentClient, AgentRefused, ClientError
from pricing.catalog import Catalog
from tui.config import NodeConfig
from tui.errors import RackrateError
from tui.fleet import Fleet

AT_ONCE = 64
"""Connections that are open at the same time."""
FIRST_SAMPLE_SECONDS = 5.0


async def fetch(
    nodes: Sequence[NodeConfig], client_for: Callable[[NodeConfig], AgentClient], catalog: Catalog | None = None
) -> Fleet:
    """Identity, newest sample and active alerts of every node. `catalog` None: the prices that ship."""
    fleet = Fleet(catalog or Catalog.embedded())
    for node in nodes:
        fleet.add(node.name, node.url, node.tags)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(node: NodeConfig) -> None:
        async with gate:
            await _look(fleet, node, client_for)

    await asyncio.gather(*(one(node) for node in nodes))
    return fleet


async def _look(fleet: Fleet, node: NodeConfig, client_for: Callable[[NodeConfig], AgentClient]) -> None:
    try:
        client = client_for(node)
    except (ClientError, RackrateError) as error:
        fleet.failed(node.name, str(error))
        return
    try:
        sample = await _first_sample(client)  # first: only then an agent that has just started knows its GPUs
        fleet.apply(node.name, wire.NodeEvent(node=await client.node()), time.monotonic())
        fleet.apply(node.name, wire.SampleEvent(sample=sample), time.monotonic())
        for alert in (await client.alerts()).alerts:
            fleet.apply(node.name, wire.AlertEvent(alert=alert), time.monotonic())
    except (ClientError, RackrateError) as error:
        fleet.failed(node.name, str(error))
    finally:
        await client.aclose()


async def _first_sample(client: AgentClient) -> wire.Sample:
    """The newest sample; an agent that has only just started gets a few seconds to take one."""
    deadline = time.monotonic() + FIRST_SAMPLE_SECONDS
    while True:
        try:
            return await client.sample()
        except AgentRefused as error:
            if error.status != 503 or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


def failures(fleet: Fleet) -> dict[str, str]:
    """Node name -> why it could not be read."""
    return {view.name: view.error for view in fleet if view.error}
