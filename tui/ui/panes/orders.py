"""What people ordered of a node, as lines: that it is drained, and which alerts are paused.

Invariant: each says by whom, for how long and why, as far as the node tells.
"""

from __future__ import annotations

from datetime import datetime

from tui import format as fmt
from tui.blast import length
from tui.fleet import NodeView
from tui.ui.lines import Line, wrapped


def order_lines(view: NodeView, at: datetime | None, cells: int) -> list[Line]:
    """`at`: the time at the node."""
    if view.info is None:
        return []
    lines: list[Line] = []
    if (drain := view.info.drain) is not None:
        since = "" if at is None else f" for {fmt.age(max(0.0, (at - drain.since).total_seconds()))}"
        text = f"drained{since} by {drain.by}: {drain.reason or 'no reason given'}; no job starts here"
        lines += wrapped(fmt.clean(text), "idle", cells, "  ")
    for pause in view.info.pauses:
        index = next((f" of GPU {gpu.index}" for gpu in view.info.gpus if gpu.uuid == pause.gpu), "")
        left = "" if at is None else f" for {length(max(0.0, (pause.until - at).total_seconds()))} more"
        why = f": {pause.reason}" if pause.reason else ""
        text = f"{pause.rule or 'all alerts'}{index} paused{left} by {pause.by}{why}"
        lines += wrapped(fmt.clean(text), "dim", cells, "  ")
    return lines
