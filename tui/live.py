"""Keeps one stream open to every node and feeds what it brings to the fleet.

Invariant: a node that hangs, refuses or flaps costs only itself a wait; nothing here raises into its caller.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from agent.client import AgentClient, ClientError
from tui.config import NodeConfig
from tui.errors import RackrateError
from tui.fleet import Fleet

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Waits between attempts on a node that does not answer, each stretched by up to a fifth at random."""


class Live:
    """One task per node. `changed` collects the names of nodes whose values may differ since it was last taken."""

    def __init__(
        self,
        fleet: Fleet,
        nodes: Sequence[NodeConfig],
        client_for: Callable[[NodeConfig], AgentClient],
        *,
        clock: Callable[[], float] = time.monotonic,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
    ) -> None:
        self.fleet = fleet
        self._nodes = nodes
        self._client_for = client_for
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._tasks: list[asyncio.Task[None]] = []
        self._changed: set[str] = set()
        self._open: dict[str, AgentClient] = {}
        self._left_out: Counter[str] = Counter()
        for node in nodes:
            if node.name not in fleet:
                fleet.add(node.name, node.url, node.tags)

    def start(self) -> None:
        """Opens the streams; returns at once."""
        self._tasks = [asyncio.create_task(self._follow(node), name=f"follow {node.name}") for node in self._nodes]

    async def close(self) -> None:
        """Ends all streams and waits until they are gone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def take_changed(self) -> set[str]:
        """Names of changed nodes since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    @property
    def left_out(self) -> Counter[str]:
        """Node -> how many of its events are of kinds that only newer agents know; none of them is on the screen."""
        return self._left_out + Counter({name: client.left_out for name, client in self._open.items()})

    async def _follow(self, node: NodeConfig) -> None:
        attempt = 0
        while True:
            heard = await self._listen(node)
            attempt = 0 if heard else attempt + 1
            wait = self._retry_seconds[min(attempt, len(self._retry_seconds) - 1)]
            await asyncio.sleep(wait * random.uniform(1.0, 1.2))

    async def _listen(self, node: NodeConfig) -> bool:
        """One stream until it ends. True if it brought anything."""
        heard = False
        client = None
        try:
            client = self._open[node.name] = self._client_for(node)
            async for event in client.stream():
                heard = True
                self._changed |= self.fleet.apply(node.name, event, self._clock())
            self._failed(node, "the agent closed the stream")
        except (ClientError, RackrateError) as error:
            self._failed(node, str(error))
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - one node's surprise must not end the others
            self._failed(node, f"unexpected {type(error).__name__}: {error}")
        finally:
            if client is not None:
                self._left_out[node.name] += self._open.pop(node.name).left_out
                await client.aclose()
        return heard

    def _failed(self, node: NodeConfig, error: str) -> None:
        self._changed |= self.fleet.failed(node.name, error)
