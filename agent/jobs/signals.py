"""Names of signals, as people write them.

Invariant: a name that this system does not know is never sent as something else.
"""

from __future__ import annotations

import signal

from agent.errors import JobRefused


def signal_number(text: str) -> int:
    """`USR1`, `SIGUSR1` and `10` alike. Raises JobRefused."""
    name = text.strip().upper()
    try:
        if name.isascii() and name.isdigit():
            return int(signal.Signals(int(name)))
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except (KeyError, ValueError):
        raise JobRefused(f"{text!r} is no signal; write a name such as TERM, INT or USR1, or its number") from None


def signal_name(number: int) -> str:
    """`TERM` of 15; the number itself where it has no name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)
