"""The calls of one agent that are about the whole node: drain it, and pause its alerts.

Invariant: an agent that is too old to know such an order is told as that, and not as a wrong address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from agent import wire
from agent.client_errors import AgentRefused

T = TypeVar("T")

_info = msgspec.json.Decoder(wire.NodeInfo)
_pauses = msgspec.json.Decoder(wire.AlertPauses)


class NodeCalls:
    """What `agent.client.AgentClient` can order of a node. Errors: `ClientError`, from every method."""

    if TYPE_CHECKING:
        url: str

        async def _ask(
            self, method: str, path: str, decoder: msgspec.json.Decoder[T], body: msgspec.Struct | None = None
        ) -> T: ...

    async def drain(self, reason: str | None = None, *, who: str | None = None) -> wire.NodeInfo:
        """No job starts there any more; those that run go on. `who`: a login name, for people to read."""
        return await self._order("PUT", "v1/drain", _info, wire.DrainOrder(reason=reason, who=who))

    async def undrain(self) -> wire.NodeInfo:
        return await self._order("DELETE", "v1/drain", _info)

    async def alert_pauses(self) -> wire.AlertPauses:
        return await self._order("GET", "v1/alerts/pauses", _pauses)

    async def pause_alerts(self, order: wire.PauseOrder) -> wire.NodeInfo:
        return await self._order("POST", "v1/alerts/pauses", _info, order)

    async def resume_alerts(self, id: str | None = None) -> wire.NodeInfo:
        """Ends one pause, or all of them."""
        return await self._order("DELETE", "v1/alerts/pauses" + (f"/{quote(id, safe='')}" if id else ""), _info)

    async def _order(self, method: str, path: str, decoder: msgspec.json.Decoder[Any], body: msgspec.Struct | None = None) -> Any:
        try:
            return await self._ask(method, path, decoder, body)
        except AgentRefused as error:
            if error.status == 404 and error.text.startswith("there is nothing at"):
                raise AgentRefused(404, "this agent is too old to be told so; update it", self.url) from None
            raise
