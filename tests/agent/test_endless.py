"""The body of a stream's answer, as an HTTP library would read it; its end, its silence and what is no such body."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import h11
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.endless import Chunks
from agent.transport import ENDLESS, PlainTransport
from tests.support.examples import examples
from tests.support.raw_server import answering

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n"


def by_h11(body: bytes) -> bytes:
    """What h11 reads of a chunked body."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    http.send(h11.EndOfMessage())
    http.receive_data(HEAD + body)
    found = b""
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        assert event is not h11.NEED_DATA
        found += bytes(event.data) if isinstance(event, h11.Data) else b""
    return found


@given(
    pieces=st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b";a=b", b" "]), st.booleans()), max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=12),
    after=st.sampled_from([b"", b"\r\n", b"trailer: 1\r\n\r\n"]),
)
@settings(max_examples=examples(200))
def test_chunks_are_read_as_h11_reads_them_wherever_they_are_cut(
    pieces: list[tuple[bytes, bytes, bool]], cuts: list[int], after: bytes
) -> None:
    body = b"".join(
        (f"{len(data):X}" if upper else f"0{len(data):x}").encode() + extension + b"\r\n" + data + b"\r\n"
        for data, extension, upper in pieces
    )
    places = sorted({min(cut, len(body)) for cut in cuts} | {0})
    chunks, found = Chunks(), b""
    for start, end in zip(places, [*places[1:], len(body)], strict=True):
        found += chunks.feed(body[start:end])
        assert not chunks.ended
    assert chunks.feed(b"0\r\n" + after) == b"" and chunks.ended
    assert found == b"".join(data for data, _, _ in pieces) == by_h11(body + b"0\r\n\r\n")


@pytest.mark.parametrize("body", [b"x\r\n", b"\r\n", b"-1\r\n", b"0x5\r\nhello\r\n", b"1_0\r\n", b"2\r\nabc\r\n", b"1\r\na\rb", b"a" * 300])
def test_what_is_no_chunk_is_an_error(body: bytes) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        Chunks().feed(body)


@contextlib.asynccontextmanager
async def says(*parts: bytes, then_close: bool) -> AsyncIterator[str]:
    """A server that reads a head, says these parts one after the other, and then closes or is silent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.01)
        if not then_close:
            await reader.read()

    async with answering(answer) as url:
        yield f"{url}/"


async def read(url: str, silence: float = 30.0) -> tuple[int, bytes]:
    found = b""
    async with httpx.AsyncClient(transport=PlainTransport(), timeout=httpx.Timeout(30.0, read=silence)) as client:
        async with client.stream("GET", url, extensions={ENDLESS: True}) as response:
            async for data in response.aiter_raw():
                found += data
            return response.status_code, found


async def test_a_stream_ends_as_its_sender_means_it() -> None:
    async with says(HEAD[:20], HEAD[20:] + b"3\r\nab", b"c\r\n2\r\nde\r\n0\r\n\r\n", then_close=False) as url:
        assert await read(url) == (200, b"abcde")
    async with says(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"0\r\n\r\n", then_close=False) as url:
        assert await read(url) == (200, b"")
    async with says(b"HTTP/1.1 401 No\r\ncontent-length: 5\r\n\r\nwho", b"??", then_close=False) as url:
        assert await read(url) == (401, b"who??")
    async with says(b"HTTP/1.0 200 OK\r\n\r\nabc", then_close=True) as url:
        assert await read(url) == (200, b"abc")


async def test_what_breaks_off_or_is_silent_is_told_as_httpx_tells_it() -> None:
    async with says(HEAD + b"3\r\nab", then_close=True) as url:
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
            await read(url)
    async with says(b"SSH-2.0-OpenSSH\r\n", then_close=True) as url:
        with pytest.raises(httpx.RemoteProtocolError):
            await read(url)
    async with says(HEAD + b"3\r\nabc\r\n", then_close=False) as url:
        with pytest.raises(httpx.ReadTimeout):
            await read(url, silence=0.2)
    async with says(HEAD[:30], then_close=False) as url:
        with pytest.raises(httpx.ReadTimeout):
            await read(url, silence=0.2)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(httpx.ConnectError):
        await read(f"http://127.0.0.1:{port}/")
