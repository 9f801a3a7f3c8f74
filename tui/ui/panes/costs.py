"""The month as lines: its days as stacked columns, what they are made of, and the budgets beside or below.

Invariant: parts are told apart by their pattern, not by colour alone; a day whose cost is not known is `?`, never empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.costs_view import COMMITMENTS, CORRECTIONS, IDLE, Day, Days, Groups
from tui.ui.lines import BLANK, Line, cropped, fitted, joined, spread, width
from tui.ui.widgets.plot import bar

if TYPE_CHECKING:
    from pricing.budgets import BudgetState

NAMED = (("█", "accent"), ("▓", "text"), ("▒", "accent"))
"""Pattern and style of the dearest parts."""
OTHERS = ("░", "dim")
OURS = {IDLE: ("╱", "idle"), COMMITMENTS: ("╲", "idle")}
MARGIN = 8
WIDEST_DAY = 6
BESIDE_FROM = 110
"""Columns from which budgets stand beside the days."""
BUDGET_CELLS = 38
WIDE_FROM = 110
"""Columns from which a budget has a bar where it does not stand beside the days."""


def heights(rows: int) -> tuple[int, int]:
    """(rows of the plot, budgets below it) on a screen of so many rows; 0 rows: no plot."""
    if rows < 18:
        return 0, 0 if rows < 14 else 1
    return (5, 2) if rows < 30 else (10, 4) if rows < 50 else (16, 8)


def month_lines(days: Days, cells: int, rows: int) -> list[Line]:
    """Everything above the table."""
    height, most = heights(rows)
    if not height or not days.days:
        return budget_lines(days.budgets, cells, most)
    if days.budgets and cells >= BESIDE_FROM:
        left = chart(days, cells - BUDGET_CELLS - 2, height)
        right = budget_cards(days.budgets, BUDGET_CELLS, len(left))
        pairs = zip(left, [*right, *[BLANK] * len(left)], strict=False)
        room = cells - BUDGET_CELLS
        return [(*line, (" " * max(0, room - width(line)), "text"), *card) for line, card in pairs]
    return [*chart(days, cells, height), *budget_lines(days.budgets, cells, most)]


def chart(days: Days, cells: int, height: int) -> list[Line]:
    """A column a day, `height` rows; below it the dates and what the patterns mean."""
    each = max(1, min(WIDEST_DAY, (cells - MARGIN - 1) // days.month.days))
    gap = 1 if each >= 3 else 0
    totals = {day.number: _drawn(day) for day in days.days}
    most = max(totals.values(), default=Fraction(0))
    looks = _looks(days.names)
    by_number = {day.number: day for day in days.days}
    columns = [_column(by_number.get(number), looks, most, height) for number in range(1, days.month.days + 1)]
    lines = []
    for row in reversed(range(height)):
        label = _short(most * (row + 1) / height) if row in (height - 1, (height - 1) // 2) and most else ""
        spans: list[tuple[str, str]] = [(f"{label:>{MARGIN - 1}} ", "dim"), ("┤" if label else "│", "rule")]
        for column in columns:
            sign, style = column[row] if row < len(column) else (" ", "text")
            spans.append((sign * (each - gap) + " " * gap, style))
        lines.append(cropped(tuple(spans), cells))
    return [*lines, *_axis(days, each, cells), legend(days, looks, cells)]


def _drawn(day: Day) -> Fraction:
    return sum((cost for cost in day.parts.values() if cost > 0), Fraction(0))


def _looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Pattern and style of each part."""
    plain = [name for name in names if name not in (*OURS, CORRECTIONS)]
    looks = {name: NAMED[place] if place < len(NAMED) else OTHERS for place, name in enumerate(plain)}
    return {**looks, **{name: OURS.get(name, OTHERS) for name in names if name not in looks}}


def _column(day: Day | None, looks: dict[str, tuple[str, str]], most: Fraction, height: int) -> list[tuple[str, str]]:
    """From the bottom: a sign a row, as many as the day's part of the dearest day, split by largest remainder."""
    from pricing.money import largest_remainder

    if day is None:
        return []
    if not day.known:
        return [("?", "lost")]
    parts = [(looks[name], cost) for name in looks if (cost := day.parts.get(name, Fraction(0))) > 0]
    total = sum((cost for _, cost in parts), Fraction(0))
    if not total or not most:
        return [("▁", "dim")]
    rows = round(total / most * height)
    if not rows:
        return [("▁", max(parts, key=lambda part: part[1])[0][1])]
    counts = largest_remainder([cost / total * rows for _, cost in parts], rows)
    return [look for (look, _), count in zip(parts, counts, strict=True) for _ in range(count)]


def _axis(days: Days, each: int, cells: int) -> list[Line]:
    """The line below the days, and each fifth date."""
    line = " " * MARGIN + "└" + "─" * (each * days.month.days)
    dates = [" "] * (each * days.month.days + 2)
    for number in (1, *range(5, days.month.days + 1, 5)):
        text = str(number)
        dates[(number - 1) * each : (number - 1) * each + len(text)] = text
    return [cropped(((line, "rule"),), cells), cropped(((" " * (MARGIN + 1) + "".join(dates).rstrip(), "dim"),), cells)]


def legend(days: Days, looks: dict[str, tuple[str, str]], cells: int) -> Line:
    """`█ vision $1,234  ▓ speech $700  ░ 4 others $50  ╱ idle $88`: sums of the month."""
    sums: dict[tuple[str, str], list[tuple[str, Fraction]]] = {}
    for name, look in looks.items():
        sums.setdefault(look, []).append((name, sum((day.parts.get(name, Fraction(0)) for day in days.days), Fraction(0))))
    full, brief = ([_named(look, members, told) for look, members in sums.items()] for told in (True, False))
    room = cells - MARGIN - 1
    shown = full if width(joined(full, "  ")) <= room else brief
    return ((" " * (MARGIN + 1), "dim"), *joined(shown, "  ", room))


def _named(look: tuple[str, str], members: Sequence[tuple[str, Fraction]], amount: bool) -> Line:
    text = fmt.clean(members[0][0]) if len(members) == 1 else f"{len(members)} others"
    shown = fitted(text, min(16, width(((text, ""),))))
    total = sum((cost for _, cost in members), Fraction(0))
    return (look, (f" {shown}", "text"), (f" {_short(total)}" if amount else "", "dim"))


def _short(amount: Fraction) -> str:
    """`$12,345`, below 100 with cents."""
    return fmt.usd(amount, 0 if abs(amount) >= 100 else 2)


def budget_lines(states: Sequence[BudgetState], cells: int, most: int) -> list[Line]:
    """A line a budget, the worst first: spent of the amount, forecast and interval, how it stands."""
    shown = _worst_first(states)[:most]
    lines = [_budget_line(state, cells) for state in shown]
    if len(states) > len(shown) > 0:
        more: Line = ((f" +{len(states) - len(shown)}", "dim"),)
        lines[-1] = (*cropped(lines[-1], cells - width(more)), *more)
    return lines


def _worst_first(states: Sequence[BudgetState]) -> list[BudgetState]:
    return sorted(states, key=lambda state: (-max(state.ratio, state.forecast_ratio or 0), state.budget.name))


def _budget_line(state: BudgetState, cells: int) -> Line:
    """On narrow screens without the bar, so that the forecast is there."""
    wide = cells >= WIDE_FROM
    spent, amount, expected, low, high = _amounts(state)
    filled, empty = bar(min(1.0, float(state.ratio)), 10)
    percent = fmt.percent(float(state.ratio) if state.known else None)
    word = f" {state.word}" if wide or "spent" not in state.word else ""
    used: Line = ((f"{percent:>4}{word}", _style(state)),)
    interval = f" ({low} to {high})" if expected != fmt.UNKNOWN else ""
    parts: list[Line] = [
        ((" budget " if wide else " ", "dim"), (fitted(fmt.clean(state.budget.name), 14 if wide else 10), "strong")),
        ((filled, _style(state)), (empty, "rule"), (" ", "text"), *used) if wide else used,
        ((spent, "text"), (" of ", "dim"), (amount, "text")),
        (("forecast " if wide else "→ ", "dim"), (expected, "text"), (interval, "dim")),
    ]
    return joined(parts, "  " if wide else " ", cells)


def _amounts(state: BudgetState) -> list[str]:
    """Spent, amount, and the forecast with its interval, in whole dollars (or what the budget is in)."""
    budget, forecast = state.budget, state.forecast
    values = (state.spent if state.known else None, budget.amount.fraction, forecast.expected, forecast.low, forecast.high)
    currency = budget.amount.currency
    told = [fmt.usd(value, 0) for value in values]
    return told if currency == "USD" else [text.replace("$", f"{currency} ") for text in told]


def budget_cards(states: Sequence[BudgetState], cells: int, rows: int) -> list[Line]:
    """Beside the days: three lines a budget, as many as there is room for."""
    lines: list[Line] = []
    shown = _worst_first(states)[: max(1, (rows + 1) // 4)]
    for state in shown:
        spent, amount, expected, low, high = _amounts(state)
        name, scope, word = fmt.clean(state.budget.name), fmt.clean(state.budget.scope), state.word
        used = fmt.percent(float(state.ratio) if state.known else None)
        filled, empty = bar(min(1.0, float(state.ratio)), 12)
        lines += [
            spread(((fitted(name, min(20, len(name))), "strong"), (f" {scope}", "dim")), ((word, _style(state)),), cells),
            ((filled, _style(state)), (empty, "rule"), (f" {used:>4} ", _style(state)), (f"{spent} of {amount}", "text")),
            (("forecast ", "dim"), (expected, "text"), (f" ({low} to {high})" if expected != fmt.UNKNOWN else "", "dim")),
            BLANK,
        ]
    if len(states) > len(shown):
        lines[-1:] = [((f"and {len(states) - len(shown)} more: rackrate cost", "dim"),)]
    return [cropped(line, cells) for line in lines[:rows]]


def _style(state: BudgetState) -> str:
    return "lost" if state.over else "idle" if state.crossed else "accent"


def title_line(groups: Groups | None, doing: str, cells: int) -> Line:
    """`Costs 2026-11 by user · project vision`, and at the end what is going on."""
    end: Line = ((f"{doing} ", "dim"),) if doing else ()
    if groups is None:
        return spread(((" Costs", "title"),), end, cells)
    left: list[Line] = [((" Costs ", "title"), (groups.month.label, "strong"))]
    left += [((f"{key.removeprefix('tag:').replace('_', ' ')} ", "dim"), (fmt.clean(label), "accent")) for key, label in groups.filters]
    left.append((("by ", "dim"), (groups.grouping.title, "strong")))
    return spread(joined(left, " › ", cells - width(end) - 2), end, cells)
