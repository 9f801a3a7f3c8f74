"""A node that is drained: it starts no job any more until somebody says so again.

Invariant: the order is on the disk before anybody hears of it, so it outlives the agent; a file that cannot be read keeps the
node drained, and says so, for to start a job on a node that was to be left alone is the worse mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from agent import wire
from agent.errors import JobRefused, StateDirectoryError
from agent.kept_order import OrderFile

FILE = "drain.json"


def one_line(text: str | None) -> str | None:
    """A reason as it is kept: without blanks around it; None where nothing is left. JobRefused: it is no line of text."""
    if text is None or not text.strip():
        return None
    if not text.isprintable():
        raise JobRefused("the reason has to be one line of printable text")
    return text.strip()


def named(actor: str, who: str | None) -> str:
    """`ada (token ops)`: what proves nothing stands before what was checked."""
    plain = "".join(sign for sign in who or "" if sign.isprintable()).strip()
    return f"{plain} (token {actor})" if plain else f"token {actor}"


class NodeDrain:
    """`folder` None: kept in memory alone (a simulated node). Belongs to the event loop."""

    def __init__(self, folder: Path | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._file = OrderFile(folder, FILE, "drain", wire.Drain)
        self._clock = clock
        self.now: wire.Drain | None = self._read()

    @property
    def sentence(self) -> str | None:
        """Why no job starts; None: jobs start."""
        if self.now is None:
            return None
        return f"the node is drained: {self.now.reason}" if self.now.reason else f"the node is drained (by {self.now.by})"

    def order(self, by: str, reason: str | None) -> bool:
        """Whether anything changed; a drained node keeps its `since`. StateFull, StateDirectoryError: nothing did."""
        before = self.now
        if before is not None and before.reason == reason:
            return False
        drain = wire.Drain(since=before.since if before else self._clock(), by=by, reason=reason)
        self._file.keep(drain)
        self.now = drain
        return True

    def lift(self) -> bool:
        """Whether it was drained."""
        if self.now is None:
            return False
        self._file.forget("the node stays drained")
        self.now = None
        return True

    def _read(self) -> wire.Drain | None:
        try:
            return self._file.read()
        except StateDirectoryError:
            reason = f"{self._file.path} cannot be read; undrain the node to start anew"
            return wire.Drain(since=self._clock(), by="the agent", reason=reason)
