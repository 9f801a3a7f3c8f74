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

from textual import events
from textual.driver import Driver
from textual.screen import ModalScreen, Screen
from textual.theme import Theme

from tui import terminal
from tui.fleet import Fleet, Totals
from tui.fleet_jobs import JobCounts
from tui.money_files import MoneyFiles
from tui.ui import actions, garbage
from tui.ui.asking import Asking
from tui.ui.background import Background
from tui.ui.clipboard import Copying
from tui.ui.drivers import TerminalDriver
from tui.ui.governor import Governor
from tui.ui.glyphs import AsciiDriver
from tui.ui.ledger import EVERY_SECONDS, FIRST_SECONDS
from tui.ui.node_actions import NodeActions
from tui.ui.panes.header import Costs
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.fleet import FleetScreen
from tui.ui.stylesheet import KeptStylesheet
from tui.ui.theme import ANSI, DARK, NAMES, THEMES, use_ground
from tui.ui.time_travel import IN_REPLAY, TimeTravel
from tui.ui.travel import Travel
from tui.ui.typed_early import TypedEarly
from tui.ui.widgets import plot
from tui.ui.widgets.status import Footer

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.config import BudgetConfig, NodeConfig
    from tui.live import Live

TICK_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""How long leaving waits for open streams."""
FORCED_END_SECONDS = 5.0


class RackrateApp(Copying, NodeActions, TimeTravel, TypedEarly, Background):
    """`fleet` is shown; `live` (if any) is started when the app is mounted. `clock` is monotonic seconds, `now` UTC.

    With `nodes` and `client_for` the prices are read after the first paint, and only then the streams are opened.
    With `ledger_path` the ledger is kept up to date and read once a minute.
    """

    TITLE = "rackrate"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    collects_garbage = False
    """Whether it decides when, instead of Python: see `tui.ui.garbage`."""
    BINDINGS: ClassVar = actions.bindings("app")
    CSS = """
    Screen { background: $background; color: $foreground; }
    Toast { background: $rr-raised; color: $foreground; max-width: 90%; }
    Input > .input--placeholder, Input > .input--suggestion { color: $rr-dim; }
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
        governor: Governor | None = None,
        travel: Travel | None = None,
    ) -> None:
        actions.put_in_force(registry, read_only=read_only)
        self.governor = governor or Governor()
        self.filters = dict(filters)
        """Queries that are kept: `@name`."""
        self._unicode = terminal.draws_unicode() if unicode is None else unicode
        super().__init__(driver_class=_driver(self._unicode), ansi_color=terminal.no_color() or None)
        self.animation_level = "none"
        self.stylesheet = KeptStylesheet(variables=self.get_css_variables())
        self.fleet = fleet
        self.live = live
        self.clock = clock
        self.live_now = now
        self.costs = costs or Costs()
        self._configured = nodes
        self._client_for = client_for
        self._timezone = timezone
        self._zone: tzinfo = ZoneInfo(timezone) if timezone else UTC
        self._keep_files(MoneyFiles(ledger_path, prices_path, terms_path, data_dir, tuple(budgets), timezone or "UTC"))
        self._totals: Totals | None = None
        self.travel = travel
        actions.hold(IN_REPLAY if travel is not None else "")
        self.asking = Asking(fleet, nodes, client_for, clock, self.redraw, self._complain)
        self._keep_drafts()
        self._wear(theme)

    def _keep_files(self, files: MoneyFiles) -> None:
        self.files = files
        self._ledger_path, self._prices_path = files.ledger, files.prices
        self._terms_path, self._budgets = files.terms, files.budgets

    def _keep_drafts(self) -> None:
        self.job_draft: dict[str, str] = {}
        """What was typed into the form of a new job."""
        self.again_drafts: dict[str, dict[str, str]] = {}
        """And into that of a job of before, by its id."""

    def _wear(self, theme: str) -> None:
        use_ground(terminal.ground())
        for each in THEMES:
            self.register_theme(each)
        self.theme = chosen_theme(theme)

    @property
    def current_theme(self) -> Theme:
        """Asked for at each rule that is for dark or light: without a copy of the table of all themes."""
        return self._registered_themes.get(self.theme) or super().current_theme

    def get_default_screen(self) -> Screen[None]:
        return FleetScreen()

    def on_load(self) -> None:
        terminal.exit_on_signals(asyncio.get_running_loop(), self.end)

    def on_mount(self) -> None:
        self.set_interval(TICK_SECONDS, self.tick)
        if self.collects_garbage:
            self.set_timer(TICK_SECONDS / 2, self._begin_collecting)
        self.app_resume_signal.subscribe(self, lambda _: self._repaint())
        if not self.is_headless:
            self.set_interval(terminal.HEARTBEAT_SECONDS, self._check_tty)
        if self.travel is not None:
            self.call_after_refresh(self.start_replay, self.travel)
            return
        if self.live is not None:
            self.live.start()
        elif self._client_for is not None:
            self.call_after_refresh(self._read_catalog)
        if self._prices_path is not None:
            self.set_interval(EVERY_SECONDS, self.renew_prices)
        if self._ledger_path is not None and self._client_for is not None:
            self.set_timer(FIRST_SECONDS, self.sync_ledger)
            self.set_interval(EVERY_SECONDS, self.sync_ledger)

    def _begin_collecting(self) -> None:
        garbage.settle()
        self.set_interval(TICK_SECONDS, garbage.collect)

    async def on_unmount(self) -> None:
        await self.asking.close()
        await self.end_travel()
        if self.live is not None:
            closing = asyncio.ensure_future(self.live.close())
            await asyncio.wait({closing}, timeout=CLOSE_SECONDS)

    def tick(self) -> None:
        """A second has passed: the screen on top shows what changed."""
        if self.live is not None:
            self.live.take_changed()
        self.travel_tick()
        self.note_events()
        if self.screen_stack and self.governor.may_refresh():  # none while the app is being taken down
            plot.put_in_force(self.governor.plots)
            self.redraw()
            for footer in self.seen.query(Footer):
                footer.show_rate(self.governor.rate_text())

    def on_app_blur(self, event: events.AppBlur) -> None:
        """Nobody looks: a refresh each five seconds is enough."""
        self.governor.blurred = True

    def on_app_focus(self, event: events.AppFocus) -> None:
        self.governor.blurred = False
        self.tick()

    def redraw(self) -> None:
        """Redraws the screen on top; one that is seen around a dialog does not stand still either."""
        self._totals = None
        if self.screen_stack and isinstance(self.seen, RackrateScreen) and self.seen.is_mounted:
            self.seen.redraw()

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
        if self.travel is not None:
            return self.travel.money_ms is not None
        return self._ledger_path is None or self.costs != Costs()

    def clock_text(self) -> str:
        """`14:05 +01:00`: to the minute, so that a fleet at rest writes nothing."""
        if self.travel is not None:
            return self.travel_text(self._zone)
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
                return list(screen.table.passing)
        return []

    def action_next_theme(self) -> None:
        place = NAMES.index(self.theme) if self.theme in NAMES else -1
        self.theme = NAMES[(place + 1) % len(NAMES)]
        if isinstance(self.screen, RackrateScreen):
            self.screen.note(f"theme: {self.theme}", "text")

    def action_leave(self) -> None:
        self.exit(return_code=0)

    def on_key(self, event: events.Key) -> None:
        """A key that means nothing here gets an answer; one typed right behind the key that opens a line belongs into it."""
        if event.key == "f1" and isinstance(self.screen, ModalScreen) and self.explain_dialog():
            event.prevent_default()
            event.stop()
        elif self.take_early(event):
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


def _driver(unicode: bool) -> type[Driver]:
    if terminal.is_served():
        from tui.ui.served import ServedDriver

        return ServedDriver
    return TerminalDriver if unicode else AsciiDriver
