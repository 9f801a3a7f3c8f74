"""Which screens are opened, and how: by a key, by the palette, by a click; and the way back and forward.

Invariant: modules of screens are imported when they are opened, never at the start; a screen stands once on the stack, and
the stack is never deeper than `MOST_DEEP`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, Screen

from tui.ui import actions
from tui.ui.lines import Line
from tui.ui.money_screens import SCREENS, MoneyScreens
from tui.ui.places import Kept, Path, Place, Trail
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.dialog_help import DialogHelp, dialog_help, filter_help
from tui.ui.widgets.status import FilterBar

if TYPE_CHECKING:
    from tui.fleet import Fleet
    from tui.ui.asking import Asking
    from tui.ui.colon import Goto, World

MOST_DEEP = 9
"""Screens on the stack. Beyond it the way begins anew at the fleet; back still goes the whole way."""
MOST_STATES = 200


class Navigation(MoneyScreens):
    """`fleet` and `asking` are the app's."""

    fleet: Fleet
    asking: Asking
    first_run = False
    """No node is configured: this machine alone is shown, and how to add others."""
    _moving = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.trail = Trail()
        self._states: dict[Place, Kept] = {}
        self._of_kind: dict[str, dict[str, Any]] = {}

    def redraw(self) -> None:
        """Redraws the screen on top."""
        raise NotImplementedError

    @property
    def seen(self) -> Screen[Any]:
        """The screen on top, or the one that is seen around a dialog. ScreenStackError: there is none (any more)."""
        return next((screen for screen in reversed(self.screen_stack) if not isinstance(screen, ModalScreen)), self.screen)

    # -- the way ------------------------------------------------------------------------------------------------------

    def push_screen(self, screen: Any, *arguments: Any, **options: Any) -> Any:
        """Textual's, and the way is noted."""
        if isinstance(screen, ModalScreen):
            return super().push_screen(screen, *arguments, **options)
        self._depart()
        waits = super().push_screen(screen, *arguments, **options)
        self._arrive()
        return waits

    def pop_screen(self) -> Any:
        """Textual's, and the way is noted."""
        screen = self.screen
        if len(self.screen_stack) == 1:
            return AwaitComplete()  # a second Esc that came faster than the screen went
        if isinstance(screen, ModalScreen):
            return super().pop_screen()
        self._depart()
        if isinstance(screen, RackrateScreen):
            self._remember(screen)
        waits = super().pop_screen()
        self._arrive()
        return waits

    def path(self) -> Path:
        """From the fleet to the screen on top, as far as it can be opened again."""
        found = [screen.place for screen in self.screen_stack if isinstance(screen, RackrateScreen)]
        return tuple(place for place in found if place is not None)

    def crumbs(self, upto: RackrateScreen) -> list[str]:
        """Names of the screens from the fleet to this one."""
        names = []
        for screen in self.screen_stack:
            if isinstance(screen, RackrateScreen):
                names.append(screen.crumb())
            if screen is upto:
                break
        return names

    def _depart(self) -> None:
        if not self._moving:
            self.trail.amend(self.path()) if len(self.trail) else self.trail.here(self.path())

    def _arrive(self) -> None:
        if not self._moving:
            self.trail.here(self.path())

    @contextmanager
    def _one_step(self) -> Iterator[None]:
        """Several screens are left or opened as one step of the way."""
        self._depart()
        before, self._moving = self._moving, True
        try:
            yield
        finally:
            self._moving = before

    def go_up_to(self, place: int) -> None:
        """Leaves the screens above the one at `place` of the stack."""
        with self._one_step():
            while len(self.screen_stack) > place + 1:
                self.pop_screen()
        self._arrive()

    def action_travel(self, step: int) -> None:
        """To the screen of before (-1), or forward again (1)."""
        if isinstance(self.screen, RackrateScreen) and self.screen.place is None and step < 0:
            self.pop_screen()
            return
        self._depart()
        path = self.trail.step(step)
        if path is None:
            self._say("This is where the way begins." if step < 0 else "There is nothing further on.")
            return
        with self._one_step():
            self._follow(path)
            self.trail.amend(self.path())

    def _say(self, text: str) -> None:
        if isinstance(self.screen, RackrateScreen):
            self.screen.note(text, "dim")

    def _follow(self, path: Path) -> None:
        """Leaves what is not on the path, and opens the rest of it."""
        same = 0
        places = [screen.place for screen in self.screen_stack if isinstance(screen, RackrateScreen)]
        while same < min(len(path), len(places)) and path[same] == places[same]:
            same += 1
        while len(self.screen_stack) > max(1, same):
            self.pop_screen()
        for place in path[max(1, same) :]:
            self.open_place(place)

    def open_place(self, place: Place) -> None:
        """Opens what stands there; nothing where it is gone (a node that is not configured any more)."""
        match place:
            case Place("node", (name,)):
                self.open_node(name)
            case Place("job", (name, ident)):
                self.open_job(name, ident)
            case Place("curves", keys):
                self.open_curves([(name, ident) for name, _, ident in (key.rpartition(" ") for key in keys)])
            case Place("gpu", (name, uuid)):
                self.open_gpu(name, uuid)
            case Place("again", (name, ident)):
                self.submit_again(name, ident)
            case Place("submit"):
                self.action_submit()
            case Place(kind, of) if kind in SCREENS:
                self.open_kept(kind, *of)

    def go(self, place: Place, make: Callable[[], RackrateScreen]) -> None:
        """Opens a screen that is not kept, as it was left; one that is open already is gone back to."""
        for index, screen in enumerate(self.screen_stack):
            if isinstance(screen, RackrateScreen) and screen.place == place:
                self.go_up_to(index)
                return
        if len(self.screen_stack) >= MOST_DEEP:
            with self._one_step():
                self._follow(self.path()[:1])
        screen, kept = make(), self._states.get(place)
        for name, value in self._of_kind.get(place.kind, {}).items():
            setattr(screen, name, value)
        self.push_screen(screen)
        if kept is not None:
            screen.call_after_refresh(screen.come_back, kept)

    def _remember(self, screen: RackrateScreen) -> None:
        place = screen.place
        if place is None or screen.opened_as is not None or not screen.is_mounted:
            return
        kept = screen.left()
        self._of_kind[place.kind] = kept.fields
        self._states.pop(place, None)
        self._states[place] = kept
        if len(self._states) > MOST_STATES:
            del self._states[next(iter(self._states))]

    # -- the screens --------------------------------------------------------------------------------------------------

    def entered_node(self, name: str) -> None:
        """The node is looked at: its plots should not be empty."""
        self.asking.history(name)

    def open_node(self, name: str) -> None:
        """Shows one node."""
        from tui.ui.screens.node import NodeScreen

        if name in self.fleet:
            self.entered_node(name)
            self.go(Place("node", (name,)), lambda: NodeScreen(name))

    def open_job(self, name: str, ident: str) -> None:
        """Shows one job of a node."""
        from tui.ui.screens.job import JobScreen

        if name in self.fleet:
            self.go(Place("job", (name, ident)), lambda: JobScreen(name, ident))

    def open_curves(self, keys: Sequence[tuple[str, str]]) -> None:
        """Shows what trainings told: node and id of each."""
        from tui.ui.screens.curves import CurvesScreen

        known = [(name, ident) for name, ident in keys if name in self.fleet]
        if known:
            self.go(Place("curves", tuple(" ".join(key) for key in known)), lambda: CurvesScreen(known))

    def open_gpu(self, name: str, uuid: str) -> None:
        """Shows one GPU of a node."""
        from tui.ui.screens.gpu import GpuScreen

        if name in self.fleet:
            self.go(Place("gpu", (name, uuid)), lambda: GpuScreen(name, uuid))

    def action_jobs(self, query: str = "") -> None:
        """The jobs of the fleet, or of the node that is looked at."""
        self.asking.job_lists(view.name for view in self.fleet)

        def narrow(screen: RackrateScreen) -> None:
            for bar in screen.query(FilterBar) if query else ():
                if not bar.applied:
                    bar.put(query)

        self.open_kept("jobs", *((query,) if query else ()), then=narrow)

    def action_submit(self, node: str = "") -> None:
        from tui.ui.screens.submit import SubmitScreen

        self.go(Place("submit"), lambda: SubmitScreen(node))

    def submit_again(self, name: str, ident: str) -> None:
        """The form of a new job, filled from one of before."""
        from tui.job_again import again
        from tui.ui.job_form import NODE
        from tui.ui.screens.submit import SubmitScreen
        from tui.whoami import user_name

        view = self.fleet.job(name, ident)
        if view is not None:
            found = again(view.job, self.now(), user_name())
            told = (f"It stays on {name}: empty `node`, and it goes to the first that fits.", *found.told)
            draft = {**found.draft, NODE: name}
            self.go(Place("again", (name, ident)), lambda: SubmitScreen(again=(name, ident), draft=draft, told=told))

    def action_alerts(self) -> None:
        self.open_kept("alerts")

    def action_events(self) -> None:
        self.open_kept("events")

    def action_help(self) -> None:
        """Of the screen; where a filter is typed, of what can be typed."""
        from tui.ui.screens.help import HelpScreen

        screen = self.screen
        bar = self.focused.parent if self.focused is not None else None
        if isinstance(bar, FilterBar):
            self._explain(lambda cells: filter_help(bar.words, sorted(bar.named), cells), "What can be typed here")
        else:
            self.push_screen(HelpScreen(screen.SCOPE if isinstance(screen, RackrateScreen) else None))

    def explain_dialog(self) -> bool:
        """F1 in a dialog; False: it is the explanation itself."""
        screen = self.screen
        if isinstance(screen, DialogHelp):
            return False
        self._explain(lambda cells: dialog_help(screen, cells), "What can be done here")
        return True

    def _explain(self, lines: Callable[[int], list[Line]], title: str) -> None:
        self.push_screen(DialogHelp(title, lines(DialogHelp.cells(self.size.width))))

    def action_palette(self) -> None:
        from tui.ui.screens.palette import PaletteScreen

        screen = self.screen
        if isinstance(screen, RackrateScreen):
            self.push_screen(PaletteScreen(screen.SCOPE, self.world()), self._run_chosen)

    def _run_chosen(self, chosen: actions.Action | Goto | None) -> None:
        if isinstance(chosen, actions.Action):
            self.call_later(self.run_action, chosen.call, self.screen)
        elif chosen is not None:
            self.call_later(self.go_to, chosen)

    def world(self) -> World:
        """What `:` can name."""
        raise NotImplementedError

    def go_to(self, wanted: Goto) -> None:
        """What was typed behind `:`."""
        raise NotImplementedError
