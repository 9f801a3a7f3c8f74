"""One node as lines: the whole of the node's screen, and the short form below the fleet.

Invariant: the newest values stay on the screen after the node fell silent, dimmed and with their age.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from agent import wire
from tui import format as fmt
from tui.alerts import priced, silence
from tui.columns import age_text, purchase_text
from tui.fleet import GpuUse, NodeView
from tui.gpu_today import Today
from tui.node_history import FIELDS
from tui.readings_chart import scales
from tui.ui.lines import BLANK, Line, cropped, joined, spread, wrapped
from tui.ui.lines import width as lines_width
from tui.ui.panes.gpu import NARROW_CELLS, PLOT_TOP, brief, full, short_model, trouble
from tui.ui.panes.gpu_facts import today_parts
from tui.ui.panes.host import alert_lines, host_lines, identity_lines, labelled, sensor_lines
from tui.ui.panes.orders import order_lines
from tui.ui.panes.job import job_lines
from tui.ui.panes.plots import Look, Plot, grid, small
from tui.ui.panes.processes import process_lines

LEFT_FOR_THE_REST = 18
"""Lines below the fleet that must be free beside GPUs of two lines each."""
SPACIOUS_ROWS = 34
"""From here sections stand apart, and the plots come before the processes."""
ROOM_BESIDE_GPUS = 12
"""Lines for processes and the rest that must be free beside GPUs of two lines each."""
BRIEF_PLOT_CELLS = 112
"""From here a GPU of one line has a plot."""
PLOT_ROOM = 14
_STATE_STYLES = {"live": "accent", "stale": "idle", "lost": "lost", "connecting": "dim"}


def rule(title: str, cells: int, right: str = "") -> Line:
    """A thin separator with a title, and a note at its end."""
    note = f" {right}" if right and len(title) + len(right) + 4 < cells else ""
    return ((f"{title} ", "title"), ("─" * max(0, cells - len(title) - 1 - len(note)), "rule"), (note, "dim"))


def title_line(view: NodeView, now: float, cells: int) -> Line:
    """Name, state with age, type, place, price."""
    info, state = view.info, view.state(now)
    word = state if state == "live" else f"{state} {age_text(view, now)}" if view.heard_at is not None else state
    left: list[Line] = [((f" {fmt.clean(view.name)}", "strong"),), ((word, _STATE_STYLES[state]),)]
    if view.notice is not None:
        left.append(((view.notice.brief(view.utc(now)), "lost" if view.notice.hard else "idle"),))
    if info:
        place = info.zone or info.region
        words = (info.instance_type, place, purchase_text(info.purchase) if info.purchase else None)
        left += [((fmt.clean(word), "dim"),) for word in words if word]
    idle = view.idle_usd_per_hour
    money: Line = ((f"{fmt.usd(view.usd_per_hour)}/h", "strong"),)
    if idle:
        money += (("   idle ", "dim"), (f"{fmt.usd(idle)}/h", "idle"))
    money = (*money, (" ", "text"))
    room = cells - lines_width(money) - 2
    return spread(joined(left, "  ", room if room > 20 else cells), money, cells)


def alerts_of(view: NodeView, now: float, at: datetime) -> list[wire.Alert]:
    """Its active alerts, with silence among them."""
    silent = silence(view, now, at)
    return [*([silent] if silent else []), *(priced(view, alert) for alert in view.alerts.values())]


def detail(view: NodeView, now: float, at: datetime, cells: int, height: int) -> list[Line]:
    """The node under the cursor, in `height` lines: title, a line per GPU, alerts, what is wrong."""
    dim = view.state(now) != "live"
    lines: list[Line] = [(("─" * cells, "rule"),), title_line(view, now, cells)]
    room = max(0, height - len(lines))
    gpus = [brief(view, use, cells, dim) for use in view.uses]
    if 2 * len(gpus) + LEFT_FOR_THE_REST <= room:
        gpus = [line for use in view.uses for line in full(view, use, cells, dim)]
    notes = [*notice_lines(view, now, cells), *sensor_lines(view, cells), *alert_lines(alerts_of(view, now, at), at, cells)]
    body = [*gpus, *notes]
    for title, more in (
        ("Jobs", job_lines(view, now, cells)),
        ("Processes", [line for line, _ in process_lines(view.uses, cells, at, view.links.ancestors)]),
        ("Host", host_lines(_host(view), cells)),
    ):
        if more and len(body) + len(more) + 2 <= room:
            body += [BLANK, rule(title, cells), *more]
    if len(body) > room:
        body = [*body[: room - 1], ((f"    … {len(body) - room + 1} more: Enter", "dim"),)] if room else []
    return [cropped(line, cells) for line in (*lines, *body)]


def notice_lines(view: NodeView, now: float, cells: int) -> list[Line]:
    """What the cloud will do to it, with the time that is left, and what people ordered of it."""
    ordered = order_lines(view, view.utc(now), cells)
    if view.notice is None:
        return ordered
    text = f"{view.notice.notice.cloud} notice: {view.notice.sentence(view.utc(now))}"
    return [*wrapped(fmt.clean(text), "lost" if view.notice.hard else "idle", cells, "  "), *ordered]


class Seen(NamedTuple):
    """What the node's screen shows besides the node: the past, the day, and what is said beside the plots."""

    look: Look
    today: Today | None = None
    gpus: Mapping[str, Today] = {}
    """The day of each GPU, by UUID."""
    note: str = ""


class Page(NamedTuple):
    """Lines, and which of them stand for what can be opened: `gpu UUID`, `process UUID PID`."""

    lines: list[Line]
    targets: dict[int, str]


class _Pages:
    """A page in the making."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.targets: dict[int, str] = {}

    def add(self, lines: Iterable[Line], key: str = "") -> None:
        for line in lines:
            if key:
                self.targets[len(self.lines)] = key
            self.lines.append(line)


def page(view: NodeView, seen: Seen, now: float, at: datetime, cells: int, height: int) -> Page:
    """All there is to say about a node; `height` is what is seen of it without scrolling."""
    made = _Pages()
    space = (BLANK,) if height >= SPACIOUS_ROWS else ()
    if wrong := [*notice_lines(view, now, cells), *sensor_lines(view, cells), *alert_lines(alerts_of(view, now, at), at, cells)]:
        made.add([rule("Attention", cells), *wrong, *space])
    if view.uses:
        _add_gpus(made, view, seen, now, cells, height)
        made.add(space)
    plots = _history_lines(view, seen, cells, height - len(made.lines))
    early = height >= SPACIOUS_ROWS and bool(plots)
    if early:
        made.add([*plots, BLANK])
    if jobs := job_lines(view, now, cells):
        made.add([rule("Jobs", cells, f"{view.jobs.running} running, {view.jobs.queued} queued"), *jobs, *space])
    if view.uses:
        _add_processes(made, view, at, cells)
        made.add(space)
    if plots and not early:
        made.add([*plots, *space])
    made.add([rule("Host", cells), *host_lines(_host(view), cells), *space])
    today = [labelled("today", *today_parts(seen.today, at), cells=cells)] if seen.today is not None else []
    made.add([rule("Node", cells), *today, *identity_lines(view, now, cells)])
    return Page([cropped(line, cells) for line in made.lines], made.targets)


def _add_gpus(made: _Pages, view: NodeView, seen: Seen, now: float, cells: int, height: int) -> None:
    """Two lines a GPU with its plot; one line where there is little room for many."""
    dim = view.state(now) != "live"
    named = len({use.gpu.model for use in view.uses}) > 1
    low = cells < NARROW_CELLS or (height < 2 * len(view.uses) + ROOM_BESIDE_GPUS and len(view.uses) > 2)
    made.add([rule(_gpu_title(view), cells, "" if low and cells < BRIEF_PLOT_CELLS else f"utilisation, last {seen.look.span.name}")])

    def drawn(use: GpuUse, width: int) -> list[str]:
        return small(use.gpu.uuid, "utilization", seen.look, width, 2, PLOT_TOP)

    for use in view.uses:
        if low:
            lines = [brief(view, use, cells, dim, drawn=drawn), *trouble(use, cells, named=named)]
        else:
            lines = full(view, use, cells, dim, named=named, drawn=drawn, today=seen.gpus.get(use.gpu.uuid))
        made.add(lines, f"gpu {use.gpu.uuid}")


def _history_lines(view: NodeView, seen: Seen, cells: int, room: int) -> list[Line]:
    """All GPUs together over the span, without those that are lost: nothing is known of them."""
    if not view.uses:
        return []
    uses = [use for use in view.uses if use.gpu.state == "ok"] or list(view.uses)
    uuids = tuple(use.gpu.uuid for use in uses)
    memory = [use.gpu.memory_total_bytes for use in uses]
    limits = [use.gpu.power_limit_watts for use in uses]
    of = scales(_whole(memory), _whole(limits))
    temperatures = [use.gpu.temperature_celsius for use in view.uses if use.gpu.temperature_celsius is not None]
    now = {"utilization": view.utilization_ratio, "memory": view.use.memory_used_bytes if view.use.memory_total_bytes else None,
           "power": view.power_watts, "temperature": max(temperatures, default=None)}  # fmt: skip
    names = {"temperature": "hottest GPU", "utilization": "mean utilisation"} if len(uuids) > 1 else {}
    plots = [Plot(of[field]._replace(name=names.get(field, of[field].name)), uuids, field, now[field]) for field in FIELDS]
    lines = grid(plots, seen.look, cells, min(room, PLOT_ROOM))
    part = "" if len(uses) == len(view.uses) else f", {len(uses)} of {len(view.uses)} GPUs"
    return [rule(f"Last {seen.look.span.name}{part}", cells, seen.note), *lines] if lines else []


def _whole(parts: list[Any]) -> float | None:
    """A sum with an unknown part is not known."""
    return None if None in parts or not parts else float(sum(parts))


def _add_processes(made: _Pages, view: NodeView, at: datetime, cells: int) -> None:
    made.add([rule("Processes", cells)])
    for line, row in process_lines(view.uses, cells, at, view.links.ancestors):
        key = f"process {row.use.gpu.uuid} {row.process.pid}" if row and row.use and row.process else ""
        made.add([line], key)


def _host(view: NodeView) -> wire.Host | None:
    return view.sample.host if view.sample else None


def _gpu_title(view: NodeView) -> str:
    models = sorted({short_model(use.gpu.model) for use in view.uses})
    info = view.info
    driver = f" · driver {fmt.clean(info.driver_version)}" if info and info.driver_version else ""
    cuda = f" · CUDA {fmt.clean(info.cuda_version)}" if info and info.cuda_version else ""
    return f"{len(view.uses)} x {', '.join(models)}{driver}{cuda}"
