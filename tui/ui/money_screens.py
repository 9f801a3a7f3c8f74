"""The screens that are kept: costs, budgets, market, advice, jobs, alerts and events, each in the state in which it was left.

Invariant: a screen of these exists once for what it shows; opened again it shows what it showed, and reads what is new.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import App

from tui.money_files import MoneyFiles
from tui.ui.places import Place
from tui.ui.reading import Reading

if TYPE_CHECKING:
    from tui.ui.screens.base import RackrateScreen

SCREENS = {
    "costs": ("tui.ui.screens.costs", "CostsScreen"),
    "budgets": ("tui.ui.screens.budgets", "BudgetsScreen"),
    "market": ("tui.ui.screens.market", "MarketScreen"),
    "advice": ("tui.ui.screens.advice", "AdviceScreen"),
    "jobs": ("tui.ui.screens.jobs", "JobsScreen"),
    "alerts": ("tui.ui.screens.alerts", "AlertsScreen"),
    "events": ("tui.ui.screens.events", "EventsScreen"),
}
"""Kind -> module and class. Their imports cost up to some hundred milliseconds (numpy comes with advice)."""
SLOW = ("costs", "market", "advice")
"""Their modules are imported in a thread."""
MOST_KEPT = 16
"""Screens that are kept beside those that are open (the jobs of single nodes)."""
Shown = Callable[[Any], None]


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
        self.open_kept("costs")

    def action_budgets(self) -> None:
        self.open_kept("budgets")

    def action_market(self) -> None:
        self.open_kept("market")

    def action_advice(self) -> None:
        self.open_kept("advice")

    def open_kept(self, kind: str, *of: str, then: Shown | None = None) -> None:
        """At once, or when its module was imported in a thread, so that the loop goes on meanwhile.

        `then` is given the screen when it is there.
        """
        place = Place(kind, of)
        if SCREENS[kind][0] in sys.modules or kind not in SLOW:
            self._go_to(place, then)
        else:
            self.run_worker(partial(self._import, place, then), exclusive=True, group="opening")

    async def _import(self, place: Place, then: Shown | None) -> None:
        await asyncio.to_thread(importlib.import_module, SCREENS[place.kind][0])
        self._go_to(place, then)

    def _go_to(self, place: Place, then: Shown | None = None) -> None:
        """Makes it the first time; brings it to the top where it is open already."""
        if place.name not in self._installed_screens:
            self.install_screen(self._made(place), place.name)
            self._keep_few(place.name)
        screen = self.get_screen(place.name)
        if screen in self.screen_stack:
            self.go_up_to(self.screen_stack.index(screen))
        else:
            self.push_screen(screen)
        if then is not None:
            self.call_after_refresh(then, screen)

    def _made(self, place: Place) -> RackrateScreen:
        module, made = SCREENS[place.kind]
        screen: RackrateScreen = getattr(importlib.import_module(module), made)(*place.of)
        screen.opened_as = place
        return screen

    def _keep_few(self, newest: str) -> None:
        """Those of single nodes that were left longest ago are given up."""
        kept = [name for name, screen in self._installed_screens.items() if " " in name and screen not in self.screen_stack]
        for name in kept[: max(0, len(kept) - MOST_KEPT)]:
            if name != newest:
                screen = self.get_screen(name)
                self.uninstall_screen(name)
                if screen.is_attached:
                    self.call_later(screen.remove)

    def go_up_to(self, place: int) -> None:
        """Leaves the screens above the one at `place` of the stack."""
        raise NotImplementedError
