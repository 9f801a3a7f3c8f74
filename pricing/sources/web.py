"""JSON over HTTPS for the sources that are no AWS: retried where it may help, and a sentence where it does not.

Invariant: numbers of an answer never pass through a float. A wait that a server asks for is kept to, unless it is longer
than `LONGEST_WAIT`: then it is `Throttled`, for the refresh can be resumed later.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Self

import httpx

from pricing.sources import BadAnswer, ExpiredCredentials, NoPermission, SourceFault, Throttled, Unreachable

TRIES = 5
CONNECT_TRIES = 3
"""Where nothing answers at all."""
FIRST_WAIT = 1.0
"""Seconds; doubled with each try."""
LONGEST_WAIT = 60.0
TIMEOUT = 30.0
Params = Mapping[str, str] | Callable[[], Mapping[str, str]] | None
LARGEST_ANSWER = 64 << 20
"""Bytes; the largest pages that are documented are a tenth of it."""


class Web:
    """One server, asked again and again. Close it, or use it as a context manager."""

    def __init__(
        self, name: str, *, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._name = name
        self._sleep = sleep
        self._client = httpx.Client(
            transport=transport, timeout=TIMEOUT, follow_redirects=False, headers={"user-agent": "rackrate"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, url: str, params: Params = None) -> dict[str, Any]:
        """The object that the server answers. SourceFault says why there is none.

        `params` may be a function, which is asked anew for each try (a signature is good for one).
        """
        fault: SourceFault = Unreachable(f"{self._name} was not asked.")
        for attempt in range(TRIES):
            wait = FIRST_WAIT * 2**attempt
            try:
                answer = self._client.get(url, params=params() if callable(params) else params)
            except (httpx.TransportError, httpx.InvalidURL) as error:
                host = httpx.URL(url).host
                fault = Unreachable(f"{self._name}: {host} cannot be reached ({type(error).__name__}: {error}).")
                if isinstance(error, httpx.ConnectError) and attempt + 1 >= CONNECT_TRIES:
                    raise fault from None
            else:
                if answer.status_code == 200:
                    return self._decoded(answer)
                fault = self._refused(answer)
                if not isinstance(fault, Throttled | Unreachable):
                    raise fault
                wait = self._asked_wait(answer, wait, fault)
            if attempt + 1 < TRIES:
                self._sleep(wait)
        raise fault

    def _decoded(self, answer: httpx.Response) -> dict[str, Any]:
        if len(answer.content) > LARGEST_ANSWER:
            raise BadAnswer(f"{self._name} answered {len(answer.content)} bytes, more than any page of prices has.")
        try:
            data = json.loads(answer.content, parse_float=Decimal, parse_constant=str)
        except (ValueError, RecursionError) as error:
            raise BadAnswer(f"{self._name} answered something that is no JSON ({error}).") from None
        if not isinstance(data, dict):
            raise BadAnswer(f"{self._name} answered a {type(data).__name__} where an object was expected.")
        return data

    def _refused(self, answer: httpx.Response) -> SourceFault:
        status, said = answer.status_code, _said(answer)
        what = f"{self._name} answered {status}{f' ({said})' if said else ''}"
        if status == 429 or '"Throttling' in answer.text:
            return Throttled(f"{what}: too many requests, also after {TRIES} tries; refresh again later, it goes on from here.")
        if status == 401 or "API_KEY_INVALID" in answer.text or "InvalidAccessKeyId" in answer.text:
            return ExpiredCredentials(f"{what}: the key is not valid (any more); configure another one.")
        if status == 403:
            return NoPermission(f"{what}: the key may not read prices; allow it, or configure another one.")
        if status >= 500:
            return Unreachable(f"{what}, also after {TRIES} tries; refresh again later, it goes on from here.")
        return BadAnswer(f"{what}.")

    def _asked_wait(self, answer: httpx.Response, wait: float, fault: SourceFault) -> float:
        asked = retry_after(answer.headers)
        if asked is not None and asked > LONGEST_WAIT:
            raise Throttled(f"{self._name} asks to wait {asked:.0f} s; refresh again later, it goes on from here.") from fault
        return max(wait, asked) if asked is not None else wait


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or from a date (against the server's own `Date`)."""
    text = headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return seconds if 0 <= seconds < float("inf") else None
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))).total_seconds())
    return None


def objects(data: Mapping[str, Any], key: str, name: str) -> list[dict[str, Any]]:
    """A list of objects in an answer. BadAnswer when there is none."""
    found = data.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise BadAnswer(f"{name} answered without a list `{key}`; has its interface changed?")
    return found


def number(value: object) -> Decimal | None:
    """An exact number, however it is written; None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        return Decimal(value)
    except ArithmeticError:
        return None


def moment(text: object) -> datetime | None:
    """An aware UTC time, from ISO 8601 with a zone; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def batches(names: list[str], size: int) -> Iterator[list[str]]:
    """The names, so many at a time."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _said(answer: httpx.Response) -> str:
    """The server's own words, short and printable."""
    words: object = None
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        data = answer.json()
        error = data.get("error") or data.get("Error") or data
        words = (error.get("message") or error.get("Message")) if isinstance(error, dict) else error
    text = words if isinstance(words, str) else answer.reason_phrase
    return "".join(filter(str.isprintable, text)).strip().rstrip(".")[:200]
