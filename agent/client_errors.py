"""What can go wrong with an agent seen from outside, and how a failed connection is put into words.

Invariant: each error's text is one sentence for a person: who was asked, what came of it, what to check.

ClientError
├── Unreachable     nobody answers, or the stream fell silent
├── Unauthorized    the token is missing or wrong
├── NotAnAgent      something answers that is not a Rackrate agent (a wrong URL)
├── WireTooNew      the agent speaks a newer version than this program
├── AgentRefused    the agent said no: `status` and its own sentence
├── UnsafeToken     the token would travel unencrypted
└── WrongCertificate  the node's certificate is not the one that was pinned
"""

from __future__ import annotations

import os
import re
import ssl
from urllib.parse import urlsplit

import httpx

_BROKEN_OFF = re.compile("disconnected|closed")


class ClientError(Exception):
    """The root; `str()` is a sentence for a person."""


class Unreachable(ClientError):
    """Nobody answers at the address, or an open stream fell silent."""


class Unauthorized(ClientError):
    """The agent does not take the token."""


class NotAnAgent(ClientError):
    """Something answers, but it is not a Rackrate agent."""


class WireTooNew(ClientError):
    """The agent speaks a newer version of the wire than this program."""


class UnsafeToken(ClientError):
    """The token would travel unencrypted."""


class WrongCertificate(ClientError):
    """The certificate is not the one that was pinned."""


class AgentRefused(ClientError):
    """The agent answered with an error: `status` is the HTTP status, `text` the agent's sentence."""

    def __init__(self, status: int, text: str, where: str) -> None:
        super().__init__(f"{where} refused: {text} (HTTP {status})")
        self.status = status
        self.text = text


def broken_off(error: httpx.RemoteProtocolError) -> bool:
    """Whether the connection ended too early; otherwise what came was no HTTP."""
    return _BROKEN_OFF.search(str(error)) is not None


def place(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.hostname} port {port}"


def reason(error: httpx.HTTPError, timeout_seconds: float) -> str:
    match error:
        case httpx.ConnectTimeout():
            return f"no answer to the connection within {timeout_seconds:g} s"
        case httpx.ReadTimeout():
            return "connected, but nothing came in time"
        case httpx.TimeoutException():
            return f"timed out after {timeout_seconds:g} s"
        case httpx.RemoteProtocolError() if "without sending a response" in str(error):
            return "it closed the connection without an answer; is there an agent behind this port?"
        case httpx.ReadError() | httpx.RemoteProtocolError() | httpx.WriteError():
            return "the connection broke"
    return os_reason(error)


def os_reason(error: BaseException) -> str:
    """The operating system's words, from the bottom of the chain of exceptions."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({seen.verify_message}); `rackrate add` notes its fingerprint"
        if isinstance(seen, ssl.SSLError):
            return "it does not speak TLS there; does the URL begin with http instead?"
        if isinstance(seen, OSError) and seen.errno:
            return (os.strerror(seen.errno) if seen.errno > 0 else str(seen.strerror)).lower()
        seen = seen.__cause__ or seen.__context__
    return str(error) or type(error).__name__
