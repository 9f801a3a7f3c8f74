"""Where in another time the app is, and the money of then.

Invariant: of a replay it is what was known then; behind live it is the ledger of now up to the moment, by the prices that were
in force then. It is read in a thread, and what the live app reads meanwhile is for its return.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from tui.fleet import Fleet
from tui.money_files import MoneyFiles
from tui.replay_time import moment
from tui.ui.navigation import Navigation
from tui.ui.panes.header import Costs

if TYPE_CHECKING:
    from pricing.catalog import Catalog
    from tui.replay import Recording
    from tui.replay_money import MoneyThen

MONEY_SECONDS = 5.0
"""While time runs its money is read this often."""


class Travel:
    """Where in a recording the app is. `money` None: the ledger of the live app up to the moment, by the prices of then."""

    def __init__(self, recording: Recording, at_ms: int, speed: int, money: MoneyThen | None = None, *, keeps_files: bool = True) -> None:
        self.recording = recording
        self.at_ms = float(at_ms)
        self.speed = speed
        self.money = money
        self.keeps_files = keeps_files
        """It is a replay; otherwise the app is behind live."""
        self.live_files: MoneyFiles | None = None
        """Where the money of now is read from, while the app is behind live."""
        self.clock_at: float | None = None
        self.wish_ms: float | None = None
        """Where it shall go; None: it is there."""
        self.busy = False
        self.money_ms: float | None = None
        self.money_read_at = float("-inf")
        self.money_busy = False

    @property
    def word(self) -> str:
        """What the header calls it."""
        return "REPLAY" if self.keeps_files else "BEHIND LIVE"


class TravelMoney(Navigation):
    """The attributes are the app's."""

    clock: Callable[[], float]
    costs: Costs
    travel: Travel | None = None
    _parked: Fleet | None = None
    """The live fleet, while the app is behind live."""

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self.asking.start(work)

    @property
    def _live_fleet(self) -> Fleet:
        return self.fleet if self._parked is None else self._parked

    def take_catalog(self, catalog: Catalog) -> None:
        """Prices the live fleet, whatever time is shown."""
        self._live_fleet.set_catalog(catalog)

    def _catalog_of(self, travel: Travel, at_ms: int) -> Catalog | None:
        if travel.money is not None:
            return travel.money.catalog(at_ms)
        files = self._files_of(travel, at_ms)
        if files.as_of is not None:
            return files.catalog()
        return self._live_fleet.catalog

    def _want_money(self, travel: Travel) -> None:
        """At once after a jump; while time runs now and then."""
        rested = self.clock() - travel.money_read_at >= MONEY_SECONDS
        if travel.money_ms == travel.at_ms or travel.money_busy or (travel.speed and not rested):
            return
        self._start(self._read_money(travel))

    async def _read_money(self, travel: Travel) -> None:
        travel.money_busy, travel.money_read_at = True, self.clock()
        at_ms = travel.at_ms
        files, costs, catalog, error = await asyncio.to_thread(self._money_of, travel, int(at_ms))
        travel.money_busy, travel.money_ms = False, at_ms
        if self.travel is not travel:
            return
        if files is not None and costs is not None:
            self.files = files
            self.costs = costs
            if catalog is not None and catalog is not self.fleet.catalog:
                self.fleet.set_catalog(catalog)
            self._money_changed()
        elif error:
            self._say(f"The money of this moment cannot be read: {error}")
        self._want_money(travel)
        self.redraw()

    def _money_of(self, travel: Travel, at_ms: int) -> tuple[MoneyFiles | None, Costs | None, Catalog | None, str | None]:
        from tui.ui.ledger import costs_at

        try:
            files = self._files_of(travel, at_ms)
            return files, costs_at(files, moment(at_ms)), self._catalog_of(travel, at_ms), None
        except Exception as error:  # noqa: BLE001 - the fleet is worth seeing without its money
            return None, None, None, str(error) or type(error).__name__

    def _files_of(self, travel: Travel, at_ms: int) -> MoneyFiles:
        """Behind live it is the ledger of now up to the moment, and the prices that were in force then."""
        if travel.money is not None:
            return travel.money.go_to(at_ms)
        return (travel.live_files or self.files).at(moment(at_ms))

    def _money_changed(self) -> None:
        self.ledger_version += 1
        self.catalog_version += 1
