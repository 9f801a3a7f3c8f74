"""A group of nodes as lines: the short form below the fleet.

Invariant: its figures are the sums of its nodes, and nothing is shown of nodes that the filter hides.
"""

from __future__ import annotations

from tui import format as fmt
from tui.groups import Group, free_text, money
from tui.ui.lines import BLANK, Line, cropped, joined, spread

_STYLES = {"lost": "lost", "stale": "idle", "draining": "idle", "live": "text", "connecting": "dim"}
USERS_SHOWN = 12


def group_detail(group: Group, cells: int, height: int) -> list[Line]:
    """In `height` lines: what it is, its nodes by state, its GPUs, who holds them, what it costs."""
    totals = group.totals
    idle = totals.idle_usd_per_hour
    cost: Line = ((f"{money(totals, totals.usd_per_hour)}/h", "strong"),)
    if idle:
        cost += (("   idle ", "dim"), (f"{money(totals, idle)}/h", "idle"))
    title = joined([((f" {group.title}", "strong"),), ((group.by.removeprefix("tag:"), "dim"),), _nodes(group)], "  ", cells)
    lines = [(("─" * cells, "rule"),), spread(title, (*cost, (" ", "text")), cells), BLANK, _gpus(group), _users(group)]
    if totals.unpriced:
        lines.append(((f"    {totals.unpriced} of its nodes have no price: they are in no sum.", "dim"),))
    return [cropped(line, cells) for line in lines[:height]]


def _nodes(group: Group) -> Line:
    count = len(group.views)
    states = joined([((f"{number} {word}", _STYLES[word]),) for word, number in group.states], " · ")
    return ((f"{fmt.counted(count, 'node')}: ", "dim"), *states)


def _gpus(group: Group) -> Line:
    totals = group.totals
    parts: list[Line] = [(("    GPUs ", "dim"), (f"{totals.gpus_held:,}/{totals.gpus:,}", "strong"), (" held", "dim"))]
    if totals.gpus_lost:
        parts.append(((f"{totals.gpus_lost} lost", "lost"),))
    if totals.free:
        parts.append((("free ", "dim"), (free_text(totals.free), "idle")))
    parts.append((("util ", "dim"), (fmt.percent(totals.utilization_ratio), "text")))
    parts.append(((fmt.watts(totals.power_watts), "text"),))
    return joined(parts, "   ")


def _users(group: Group) -> Line:
    users = group.users or ()
    if not users:
        return (("    nobody holds a GPU of it, as far as is known", "dim"),)
    more = f" and {len(users) - USERS_SHOWN} more" if len(users) > USERS_SHOWN else ""
    return (("    users ", "dim"), (fmt.clean(", ".join(users[:USERS_SHOWN])) + more, "text"))
