"""Which screens are opened, and how: by a key, by the palette, by a click.

Invariant: modules of screens are imported when they are opened, never at the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.ui import actions
from tui.ui.money_screens import MoneyScreens
from tui.ui.screens.base import RackrateScreen

if TYPE_CHECKING:
    from tui.fleet import Fleet
    from tui.ui.asking import Asking


class Navigation(MoneyScreens):
    """`fleet` and `asking` are the app's."""

    fleet: Fleet
    asking: Asking

    def entered_node(self, name: str) -> None:
        """The node is looked at: its plots should not be empty."""
        self.asking.history(name)

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
