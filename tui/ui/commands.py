"""What is typed behind `:`, carried out by the app.

Invariant: what cannot be done is a sentence in the status line; a screen is opened as its key would open it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from tui.ui import actions
from tui.ui.colon import Goto
from tui.ui.kept_filters import KeptFilters
from tui.ui.screens.base import RackrateScreen
from tui.ui.theme import NAMES
from tui.ui.widgets.arranged_table import ArrangedTable
from tui.ui.widgets.status import FilterBar

if TYPE_CHECKING:
    from tui.fleet import Fleet


class AppWorld:
    """The fleet as it is when the line is opened."""

    def __init__(self, fleet: Fleet, now: float, filters: Mapping[str, str], screens: Iterable[Screen[Any]]) -> None:
        self._fleet = fleet
        self._screens = {screen.SCOPE: screen for screen in screens if isinstance(screen, RackrateScreen)}
        self.now = now
        self.filters = filters
        self.themes: Sequence[str] = NAMES

    def nodes(self) -> list[str]:
        return [view.name for view in self._fleet]

    def gpus(self, node: str) -> list[str]:
        return [str(gpu.index) for gpu in self._fleet[node].gpus] if node in self._fleet else []

    def jobs(self) -> Iterable[tuple[str, str]]:
        found = sorted(self._fleet.jobs(), key=lambda view: view.job.state == "ended")
        return [(view.job.id, view.node.name) for view in found]

    def rows(self, word: str) -> Callable[[], Iterable[Any]]:
        """Of a screen that was opened before its own; else the fleet's and its jobs'."""
        match word:
            case "fleet":
                return lambda: self._fleet
            case "jobs":
                return self._fleet.jobs
        screen = self._screens.get(word)  # type: ignore[call-overload]
        table = next(iter(screen.query(ArrangedTable)), None) if screen is not None and screen.is_attached else None
        return table.rows if table is not None else tuple


class Commands(KeptFilters):
    """`:jobs user:me`."""

    def world(self) -> AppWorld:
        """What `:` can name."""
        screens = [*self._installed_screens.values(), *self.screen_stack]
        return AppWorld(self.fleet, self.clock(), self.filters, [one for one in screens if isinstance(one, Screen)])

    def go_to(self, wanted: Goto) -> None:
        """What was typed behind `:`."""
        match wanted.word.name, wanted.arguments:
            case "fleet", query:
                self.go_up_to(0)
                self._filter(self.screen, query)
            case "node", (name,):
                self.open_node(name)
            case "gpu", (name, index):
                self._open_gpu(name, index)
            case "job", (ident, node):
                self.open_job(node, ident)
            case "curves", (ident, node):
                self.open_curves([(node, ident)])
            case "theme", (name,):
                self.theme = name
            case "forget", (name,):
                self.forget_kept_filter(name)
            case ("jobs" | "costs" | "budgets" | "market" | "alerts" | "events") as kind, query:
                if kind == "jobs":
                    self.asking.job_lists(view.name for view in self.fleet)
                self.open_kept(kind, then=lambda screen: self._filter(screen, query))
            case name, _:
                self._act(name)

    def _open_gpu(self, name: str, index: str) -> None:
        gpu = next((gpu for gpu in self.fleet[name].gpus if str(gpu.index) == index), None)
        if gpu is not None:
            self.open_node(name)
            self.open_gpu(name, gpu.uuid)

    @staticmethod
    def _filter(screen: Screen[Any], query: tuple[str, ...]) -> None:
        for bar in screen.query(FilterBar) if query else ():
            bar.put(query[0])

    def _act(self, name: str) -> None:
        calls = {
            "submit": self.action_submit, "advice": self.action_advice, "help": self.action_help, "quit": self.action_leave,
            "theme": self.action_next_theme,
        }  # fmt: skip
        if name == "submit" and actions.read_only():
            self._tell("submit is off: this is read-only.", "idle")
        else:
            calls[name]()

    def action_leave(self) -> None:
        """Quits."""
        raise NotImplementedError

    def action_next_theme(self) -> None:
        """The next theme."""
        raise NotImplementedError
