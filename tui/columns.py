"""One set of column specifications for the app's tables and the commands' output.

Invariant: a column's text comes from its value, so the screen, `rackrate nodes` and sorting agree.
Widths are fixed per column: nothing is measured at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, Literal

import msgspec

from tui import format as fmt
from tui.fleet import STALE_SECONDS, GpuUse, NodeView, Totals
from tui.gpu_strip import strip_text

Align = Literal["left", "right"]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """How one column looks. `priority` 1 stays longest on narrow screens; `width` in cells; `flex` may grow.

    `value` sorts (None last, whatever the direction); `text` shows. `now` is the caller's monotonic time.
    """

    id: str
    title: str
    width: int
    priority: int
    value: Callable[[Any, float], Any]
    text: Callable[[Any, float], str]
    align: Align = "left"
    flex: bool = False
    descending: bool = False
    """Sorting by it begins with the largest."""
    sort_key: str = ""
    """The key that sorts by it in the app."""


def _info(name: str) -> Callable[[NodeView, float], Any]:
    return lambda node, now: getattr(node.info, name) if node.info else None


def _info_text(name: str) -> Callable[[NodeView, float], str]:
    value = _info(name)
    return lambda node, now: fmt.clean(value(node, now) or fmt.UNKNOWN)


_STATE_ORDER = {"lost": 0, "stale": 1, "connecting": 2, "live": 3}
_PURCHASE_SHORT = {
    "on_demand": "on-demand",
    "spot": "spot",
    "reserved_1y": "rsv 1y",
    "reserved_3y": "rsv 3y",
    "savings_plan_1y": "sp 1y",
    "savings_plan_3y": "sp 3y",
    "capacity_block": "block",
}


def purchase_text(purchase: str | None) -> str:
    """Short name of a purchase option; `–` when not known."""
    return fmt.UNKNOWN if purchase is None else _PURCHASE_SHORT.get(purchase, purchase)


def _purchase(node: NodeView, now: float) -> str:
    if node.info and node.info.purchase is None and node.info.cloud == "on_premises":
        return "owned"
    return purchase_text(node.info.purchase if node.info else None)


NODE_COLUMNS: tuple[Column, ...] = (
    Column(
        id="state", title="STATE", width=6, priority=1, sort_key="1",
        value=lambda n, now: -1 if n.notice else _STATE_ORDER[n.state(now)],
        text=lambda n, now: state_text(n, now),
    ),
    Column(
        id="node", title="NODE", width=16, priority=1, flex=True, sort_key="2",
        value=lambda n, now: n.name, text=lambda n, now: fmt.clean(n.name),
    ),
    Column(
        id="instance_type", title="TYPE", width=16, priority=7, sort_key="3",
        value=_info("instance_type"), text=_info_text("instance_type"),
    ),
    Column(
        id="purchase", title="BUY", width=9, priority=8,
        value=_info("purchase"), text=_purchase,
    ),
    Column(
        id="gpus", title="GPUS", width=8, priority=2, sort_key="4", descending=True,
        value=lambda n, now: len(n.gpus) or None, text=lambda n, now: strip_text(n.uses),
    ),
    Column(
        id="utilization", title="UTIL", width=5, priority=3, align="right", sort_key="5", descending=True,
        value=lambda n, now: n.utilization_ratio, text=lambda n, now: fmt.percent(n.utilization_ratio),
    ),
    Column(
        id="memory", title="MEM", width=5, priority=6, align="right", sort_key="6", descending=True,
        value=lambda n, now: n.memory_ratio, text=lambda n, now: fmt.percent(n.memory_ratio),
    ),
    Column(
        id="power", title="POWER", width=7, priority=9, align="right", sort_key="7", descending=True,
        value=lambda n, now: n.power_watts, text=lambda n, now: fmt.watts(n.power_watts),
    ),
    Column(
        id="users", title="USERS", width=10, priority=5, flex=True,
        value=lambda n, now: n.users or None, text=lambda n, now: fmt.clean(",".join(n.users)) or fmt.UNKNOWN,
    ),
    Column(
        id="usd_per_hour", title="$/H", width=9, priority=2, align="right", sort_key="8", descending=True,
        value=lambda n, now: n.usd_per_hour, text=lambda n, now: _marked(n, fmt.usd(n.usd_per_hour)),
    ),
    Column(
        id="idle_usd_per_hour", title="IDLE $/H", width=9, priority=2, align="right", sort_key="9", descending=True,
        value=lambda n, now: n.idle_usd_per_hour, text=lambda n, now: fmt.usd(n.idle_usd_per_hour),
    ),
    Column(
        id="region", title="WHERE", width=15, priority=10,
        value=lambda n, now: (n.info.zone or n.info.region) if n.info else None,
        text=lambda n, now: fmt.clean((n.info.zone or n.info.region or fmt.UNKNOWN) if n.info else fmt.UNKNOWN),
    ),
    Column(
        id="age", title="AGE", width=4, priority=4, align="right", sort_key="0", descending=True,
        value=lambda n, now: _whole_age(n, now), text=lambda n, now: age_text(n, now),
    ),
)  # fmt: skip


def state_text(node: NodeView, now: float) -> str:
    """`live`, `drain`, `stale`, `lost`, `…`; while the cloud's notice is in force the time that it leaves: `!1m43s`."""
    state = node.state(now)
    if node.notice is not None and state == "live":
        return node.notice.short(node.utc(now))
    if node.draining and state == "live":
        return "drain"
    return {"connecting": "…"}.get(state, state)


def jobs_text(node: NodeView) -> str:
    """`3+12`: running and queued jobs; `0` where there are none, `–` where none can be."""
    jobs = node.jobs
    if jobs.running or jobs.queued:
        return f"{jobs.running}+{jobs.queued}" if jobs.queued else str(jobs.running)
    return fmt.UNKNOWN if node.info is None or node.info.simulated else "0"


_JOBS = Column(
    id="jobs", title="JOBS", width=6, priority=3, align="right", descending=True,
    value=lambda n, now: (n.jobs.running, n.jobs.queued), text=lambda n, now: jobs_text(n),
)  # fmt: skip
FLEET_COLUMNS: tuple[Column, ...] = tuple(
    column for each in NODE_COLUMNS for column in ((each, _JOBS) if each.id == "gpus" else (each,))
)
"""Those of the app once there is a job: `rackrate nodes` asks no node for its jobs."""


@cache
def fleet_columns(jobs: bool, gpu_cells: int) -> tuple[Column, ...]:
    """Those of the app: with or without jobs, and with so many cells for GPUs; the same object for the same wish."""
    columns = FLEET_COLUMNS if jobs else NODE_COLUMNS
    return tuple(msgspec.structs.replace(each, width=gpu_cells) if each.id == "gpus" else each for each in columns)


def age_text(node: NodeView, now: float) -> str:
    """`now` while samples come as they should, then the age: `12s`, `3m`."""
    age = node.age_seconds(now)
    return "now" if age is not None and age <= STALE_SECONDS else fmt.age(age)


def _whole_age(node: NodeView, now: float) -> int | None:
    """Equal for all live nodes, so that sorting by age does not shuffle them each second."""
    age = node.age_seconds(now)
    return None if age is None else int(age) if age > STALE_SECONDS else 0


def _marked(node: NodeView, text: str) -> str:
    """`~` before a price that is an estimate (a spot price without its zone)."""
    return f"~{text}" if node.quote and node.quote.price and node.quote.estimated else text


class GpuRow(msgspec.Struct, frozen=True):
    """One GPU with its node: a row of `rackrate gpus` and of the node's screen."""

    node: NodeView
    use: GpuUse


def _gpu(name: str) -> Callable[[GpuRow, float], Any]:
    return lambda row, now: getattr(row.use.gpu, name)


GPU_COLUMNS: tuple[Column, ...] = (
    Column(id="node", title="NODE", width=16, priority=1, flex=True, value=lambda r, now: r.node.name, text=lambda r, now: fmt.clean(r.node.name)),
    Column(id="index", title="GPU", width=3, priority=1, align="right", value=_gpu("index"), text=lambda r, now: str(r.use.gpu.index)),
    Column(id="model", title="MODEL", width=22, priority=4, value=_gpu("model"), text=lambda r, now: fmt.clean(r.use.gpu.model or fmt.UNKNOWN)),
    Column(id="state", title="STATE", width=6, priority=2, value=_gpu("state"), text=lambda r, now: gpu_state_text(r.use)),
    Column(id="utilization", title="UTIL", width=5, priority=2, align="right", descending=True, value=_gpu("utilization_ratio"), text=lambda r, now: fmt.percent(r.use.gpu.utilization_ratio)),
    Column(id="memory", title="MEMORY", width=13, priority=3, align="right", value=_gpu("memory_used_bytes"), text=lambda r, now: f"{fmt.size(r.use.gpu.memory_used_bytes)}/{fmt.size(r.use.gpu.memory_total_bytes)}"),
    Column(id="power", title="POWER", width=9, priority=5, align="right", value=_gpu("power_watts"), text=lambda r, now: power_text(r.use)),
    Column(id="temperature", title="TEMP", width=5, priority=5, align="right", value=_gpu("temperature_celsius"), text=lambda r, now: fmt.celsius(r.use.gpu.temperature_celsius)),
    Column(id="users", title="USERS", width=14, priority=3, flex=True, value=lambda r, now: r.use.users, text=lambda r, now: fmt.clean(",".join(r.use.users)) or fmt.UNKNOWN),
    Column(id="usd_per_hour", title="$/H", width=8, priority=3, align="right", value=lambda r, now: gpu_usd_per_hour(r), text=lambda r, now: fmt.usd(gpu_usd_per_hour(r))),
    Column(id="age", title="AGE", width=4, priority=6, align="right", value=lambda r, now: r.node.age_seconds(now), text=lambda r, now: fmt.age(r.node.age_seconds(now))),
)  # fmt: skip


def gpu_state_text(use: GpuUse) -> str:
    """`busy`, `idle`, `held` (use not known), `lost`, or the driver's word."""
    if use.gpu.state != "ok":
        return use.gpu.state
    if use.held is False:
        return "idle"
    return "busy" if use.held else "ok"


def power_text(use: GpuUse) -> str:
    """`412/700W`."""
    gpu = use.gpu
    if gpu.power_watts is None:
        return fmt.UNKNOWN
    return f"{gpu.power_watts:.0f}/{gpu.power_limit_watts:.0f}W" if gpu.power_limit_watts else fmt.watts(gpu.power_watts)


def gpu_usd_per_hour(row: GpuRow) -> Any:
    """The GPU's equal part of its node's price, exact."""
    price = row.node.usd_per_hour
    return price / len(row.node.uses) if price is not None and row.node.uses else None


def sort_rows(rows: list[Any], column: Column, now: float, *, descending: bool, tie: Callable[[Any], Any]) -> list[Any]:
    """Stable order: unknown values last in both directions, ties by `tie`."""
    keyed = [(_sortable(column.value(row, now)), tie(row), row) for row in rows]
    known = [item for item in keyed if item[0] is not None]
    unknown = [item for item in keyed if item[0] is None]
    known.sort(key=lambda item: item[1])
    known.sort(key=lambda item: item[0], reverse=descending)
    unknown.sort(key=lambda item: item[1])
    return [item[2] for item in (*known, *unknown)]


def _sortable(value: Any) -> Any:
    """Fractions as floats: the order is the same for prices, and comparing costs a tenth."""
    return float(value) if isinstance(value, Fraction) else value


def column_sets(columns: tuple[Column, ...], width: int, gap: int = 1) -> list[list[tuple[Column, int]]]:
    """What fits `width` by priority, then sets that show what was hidden beside the columns of priority 1."""
    shown, _ = fit(columns, width, gap)
    sets = [shown]
    hidden = [c for c in columns if all(c is not column for column, _ in shown)]
    kept = [c for c in columns if c.priority == 1]
    while hidden:
        chosen = {c.id for c, _ in fit((*kept, *hidden), width, gap)[0]}
        rest = [c for c in hidden if c.id not in chosen]
        if len(rest) == len(hidden):
            break
        sets.append(fit(tuple(c for c in columns if c.id in chosen), width, gap)[0])
        hidden = rest
    return sets


SMALLEST_NAME = 4
"""A flexible column of priority 1 is squeezed to this many cells before it is left out."""


def fit(columns: tuple[Column, ...], width: int, gap: int = 1) -> tuple[list[tuple[Column, int]], int]:
    """Columns that fit `width` cells with their widths, by priority; the space left goes to flexible ones.

    Returns (columns with widths in their order, number hidden).
    """
    widths = _chosen_widths(columns, width, gap)
    spare = max(0, width - sum(widths.values()) - gap * (len(widths) - 1))
    flexible = sum(columns[i].flex for i in widths)
    shown = [
        (columns[i], widths[i] + (min(spare // flexible, 24) if columns[i].flex else 0)) for i in sorted(widths)
    ]
    return shown, len(columns) - len(shown)


def _chosen_widths(columns: tuple[Column, ...], width: int, gap: int) -> dict[int, int]:
    """Index of each column that fits -> its width."""
    widths: dict[int, int] = {}
    used = 0
    for index in sorted(range(len(columns)), key=lambda i: (columns[i].priority, i)):
        column, before = columns[index], gap if widths else 0
        room = width - used - before
        if room < column.width and not (column.flex and column.priority == 1 and room >= SMALLEST_NAME):
            if column.priority == 1 and not widths:
                continue
            break
        widths[index] = min(column.width, room)
        used += widths[index] + before
    return widths


def totals_money(totals: Totals) -> str:
    """`$177.46/h, idle $54.74/h`; says how many nodes have no price, and that nothing is known where none has."""
    money = f"{fmt.usd(totals.usd_per_hour)}/h, idle {fmt.usd(totals.idle_usd_per_hour)}/h"
    if not totals.unpriced:
        return money
    return "cost not known" if totals.unpriced == totals.nodes else f"{money} ({totals.unpriced} without a price)"
