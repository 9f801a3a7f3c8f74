"""httpx's way to an agent over plain http, on asyncio's own streams: a pool for questions, `agent.endless` for what does not end.

Invariant: it raises what httpx's own transport raises, for the same reasons. (That one reads through anyio, which enters a
cancel scope and asks epoll anew for each chunk; both ways here open their connections by `_connected`.)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import httpcore
import httpx

from agent.endless import Endless, hang_up

CONNECTIONS = 4
KEEPALIVE_SECONDS = 60.0
ENDLESS = "rackrate_endless"
"""Extension of a request: its answer is a stream, see `agent.endless`."""


class PlainTransport(httpx.AsyncBaseTransport):
    """A pool of connections for one agent. No TLS: an https URL is refused with `httpx.UnsupportedProtocol`."""

    def __init__(self) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            max_connections=CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS, network_backend=_Backend()
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.scheme != "http":
            raise httpx.UnsupportedProtocol(f"{request.url.scheme} does not travel over a plain connection", request=request)
        if request.extensions.get(ENDLESS):
            return await self._endless(request)
        url = httpcore.URL(
            scheme=request.url.raw_scheme, host=request.url.raw_host, port=request.url.port, target=request.url.raw_path
        )
        asked = httpcore.Request(
            request.method, url, headers=request.headers.raw, content=request.stream, extensions=request.extensions
        )
        with _as_httpx():
            answered = await self._pool.handle_async_request(asked)
        return httpx.Response(
            answered.status, headers=answered.headers, stream=_Body(answered.stream), extensions=answered.extensions
        )

    async def _endless(self, request: httpx.Request) -> httpx.Response:
        """A connection of its own: it is never given back."""
        with _as_httpx():
            seconds = request.extensions.get("timeout", {}).get("connect")
            reader, writer = await _connected(request.url.raw_host.decode("ascii"), request.url.port or 80, seconds)
        stream = Endless(reader, writer, request)
        try:
            return await stream.response()
        except BaseException:
            await stream.aclose()
            raise

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx():
            async for chunk in self._stream:
                yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextlib.contextmanager
def _as_httpx() -> Iterator[None]:
    """httpx's errors have the names of httpcore's."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol) as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class _Backend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(*await _connected(host, port, timeout))

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("unix sockets are not reached from here")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _connected(host: str, port: int, timeout: float | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.open_connection(host, port, happy_eyeballs_delay=0.25)
    except TimeoutError:
        raise httpcore.ConnectTimeout from None
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)
        except TimeoutError:
            raise httpcore.ReadTimeout from None
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError:
            raise httpcore.WriteTimeout from None
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    async def aclose(self) -> None:
        await hang_up(self._writer)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # of an idle connection: the agent has closed it
            return self._reader.at_eof() or self._writer.is_closing()
        return self._writer.get_extra_info({"socket": "socket", "server_addr": "peername"}.get(info, info))
