"""The exit codes of both programs, as the README states them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """0 done, 1 failed, 2 wrong usage or configuration, 3 not reachable, 4 partly done."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    PARTLY = 4
