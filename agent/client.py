"""One agent seen from outside: a long-lived stream, and one-shot calls, over httpx.

Invariant: everything that can go wrong arrives as a `ClientError` whose text is a sentence for a person, and the token
leaves only towards the node it belongs to: never over plain http beyond this machine, never after a redirect.
The errors are drawn in `agent.client_errors`, and can be imported from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from agent import wire
from agent.client_errors import (
    AgentRefused,
    ClientError,
    NotAnAgent,
    Unauthorized,
    Unreachable,
    UnsafeToken,
    WireTooNew,
    WrongCertificate,
    broken_off,
    place,
    reason,
)
from agent.client_jobs import JobCalls
from agent.client_nodes import NodeCalls
from agent.client_reading import Reader
from agent.client_tls import fingerprint_of, peer_certificate, pinned_context, public_context, same_fingerprint
from agent.endless import BODY
from agent.transport import CONNECTIONS, ENDLESS, KEEPALIVE_SECONDS, PlainTransport
from agent.version import VERSION_HEADER

__all__ = [
    "AgentClient",
    "AgentRefused",
    "ClientError",
    "NotAnAgent",
    "Unauthorized",
    "Unreachable",
    "UnsafeToken",
    "WireTooNew",
    "WrongCertificate",
    "fingerprint_of",
    "peer_certificate",
    "same_fingerprint",
]

SILENCE_SECONDS = 10.0
"""A stream without a byte for so long counts as lost (samples come once a second)."""
WHOLE_SECONDS = 90.0
"""So much longer than the wait for its next byte may an answer take: a node that drips bytes would hold whoever asks for ever."""

T = TypeVar("T")


_node_decoder = msgspec.json.Decoder(wire.NodeInfo)
_sample_decoder = msgspec.json.Decoder(wire.Sample)
_usage_decoder = msgspec.json.Decoder(wire.UsagePage)
_alerts_decoder = msgspec.json.Decoder(wire.AlertList)
_history_decoder = msgspec.json.Decoder(wire.History)


class AgentClient(JobCalls, NodeCalls):
    """One agent at `url`, which may have a path (`http://127.0.0.1:9500/nodes/a/`).

    `fingerprint` (`sha256:...` of the certificate) pins a TLS node: no authority is asked, the name is not checked.
    `client`: an httpx client to use instead of an own one; it is not closed here. `token_file` is only named in errors.
    Each client has a small pool of its own (one shared by 1,000 nodes is searched from end to end for each request) and
    no TLS context unless it needs one. Errors: `ClientError`, from every method.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        fingerprint: str | None = None,
        timeout_seconds: float = 5,
        client: httpx.AsyncClient | None = None,
        token_file: str | Path | None = None,
    ) -> None:
        self.url = url if url.endswith("/") else url + "/"
        self._token_file = token_file
        self._fingerprint = fingerprint
        self._timeout_seconds = timeout_seconds
        self._timeout = httpx.Timeout(timeout_seconds)
        self._stream_timeout = httpx.Timeout(timeout_seconds, read=SILENCE_SECONDS)
        self._client = client
        self._owned = client is None
        self._opening = asyncio.Lock()
        self._fault = _fault_of(url, token)
        self._reader = Reader(self.url)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    async def __aenter__(self) -> AgentClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._owned and self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    @property
    def left_out(self) -> int:
        """Events of a kind that only newer agents know, over all streams."""
        return self._reader.left_out

    async def node(self) -> wire.NodeInfo:
        return await self._get("v1/node", _node_decoder)

    async def sample(self) -> wire.Sample:
        """The newest one. AgentRefused with status 503 while the agent has none."""
        return await self._get("v1/sample", _sample_decoder)

    async def usage(self, after: int = 0, limit: int = 1000) -> wire.UsagePage:
        """Rows with a sequence above `after`, at most `limit` (1 to 10,000)."""
        return await self._get(f"v1/usage?after={after}&limit={limit}", _usage_decoder)

    async def alerts(self) -> wire.AlertList:
        return await self._get("v1/alerts", _alerts_decoder)

    async def history(self, seconds: int) -> wire.History:
        return await self._get(f"v1/history?seconds={seconds}", _history_decoder)

    async def stream(self) -> AsyncIterator[wire.Event]:
        """The node event, the active alerts, the newest sample, and then what happens, until the agent ends it.

        Events of a kind that this program does not know are left out, and counted in `left_out`. Raises Unreachable after
        ten silent seconds.
        """
        lines = self._reader.lines()
        async with self._open("v1/stream", self._stream_timeout) as response:
            if response.status_code != 200:
                raise self._refusal(response.status_code, await response.aread())
            if not response.headers.get("content-type", "").startswith("application/x-ndjson"):
                raise NotAnAgent(self._not_an_agent("its stream is of another kind"))
            async for chunk in response.extensions.get(BODY) or response.aiter_raw():
                for event in lines.feed(chunk):
                    yield event

    async def _get(self, path: str, decoder: msgspec.json.Decoder[T]) -> T:
        async with self._open(path, self._timeout) as response:
            body = await response.aread()
        return self._answer(response.status_code, body, decoder)

    def _answer(self, status: int, body: bytes, decoder: msgspec.json.Decoder[T], *, ours: bool = False) -> T:
        """What came, as a struct. `ours`: a 404 is about what was asked for, not about the URL of the agent."""
        if status != 200:
            raise self._refusal(status, body, ours=ours)
        return self._reader.answer(body, decoder)

    def _allowing(self, read: float) -> httpx.Timeout:
        """The usual times, but `read` seconds for the answer."""
        return httpx.Timeout(
            self._timeout_seconds, read=max(read, self._timeout_seconds), write=max(30.0, self._timeout_seconds)
        )

    @contextlib.asynccontextmanager
    async def _open(
        self, path: str, timeout: httpx.Timeout, method: str = "GET", *, content: Any = None, headers: dict[str, str] = {}
    ) -> AsyncIterator[httpx.Response]:
        if self._fault is not None:
            raise self._fault
        client = self._client or await self._own_client()
        is_endless = timeout is self._stream_timeout or not isinstance(content, bytes | None)
        most = None if is_endless else (timeout.read or 0) + WHOLE_SECONDS
        try:
            async with (
                asyncio.timeout(most),
                client.stream(
                    method, self.url + path, content=content, headers={**self._headers, **headers}, timeout=timeout,
                    follow_redirects=False, extensions={ENDLESS: timeout is self._stream_timeout and content is None},
                ) as response,
            ):  # fmt: skip
                self._reader.agent = response.headers.get(VERSION_HEADER, self._reader.agent)
                yield response
        except TimeoutError:
            if most is None:
                raise
            raise Unreachable(f"{place(self.url)} is not reachable: its answer was not whole after {most:.0f} s") from None
        except httpx.HTTPError as error:
            if self._fingerprint is not None and isinstance(error, httpx.ConnectError):
                await self._pin_again()
            raise self._unreachable(error) from None
        except httpx.InvalidURL as error:
            raise NotAnAgent(f"{self.url} is not a URL ({error}); it looks like http://HOST:9477") from None

    async def _own_client(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = httpx.AsyncClient(transport=await self._transport(), trust_env=False)
            return self._client

    async def _transport(self) -> httpx.AsyncBaseTransport:
        if not self.url.startswith("https:"):
            return PlainTransport()
        limits = httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS)
        return httpx.AsyncHTTPTransport(verify=await self._tls_context(), limits=limits)

    async def _tls_context(self) -> ssl.SSLContext:
        if self._fingerprint is None:
            return public_context()
        parts = urlsplit(self.url)
        certificate = await peer_certificate(parts.hostname or "", parts.port or 443, self._timeout_seconds)
        found = fingerprint_of(certificate)
        if not same_fingerprint(found, self._fingerprint):
            raise WrongCertificate(
                f"the certificate of {self.url} is {found}, but {self._fingerprint} is configured; if the node's certificate"
                " was replaced, put the new fingerprint in config.toml, else somebody may be in between"
            )
        return pinned_context(certificate)

    async def _pin_again(self) -> None:
        """After a failed connection: tells a replaced certificate from a node that is away."""
        await self.aclose()
        await self._tls_context()

    def _refusal(self, status: int, body: bytes, *, ours: bool = False) -> ClientError:
        text = _problem_text(body)
        if status == 401:
            where = f"the token file {self._token_file}" if self._token_file else "the node's token_file in config.toml"
            return Unauthorized(
                f"{self.url} does not take the token; check {where} against the file `token` in the agent's state directory"
            )
        if text is None and ours and status >= 500:
            return Unreachable(f"{place(self.url)} is not reachable: it, or what stands before it, failed (HTTP {status})")
        if text is None or (status == 404 and not ours):
            return NotAnAgent(self._not_an_agent(f"HTTP {status}"))
        return AgentRefused(status, text, self.url)

    def _not_an_agent(self, detail: str) -> str:
        return f"{self.url} answers, but is not a Rackrate agent ({detail}); check the URL"

    def _unreachable(self, error: httpx.HTTPError) -> ClientError:
        if isinstance(error, httpx.RemoteProtocolError) and not broken_off(error):
            return NotAnAgent(self._not_an_agent("it does not speak HTTP here"))
        return Unreachable(f"{place(self.url)} is not reachable: {reason(error, self._timeout_seconds)}")


def _problem_text(body: bytes) -> str | None:
    try:
        return msgspec.json.decode(body, type=wire.Problem).error
    except msgspec.DecodeError:
        return None


def _fault_of(url: str, token: str | None) -> ClientError | None:
    """What is wrong with a URL before anything is sent to it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return NotAnAgent(f"{url!r} is not a URL ({error}); it looks like http://HOST:9477")
    if parts.scheme not in ("http", "https") or not host:
        return NotAnAgent(f"{url!r} is not the URL of an agent; it looks like http://HOST:9477 or https://HOST:9477")
    if parts.scheme == "http" and token and not _is_loopback(host):
        return UnsafeToken(
            f"{url} is not encrypted, and the token would be readable on the way; use https (`rackrate-agent init` on the"
            " node makes the certificate), or an SSH tunnel to 127.0.0.1"
        )
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
