"""The full-screen app: the fleet live, what it costs, and what stands idle.

Invariant: the loop of the app never waits for a node, the catalog or the ledger; an error in the background is a notice on the
screen, never the end of the program; however it ends, the terminal is given back.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from zoneinfo import ZoneInfo

import msgspec
from textual import events
from textual.message import Message
from textual.screen import Screen

from tui import terminal
from tui.fleet import Fleet, Totals
from tui.fleet_jobs import JobCounts
from tui.money_files import MoneyFiles
from tui.ui import actions
from tui.ui.asking import Asking
from tui.ui.glyphs import AsciiDriver, UnicodeDriver
from tui.ui.ledger import (
    EVERY_SECONDS,
    FIRST_SECONDS,
    RETRY_SECONDS,
    in_background,
    read_costs,
)
from tui.ui.money_screens import MoneyScreens
from tui.ui.panes.header import Costs
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.fleet import FleetScreen
from tui.ui.theme import ANSI, DARK, NAMES, THEMES
from tui.ui.widgets.status import FilterBar

if TYPE_CHECKING:
    from agent.client import AgentClient
    from pricing.catalog import Catalog
    from tui.config import BudgetConfig, NodeConfig
    from tui.live import Live

TICK_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""How long leaving waits for open streams."""
FORCED_END_SECONDS = 5.0


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


class RackrateApp(MoneyScreens):
    """`fleet` is shown; `live` (if any) is started when the app is mounted. `clock` is monotonic seconds, `now` UTC.

    With `nodes` and `client_for` the prices are read after the first paint, and only then the streams are opened.
    With `ledger_path` the ledger is kept up to date and read once a minute.
    """

    TITLE = "rackrate"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar = actions.bindings("app")
    CSS = """
    Screen { background: $background; color: $foreground; }
    Toast { background: $rr-raised; color: $foreground; max-width: 90%; }
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        live: Live | None = None,
        nodes: Sequence[NodeConfig] = (),
        client_for: Callable[[NodeConfig], AgentClient] | None = None,
        ledger_path: Path | None = None,
        prices_path: Path | None = None,
        terms_path: Path | None = None,
        data_dir: Path | None = None,
        budgets: Sequence[BudgetConfig] = (),
        timezone: str = "UTC",
        theme: str = "",
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        costs: Costs | None = None,
        unicode: bool | None = None,
        filters: Mapping[str, str] = {},
        registry: tuple[actions.Action, ...] = actions.ACTIONS,
        read_only: bool = False,
    ) -> None:
        actions.put_in_force(registry, read_only=read_only)
        self.filters = dict(filters)
        """Queries that are kept: `@name`."""
        self._unicode = terminal.draws_unicode() if unicode is None else unicode
        super().__init__(driver_class=UnicodeDriver if self._unicode else AsciiDriver, ansi_color=terminal.no_color() or None)
        self.animation_level = "none"
        self.fleet = fleet
        self.live = live
        self.clock = clock
        self.now = now
        self.costs = costs or Costs()
        self._configured = nodes
        self._client_for = client_for
        self._ledger_path = ledger_path
        self._prices_path = prices_path
        self._terms_path = terms_path
        self._budgets = budgets
        self.files = MoneyFiles(ledger_path, prices_path, terms_path, data_dir, tuple(budgets), timezone or "UTC")
        self._prices_seen: object = None
        self._timezone = timezone
        self._zone: tzinfo = ZoneInfo(timezone) if timezone else UTC
        self._retry_seconds = RETRY_SECONDS
        self._ledger_thread: threading.Thread | None = None
        self._totals: Totals | None = None
        self.asking = Asking(fleet, nodes, client_for, clock, self.redraw, self._complain)
        self.job_draft: dict[str, str] = {}
        """What was typed into the form of a new job."""
        for each in THEMES:
            self.register_theme(each)
        self.theme = chosen_theme(theme)

    def get_default_screen(self) -> Screen[None]:
        return FleetScreen()

    def on_load(self) -> None:
        terminal.exit_on_signals(asyncio.get_running_loop(), self.end)

    def on_mount(self) -> None:
        self.set_interval(TICK_SECONDS, self.tick)
        self.app_resume_signal.subscribe(self, lambda _: self._repaint())
        if not self.is_headless:
            self.set_interval(terminal.HEARTBEAT_SECONDS, self._check_tty)
        if self.live is not None:
            self.live.start()
        elif self._client_for is not None:
            self.call_after_refresh(self._read_catalog)
        if self._prices_path is not None:
            self.set_interval(EVERY_SECONDS, self.renew_prices)
        if self._ledger_path is not None and self._client_for is not None:
            self.set_timer(FIRST_SECONDS, self.sync_ledger)
            self.set_interval(EVERY_SECONDS, self.sync_ledger)

    async def on_unmount(self) -> None:
        await self.asking.close()
        if self.live is not None:
            closing = asyncio.ensure_future(self.live.close())
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)

    def tick(self) -> None:
        """A second has passed: the screen on top shows what changed."""
        if self.live is not None:
            self.live.take_changed()
        self.redraw()

    def redraw(self) -> None:
        """Redraws the screen on top."""
        self._totals = None
        if isinstance(self.screen, RackrateScreen) and self.screen.is_mounted:
            self.screen.redraw()

    def _repaint(self) -> None:
        """Paints everything anew: the shell wrote on the screen while the app was suspended."""
        self.screen.refresh()
        for widget in self.screen.walk_children():
            widget.refresh()

    def totals(self) -> Totals:
        """Sums over all nodes, worked out once a redraw."""
        if self._totals is None:
            self._totals = self.fleet.totals(self.clock())
        return self._totals

    def _complain(self, text: str) -> None:
        if self.is_running:
            self.notify(text, severity="warning", markup=False)

    def job_counts(self) -> JobCounts | None:
        """Of all nodes; None while no job was ever heard of and no notice is in force."""
        counts = self.fleet.job_counts()
        return counts if self.fleet.jobs_version or counts.notices else None

    @property
    def unicode(self) -> bool:
        """Whether more than ASCII may be drawn."""
        return self._unicode

    @property
    def zone(self) -> tzinfo:
        """The reader's time zone."""
        return self._zone

    @property
    def costs_known(self) -> bool:
        """The ledger was read, or there is none, or it cannot be."""
        return self._ledger_path is None or self.costs != Costs()

    def clock_text(self) -> str:
        """`14:05 +01:00`: to the minute, so that a fleet at rest writes nothing."""
        local = self.now().astimezone(self._zone)
        offset = f"{local:%z}"
        return f"{local:%H:%M} {offset[:3]}:{offset[3:5]}"

    def time_text(self, at: datetime) -> str:
        """`Nov 30 14:05:10`, in the reader's time zone."""
        return f"{at.astimezone(self._zone):%b %d %H:%M:%S}"

    def node_order(self) -> list[str]:
        """Names as the table shows them."""
        for screen in self.screen_stack:
            if isinstance(screen, FleetScreen):
                return list(screen.table.keys)
        return []

    # -- what is read in the background ------------------------------------------------------------------

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
        self.post_message(CatalogRead(catalog, error))

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
            self.fleet.set_catalog(event.catalog)
        if event.error:
            self.notify(event.error, severity="warning")
        if self._client_for is not None and self.live is None:
            self.live = Live(self.fleet, self._configured, self._client_for, clock=self.clock)
            self.live.start()
        self.redraw()

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
        if self.is_running:
            self.post_message(message)

    def on_costs_read(self, event: CostsRead) -> None:
        """Shows them; an error is said once, and the figures of before stay."""
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

    def entered_node(self, name: str) -> None:
        """The node is looked at: its plots should not be empty."""
        self.asking.history(name)

    # -- what can be done ------------------------------------------------------------------------------------

    def open_node(self, name: str) -> None:
        """Shows one node."""
        from tui.ui.screens.node import NodeScreen

        if name in self.fleet:
            self.entered_node(name)
            self.push_screen(NodeScreen(name))

    def open_job(self, name: str, ident: str) -> None:
        """Shows one job of a node."""
        from tui.ui.screens.job import JobScreen

        if name in self.fleet:
            self.push_screen(JobScreen(name, ident))

    def action_jobs(self, query: str = "") -> None:
        """The jobs of the fleet, or of the node that is looked at."""
        from tui.ui.screens.jobs import JobsScreen

        self.push_screen(JobsScreen(query))

    def action_submit(self, node: str = "") -> None:
        from tui.ui.screens.submit import SubmitScreen

        self.push_screen(SubmitScreen(node))

    def action_alerts(self) -> None:
        from tui.ui.screens.alerts import AlertsScreen

        self.push_screen(AlertsScreen())

    def action_help(self) -> None:
        from tui.ui.screens.help import HelpScreen

        self.push_screen(HelpScreen())

    def action_palette(self) -> None:
        from tui.ui.screens.palette import PaletteScreen

        screen = self.screen
        if isinstance(screen, RackrateScreen):
            self.push_screen(PaletteScreen(screen.SCOPE), self._run_chosen)

    def _run_chosen(self, action: actions.Action | None) -> None:
        if action is not None:
            self.call_later(self.run_action, action.call, self.screen)

    def action_next_theme(self) -> None:
        place = NAMES.index(self.theme) if self.theme in NAMES else -1
        self.theme = NAMES[(place + 1) % len(NAMES)]
        if isinstance(self.screen, RackrateScreen):
            self.screen.note(f"theme: {self.theme}", "text")

    def action_leave(self) -> None:
        self.exit(return_code=0)

    def on_key(self, event: events.Key) -> None:
        """A key that means nothing here gets an answer; one typed right behind the key that opens the filter belongs into it."""
        if self.screen.query(FilterBar) and self.screen.query_one(FilterBar).takes(event):
            event.prevent_default()
            event.stop()
        elif event.key not in self.screen.active_bindings and isinstance(self.screen, RackrateScreen):
            name = event.character if event.is_printable and event.character else event.key
            self.screen.note(actions.unknown_key(self.screen.SCOPE, event.key, name), "dim")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What would change something is refused here too, however it is called."""
        return not actions.refuses(action) and super().check_action(action, parameters)

    # -- how it ends --------------------------------------------------------------------------------------------

    def end(self, code: int) -> None:
        """Leaves with this exit code; by force when that takes too long (a terminal that no longer takes bytes)."""
        guard = threading.Timer(FORCED_END_SECONDS, os._exit, (code,))
        guard.daemon = True
        guard.start()
        self.exit(return_code=code)

    def _check_tty(self) -> None:
        if terminal.tty_is_gone():
            self.end(terminal.LOST_TTY_CODE)


def chosen_theme(wanted: str) -> str:
    """The theme asked for, or the terminal's own colours where exact ones cannot be shown or are not wanted."""
    if wanted in NAMES:
        return wanted
    return ANSI if terminal.no_color() or terminal.few_colors() else DARK
