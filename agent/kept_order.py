"""An order that somebody gave about a node, kept in a file of the state directory, so that it outlives the agent.

Invariant: the file is whole or absent, and an order counts only once it is on the disk; a file that is none of ours is a
fault of its own, for what it then means differs from order to order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from agent.errors import StateDirectoryError
from agent.private_files import read_private, sweep, write_private

T = TypeVar("T")


class OrderFile(Generic[T]):
    """`folder` None: kept in memory alone (a simulated node). `what` names it in sentences."""

    def __init__(self, folder: Path | None, name: str, what: str, kind: type[T]) -> None:
        self.path = None if folder is None else folder / name
        self._what = what
        self._kind = kind
        if self.path is not None:
            sweep(self.path)

    def read(self) -> T | None:
        """None where none was kept. StateDirectoryError: what is there cannot be read."""
        if self.path is None or not self.path.exists():
            return None
        try:
            return msgspec.json.decode(read_private(self.path, self._what), type=self._kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateDirectoryError(f"the {self._what} file {self.path} cannot be read ({error})") from None

    def keep(self, order: T) -> None:
        """StateFull, StateDirectoryError: nothing changed."""
        if self.path is not None:
            write_private(self.path, msgspec.json.encode(order) + b"\n")

    def forget(self, so: str) -> None:
        """StateDirectoryError: it cannot be removed, `so` (a sentence's end)."""
        if self.path is None:
            return
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise StateDirectoryError(f"{self.path} cannot be removed ({error.strerror}), so {so}") from None
