"""The screen of budgets: what is spent, what the month will have cost, and the way to the costs."""

from __future__ import annotations

from pathlib import Path

from tests.support.fleets import AT
from tests.support.money_app import BUDGETS, filled, money_app, until
from tests.support.screens import line_with, press, running, text
from tui.money_files import MoneyFiles
from tui.ui.background import CostsRead
from tui.ui.panes.header import BudgetsRead, Costs
from tui.ui.screens import costs  # noqa: F401 - else it is imported in a thread


def read(ledger: Path) -> Costs:
    """The states as the background reads them."""
    from pricing.ledger import Ledger
    from tui.budgets import alert_rows, states_of

    files = MoneyFiles(ledger, None, None, ledger.parent, BUDGETS, "UTC")
    with Ledger.open(ledger) as opened:
        states = tuple(states_of(BUDGETS, opened, files.pricing(), "UTC", AT))
    return Costs(budgets=BudgetsRead(states, 0.0, 0.0), alerts=alert_rows(states, (), ()))


async def test_budgets_stand_with_forecast_and_lead_to_their_costs(tmp_path: Path) -> None:
    ledger = filled(tmp_path)
    app, told = money_app(tmp_path, ledger), read(ledger)
    async with running(app, (150, 40)) as pilot:
        await press(pilot, "B")
        assert "Reading the ledger" in text(app)
        app.post_message(CostsRead(told))
        await pilot.pause()
        state = next(one for one in told.budgets.states if one.budget.name == "vision")  # type: ignore[union-attr]
        row = line_with(app, "project vision")
        assert f"{float(state.spent):,.2f}" in row and "$9,000.00" in row and f"{float(state.ratio):.0%}" in row and state.word in row
        assert " to $" in row and "━" in row
        assert "3 budgets" in text(app) and "2026-11" in text(app)
        await press(pilot, "slash", *"budget:vision", "enter")
        assert "everything" not in line_with(app, "vision") and "alerts at" in text(app) and "50%" in line_with(app, "alerts at")
        await press(pilot, "enter")
        await until(pilot, lambda: app.screen._groups.value is not None and not app.is_reading)  # type: ignore[attr-defined]
        assert app.screen.filters == (("project", "vision"),)  # type: ignore[attr-defined]
        assert "project vision" in line_with(app, "Costs 2026-11")
        await press(pilot, "escape")
        assert app.screen.SCOPE == "budgets"  # type: ignore[attr-defined]
        await press(pilot, "c")
        assert app.screen.filters == ()  # type: ignore[attr-defined]
        await press(pilot, "escape")
        for size in ((80, 24), (20, 5)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert "vision" in text(app)
