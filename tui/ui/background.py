"""What the app reads in the background: prices, and the ledger with what today and this month cost.

Invariant: the loop of the app never waits for them; an error is a notice, and the figures of before stay.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual.message import Message

from tui.ui.commands import Commands
from tui.ui.ledger import EVERY_SECONDS, RETRY_SECONDS, in_background, read_costs
from tui.ui.panes.header import Costs

if TYPE_CHECKING:
    from agent.client import AgentClient
    from pricing.catalog import Catalog
    from tui.config import BudgetConfig, NodeConfig
    from tui.live import Live


OPENED_OFTEN = ("node", "gpu", "jobs", "job", "palette", "alerts", "events", "costs", "budgets", "market", "help", "submit", "confirm")
"""Screens whose modules are there before they are opened: an import in the loop would hold it for up to 200 ms."""


class CatalogRead(Message):
    """The prices are there, and the modules that streams need are imported."""

    def __init__(self, catalog: Catalog | None, error: str | None) -> None:
        super().__init__()
        self.catalog = catalog
        self.error = error


class CostsRead(Message):
    """The ledger was read."""

    def __init__(self, costs: Costs) -> None:
        super().__init__()
        self.costs = costs


class Background(Commands):
    """The attributes are set by the app."""

    clock: Callable[[], float]
    live: Live | None
    costs: Costs
    _configured: Sequence[NodeConfig]
    _client_for: Callable[[NodeConfig], AgentClient] | None
    _ledger_path: Path | None
    _prices_path: Path | None
    _terms_path: Path | None
    _budgets: Sequence[BudgetConfig]
    _timezone: str
    _prices_seen: object = None
    _retry_seconds = RETRY_SECONDS
    _ledger_thread: threading.Thread | None = None

    def _read_catalog(self) -> None:
        threading.Thread(target=self._import_slowly, name="rackrate-catalog", daemon=True).start()

    def _import_slowly(self) -> None:
        """Imports that cost a few hundred milliseconds, after the first paint."""
        catalog, error = None, None
        try:
            import tui.live  # noqa: F401
            from tui.catalogs import overlaid, stamp

            said: list[str] = []
            self._prices_seen = stamp(self._prices_path)
            catalog = overlaid(self._prices_path, said.append)
            error = said[0] if said else None
        except Exception as fault:  # noqa: BLE001 - without prices the fleet is still worth seeing
            error = f"The prices could not be read: {fault}"
        with contextlib.suppress(RuntimeError):  # the app has ended meanwhile
            self.post_message(CatalogRead(catalog, error))
        for name in OPENED_OFTEN:
            with contextlib.suppress(ImportError):
                importlib.import_module(f"tui.ui.screens.{name}")

    def renew_prices(self) -> None:
        """Reads the prices again when `prices refresh` has brought others."""
        from tui.catalogs import stamp

        if self.live is not None and stamp(self._prices_path) != self._prices_seen:
            self._read_catalog()

    def on_catalog_read(self, event: CatalogRead) -> None:
        """Prices the fleet and opens the streams."""
        from tui.live import Live

        self.catalog_version += 1
        if event.catalog is not None:
            self.take_catalog(event.catalog)
        if event.error:
            self.notify(event.error, severity="warning")
        if self._client_for is not None and self.live is None:
            self.keep_past(self._configured)
            self.live = Live(self.fleet, self._configured, self._client_for, clock=self.clock)
            self.live.start()
        self.redraw()

    def keep_past(self, nodes: Sequence[NodeConfig]) -> None:
        """Keeps the last minutes from now on."""
        raise NotImplementedError

    def take_catalog(self, catalog: Catalog) -> None:
        """The newest prices have been read."""
        raise NotImplementedError

    def keep_live_costs(self, costs: Costs) -> bool:
        """Whether they are not for the screen now."""
        raise NotImplementedError

    def sync_ledger(self) -> None:
        """Starts a sync unless the one before still runs."""
        if self._ledger_thread is not None and self._ledger_thread.is_alive():
            return
        path, nodes, client_for, zone = self._ledger_path, self._configured, self._client_for, self._timezone
        prices, terms, budgets, before = self._prices_path, self._terms_path, self._budgets, self.costs
        if path is not None and client_for is not None:
            self._ledger_thread = in_background(
                lambda: read_costs(path, nodes, client_for, zone, prices, terms, budgets, before),
                lambda costs: self._post(CostsRead(costs)),
            )

    def _post(self, message: Message) -> None:
        with contextlib.suppress(RuntimeError):  # the app ends just now
            if self.is_running:
                self.post_message(message)

    def on_costs_read(self, event: CostsRead) -> None:
        """Shows them; an error is said once, and the figures of before stay."""
        if event.costs.error is None and self.keep_live_costs(event.costs):
            return
        if event.costs.error is None:
            self.costs = event.costs
            self.ledger_version += 1
            if event.costs.today is None and self._retry_seconds < EVERY_SECONDS:
                self.set_timer(self._retry_seconds, self.sync_ledger)  # agents write their first rows after some seconds
                self._retry_seconds *= 2
        elif event.costs.error != self.costs.error:
            self.notify(event.costs.error, title="The ledger", severity="warning", markup=False)
            self.costs = msgspec.structs.replace(self.costs, error=event.costs.error)
        self.redraw()
