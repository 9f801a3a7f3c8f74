"""The table of budgets: what is spent, what the month will have cost, and when a budget runs out.

Invariant: the figures are those of `rackrate cost`; an amount that is not known is `–`, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.columns import Column
from tui.query import Words
from tui.ui.lines import Line, fitted
from tui.ui.widgets.arranged_table import ArrangedTable
from tui.ui.widgets.plot import bar

if TYPE_CHECKING:
    from pricing.budgets import BudgetState

BAR_CELLS = 14


def amount(state: BudgetState, value: Fraction | None, places: int = 2) -> str:
    """In the budget's own currency."""
    currency, text = state.budget.amount.currency, fmt.usd(value, places)
    return text if currency == "USD" else text.replace("$", f"{currency} ")


def ends_text(state: BudgetState) -> str:
    """The day on which all of it is spent: `Nov 26`, `spent`; `–` when that is not in this month, or not known."""
    if state.ratio >= 1:
        return "spent"
    from pricing.calendar import zone

    ends = state.projected_exhaustion
    return fmt.UNKNOWN if ends is None else f"{ends.astimezone(zone(state.budget.tz)):%b %d}"


def range_text(state: BudgetState) -> str:
    """`$8,100 to $9,400`, or `–`."""
    low, high = state.forecast.low, state.forecast.high
    return fmt.UNKNOWN if low is None or high is None else f"{amount(state, low, 0)} to {amount(state, high, 0)}"


def _spent(state: BudgetState) -> Fraction | None:
    return state.spent if state.known else None


BUDGET_COLUMNS: tuple[Column, ...] = (
    Column(id="name", title="BUDGET", width=12, priority=1, flex=True, sort_key="1",
           value=lambda row, now: row.budget.name, text=lambda row, now: fmt.clean(row.budget.name)),
    Column(id="of", title="OF", width=14, priority=4, flex=True, sort_key="2",
           value=lambda row, now: row.budget.scope, text=lambda row, now: fmt.clean(row.budget.scope)),
    Column(id="spent", title="SPENT", width=11, priority=2, align="right", descending=True, sort_key="3",
           value=lambda row, now: _spent(row), text=lambda row, now: amount(row, _spent(row))),
    Column(id="limit", title="LIMIT", width=11, priority=2, align="right", descending=True, sort_key="4",
           value=lambda row, now: row.budget.amount.fraction, text=lambda row, now: amount(row, row.budget.amount.fraction)),
    Column(id="used", title="USED", width=5, priority=1, align="right", descending=True, sort_key="5",
           value=lambda row, now: row.ratio if row.known else None,
           text=lambda row, now: fmt.percent(float(row.ratio) if row.known else None)),
    Column(id="bar", title="", width=BAR_CELLS, priority=6, value=lambda row, now: None, text=lambda row, now: ""),
    Column(id="forecast", title="FORECAST", width=11, priority=3, align="right", descending=True, sort_key="6",
           value=lambda row, now: row.forecast.expected, text=lambda row, now: amount(row, row.forecast.expected)),
    Column(id="range", title=" RANGE", width=20, priority=5,
           value=lambda row, now: None, text=lambda row, now: f" {range_text(row)}"),
    Column(id="ends", title="RUNS OUT", width=8, priority=3, align="right", sort_key="7",
           value=lambda row, now: row.projected_exhaustion, text=lambda row, now: ends_text(row)),
    Column(id="state", title=" STATE", width=12, priority=2, sort_key="8",
           value=lambda row, now: row.word, text=lambda row, now: f" {row.word}"),
)  # fmt: skip


def style_of(state: BudgetState) -> str:
    """Of what tells how it stands."""
    return "lost" if state.over else "idle" if state.crossed else "accent"


class BudgetsTable(ArrangedTable):
    """The one that is used up most first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(BUDGET_COLUMNS, "used", clock, id="budgets")
        self._descending = True
        self._states: Sequence[BudgetState] = ()
        self._by_key: dict[str, BudgetState] = {}

    def show_states(self, states: Sequence[BudgetState]) -> None:
        """Other figures, at once."""
        if states is not self._states:
            self._states = states
            self._by_key = {state.budget.name: state for state in states}
            self.order_rows(self._clock())
            self.refresh_rows()

    @property
    def chosen(self) -> BudgetState | None:
        return self._by_key.get(self.cursor_key) if self.cursor_key is not None else None

    def rows(self) -> Iterable[BudgetState]:
        return self._by_key.values()

    def key_of(self, row: BudgetState) -> str:
        return row.budget.name

    def row_of(self, key: str) -> BudgetState:
        return self._by_key[key]

    def changed(self) -> bool:
        return False

    def look_of(self, row: BudgetState, now: float) -> Hashable:
        return id(row)

    def cell(self, row: BudgetState, column: Column, cells: int, now: float) -> Line:
        if column.id == "bar":
            filled, empty = bar(min(1.0, float(row.ratio)) if row.known else None, cells)
            return ((filled, style_of(row)), (empty, "rule"))
        text = column.text(row, now)
        style = {"name": "strong", "used": style_of(row), "state": style_of(row), "of": "dim", "range": "dim"}.get(column.id, "text")
        if column.id == "ends" and text != fmt.UNKNOWN:
            style = style_of(row) if row.crossed else "idle"
        return ((fitted(text, cells, right=column.align == "right"), "dim" if text.strip() == fmt.UNKNOWN else style),)


def _texts(row: BudgetState, key: str, now: float) -> list[str]:
    match key:
        case "budget":
            return [row.budget.name]
        case "of":
            return [row.budget.scope]
        case "state":
            return [row.word]
    return [row.budget.value] if row.budget.key == key else []


def _number(row: BudgetState, key: str, now: float) -> float | None:
    values = {
        "used": row.ratio * 100 if row.known else None, "spent": _spent(row), "limit": row.budget.amount.fraction,
        "forecast": row.forecast.expected,
    }  # fmt: skip
    value = values[key]
    return None if value is None else float(value)


BUDGET_WORDS = Words(
    ("budget", "of", "state", "project", "user"), ("used", "spent", "limit", "forecast"),
    _texts, _number, lambda row: [row.budget.name, row.budget.scope], seconds=(),
    known={"state": ("ok", "likely over", "over")},
)  # fmt: skip
