"""What is said while no node is configured: that this is this machine alone, why it has no GPU, and how to add nodes.

Invariant: each line names a command that exists.
"""

from __future__ import annotations

from collections.abc import Iterable

from tui.fleet import NodeView
from tui.format import clean
from tui.ui.lines import BLANK, Line, wrapped

ADD: tuple[Line, ...] = (
    (("  rackrate add URL", "key"), ("       adds a node that runs an agent", "dim")),
    (("  rackrate-agent init", "key"), ("    on that node prints the line to add it", "dim")),
    (("  rackrate demo", "key"), ("          shows a simulated fleet", "dim")),
)
NO_NODES: tuple[Line, ...] = ((("  No nodes yet.", "strong"),), BLANK, *ADD)


def first_run_lines(views: Iterable[NodeView], cells: int) -> tuple[Line, ...]:
    """Below the one row of the fleet."""
    reasons = [reason for view in views if (reason := _reason(view))]
    lines: list[Line] = [line for reason in reasons for line in wrapped(clean(reason), "idle", cells, "  ")]
    if lines:
        lines.append(BLANK)
    lines += [(("  This machine alone is shown, as no node is configured.", "strong"),), BLANK, *ADD]
    return (*lines, (("  ?", "key"), ("                      shows what can be done here", "dim")))


def _reason(view: NodeView) -> str | None:
    """Why it has no GPU, as a sentence."""
    told = (view.sample.gpu_reason if view.sample else None) or (view.info.gpu_reason if view.info else None)
    return f"No GPU: {told}." if told and not view.gpus else None
