"""One node as lines: the whole of the node's screen, and the short form below the fleet.

Invariant: the newest values stay on the screen after the node fell silent, dimmed and with their age.
"""

from __future__ import annotations

from datetime import datetime

from agent import wire
from tui import format as fmt
from tui.alerts import priced, silence
from tui.columns import age_text, purchase_text
from tui.fleet import GpuUse, NodeView
from tui.ui.lines import BLANK, Line, cropped, fitted, joined, spread, wrapped
from tui.ui.panes.gpu import brief, full, short_model
from tui.ui.panes.host import alert_lines, host_lines, identity_lines, sensor_lines
from tui.ui.panes.job import job_lines

LEFT_FOR_THE_REST = 18
"""Lines below the fleet that must be free beside GPUs of two lines each."""
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
    return spread(joined(left, "  ", cells), (*money, (" ", "text")), cells)


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
        ("Processes", process_lines(view.uses, cells, at)),
        ("Host", host_lines(_host(view), cells)),
    ):
        if more and len(body) + len(more) + 2 <= room:
            body += [BLANK, rule(title, cells), *more]
    if len(body) > room:
        body = [*body[: room - 1], ((f"    … {len(body) - room + 1} more: Enter", "dim"),)] if room else []
    return [cropped(line, cells) for line in (*lines, *body)]


def notice_lines(view: NodeView, now: float, cells: int) -> list[Line]:
    """What the cloud will do to it, with the time that is left."""
    if view.notice is None:
        return []
    text = f"{view.notice.notice.cloud} notice: {view.notice.sentence(view.utc(now))}"
    return wrapped(fmt.clean(text), "lost" if view.notice.hard else "idle", cells, "  ")


def page(view: NodeView, now: float, at: datetime, cells: int) -> list[Line]:
    """All there is to say about a node."""
    dim = view.state(now) != "live"
    lines: list[Line] = []
    if wrong := [*notice_lines(view, now, cells), *sensor_lines(view, cells), *alert_lines(alerts_of(view, now, at), at, cells)]:
        lines += [rule("Attention", cells), *wrong, BLANK]
    if view.uses:
        lines.append(rule(_gpu_title(view), cells, "utilisation of the last minute"))
        named = len({use.gpu.model for use in view.uses}) > 1
        for use in view.uses:
            lines += full(view, use, cells, dim, named=named)
        lines.append(BLANK)
    if jobs := job_lines(view, now, cells):
        lines += [rule("Jobs", cells, f"{view.jobs.running} running, {view.jobs.queued} queued"), *jobs, BLANK]
    if view.uses:
        lines += [rule("Processes", cells), *process_lines(view.uses, cells, at), BLANK]
    lines += [rule("Host", cells), *host_lines(_host(view), cells), BLANK]
    lines += [rule("Node", cells), *identity_lines(view, now, cells)]
    return [cropped(line, cells) for line in lines]


def _host(view: NodeView) -> wire.Host | None:
    return view.sample.host if view.sample else None


def _gpu_title(view: NodeView) -> str:
    models = sorted({short_model(use.gpu.model) for use in view.uses})
    info = view.info
    driver = f" · driver {fmt.clean(info.driver_version)}" if info and info.driver_version else ""
    cuda = f" · CUDA {fmt.clean(info.cuda_version)}" if info and info.cuda_version else ""
    return f"{len(view.uses)} x {', '.join(models)}{driver}{cuda}"


def process_lines(uses: tuple[GpuUse, ...], cells: int, at: datetime) -> list[Line]:
    """Every process on every GPU; who cannot be told is said so."""
    if all(use.gpu.processes is None for use in uses):
        return [(("  the driver does not tell which processes there are", "dim"),)]
    rows = [(use, process) for use in uses for process in use.gpu.processes or ()]
    if not rows:
        return [(("  none", "dim"),)]
    head = f"{'GPU':>5} {'PID':>8}  {'USER':<10} {'PROJECT':<10} {'JOB':<{_job_cells(cells)}} {'MEMORY':>7} {'SM':>4} {'FOR':>4}  COMMAND"
    return [((fitted(head, cells).rstrip(), "dim"),), *(_process_line(use, p, cells, at) for use, p in rows)]


def _job_cells(cells: int) -> int:
    return 16 if cells >= 110 else 8


def _process_line(use: GpuUse, process: wire.Process, cells: int, at: datetime) -> Line:
    running = (at - process.started_at).total_seconds() if process.started_at else None
    user = fitted(fmt.clean(process.user or "?"), 10)
    project = fitted(fmt.clean(process.project or fmt.UNKNOWN), 10)
    job = fitted(fmt.clean(process.job or fmt.UNKNOWN), _job_cells(cells))
    before: Line = (
        (f"{use.gpu.index:>5} ", "dim"), (f"{process.pid:>8}  ", "text"), (f"{user} ", "text"),
        (f"{project} {job} ", "dim"),
        (f"{fmt.size(process.memory_used_bytes):>7} {fmt.percent(process.utilization_ratio):>4} ", "text"),
        (f"{fmt.age(running):>4}  ", "dim"),
    )  # fmt: skip
    command = process.command or ("not visible from here" if not process.visible else fmt.UNKNOWN)
    return cropped((*before, (fmt.clean(command), "text")), cells)
