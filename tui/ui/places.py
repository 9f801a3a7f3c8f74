"""Where one is in the app, and the way that was gone: what back and forward go by.

Invariant: the trail is bounded, and standing still adds nothing to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_REMEMBERED = 50
"""Steps that can be gone back."""


class Place(NamedTuple):
    """A screen that can be opened again: its kind, and what of (`node` `gpu-07`)."""

    kind: str
    of: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """By which a screen that is kept is installed."""
        return " ".join((self.kind, *self.of))


Path = tuple[Place, ...]
"""From the fleet to the screen on top."""


class Kept(NamedTuple):
    """What a screen that was left looked like: how far its panes were scrolled, which had the keys, and its `KEEPS`."""

    scrolled: dict[str, float]
    focus: str | None
    fields: dict[str, Any]


class Trail:
    """The paths that were gone, and where on it one stands."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._at = -1

    def here(self, path: Path) -> None:
        """One stands on this path now: a step further, unless it is the one before."""
        if self._at >= 0 and self._paths[self._at] == path:
            return
        self._paths = [*self._paths[: self._at + 1], path][-MOST_REMEMBERED:]
        self._at = len(self._paths) - 1

    def amend(self, path: Path) -> None:
        """The screen on which one stands shows something else now (the next node)."""
        if self._at >= 0:
            self._paths[self._at] = path

    def step(self, step: int) -> Path | None:
        """One step back (-1) or forward (1); None: there is none."""
        if not 0 <= self._at + step < len(self._paths):
            return None
        self._at += step
        return self._paths[self._at]

    def __len__(self) -> int:
        return len(self._paths)
