"""Certificates of agents: what a server shows, its fingerprint, and a context that trusts that one alone.

Invariant: nothing is sent to a server whose certificate is only looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from functools import cache
from typing import Any

from agent.client_errors import Unreachable, os_reason


@cache
def public_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def pinned_context(certificate: bytes) -> ssl.SSLContext:
    """Trusts this certificate alone. Names are not checked: the fingerprint says more than a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=certificate)
    return context


async def peer_certificate(host: str, port: int, timeout_seconds: float = 5) -> bytes:
    """The certificate that a TLS server shows, as DER; nothing is sent to it. Raises Unreachable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"{host} port {port} is not reachable: {os_reason(error)}") from None
    shown: Any = writer.get_extra_info("ssl_object")
    certificate = shown.getpeercert(binary_form=True)
    writer.transport.abort()
    return bytes(certificate)


def fingerprint_of(certificate: bytes) -> str:
    """`sha256:` and 64 hexadecimal digits of a DER certificate."""
    return "sha256:" + hashlib.sha256(certificate).hexdigest()


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints name one certificate; colons between the digits, case and the prefix do not matter."""
    first, second = (text.lower().removeprefix("sha256:").replace(":", "") for text in (one, other))
    return first == second
