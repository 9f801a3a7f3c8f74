"""The trials of a sweep as lines: the best one first in words, those that run, and how the others ended.

Invariant: pure functions; the best trial and every state are told by a word; what does not fit is counted.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from tui import format as fmt
from tui.sweep_show import Swept, Trial, config_text, metric_text
from tui.ui.lines import Line, cropped, fitted, joined

ROWS = 12
"""Of trials; the command line has them all."""
_STYLES = {"started": "accent", "reported": "accent", "ended": "text", "stopped early": "dim", "failed": "lost", "lost": "lost",
           "stopped": "idle"}  # fmt: skip
_WORDS = {"started": "starts", "reported": "runs"}


def sweep_lines(swept: Swept, job_cost: Decimal | None, cells: int, rows: int = ROWS) -> list[Line]:
    """How far it is, what it costs, and its trials: the best, those that run, the newest of the others."""
    lines = [cropped(_title(swept, cells), cells), cropped(_money(swept, job_cost), cells)]
    shown = sorted(sorted(swept.trials, key=lambda one: (one.number != swept.best, not one.runs, -one.number))[:rows],
                   key=lambda one: one.number)  # fmt: skip
    if shown:
        name = fmt.clean(swept.metric or "metric")
        width = max(len(name), 8)
        head = f"  {'trial':>8}  {'state':<13}  {fitted(name, width, right=True)}  {'step':>7}  {'time':>6}  {'cost':>8}  settings"
        lines.append(cropped(((head, "dim"),), cells))
        lines += [cropped(_row(one, swept.best, width), cells) for one in shown]
    if left := len(swept.trials) - len(shown):
        lines.append(cropped(((f"  … {left} more: `rackrate sweep show` has them all", "dim"),), cells))
    if swept.command:
        lines.append(cropped((("  trains the best  ", "dim"), (fmt.clean(swept.command), "text")), cells))
    return lines


def _title(swept: Swept, cells: int) -> Line:
    counts = Counter("running" if one.runs else one.state for one in swept.trials)
    wanted = "" if swept.wanted is None else f" of {swept.wanted}"
    parts: list[Line] = [((" Trials ", "title"), (f"{len(swept.trials)}{wanted}", "strong"))]
    parts += [((f"{count} {state}", _STYLES.get(state, "accent")),) for state, count in counts.items()]
    best = next((one for one in swept.trials if one.number == swept.best), None)
    if best is not None:
        word = "best" if swept.over else "best so far"
        parts.append(((f"{word} {best.number}: {fmt.clean(swept.metric or 'metric')} {metric_text(best)}", "strong"),))
    return joined(parts, "  ", cells)


def _money(swept: Swept, job_cost: Decimal | None) -> Line:
    idle = swept.idle(job_cost)
    if idle is None:
        return (("  what the trials cost is not known: the node's price is not", "dim"),)
    return (("  trials ", "dim"), (fmt.usd(swept.trials_cost), "text"), ("  starts and GPUs that waited ", "dim"),
            (fmt.usd(max(Decimal(0), idle)), "text"), ("  together ", "dim"), (fmt.usd(job_cost), "text"))  # fmt: skip


def _row(one: Trial, best: int | None, width: int) -> Line:
    style = _STYLES.get(one.state, "text")
    number = f"best {one.number}" if one.number == best else str(one.number)
    step = fmt.UNKNOWN if one.step is None else str(one.step)
    time = fmt.UNKNOWN if one.seconds is None else fmt.age(one.seconds)
    figures = f"  {fitted(metric_text(one), width, right=True)}  {step:>7}  {time:>6}  {fmt.usd(one.cost):>8}  "
    told = config_text(one) + (f"  ({one.why})" if one.why else "")
    plain = "dim" if one.state == "stopped early" else "text"
    return ((f"  {number:>8}  ", "strong" if one.number == best else plain), (f"{_WORDS.get(one.state, one.state):<13}", style),
            (figures, plain), (fmt.clean(told), plain))  # fmt: skip
