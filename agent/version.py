"""Which Rackrate this is, for whoever speaks with it.

Invariant: it is looked up once, when somebody asks; a checkout that was never installed has no version (None).
"""

from __future__ import annotations

import re
from functools import cache

VERSION_HEADER = "rackrate-agent"
"""Of every answer of an agent: its version, so that a program that does not understand it can name it."""
_TOLD = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!-]{0,39}")


@cache
def installed() -> str | None:
    """Of this program. The package's metadata cost more than all the parsing of a command line."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rackrate")
    except PackageNotFoundError:
        return None


def named(version: str | None) -> str:
    """`Rackrate 0.1.0`, for a sentence; what somebody else tells of himself is shown only where it looks like a version."""
    return f"Rackrate {version}" if version and _TOLD.fullmatch(version) else "a Rackrate of unknown version"
