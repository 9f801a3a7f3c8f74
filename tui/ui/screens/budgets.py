"""The budgets of config.toml: spent, limit, forecast with its range, the day it runs out, and what was crossed.

Invariant: the states are those of the last reading of the ledger, with its time; nothing is worked out here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult

from tui import format as fmt
from tui.ui import actions
from tui.ui.lines import BLANK, Line, cropped, joined, wrapped
from tui.ui.panes.node import rule
from tui.ui.screens.table import TableScreen
from tui.ui.widgets.budgets_table import (
    BUDGET_WORDS,
    BudgetsTable,
    amount,
    ends_text,
    range_text,
    style_of,
)
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView
from tui.ui.widgets.plot import bar
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

if TYPE_CHECKING:
    from pricing.budgets import BudgetState
    from tui.ui.screens.costs import CostsScreen

EXAMPLE = "used>80 of:vision state:over forecast>5000"
CARD_FROM_ROWS = 18
WIDEST_BAR = 60
_HOW: tuple[Line, ...] = (
    (("  There are no budgets yet.", "strong"),),
    (),
    (("  Written into config.toml, this is one of 5,000 USD a month for a project:", "dim"),),
    (),
    (("  [[budgets]]", "key"),),
    (('  name = "vision"', "key"),),
    (('  amount = "5000"', "key"),),
    (('  project = "vision"', "key"), ("        or user = ..., or tag = { team = ... }, or none: everything", "dim")),
    (("  thresholds = [50, 80, 100]", "key"), ("  percent that alert", "dim")),
)


class BudgetsScreen(TableScreen):
    """Enter shows the costs of what the budget is of."""

    SCOPE = "budgets"
    ROWS = "Budgets"
    BINDINGS: ClassVar = actions.bindings("budgets")
    CSS = "BudgetsScreen #card { height: auto; }"

    def compose(self) -> ComposeResult:
        app = self.rackrate
        yield Header()
        yield BudgetsTable(app.clock)
        pane = LinesView(id="card")
        pane.can_focus = False
        yield pane
        yield FilterBar(BUDGET_WORDS, EXAMPLE)
        yield StatusLine(app.clock)
        yield Footer("budgets")

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def table(self) -> BudgetsTable:
        return self.query_one(BudgetsTable)

    def draw(self) -> None:
        self.show_header()
        self.table.explain(self._empty())
        read = self.rackrate.costs.budgets
        if read is not None:
            self.table.show_states(read.states)
        self.table.update(self.rackrate.clock())
        self.show_status()
        self._show_card()

    def _empty(self) -> tuple[Line, ...]:
        app = self.rackrate
        if not app.files.budgets:
            where = app.config_file
            return (*_HOW, BLANK, ((f"  in {fmt.clean(str(where))}", "dim"),)) if where is not None else _HOW
        if app.costs.budgets is not None:
            return ((("  No budget matches this filter. Esc clears it.", "dim"),),)
        if app.costs.error is not None:
            return ((("  " + fmt.clean(app.costs.error), "lost"),),)
        if app.files.ledger is None:
            return ((("  There is no ledger here to read from.", "dim"),),)
        return ((("  Reading the ledger ...", "dim"),), ((("  rackrate cost", "key"), ("    prints the same", "dim"))))

    def sums(self) -> tuple[Line, ...]:
        """How many, and how they stand; budgets overlap, so their amounts are not added."""
        states = [self.table.row_of(key) for key in self.summed()]
        over = sum(state.over for state in states)
        likely = sum(state.word == "likely over" for state in states)
        parts: list[Line] = [((fmt.counted(len(states), "budget"), "text"),)]
        if over:
            parts.append(((f"{over} over", "lost"),))
        if likely:
            parts.append(((f"{likely} likely over", "idle"),))
        if states:
            parts.append(((states[0].month, "dim"), (f", read {self.rackrate.time_text(states[0].at)[-8:-3]}", "dim")))
        return tuple(parts)

    def trouble(self) -> Line:
        error = self.rackrate.costs.error
        return ((fmt.clean(error), "lost"),) if error and self.rackrate.costs.budgets is not None else ()

    def _show_card(self) -> None:
        pane, state, (columns, rows) = self.query_one("#card", LinesView), self.table.chosen, self.app.size
        pane.display = state is not None and rows >= CARD_FROM_ROWS
        if state is not None and pane.display:
            lines = card_lines(state, columns - 1)[: max(3, rows // 2 - 2)]
            pane.styles.height = len(lines)
            pane.show(lines)

    def action_open(self) -> None:
        state = self.table.chosen
        if state is None:
            return
        budget = state.budget

        def narrow(screen: CostsScreen) -> None:
            screen.show_only(((budget.key, budget.value),) if budget.key else ())

        self.rackrate.open_kept("costs", then=narrow)

    def action_again(self) -> None:
        self.rackrate.sync_ledger()
        self.note("The ledger is being read.", "dim")

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()


def card_lines(state: BudgetState, cells: int) -> list[Line]:
    """What there is to say of one budget."""
    budget, forecast = state.budget, state.forecast
    room = max(10, min(WIDEST_BAR, cells - 20))
    filled, empty = bar(min(1.0, float(state.ratio)) if state.known else None, room)
    likely = f" ({range_text(state)}, {float(forecast.confidence):.0%} sure)" if forecast.expected is not None else ""
    lines: list[Line] = [
        rule(fmt.clean(budget.name), cells, f"{fmt.clean(budget.scope)}, {state.month} in {budget.tz}"),
        ((" ", "dim"), (filled, style_of(state)), (empty, "rule"), (f" {_percent(state)}", style_of(state)), (f"  {state.word}", style_of(state))),
        joined(
            [
                ((" spent ", "dim"), (amount(state, state.spent if state.known else None), "strong")),
                (("of ", "dim"), (amount(state, budget.amount.fraction), "text")),
                (("forecast ", "dim"), (amount(state, forecast.expected), "strong"), (likely, "dim")),
                (("runs out ", "dim"), (ends_text(state), "text")),
            ],
            "   ",
            cells,
        ),
    ]
    lines += _crossed(state, cells)
    if forecast.reason:
        lines += wrapped(f"No forecast: {forecast.reason}", "dim", cells, " ")
    if not state.complete:
        what = f"Some of its time has no price in {budget.amount.currency}, or its usage rows are missing: it is in no sum."
        lines += wrapped(what, "idle", cells, " ")
    return [cropped(line, cells) for line in lines]


def _percent(state: BudgetState) -> str:
    return fmt.percent(float(state.ratio) if state.known else None)


def _crossed(state: BudgetState, cells: int) -> list[Line]:
    """Its thresholds: those that were crossed, and the next one with what is left until then."""
    if not state.budget.thresholds:
        return []
    passed = {one.percent for one in state.crossed if one.kind == "spent"}
    parts: list[Line] = [((" alerts at", "dim"),)]
    for percent in state.budget.thresholds:
        parts.append((("✓ " if percent in passed else "", "idle"), (f"{percent:f}%", "idle" if percent in passed else "text")))
    following = next((percent for percent in state.budget.thresholds if percent not in passed), None)
    if following is not None and state.known:
        left = state.budget.amount.fraction * Fraction(following) / 100 - state.spent
        parts.append((("until then ", "dim"), (amount(state, max(Fraction(0), left)), "text")))
    return [joined(parts, "  ", cells)]
