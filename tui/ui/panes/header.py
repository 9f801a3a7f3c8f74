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
from tui.selection import DayCosts, Selected
from tui.ui import actions
from tui.ui.lines import Line, fitted, joined, spread, width

if TYPE_CHECKING:
    from pricing.budgets import BudgetState


NAMED_CELLS = 100
NARROW_CELLS = 60
SUM_CELLS, STANDING_CELLS = 20, 46
"""At least so much of the status is for the sums, and so much for what must be said of the row under the cursor."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says, in USD; None while it is not known. `partial`: some part of it has no price."""

    today: Fraction | None = None
    month: Fraction | None = None
    partial: bool = False
    error: str | None = None
    by_node: DayCosts | None = None
    """What today cost by node."""
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
    aside: Line = ()
    """Said of them where there is room after all else."""
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
    totals: Totals, costs: Costs, clock: str, cells: int, height: int, jobs: JobCounts | None = None, place: str = "RACKRATE"
) -> list[Line]:
    """Two lines, or one where there is little room. `jobs` None: there is none to speak of. `place`: which screen it is."""
    money = _money(totals, costs, named=cells >= NAMED_CELLS)
    states = _states(totals)
    name: Line = ((f" {place}", "title"),)
    if height < 2 and clock[:1].isalpha():
        return [((" ", "text"), *joined([other_time(clock, cells), *_state_parts(totals)[:3], *money], "  ", cells - 2))]
    if height < 2:
        return [((" ", "text"), *joined([*_state_parts(totals)[:3], *money], "  ", cells - 2))]
    gpus: Line = (("GPUs ", "dim"), (f"{totals.gpus_held:,}/{totals.gpus:,}", "strong"), (" held", "dim"))
    if totals.gpus_lost:
        gpus += ((f" · {totals.gpus_lost} lost", "lost"),)
    end: Line = (*other_time(clock, cells), (" ", "text")) if clock[:1].isalpha() else ((f"{clock} ", "dim"),)
    first = joined([name, states, gpus, *_jobs(jobs)], "   ", cells - (width(end) + 2 if clock[:1].isalpha() else 0))
    second = joined([((" ", "text"), *money[0]), *money[1:], *_extras(totals, len(costs.alerts))], "   ", cells - 1)
    first, second = _with_free(_free(totals), (first, second), (cells - width(end) - 2, cells - 1))
    return [spread(first, end, cells), second]


def other_time(clock: str, cells: int) -> Line:
    """`REPLAY Nov 30 14:05:10 +01:00`: a clock with a word before it is not that of now. `REPLAY 14:05:10` in little room."""
    words = clock.split()
    return ((f" {clock if cells >= NARROW_CELLS else f'{words[0]} {words[-2]}'} ", "cursor"),)


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
    running: Line = (("jobs ", "dim"), (f"{jobs.running:,}", "strong" if jobs.running else "text"), (" running", "dim"))
    queued: Line = ((f" · {jobs.queued:,} queued", "dim"),) if jobs.queued else ()
    notices: list[Line] = [((fmt.counted(jobs.notices, "notice"), "lost"),)] if jobs.notices else []
    return [*notices, (*running, *queued)]


def _states(totals: Totals) -> Line:
    return joined(_state_parts(totals), " · ")


def _state_parts(totals: Totals) -> list[Line]:
    waiting = totals.nodes - totals.live - totals.stale - totals.lost
    parts: list[Line] = [
        ((f"{totals.live:,} live", "strong" if totals.live else "dim"),),
        ((f"{totals.stale:,} stale", "idle" if totals.stale else "dim"),),
        ((f"{totals.lost:,} lost", "lost" if totals.lost else "dim"),),
    ]
    return [*parts, ((f"{waiting:,} connecting", "dim"),)] if waiting else parts


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
        extras.append(((f"partial: {totals.unpriced:,} without a price", "dim"),))
    alerts = totals.alerts + others
    if alerts:
        extras.append(((fmt.counted(alerts, "alert"), "lost"),))
    extras.append(((fmt.watts(totals.power_watts), "text"),))
    extras.append((("util ", "dim"), (fmt.percent(totals.utilization_ratio), "text")))
    return extras


def node_sums(found: Selected) -> tuple[Line, ...]:
    """`12 nodes  $123.00/h  today $1,234.50  idle $4.00/h`; `~` before what is known in part."""
    totals = found.totals
    known, about = not totals.cost_unknown, "~" * bool(totals.unpriced)
    mark = "~" * (found.today is not None and found.today_partial)
    sums: list[Line] = [
        ((fmt.counted(totals.nodes, "node"), "text"),),
        ((f"{about}{fmt.usd(totals.usd_per_hour)}/h" if known else fmt.UNKNOWN, "text"),),
        (("today ", "dim"), (mark + fmt.usd(found.today), "text")),
    ]
    if known:
        style = "idle" if totals.idle_usd_per_hour else "text"
        sums.append((("idle ", "dim"), (f"{about}{fmt.usd(totals.idle_usd_per_hour)}/h", style)))
    return tuple(sums)


def unpriced(totals: Totals) -> Line:
    """`2 without a price`."""
    return ((f"{totals.unpriced:,} without a price", "dim"),) if totals.unpriced else ()


def status_line(shown: Shown, note: Line, cells: int, standing: Line = ()) -> Line:
    """Sums at the left; then a standing note; what is said of the order and the columns at the right, as far as there is room.

    `note` covers the sums for a moment.
    """
    sums = _left(shown, cells)
    if note:
        text, style = note[0]
        end = _right(shown, max(0, min(cells // 2, cells - width(note) - 3)))
        return spread(((fitted(f" {text}", cells - width(end) - 2).rstrip(), style),), end, cells)
    if not standing:
        left = joined(sums, "  ", cells - 1)
        end = _right(shown, cells - width(left) - 2)
        if shown.aside and width(left) + width(shown.aside) + width(end) + 4 <= cells:
            left = (*left, ("  ", "dim"), *shown.aside)
        return spread(left, end, cells)
    end = _right(shown, cells // 6)
    room = cells - width(end) - 2
    left = joined(sums, "  ", max(SUM_CELLS, room - STANDING_CELLS))
    text, style = standing[0]
    return spread((*left, ("  ", "dim"), (fitted(text, room - width(left) - 2).rstrip(), style)), end, cells)


def _left(shown: Shown, cells: int) -> list[Line]:
    parts: list[Line] = []
    if shown.filter_text:
        room = min(30, max(12, cells // 4), len(shown.filter_text))
        parts.append(((f"/{fitted(fmt.clean(shown.filter_text), room)}", "accent"),))
    if shown.marked:
        parts.append(((f"● {shown.marked} marked:", "accent"),))
    if shown.marks_hidden:
        parts.append(((f"{fmt.counted(shown.marks_hidden, 'mark')} hidden", "idle"),))
    first, *rest = [*parts, *shown.sums[bool(shown.marked) :]]
    return [((" ", "dim"), *first), *rest]


def _right(shown: Shown, cells: int) -> Line:
    parts: list[Line] = []
    if shown.frozen_seconds:
        parts.append(((f"order held {shown.frozen_seconds}s", "dim"),))
    if shown.hidden_columns:
        parts.append(((f"+{shown.hidden_columns} hidden", "accent"), (" w", "key")))
    if shown.sorted_by:
        parts.append((("by ", "dim"), (shown.sorted_by, "text")))
    if shown.grouped_by:
        parts.append((("group ", "dim"), (fmt.clean(shown.grouped_by), "text")))
    if shown.following:
        parts.append((("follows", "accent"),))
    line = joined(parts, "  ", cells - 1)
    return (*line, (" ", "text")) if line else ()


def footer_line(scope: actions.Scope, cells: int) -> Line:
    """`Enter open  / filter  ...`: as many as fit."""
    parts: list[Line] = [((key, "key"), (f" {name}", "dim")) for key, name in actions.footer(scope)]
    if actions.held():  # another time is shown: how to move in it is what is wanted
        names = (("time_back", "back"), ("time_on", "on"), ("time_jump", "jump"), ("time_run", "run"), ("time_live", "newest"))
        parts[:0] = [((actions.key_of(ident), "key"), (f" {name}", "dim")) for ident, name in names]
    elif actions.read_only():
        parts.insert(0, (("read-only", "idle"),))
    return ((" ", "dim"), *joined(parts, "  ", cells - 1))
