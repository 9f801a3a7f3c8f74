"""One job as lines: everything that is known of it, most wanted first; and the jobs of a node, a line each.

Invariant: pure functions; what is not known is left out or `–`, and every sentence of an agent or a job is made safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal

from agent import wire
from tui import format as fmt
from tui.columns import fit
from tui.fleet import NodeView
from tui.fleet_jobs import RUNNING, JobView
from tui.job_rows import JOB_COLUMNS, cause_text, command_text, failed, gpus_text, has_gpu, name_text, span, state_text, why_text
from tui.job_wait import end_text, wait_text
from tui.ui.lines import Line, cropped, fitted, joined, spread, wrapped

LABEL_CELLS = 12
NARROW = 50
KWH_JOULES = 3_600_000
MOST_SUMMED = 500
"""Up to so many rows the costs of running jobs are summed as they grow; beyond, as they were told."""
NODE_LINES = 12
NODE_ENDED = 4
_NODE_COLUMNS = tuple(column for column in JOB_COLUMNS if column.id not in ("node", "age"))
_STATE_STYLES = {"running": "accent", "starting": "accent", "stopping": "idle", "queued": "strong", "ended": "dim"}
ROW_STYLES = {**_STATE_STYLES, "queued": "text"}
"""Of the state's word in a row, where the cause stands beside it."""
_LOUD_CAUSES = frozenset({"start_error", "oom", "lost", "unkillable", "node_reboot"})
When = Callable[[datetime], str]
"""A moment in the reader's time zone."""


def state_style(job: wire.Job) -> str:
    """Of its state word: what went wrong is red."""
    return "lost" if failed(job) or job.left_behind else _STATE_STYLES[job.state]


def cause_style(job: wire.Job, text: str) -> str:
    """What went wrong is red, what was cut short amber; the word says it too."""
    if text == fmt.UNKNOWN:
        return "dim"
    if job.state == "stopping":
        return "idle"
    if text in _LOUD_CAUSES or text.startswith(("signal:", "exit:")) and text != "exit:0":
        return "lost" if job.state == "ended" else "idle"
    return "idle" if failed(job) else "dim"


def title_line(view: JobView, now: float, cells: int) -> Line:
    """State, name, id, node; cost at the end."""
    job = view.job
    if cells < NARROW:
        return cropped(((" ", "dim"), (job.state, state_style(job)), (f"  {fmt.clean(name_text(job))}", "strong")), cells)
    word = job.state if job.state != "ended" or not job.cause else f"ended {fmt.clean(job.cause)}"
    left: list[Line] = [((" ", "dim"), (word, state_style(job))), ((fmt.clean(name_text(job)), "strong"),),
                        ((job.id, "dim"),), (("on ", "dim"), (fmt.clean(view.node.name), "text"))]  # fmt: skip
    rate = f"{fmt.usd(job.usd_per_hour)}/h  " if job.usd_per_hour is not None and job.state in RUNNING else ""
    money: Line = ((rate, "dim"), (fmt.usd(view.cost(now)), "strong"), (" ", "text"))
    room = cells - sum(len(text) for text, _ in money) - 2
    if len(word) + len(name_text(job)) + len(job.id) + len(view.node.name) + 10 > room:
        left[1] = ((fitted(name_text(job), max(6, room - len(word) - len(job.id) - 8)).rstrip(), "strong"),)
    return spread(joined(left, "  ", max(0, room)), money, cells)


def facts(view: JobView, now: float, when: When, cells: int) -> list[Line]:
    """All there is to say about a job."""
    job = view.job
    lines = [
        *_state_lines(view, now, when, cells),
        *_said("left behind", job.left_behind, "lost", cells),
        *_said("not enforced", job.not_enforced, "idle", cells),
        *_said("beware", job.warnings, "idle", cells),
        *_text("command", ("/bin/sh -c " if job.shell else "") + command_text(job), cells),
        _row("has", _holding(view), cells),
        _row("limits", _limits(job), cells),
        *_text("held by", f"{_ENFORCEMENTS[job.enforcement]}" if job.enforcement else "", cells, "dim"),
        _row("ends", _ends(view, now, when), cells),
        *_used_lines(job.usage, cells),
        _row("cost", _cost(view, now), cells),
        _row("queue", _queue(job, when), cells),
        *_attempt_lines(view, cells),
        _row("log", _log(job), cells),
        _row("run by", _who(job, when), cells),
    ]
    return [cropped(line, cells) for line in lines if line]


_ENFORCEMENTS = {
    "systemd": "a systemd scope of its own", "v2": "a cgroup v2 of its own", "hybrid": "cgroup v1 controllers, killed by v2",
    "v1": "cgroup v1 controllers", "none": "no cgroup: its processes are followed one by one",
}  # fmt: skip


def _row(label: str, parts: Iterable[tuple[str, str, str]], cells: int) -> Line:
    """`label  name value   name value`: parts are (name, value, style); without parts nothing."""
    shown: list[Line] = [((f"{name} ", "dim"), (value, style)) if name else ((value, style),) for name, value, style in parts]
    if not shown:
        return ()
    return ((f"  {fitted(label, LABEL_CELLS)} ", "dim"), *joined(shown, "   ", max(0, cells - LABEL_CELLS - 3)))


def _text(label: str, text: str, cells: int, style: str = "text") -> list[Line]:
    """A sentence under its label, over as many lines as it takes."""
    if not text:
        return []
    first, *rest = wrapped(fmt.clean(text), style, max(12, cells - LABEL_CELLS - 3)) or [()]
    return [
        ((f"  {fitted(label, LABEL_CELLS)} ", "dim"), *first),
        *(((" " * (LABEL_CELLS + 3), "dim"), *line) for line in rest),
    ]


def _said(label: str, sentences: Iterable[str], style: str, cells: int) -> list[Line]:
    return [line for place, each in enumerate(sentences) for line in _text(label if not place else "", each, cells, style)]


def _state_lines(view: JobView, now: float, when: When, cells: int) -> list[Line]:
    job = view.job
    run = view.run_seconds(now)
    parts = [("", state_text(job) if not job.array_counts else _array_text(job), state_style(job))]
    if run is not None:
        parts.append(("for" if job.state in RUNNING else "ran", span(run), "text"))
        at = job.ended_at or job.started_at
        parts += [("until" if job.ended_at else "since", when(at), "text")] if at else []
    if job.state == "queued":
        parts.append(("for", span(view.wait_seconds(now)), "text"))
    if job.attempt > 1 or job.retries:
        parts.append(("attempt", f"{job.attempt} of {job.retries + 1}" if job.retries else str(job.attempt), "text"))
    lines = [_row("state", parts, cells)]
    if (cause := cause_text(job)) != fmt.UNKNOWN:
        before = "before: " if job.state == "queued" else "stopping for " if job.state == "stopping" else ""
        lines.append(_row("cause", [("", before + cause, state_style(job) if job.state != "queued" else "idle")], cells))
    evidence = end_text(job) if job.state == "ended" else job.evidence or ""
    lines += _text("evidence" if job.state != "queued" else "", evidence if job.evidence else "", cells)
    if job.state == "queued":
        lines += _text("waits", job.reason or "", cells)
        lines += _text("in line", wait_text(view, now), cells)
        if job.not_before:
            lines.append(_row("again", [("not before", when(job.not_before), "text")], cells))
        if job.held_until:
            lines.append(_row("held", [("a reservation until", when(job.held_until), "text")], cells))
    return lines


def _array_text(job: wire.Job) -> str:
    return "an array: " + ", ".join(f"{count} {state}" for state, count in job.array_counts.items())


def _holding(view: JobView) -> list[tuple[str, str, str]]:
    job = view.job
    indexes = {gpu.uuid: str(gpu.index) for gpu in view.node.gpus}
    names = " ".join(indexes.get(uuid, fmt.clean(uuid[:12])) for uuid in job.gpus)
    count = f"{gpus_text(job)} GPU{'s' * (job.gpu_share is None and job.gpus_wanted != 1)}"
    parts = [
        ("", count + (f": {names}" if names else "") if has_gpu(job) else "no GPU", "text")
    ]
    if job.gpu_memory_bytes is not None:
        parts.append(("GPU memory", fmt.size(job.gpu_memory_bytes), "text"))
    if job.cpus is not None:
        parts.append(("CPUs", f"{job.cpus.normalize():f}", "text"))
    if job.memory_bytes is not None:
        parts.append(("memory", fmt.size(job.memory_bytes), "text"))
    return parts


def _limits(job: wire.Job) -> list[tuple[str, str, str]]:
    return [(fmt.clean(name), fmt.clean(value), "text") for name, value in job.limits.items()]


def _ends(view: JobView, now: float, when: When) -> list[tuple[str, str, str]]:
    job, parts = view.job, []
    if job.time_limit_seconds is not None:
        parts.append(("time limit", span(job.time_limit_seconds), "text"))
        run = view.run_seconds(now)
        if job.state == "running" and run is not None:
            left = job.time_limit_seconds - run
            parts.append(("left", span(max(0.0, left)), "idle" if left < 600 else "text"))
    if job.budget_usd is not None:
        parts.append(("budget", fmt.usd(job.budget_usd), "text"))
    if job.deadline is not None:
        parts.append(("deadline", when(job.deadline), "text"))
    if job.interruptible:
        parts.append(("", "may be interrupted", "text"))
    return parts


def _used_lines(usage: wire.JobUsage | None, cells: int) -> list[Line]:
    if usage is None:
        return []
    memory = fmt.size(usage.memory_peak_bytes)
    if usage.memory_limit_bytes:
        memory += f" of {fmt.size(usage.memory_limit_bytes)}"
    energy = None if usage.energy_joules is None else f"{usage.energy_joules / KWH_JOULES:.2f} kWh"
    known = [
        ("GPU time", span(usage.gpu_seconds), usage.gpu_seconds), ("CPU time", span(usage.cpu_seconds), usage.cpu_seconds),
        ("memory at most", memory, usage.memory_peak_bytes), ("energy", energy or "", usage.energy_joules),
        ("read", fmt.size(usage.io_read_bytes), usage.io_read_bytes), ("wrote", fmt.size(usage.io_write_bytes), usage.io_write_bytes),
        ("throttled", span(usage.throttled_seconds), usage.throttled_seconds or None),
        ("processes at most", str(usage.pids_peak), usage.pids_peak),
    ]  # fmt: skip
    parts = [(name, text, "text") for name, text, value in known if value is not None]
    lines, label = [], "used"
    while parts:
        fits = 1
        while fits < len(parts) and sum(len(n) + len(t) + 4 for n, t, _ in parts[: fits + 1]) <= cells - LABEL_CELLS:
            fits += 1
        lines.append(_row(label, parts[:fits], cells))
        parts, label = parts[fits:], ""
    return lines


def _cost(view: JobView, now: float) -> list[tuple[str, str, str]]:
    job, cost = view.job, view.cost(now)
    if cost is None and job.usd_per_hour is None:
        why = "" if view.node.usd_per_hour is not None else ": the node's price is not known"
        return [("", f"not known{why}", "dim")] if job.state != "queued" else []
    rate = "while it runs" if job.state not in RUNNING else "now"
    parts = [("so far" if job.state != "ended" else "", fmt.usd(cost), "strong")]
    return [*parts, (rate, f"{fmt.usd(job.usd_per_hour)}/h", "text")] if job.usd_per_hour is not None else parts


def _queue(job: wire.Job, when: When) -> list[tuple[str, str, str]]:
    parts = [("priority", str(job.priority), "text")] if job.priority else []
    if job.after:
        parts.append(("after", fmt.clean(" ".join(job.after)), "text"))
    if job.array:
        parts.append(("of array", f"{fmt.clean(job.array)} [{job.array_index}]", "text"))
    if job.gang:
        parts.append(("part of", fmt.clean(job.gang), "text"))
    return parts


def _attempt_lines(view: JobView, cells: int) -> list[Line]:
    lines: list[Line] = []
    for each in view.job.attempts if len(view.job.attempts) > 1 else ():
        ran = (each.ended_at - each.started_at).total_seconds() if each.ended_at and each.started_at else None
        words = [f"{each.number}", fmt.clean(each.cause or "runs"), span(ran) if ran is not None else "", fmt.usd(each.cost)]
        text = "  ".join(word for word in words if word)
        lines += _text("attempts" if not lines else "", f"{text}  {each.evidence or ''}", cells)
    return lines


def _log(job: wire.Job) -> list[tuple[str, str, str]]:
    parts = [("", fmt.size(job.log_bytes), "text")] if job.log_bytes is not None else []
    if job.log_dropped_lines:
        parts.append(("lines dropped", f"{job.log_dropped_lines:,}", "idle"))
    return parts


def _who(job: wire.Job, when: When) -> list[tuple[str, str, str]]:
    parts = [("", fmt.clean(job.user), "text")] if job.user else []
    if job.project:
        parts.append(("project", fmt.clean(job.project), "text"))
    parts.append(("sent", when(job.submitted_at), "text"))
    if job.workdir:
        parts.append(("in", fmt.clean(job.workdir), "text"))
    if job.secrets:
        parts.append(("secrets", fmt.clean(" ".join(job.secrets)), "text"))
    return parts


def why_lines(view: JobView, now: float, cells: int, rows: int) -> list[Line]:
    """Why it waits or why it ended, in full as far as the rows go: a detail below the table."""
    job = view.job
    if job.state == "ended" and not job.left_behind:
        texts = [end_text(job)]
    else:
        texts = [why_text(job), wait_text(view, now)]
    said = [text for text in texts if text]
    text = "; ".join(said) if said else command_text(job)
    style = "lost" if job.left_behind else "text" if said else "dim"
    lead = f" {job.id}  "
    lines = wrapped(text, style, max(12, cells - len(lead) - 1))
    lines = [*lines[: rows - 1], (("".join(part for line in lines[rows - 1 :] for part, _ in (*line, (" ", ""))), style),)]
    return [
        cropped(((lead if not place else " " * len(lead), "dim"), *line), cells) for place, line in enumerate(lines)
    ]


def job_lines(node: NodeView, now: float, cells: int) -> list[Line]:
    """A node's jobs: what runs and waits, and the newest that ended."""
    unended = sorted((job for job in node.jobs if job.job.state != "ended"), key=lambda job: JOB_COLUMNS[0].value(job, now))
    ended = [job for job in node.jobs if job.job.state == "ended"]
    shown = unended[:NODE_LINES] + ended[: min(NODE_ENDED, NODE_LINES - min(NODE_LINES, len(unended)))]
    if not shown:
        return []
    columns = fit(_NODE_COLUMNS, max(1, cells - 4))[0]
    head = " ".join(fitted(_indent(c.id) + c.title, width, right=c.align == "right") for c, width in columns)
    lines: list[Line] = [((f"  {head}".rstrip(), "dim"),)]
    for job in shown:
        spans = [
            (" " + fitted(_indent(c.id) + c.text(job, now), width, right=c.align == "right"), _cell_style(job, c.id))
            for c, width in columns
        ]
        lines.append(cropped(((" ", "dim"), *spans), cells))
    left = len(node.jobs) - len(shown)
    return [*lines, ((f"  … {left} more: j", "dim"),)] if left else lines


def _indent(ident: str) -> str:
    return " " if ident in ("cause", "why") else ""


def _cell_style(view: JobView, ident: str) -> str:
    if ident == "state":
        return "lost" if view.job.left_behind else ROW_STYLES[view.job.state]
    if ident == "cause":
        return cause_style(view.job, cause_text(view.job))
    return "dim" if view.job.state == "ended" or ident in ("id", "why", "project") else "text"


def job_sums(rows: list[JobView], now: float) -> tuple[Line, ...]:
    """`12 jobs  3 running  9 queued  $12.40/h  $120.30 so far` of exactly these rows."""
    running = [row for row in rows if row.job.state in RUNNING and not row.job.array_counts]
    queued = sum(row.job.state == "queued" and not row.job.array_counts for row in rows)
    rates = [row.job.usd_per_hour for row in running]
    told = len(rows) > MOST_SUMMED
    costs = [cost for row in rows if (cost := row.job.cost if told else row.cost(now)) is not None]
    parts: list[Line] = [((fmt.counted(len(rows), "job"), "text"),)]
    if rows:
        parts.append(((f"{len(running)} running", "text"),))
    if queued:
        parts.append(((f"{queued} queued", "text"),))
    if any(rate is not None for rate in rates):
        parts.append(((f"{fmt.usd(sum((rate for rate in rates if rate is not None), Decimal(0)))}/h", "text"),))
    if unpriced := sum(rate is None for rate in rates):
        parts.append(((f"{unpriced} without a price", "dim"),))
    if costs:
        partial = any(row.job.cost is None and row.job.attempt for row in rows)
        parts.append(((f"{'~' * partial}{fmt.usd(sum(costs, Decimal(0)))}", "text"), (" so far", "dim")))
    return tuple(parts)
