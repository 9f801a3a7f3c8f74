"""What clients send: a JSON struct of the wire, or the bytes of an upload.

Invariant: nothing is kept of a body beyond its limit, a body that is not what it has to be is refused in one sentence that
names the key, and a client that stops sending is not waited for.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions import HTTPException

JSON = "application/json"
GZIP = "application/gzip"
MOST_JSON_BYTES = 1024 * 1024
READ_SECONDS = 30.0
"""For a whole JSON body, and for each piece of an upload."""

T = TypeVar("T", bound=msgspec.Struct)


class BadBody(HTTPException):
    """`detail` is the sentence."""

    status_code = 400


class TooLarge(BadBody):
    status_code = 413


class WrongKind(BadBody):
    status_code = 415


class TooSlow(BadBody):
    status_code = 408


async def json_body(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The body as a struct. Raises BadBody."""
    _check_kind(request, JSON)
    pieces: list[bytes] = []
    async for piece in limited(request, MOST_JSON_BYTES):
        pieces.append(piece)
    try:
        body = msgspec.json.decode(b"".join(pieces), type=kind)
    except msgspec.ValidationError as error:
        raise BadBody(_explain(str(error), kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBody(f"the body is not JSON: {str(error)[:1].lower()}{str(error)[1:]}") from None
    _check_decimals(body)
    return body


async def upload_body(request: Request[Any, Any, Any], most: int) -> AsyncIterator[bytes]:
    """The pieces of a gzip archive as they come. Raises BadBody, the first time before anything is read."""
    _check_kind(request, GZIP)
    async for piece in limited(request, most):
        yield piece


async def limited(request: Request[Any, Any, Any], most: int) -> AsyncIterator[bytes]:
    """The body's pieces; TooLarge as soon as it is known to be longer than `most` bytes."""
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    total, pieces = 0, request.stream()
    while True:
        try:
            async with asyncio.timeout(READ_SECONDS):
                piece = await anext(pieces, None)
        except TimeoutError:
            raise TooSlow(f"the body did not come within {READ_SECONDS:.0f} s; send it again") from None
        if piece is None:
            return
        total += len(piece)
        if total > most:
            raise _too_large(most)
        yield piece


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is larger than the {most:,} bytes that are taken here")


def _check_kind(request: Request[Any, Any, Any], wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise WrongKind(f"the Content-Type has to be {wanted}; it is {given[:80]!r}")


def _check_decimals(body: msgspec.Struct) -> None:
    """JSON's strings can say NaN and Infinity, which no limit and no amount of money is."""
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, Decimal) and not value.is_finite():
            raise BadBody(f"`{name}` has to be a number; it is {value}")


def _explain(message: str, kind: type[msgspec.Struct]) -> str:
    """msgspec's words with the key first, and the nearest key for one that does not exist."""
    what, _, where = message.partition(" - at ")
    place = where.strip("`").removeprefix("$").removeprefix(".")
    if unknown := re.search(r"unknown field `(.*?)`", what):
        key = unknown[1][:80]
        near = difflib.get_close_matches(key, kind.__struct_fields__, 1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(kind.__struct_fields__)}"
        return f"unknown key `{key}`; {hint}"
    if missing := re.search(r"missing required field `(.*?)`", what):
        return f"the key `{missing[1]}` is missing{f' in `{place}`' if place else ''}"
    text = what[:1].lower() + what[1:]
    return f"`{place}`: {text}" if place else f"the body is wrong: {text}"
