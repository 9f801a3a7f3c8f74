"""`rackrate-agent` that kills itself with SIGKILL at one point of its own code.

Arguments: POINT, then those of the agent. POINT is `module:Class.method:before|after:N`: before or after the N-th call.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any


def die_at(point: str) -> None:
    """Replaces the function that `point` names by one that ends the process there."""
    module, path, side, number = point.split(":")
    *holders, name = path.split(".")
    holder: Any = importlib.import_module(module)
    for step in holders:
        holder = getattr(holder, step)
    setattr(holder, name, _deadly(getattr(holder, name), side, int(number)))


def _deadly(function: Callable[..., Any], side: str, number: int) -> Callable[..., Any]:
    calls = 0

    @functools.wraps(function)
    def deadly(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number and side == "before":
            _die()
        result = function(*arguments, **named)
        if calls >= number and side == "after":
            _die()
        return result

    return deadly


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    if arguments[0] != "none":
        die_at(arguments[0])
    from agent.cli import main as agent_main

    return agent_main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
