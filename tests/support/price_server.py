"""A loopback server that answers as a price API does: each request is noted, each answer scripted by a function."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit


class Asked(NamedTuple):
    """One request."""

    path: str
    query: dict[str, str]


class Answer(NamedTuple):
    """What to send: an object as JSON, or bytes as they are."""

    body: Any
    status: int = 200
    headers: dict[str, str] = {}


class PriceServer(NamedTuple):
    """Its address, and what it was asked."""

    url: str
    asked: list[Asked]


@contextlib.contextmanager
def price_server(answer: Callable[[Asked, int], Answer]) -> Iterator[PriceServer]:
    """Serves until the block ends. `answer` is given the request and how many came before it."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            request = Asked(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)))
            reply = answer(request, len(asked))
            asked.append(request)
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield PriceServer(f"http://127.0.0.1:{server.server_port}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
