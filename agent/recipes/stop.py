"""The soft stop: SIGTERM or SIGUSR1 asks for it, the step in progress is finished, and all ranks stop after the same one.

Invariant: a handler only takes a note; it is acted upon between two steps.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class SoftStop:
    """Of the process, while it is entered."""

    def __init__(self) -> None:
        self.asked: str | None = None
        """Name of the signal that came first."""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or signal.Signals(number).name
