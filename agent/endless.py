"""A stream's answer over plain http, read with as little as each message needs: a thousand of them come every second.

Invariant: the head is read by h11, the body by `Chunks` from the connection's own bytes; errors are httpx's. (Through httpcore,
h11 and a time-out for each read a message cost half as much again: 255 us against 168, decoding included, 300 streams.)
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator

import h11
import httpx

READ_BYTES = 1 << 16
BODY = "rackrate_body"
"""Extension of the response: its body below httpx's own layers, two generators less for each message."""
MOST_HEAD_BYTES = 256
"""Of the line before a chunk, extensions included."""
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_CUT_OFF = "peer closed connection without sending complete message body (incomplete chunked read)"


class Chunks:
    """Takes the framing off (RFC 9112, 7.1). `ended`: the last chunk has come. Trailers are not read."""

    def __init__(self) -> None:
        self.ended = False
        self._rest = b""
        self._left = 0
        """Of the chunk under way, its line end included."""

    def feed(self, data: bytes) -> bytes:
        """What `data` carries. httpx.RemoteProtocolError: it is no such body."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        found: list[bytes] = []
        at, size = 0, len(data)
        while at < size and not self.ended:
            if self._left > 2:
                piece = data[at : at + self._left - 2]
                found.append(piece)
                at += len(piece)
                self._left -= len(piece)
            elif self._left:
                at = self._line_end(data, at)
            elif (end := data.find(b"\r\n", at)) >= 0:
                length = self._length(data[at:end])
                at, self.ended, self._left = end + 2, not length, length + 2
            else:
                self._keep(data[at:])
                break
        return found[0] if len(found) == 1 else b"".join(found)

    def _line_end(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._left]
        if piece != b"\r\n"[2 - self._left :][: len(piece)]:
            raise httpx.RemoteProtocolError("a chunk is longer than it says")
        self._left -= len(piece)
        return at + len(piece)

    @staticmethod
    def _length(line: bytes) -> int:
        text = line.partition(b";")[0].strip(b" \t")
        if not _SIZE.fullmatch(text):
            raise httpx.RemoteProtocolError(f"no length of a chunk: {line[:40]!r}")
        return int(text, 16)

    def _keep(self, rest: bytes) -> None:
        if len(rest) > MOST_HEAD_BYTES:
            raise httpx.RemoteProtocolError("the length of a chunk does not end")
        self._rest = rest


class Endless:
    """One connection, one request, one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: httpx.Request) -> None:
        self._reader, self._writer, self._request = reader, writer, request
        self._http = h11.Connection(h11.CLIENT)
        seconds: dict[str, float | None] = request.extensions.get("timeout", {})
        self._read_seconds = seconds.get("read")
        self._heard = 0.0
        self._silent = False
        self._timer: asyncio.TimerHandle | None = None

    async def response(self) -> httpx.Response:
        """The head; its body is read as it is iterated."""
        target, headers = self._request.url.raw_path, self._request.headers.raw
        with self._worded():
            asked = self._http.send(h11.Request(method=self._request.method, target=target, headers=headers))
            self._writer.write((asked or b"") + (self._http.send(h11.EndOfMessage()) or b""))
            async with asyncio.timeout(self._read_seconds):
                head = await self._head()
        body = _Body(self, _is_chunked(head))
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=body, extensions={BODY: body})

    async def _head(self) -> h11.Response:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                return event
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(READ_BYTES))

    async def chunked(self) -> AsyncIterator[bytes]:
        """What chunks carry, as it comes. One timer watches the silence, none is set for each read."""
        chunks, data = Chunks(), self._http.trailing_data[0]
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self._watch(loop)
        try:
            while True:
                if body := chunks.feed(data):
                    yield body
                if chunks.ended:
                    return
                data = await self._reader.read(READ_BYTES)
                if not data:
                    raise self._cut_off()
                self._heard = loop.time()
        except OSError as error:
            raise httpx.ReadError(str(error), request=self._request) from error
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def whole(self) -> AsyncIterator[bytes]:
        """A body of another kind, by h11: a refusal's."""
        with self._worded():
            while not isinstance(event := self._http.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
                if isinstance(event, h11.Data):
                    yield bytes(event.data)
                elif event is h11.NEED_DATA:
                    async with asyncio.timeout(self._read_seconds):
                        self._http.receive_data(await self._reader.read(READ_BYTES))
                elif event is h11.PAUSED:
                    return

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """What goes wrong, as httpx's own errors."""
        try:
            yield
        except TimeoutError:
            raise httpx.ReadTimeout("", request=self._request) from None
        except OSError as error:
            raise httpx.ReadError(str(error), request=self._request) from error
        except h11.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(str(error), request=self._request) from error

    def _cut_off(self) -> httpx.TransportError:
        if self._silent:
            return httpx.ReadTimeout("", request=self._request)
        return httpx.RemoteProtocolError(_CUT_OFF, request=self._request)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks again when the time would be over; then the read that waits is ended."""
        if self._read_seconds is None:
            return
        left = self._heard + self._read_seconds - loop.time()
        if left > 0:
            self._timer = loop.call_later(left, self._watch, loop)
        else:
            self._silent = True
            self._writer.transport.abort()

    async def aclose(self) -> None:
        await hang_up(self._writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Ends a connection at once: nobody waits for an agent that takes no bytes any more."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


class _Body(httpx.AsyncByteStream):
    def __init__(self, stream: Endless, chunked: bool) -> None:
        self._stream, self._chunked = stream, chunked

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.chunked() if self._chunked else self._stream.whole()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_chunked(head: h11.Response) -> bool:
    return any(name.lower() == b"transfer-encoding" and value.strip().lower() == b"chunked" for name, value in head.headers)
