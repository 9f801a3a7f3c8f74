"""Header, status and footer as lines.

Invariant: the header sums over all nodes, the status over exactly the rows that are shown; both say when a price is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from agent import wire
from tui import format as fmt
from tui.fleet import Totals
from tui.fleet_jobs import JobCounts
from tui.groups import free_text
from tui.ui import actions
from tui.ui.lines import Line, fitted, joined, spread, width

if TYPE_CHECKING:
    from pricing.budgets import BudgetState


NAMED_CELLS = 100


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says, in USD; None while it is not known. `partial`: some part of it has no price."""

    today: Fraction | None = None
    month: Fraction | None = None
    partial: bool = False
    error: str | None = None
    budgets: BudgetsRead | None = None
    alerts: tuple[wire.Alert, ...] = ()
    """Thresholds of budgets that are crossed, the worst first; `holders` is the budget's name."""


class BudgetsRead(msgspec.Struct, frozen=True):
    """States of the budgets, when they were read (monotonic seconds), and how long that took."""

    states: tuple[BudgetState, ...]
    at: float
    took_seconds: float


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the status line needs to know of the table."""

    sums: tuple[Line, ...]
    """Over exactly the rows that are shown, the most wanted first; the very first says how many rows they are."""
    marked: int = 0
    """When there are any, the sums are over these rows alone."""
    marks_hidden: int = 0
    """Marked rows that the filter hides: they are in no sum and no action is for them."""
    filter_text: str = ""
    hidden_columns: int = 0
    frozen_seconds: int = 0
    following: bool = False
    """The view goes with the row under the cursor."""
    grouped_by: str = ""
    sorted_by: str = ""
    """The column that orders the rows, where its title is not on the screen."""


def header_lines(
    totals: Totals, costs: Costs, clock: str, cells: int, height: int, jobs: JobCounts | None = None
) -> list[Line]:
    """Two lines, or one where there is little room. `jobs` None: there is none to speak of."""
    money = _money(totals, costs, named=cells >= NAMED_CELLS)
    states = _states(totals)
    name: Line = ((" RACKRATE", "title"),)
    if height < 2:
        return [((" ", "text"), *joined([*_state_parts(totals)[:3], *money], "  ", cells - 2))]
    gpus: Line = (("GPUs ", "dim"), (f"{totals.gpus_held}/{totals.gpus}", "strong"), (" held", "dim"))
    if totals.gpus_lost:
        gpus += ((f" · {totals.gpus_lost} lost", "lost"),)
    first, end = joined([name, states, gpus, *_jobs(jobs)], "   ", cells), ((f"{clock} ", "dim"),)
    second = joined([((" ", "text"), *money[0]), *money[1:], *_extras(totals, len(costs.alerts))], "   ", cells - 1)
    first, second = _with_free(_free(totals), (first, second), (cells - width(end) - 2, cells - 1))
    return [spread(first, end, cells), second]


def _free(totals: Totals) -> list[Line]:
    """`free 5 A100 · 12 T4`; of many kinds those with most GPUs, then how many there are, then nothing."""
    if not totals.free:
        return []
    most = sorted(totals.free, key=lambda one: (-one[1], one[0]))
    every = sum(count for _, count in most)
    texts = [free_text(most), *(f"{free_text(most[:count])} · …" for count in (3, 2, 1) if count < len(most)), str(every)]
    return [(("free ", "dim"), (text, "strong")) for text in texts]


def _with_free(choices: list[Line], lines: tuple[Line, Line], rooms: tuple[int, int]) -> tuple[Line, Line]:
    """The two lines with the longest form that fits behind one of them."""
    for choice in choices:
        for place, (line, room) in enumerate(zip(lines, rooms, strict=True)):
            if width(line) + 3 + width(choice) <= room:
                longer: Line = (*line, ("   ", "dim"), *choice)
                return (longer, lines[1]) if place == 0 else (lines[0], longer)
    return lines


def _jobs(jobs: JobCounts | None) -> list[Line]:
    if jobs is None:
        return []
    running: Line = (("jobs ", "dim"), (str(jobs.running), "strong" if jobs.running else "text"), (" running", "dim"))
    queued: Line = ((f" · {jobs.queued} queued", "dim"),) if jobs.queued else ()
    notices: list[Line] = [((f"{jobs.notices} notice{'s' * (jobs.notices != 1)}", "lost"),)] if jobs.notices else []
    return [*notices, (*running, *queued)]


def _states(totals: Totals) -> Line:
    return joined(_state_parts(totals), " · ")


def _state_parts(totals: Totals) -> list[Line]:
    waiting = totals.nodes - totals.live - totals.stale - totals.lost
    parts: list[Line] = [
        ((f"{totals.live} live", "strong" if totals.live else "dim"),),
        ((f"{totals.stale} stale", "idle" if totals.stale else "dim"),),
        ((f"{totals.lost} lost", "lost" if totals.lost else "dim"),),
    ]
    return [*parts, ((f"{waiting} connecting", "dim"),)] if waiting else parts


def _money(totals: Totals, costs: Costs, *, named: bool) -> list[Line]:
    known = totals.unpriced < totals.nodes
    mark = "~" if known and totals.unpriced else ""
    now = f"{mark}{fmt.usd(totals.usd_per_hour)}/h" if known else fmt.UNKNOWN
    idle = f"{mark}{fmt.usd(totals.idle_usd_per_hour)}/h" if known else fmt.UNKNOWN
    about = "~" if costs.partial else ""
    return [
        (("now ", "dim"), (now, "strong")),
        (("idle ", "dim"), (idle, "idle" if totals.idle_usd_per_hour else "text")),
        (("today ", "dim"), (about * (costs.today is not None) + fmt.usd(costs.today), "strong")),
        (("month ", "dim"), (about * (costs.month is not None) + fmt.usd(costs.month), "strong")),
        *_budget(costs.alerts, named),
    ]


def _budget(alerts: Sequence[wire.Alert], named: bool) -> list[Line]:
    """The budget that is worst off, where one has crossed a threshold; with its name where there is room."""
    if not alerts:
        return []
    worst = alerts[0]
    name = fitted(fmt.clean(worst.holders[0]), min(16, width(((worst.holders[0], ""),))))
    style = "lost" if worst.severity == "critical" else "idle"
    return [(("budget ", "dim"), *(((f"{name} ", "text"),) if named else ()), (worst.reading or fmt.UNKNOWN, style))]


def _extras(totals: Totals, others: int) -> list[Line]:
    """`others`: alerts that are of no node."""
    extras: list[Line] = []
    if 0 < totals.unpriced < totals.nodes:
        extras.append(((f"partial: {totals.unpriced} without a price", "dim"),))
    alerts = totals.alerts + others
    if alerts:
        extras.append(((f"{alerts} alert{'s' * (alerts != 1)}", "lost"),))
    extras.append(((fmt.watts(totals.power_watts), "text"),))
    extras.append((("util ", "dim"), (fmt.percent(totals.utilization_ratio), "text")))
    return extras


def node_sums(totals: Totals) -> tuple[Line, ...]:
    """`12 nodes  $123.00/h  idle $4.00/h`."""
    known = totals.unpriced < totals.nodes or not totals.nodes
    sums: list[Line] = [
        ((f"{totals.nodes} node{'s' * (totals.nodes != 1)}", "text"),),
        ((f"{fmt.usd(totals.usd_per_hour)}/h" if known else fmt.UNKNOWN, "text"),),
    ]
    if totals.idle_usd_per_hour:
        sums.append((("idle ", "dim"), (f"{fmt.usd(totals.idle_usd_per_hour)}/h", "idle")))
    if totals.unpriced:
        sums.append(((f"{totals.unpriced} without a price", "dim"),))
    return tuple(sums)


def status_line(shown: Shown, note: Line, cells: int) -> Line:
    """Sums of the rows that are shown at the left; hidden columns and a frozen order at the right; a note wins the middle."""
    left: list[Line] = []
    if shown.filter_text:
        left.append(((" ", "dim"), (f"/{fitted(fmt.clean(shown.filter_text), min(30, len(shown.filter_text)))}", "accent")))
    if shown.marked:
        left.append(((" " * (not left), "dim"), (f"● {shown.marked} marked:", "accent")))
        left += shown.sums[1:]
    else:
        first, *rest = shown.sums
        left += [first if left else ((" ", "dim"), *first), *rest]
    right: list[Line] = []
    if shown.marks_hidden:
        right.append(((f"{shown.marks_hidden} mark{'s' * (shown.marks_hidden != 1)} hidden", "idle"),))
    if shown.grouped_by:
        right.append((("group ", "dim"), (fmt.clean(shown.grouped_by), "text")))
    if shown.following:
        right.append((("follows", "accent"),))
    if shown.sorted_by:
        right.append((("by ", "dim"), (shown.sorted_by, "text")))
    if shown.frozen_seconds:
        right.append(((f"order held {shown.frozen_seconds}s", "dim"),))
    if shown.hidden_columns:
        right.append(((f"+{shown.hidden_columns} hidden", "accent"), (" w", "key")))
    end: Line = (*joined(right, "  ", cells // 2), (" ", "text"))
    room = cells - width(end) - 2
    if note:
        text, style = note[0]
        return spread(((fitted(f" {text}", room).rstrip(), style),), end, cells)
    return spread(joined(left, "  ", room), end, cells)


def footer_line(scope: actions.Scope, cells: int) -> Line:
    """`Enter open  / filter  ...`: as many as fit."""
    parts: list[Line] = [((key, "key"), (f" {name}", "dim")) for key, name in actions.footer(scope)]
    if actions.read_only():
        parts.insert(0, (("read-only", "idle"),))
    return ((" ", "dim"), *joined(parts, "  ", cells - 1))
