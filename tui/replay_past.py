"""Utilisations of a recorded node's GPUs before a moment, for its plots.

Invariant: what is filled in is what `Past.add` would have made of the same samples.
"""

from __future__ import annotations

from typing import NamedTuple

from tui.fleet import NodeView
from tui.past import POINTS, Past
from tui.record_codec import PARTS, WORDS, Doc

_UUID, _RATIO, _GPUS = map(WORDS.index, ("uuid", "utilization_ratio", "gpus"))
_PARTS = PARTS["utilization_ratio"]


class _Point(NamedTuple):
    """The two fields of a GPU that `Past.add` reads."""

    uuid: str
    utilization_ratio: float | None


class PastRows:
    """Of one node, sample by sample."""

    def __init__(self) -> None:
        self._rows: list[tuple[tuple[str, int | None], ...]] = []

    def add(self, doc: Doc) -> None:
        """A sample as a document."""
        self._rows.append(tuple([(gpu[_UUID], gpu.get(_RATIO)) for gpu in doc.get(_GPUS, ())]))

    def fill(self, view: NodeView) -> None:
        """The newest stands there already, and is the last of these."""
        view.past = Past()
        for row in self._rows[-POINTS:]:
            points = tuple(_Point(uuid, None if ratio is None else ratio / _PARTS) for uuid, ratio in row)
            view.past.add(points)  # type: ignore[arg-type]
