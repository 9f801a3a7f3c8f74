"""The screens of money: costs, market and advice, each in the state in which it was left.

Invariant: a screen of these exists once; opened again it shows what it showed, and reads what is new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.screen import Screen

from tui.money_files import MoneyFiles


class MoneyScreens(App[None]):
    """`files`: where the money is read from."""

    files = MoneyFiles()
    ledger_version = 0
    """Grows with each sync."""
    catalog_version = 0
    """Grows with each reading of the prices."""

    def action_costs(self) -> None:
        from tui.ui.screens.costs import CostsScreen

        self._go_to("costs", CostsScreen)

    def action_market(self) -> None:
        from tui.ui.screens.market import MarketScreen

        self._go_to("market", MarketScreen)

    def action_advice(self) -> None:
        from tui.ui.screens.advice import AdviceScreen

        self._go_to("advice", AdviceScreen)

    def _go_to(self, name: str, make: Callable[[], Screen[Any]]) -> None:
        """Makes it the first time; brings it to the top where it is open already."""
        if name not in self._installed_screens:
            self.install_screen(make(), name)
        screen = self.get_screen(name)
        while screen in self.screen_stack and self.screen is not screen:
            self.pop_screen()
        if self.screen is not screen:
            self.push_screen(name)
