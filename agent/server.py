"""The agent's HTTP: who may ask, which node is meant, and then the routes.

Invariant: nothing but `/healthz` is answered without the node's token, and nothing at all to a browser's page (an
Origin header, or a Host that is not this agent's): every request passes one gate, whatever its method and path, and
the routes learn from the gate alone whom a request comes from.
Wrong tokens are counted a peer (none at all is no guess); a right one always passes, so that nobody can lock others out (a token has 256
random bits: it is not guessed, the limit only keeps the guessing cheap for us).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from urllib.parse import quote

import msgspec
from litestar.types import ASGIApp, Receive, Scope, Send

from agent import wire
from agent.asked import ACTOR, AGENT, FRAMEWORK_SCHEMA, NO_STORE
from agent.jobs.actor import Actor
from agent.routes import create_routes
from agent.runtime import NodeAgent
from agent.security import OWNER, allowed_host

FAILURES_A_MINUTE = 5
_MOST_PEERS = 1024
_PREFIX = "/nodes/"


class NodeLink(wire.Message, kw_only=True):
    """One node of a fleet that shares an address. `url` is a path."""

    node: str
    url: str


class Fleet(wire.Message, kw_only=True):
    """`GET /` of a fleet in one process."""

    nodes: tuple[NodeLink, ...]


class FleetHealth(wire.Message, kw_only=True):
    """`GET /healthz` of a fleet in one process."""

    status: str
    nodes: int


def create_app(
    agents: Mapping[str, NodeAgent] | NodeAgent,
    *,
    allowed_hosts: Collection[str] = (),
    failures_a_minute: int = FAILURES_A_MINUTE,
) -> ASGIApp:
    """The ASGI app of one agent at `/`, or of many, each under `/nodes/<name>/` (the mapping may grow and shrink).

    `allowed_hosts`: names that a Host header may carry beside localhost, this machine's name and IP addresses.
    """
    one = agents if isinstance(agents, NodeAgent) else None
    many = MappingProxyType({}) if isinstance(agents, NodeAgent) else agents
    return _Gate(create_routes(), one, many, frozenset(allowed_hosts), _Failures(failures_a_minute))


class _Refusal(Exception):
    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


class _Gate:
    def __init__(
        self,
        routes: ASGIApp,
        one: NodeAgent | None,
        many: Mapping[str, NodeAgent],
        hosts: frozenset[str],
        failures: _Failures,
    ) -> None:
        self._routes = routes
        self._one = one
        self._many = many
        self._hosts = hosts
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._routes(scope, receive, send)
        try:
            await self._admit(scope, receive, send)
        except _Refusal as refusal:
            problem = wire.Problem(error=str(refusal), status=refusal.status)
            await _answer(send, refusal.status, problem, refusal.headers)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        self._check_origin(headers)
        if self._one is not None:
            asker = self._check_token(scope, headers, self._one, scope["path"])
            return await self._serve(scope, receive, send, self._one, scope["path"], "", asker)
        name, path = _split(scope["path"])
        if name is None:
            return await self._serve_fleet(scope, send, headers)
        agent = self._many.get(name)
        if agent is None:
            raise _Refusal(404, f"there is no node {name!r} here; / lists them")
        asker = self._check_token(scope, headers, agent, path)
        await self._serve(scope, receive, send, agent, path, _PREFIX + name, asker)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, agent: NodeAgent, path: str, prefix: str, asker: Actor | None
    ) -> None:
        if path.startswith(FRAMEWORK_SCHEMA):
            raise _Refusal(404, f"there is nothing at {path}; /schema lists what there is")
        inner: Scope = {  # type: ignore
            **scope, AGENT: agent, ACTOR: asker, "path": path, "raw_path": path.encode(), "root_path": prefix
        }  # fmt: skip
        agent.asked_at = time.monotonic()
        await self._routes(inner, receive, send)

    async def _serve_fleet(self, scope: Scope, send: Send, headers: Mapping[bytes, bytes]) -> None:
        if scope["path"] == "/healthz":
            return await _answer(send, 200, FleetHealth(status="ok", nodes=len(self._many)))
        self._check_token(scope, headers, None, scope["path"])
        if scope["path"] != "/":
            raise _Refusal(404, f"there is nothing at {scope['path']}; / lists the nodes that are served here")
        if scope["method"] != "GET":
            raise _Refusal(405, f"{scope['method']} is not answered at /; only GET is", (b"allow", b"GET"))
        links = (NodeLink(node=name, url=f"{_PREFIX}{quote(name, safe='')}/") for name in self._many)
        await _answer(send, 200, Fleet(nodes=tuple(links)))

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        if b"origin" in headers:
            raise _Refusal(403, "requests from web pages are not answered (the Origin header is set)")
        host = headers.get(b"host", b"").decode("latin-1")
        if not allowed_host(host, self._hosts):
            raise _Refusal(
                403, f"the Host header {host!r} does not name this agent; add the name to allowed_hosts in agent.toml"
            )

    def _check_token(self, scope: Scope, headers: Mapping[bytes, bytes], agent: NodeAgent | None, path: str) -> Actor | None:
        """Whom the request comes from; None only where nobody needs to be known."""
        if path == "/healthz":
            return None
        scheme, _, presented = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        given = presented.strip() if scheme.lower() == "bearer" else None
        client = scope.get("client")
        if (holder := self._holder(agent, given)) is not None:
            return holder._replace(peer=client[0] if client else None)
        where = "it is in the file `token` of the agent's state directory"
        if not given:
            raise _Refusal(401, f"a token is needed: send it as `Authorization: Bearer TOKEN`; {where}", _BEARER)
        if wait := self._failures.count(client[0] if client else "unix"):
            raise _Refusal(429, f"too many wrong tokens; wait {wait} s", (b"retry-after", str(wait).encode()))
        raise _Refusal(401, f"the token is wrong; {where}", _BEARER)

    def _holder(self, agent: NodeAgent | None, given: str | None) -> Actor | None:
        if agent is not None:
            return agent.holder_of(given)
        distinct = {one.token: one for one in self._many.values()}
        found = [one.holder_of(given) for one in distinct.values()] if distinct else [OWNER]
        return next((holder for holder in found if holder is not None), None)


_BEARER = (b"www-authenticate", b'Bearer realm="rackrate"')


class _Failures:
    """Wrong tokens of the last minute, a peer; the oldest peer is dropped when there are too many."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._times: dict[str, list[float]] = {}

    def count(self, peer: str) -> int:
        """Notes one failure; seconds to wait, or 0 while the peer has not used up its minute."""
        now = time.monotonic()
        recent = [at for at in self._times.pop(peer, []) if now - at < 60]
        self._times[peer] = recent
        if len(self._times) > _MOST_PEERS:
            del self._times[next(iter(self._times))]
        if len(recent) >= self._a_minute:
            return max(1, round(60 - (now - recent[0])))
        recent.append(now)
        return 0


def _split(path: str) -> tuple[str | None, str]:
    """`/nodes/a/v1/node` -> (`a`, `/v1/node`); (None, path) elsewhere."""
    if not path.startswith(_PREFIX):
        return None, path
    name, slash, rest = path[len(_PREFIX) :].partition("/")
    return name, slash + rest or "/"


async def _answer(send: Send, status: int, body: msgspec.Struct, headers: Collection[tuple[bytes, bytes]] = ()) -> None:
    data = wire.encoder.encode(body)
    fixed = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        (b"cache-control", NO_STORE.encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": data, "more_body": False})
