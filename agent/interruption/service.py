"""One cloud's metadata service, asked again and again: bounded answers, bounded waits.

Invariant: an answer is what the service said with a status it defines, or `Unanswered` with a sentence; nothing hangs
longer than its time-out, no proxy is used, no redirect followed, and `interrupt` ends a call that waits.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

ANSWER_BYTES_MAX = 256 * 1024
TIMEOUT_SECONDS = 4.0


class Unanswered(Exception):
    """The service could not be asked, or its answer is none; `str()` is a clause that follows `...: `."""


class Answer(NamedTuple):
    """`date`: the service's clock, as far as it told."""

    status: int
    text: str
    headers: Mapping[str, str]
    date: datetime | None = None


class Service:
    """One base URL. A connection per call. `interrupt` may come from another thread, the rest from one at a time."""

    def __init__(self, base: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.base = base
        self._timeout = timeout_seconds
        self._guard = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._ended = False

    def ask(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        method: str = "GET",
        body: bytes | None = None,
        longer_seconds: float = 0.0,
    ) -> Answer:
        """One exchange. `longer_seconds`: the service may take so much more before it answers. Raises Unanswered."""
        try:
            return self._exchange(method, path, headers, body, self._timeout + longer_seconds)
        except TimeoutError:
            raise Unanswered(f"{self.base} does not answer within {self._timeout:.0f} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unanswered(f"{self.base} cannot be asked ({error or type(error).__name__})") from None

    def interrupt(self) -> None:
        """Ends the call in progress and refuses further ones."""
        with self._guard:
            self._ended = True
            waiting = self._connection.sock if self._connection is not None else None
            if waiting is not None:
                with contextlib.suppress(OSError):
                    waiting.shutdown(socket.SHUT_RDWR)

    def _exchange(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Answer:
        url = urlsplit(self.base)
        if url.scheme != "http" or not url.hostname:
            raise ValueError("not an http:// address")
        connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=timeout)
        try:
            with self._guard:
                if self._ended:
                    raise ConnectionAbortedError("closed")
                self._connection = connection
            connection.connect()
            with self._guard:
                if self._ended:  # while there was no socket yet that could be shut down
                    raise ConnectionAbortedError("closed")
            connection.request(method, url.path.rstrip("/") + path, body, dict(headers))
            answer = connection.getresponse()
            return _read(answer, time.monotonic() + timeout)
        finally:
            with self._guard:
                self._connection = None
            connection.close()


def _read(answer: http.client.HTTPResponse, end: float) -> Answer:
    with answer:
        parts, size = [], 0
        while part := answer.read1(65536):
            parts.append(part)
            size += len(part)
            if size > ANSWER_BYTES_MAX:
                raise ValueError(f"its answer is longer than {ANSWER_BYTES_MAX} bytes")
            if time.monotonic() > end:
                raise TimeoutError
    text = b"".join(parts).decode("utf-8", "replace").strip()
    return Answer(answer.status, text, answer.headers, parse_time(answer.headers.get("Date")))


def parse_time(text: object) -> datetime | None:
    """`2026-11-30T12:02:00Z`, `Mon, 30 Nov 2026 12:02:00 GMT` or `30 Nov 2026 12:02:00 GMT`, in UTC; None: neither."""
    if not isinstance(text, str) or not text.strip():
        return None
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = parse(text.strip())
            return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        except (ValueError, TypeError, OverflowError, IndexError):
            continue
    return None


def decoded(text: str, shape: type[dict[str, Any]] | type[list[Any]], what: str) -> Any:
    """The JSON in `text`, which is a `shape`. Raises Unanswered."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, shape):
        raise Unanswered(f"{what} is answered with something that is not its JSON")
    return document
