"""HTTP that fails on purpose: a node that hangs for half a minute, or one that cuts its connections, while others go on.

Invariant: nodes without such a fault pass straight through, and no wait outlives `release`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from agent.simulation.faults import Faults, Flap, Stall

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PREFIX = "/nodes/"


class Outages:
    """An ASGI app around `app` under `/nodes/<name>/`; `faults` by node name.

    `clock` and `not_before` are seconds since the epoch: nothing fails earlier, so that what starts with the fleet is
    not met by an outage at once.
    """

    def __init__(
        self, app: App, faults: Mapping[str, Faults], clock: Callable[[], float] = time.time, *, not_before: float = 0.0
    ) -> None:
        self._app = app
        self._faults = {name: fault for name, fault in faults.items() if fault.stall or fault.flap}
        self._clock = clock
        self._not_before = not_before
        self._released = asyncio.Event()

    def release(self) -> None:
        """Ends every wait now, so that the server can shut down."""
        self._released.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._faults.get(_node_of(scope)) if self._faults else None
        if fault is None:
            await self._app(scope, receive, send)
        elif fault.stall:
            await self._stalling(fault.stall, scope, receive, send)
        elif fault.flap:
            await self._flapping(fault.flap, scope, receive, send)

    async def _stalling(self, stall: Stall, scope: Scope, receive: Receive, send: Send) -> None:
        """Neither the first byte nor the next line of a stream leaves before the stall is over."""

        async def send_later(message: MutableMapping[str, Any]) -> None:
            await self._until_up(stall)
            await send(message)

        await self._until_up(stall)
        await self._app(scope, receive, send_later)

    async def _flapping(self, flap: Flap, scope: Scope, receive: Receive, send: Send) -> None:
        """New requests hang until the node is up again; a stream that runs into the outage is ended."""
        cut = False

        async def send_or_cut(message: MutableMapping[str, Any]) -> None:
            nonlocal cut
            if cut:
                return
            cut = message["type"] == "http.response.body" and self._left(flap) > 0
            await send({**message, "more_body": False} if cut else message)

        async def receive_or_end() -> MutableMapping[str, Any]:
            return {"type": "http.disconnect"} if cut else await receive()

        await self._until_up(flap)
        await self._app(scope, receive_or_end, send_or_cut)

    def _left(self, fault: Stall | Flap) -> float:
        """How many seconds the node will still not answer."""
        now = self._clock()
        return fault.remaining(now) if now >= self._not_before else 0.0

    async def _until_up(self, fault: Stall | Flap) -> None:
        while not self._released.is_set() and (left := self._left(fault)) > 0:
            try:
                await asyncio.wait_for(self._released.wait(), left)
            except TimeoutError:
                continue


def _node_of(scope: Scope) -> str:
    path: str = scope.get("path", "")
    return path[len(PREFIX):].split("/", 1)[0] if path.startswith(PREFIX) else ""
