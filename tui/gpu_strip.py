"""The GPUs of a node as a strip of cells: who works, who stands idle, who is lost.

Invariant: each GPU is in exactly one cell, and the worst of a cell is told: where there are fewer cells than GPUs, neighbours
share one. What a cell means is told by its character, never by its colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from tui import format as fmt
from tui.gpu_use import GpuUse, free_instances, mean

Look = Literal["lost", "idle", "held", "unknown"]


class Cell(NamedTuple):
    """`look` says what the colour says too."""

    character: str
    look: Look


def strip(uses: Sequence[GpuUse], cells: int) -> list[Cell]:
    """At most `cells` cells. `▁`-`█` held, by utilisation; `○` idle; `✗` lost; `!` not readable; `·` not known; `3` of its
    MIG instances in use."""
    count = min(cells, len(uses))
    if count <= 0:
        return []
    bounds = [place * len(uses) // count for place in range(count + 1)]
    return [_cell(uses[first:last]) for first, last in pairwise(bounds)]


def _cell(uses: Sequence[GpuUse]) -> Cell:
    for state, character in (("lost", "✗"), ("error", "!")):
        if any(use.gpu.state == state for use in uses):
            return Cell(character, "lost")
    idle = [use.held is False for use in uses]
    if all(idle):
        return Cell("○", "idle")
    if len(uses) == 1 and uses[0].gpu.mig_instances:
        return _of_instances(uses[0])
    known = any(use.held is not None for use in uses)
    ratio = mean(use.gpu.utilization_ratio for use in uses)
    return Cell(fmt.bar_cell(ratio), "idle" if any(idle) else "held" if known else "unknown")


def _of_instances(use: GpuUse) -> Cell:
    """A GPU that is cut into instances has no utilisation of its own; what counts is how many are in use."""
    every = len(use.gpu.mig_instances or ())
    if use.gpu.processes is None or any(process.mig_instance is None for process in use.gpu.processes) or use.gpu.allocations:
        return Cell(fmt.bar_cell(use.gpu.utilization_ratio), "held" if use.held else "unknown")
    free = len(free_instances(use.gpu))
    return Cell(str(min(9, every - free)), "idle" if free else "held")


def strip_text(uses: Sequence[GpuUse]) -> str:
    """A cell for each GPU, as plain text; `–` where there is none."""
    return "".join(cell.character for cell in strip(uses, len(uses))) or fmt.UNKNOWN
