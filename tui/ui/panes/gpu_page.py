"""One GPU on the whole screen: what it does now, its past, who has it, and what it cost today.

Invariant: the newest values stay when the node falls silent, dimmed and with their age; a gap in its past is drawn as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from agent import wire
from tui import format as fmt
from tui.columns import age_text, gpu_state_text
from tui.fleet import GpuUse, NodeView
from tui.gpu_today import Today
from tui.node_history import FIELDS
from tui.readings_chart import scales
from tui.ui.lines import BLANK, Line, cropped, joined, spread
from tui.ui.panes.gpu import holders_text, short_model, state_style
from tui.ui.panes.gpu_facts import facts, holder_lines, mig_lines, more_facts
from tui.ui.panes.host import alert_lines
from tui.ui.panes.plots import Look, Plot, grid
from tui.ui.panes.processes import process_lines

SPACIOUS_ROWS = 30
"""From here sections stand apart."""
LEFT_FOR_HOLDERS = 6
"""Lines below the plots that are seen without scrolling, where there are so many."""


class Seen(NamedTuple):
    """What the screen shows, besides the node: which GPU, its past, its day, and what is said beside the plots."""

    use: GpuUse
    look: Look
    today: Today | None
    note: str
    alerts: Sequence[wire.Alert] = ()


def gpu_title(view: NodeView, use: GpuUse, now: float, cells: int) -> Line:
    """Which GPU, of which node, what it is, who has it; its part of the price at the end."""
    state = view.state(now)
    word = "" if state == "live" else f"{state} {age_text(view, now)}" if view.heard_at is not None else state
    left: list[Line] = [((" GPU ", "dim"), (str(use.gpu.index), "strong")), ((gpu_state_text(use), state_style(use)),)]
    if word:
        left.append(((word, "lost" if state == "lost" else "idle"),))
    left += [((fmt.clean(short_model(use.gpu.model)), "text"),), (("on ", "dim"), (fmt.clean(view.name), "text")),
             ((holders_text(use), "text" if use.held else "dim"),)]  # fmt: skip
    part = view.usd_per_hour / len(view.uses) if view.usd_per_hour is not None and view.uses else None
    money: Line = ((f"{fmt.usd(part)}/h ", "idle" if use.wasted else "strong"),)
    return spread(joined(left, "  ", max(0, cells - 12)), money, cells)


def gpu_page(view: NodeView, seen: Seen, now: float, at: datetime, cells: int, height: int) -> list[Line]:
    """All there is to say about one GPU; `height` is what is seen of it without scrolling."""
    use, dim = seen.use, view.state(now) != "live"
    wrong = _wrong(seen, at, cells)
    lines: list[Line] = [*wrong, *facts(view, use, seen.today, at, cells, dim=dim)]
    holders = [line for line, _ in process_lines((use,), cells, at, view.links.ancestors)]
    given = holder_lines(use, cells)
    room = height - len(lines) - min(len(holders) + len(given), LEFT_FOR_HOLDERS) - (2 if height < SPACIOUS_ROWS else 14)
    plots = history_lines(view, seen, cells, room)
    mig = mig_lines(use, cells)
    sections = [(f"Last {seen.look.span.name}", plots, seen.note), ("Holders", [*given, *holders], ""), ("MIG instances", mig, ""),
                ("More", more_facts(view, use, at, cells), "")]  # fmt: skip
    for title, more, note in sections:
        if more:
            lines += [*(() if height < SPACIOUS_ROWS else (BLANK,)), _rule(title, cells, note), *more]
    return [cropped(line, cells) for line in lines]


def history_lines(view: NodeView, seen: Seen, cells: int, room: int) -> list[Line]:
    """The four plots, as high as `room` allows."""
    gpu, uuid, look = seen.use.gpu, seen.use.gpu.uuid, seen.look
    now = {"utilization": gpu.utilization_ratio, "memory": gpu.memory_used_bytes, "power": gpu.power_watts,
           "temperature": gpu.temperature_celsius}  # fmt: skip
    of = scales(gpu.memory_total_bytes, gpu.power_limit_watts)
    plots = [Plot(of[field], (uuid,), field, now[field]) for field in FIELDS]
    return grid(plots, look, cells, room)


def _wrong(seen: Seen, at: datetime, cells: int) -> list[Line]:
    gpu = seen.use.gpu
    lines: list[Line] = []
    if gpu.reason:
        lines.append(((f"  {fmt.clean(gpu.reason)}", "lost"),))
    return [*lines, *alert_lines([alert for alert in seen.alerts if alert.gpu == gpu.uuid], at, cells)]


def _rule(title: str, cells: int, note: str) -> Line:
    from tui.ui.panes.node import rule

    return rule(title, cells, note)
