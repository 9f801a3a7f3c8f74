"""The screens of money: costs, market and advice, each in the state in which it was left.

Invariant: a screen of these exists once; opened again it shows what it showed, and reads what is new.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from textual.app import App

from tui.money_files import MoneyFiles
from tui.ui.reading import Reading

SCREENS = {
    "costs": ("tui.ui.screens.costs", "CostsScreen"),
    "market": ("tui.ui.screens.market", "MarketScreen"),
    "advice": ("tui.ui.screens.advice", "AdviceScreen"),
}
"""Name -> module and class. Their imports cost up to some hundred milliseconds (numpy comes with advice)."""


class MoneyScreens(App[None]):
    """`files`: where the money is read from."""

    files = MoneyFiles()
    ledger_version = 0
    """Grows with each sync."""
    catalog_version = 0
    """Grows with each reading of the prices."""

    @property
    def is_reading(self) -> bool:
        """Whether the screen on top waits for a thread."""
        return any(isinstance(one, Reading) and one.busy for one in vars(self.screen).values())

    def action_costs(self) -> None:
        self._open("costs")

    def action_market(self) -> None:
        self._open("market")

    def action_advice(self) -> None:
        self._open("advice")

    def _open(self, name: str) -> None:
        """At once, or when its module was imported in a thread, so that the loop goes on meanwhile."""
        if SCREENS[name][0] in sys.modules:
            self._go_to(name)
        else:
            self.run_worker(self._import(name), exclusive=True, group="opening")

    async def _import(self, name: str) -> None:
        await asyncio.to_thread(importlib.import_module, SCREENS[name][0])
        self._go_to(name)

    def _go_to(self, name: str) -> None:
        """Makes it the first time; brings it to the top where it is open already."""
        module, made = SCREENS[name]
        if name not in self._installed_screens:
            self.install_screen(getattr(importlib.import_module(module), made)(), name)
        screen = self.get_screen(name)
        while screen in self.screen_stack and self.screen is not screen:
            self.pop_screen()
        if self.screen is not screen:
            self.push_screen(name)
