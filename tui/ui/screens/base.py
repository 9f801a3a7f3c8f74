"""What all screens share: header, status, footer, and a redraw once a second.

Invariant: a screen that is not on top is not redrawn; it catches up when it is shown again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ScreenStackError
from textual.binding import BindingsMap
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.scroll_view import ScrollView

from tui.format import clean
from tui.ui import actions
from tui.ui.actions import Scope
from tui.ui.places import Kept, Place
from tui.ui.widgets.crumbs import Crumbs
from tui.ui.widgets.header import PROGRAM, Header, header_height
from tui.ui.widgets.status import NOTE_SECONDS, Footer, StatusLine
from tui.ui.widgets.time_mark import TimeMark

if TYPE_CHECKING:
    from tui.ui.app import RackrateApp

FOOTER_FROM_ROWS = 10
STATUS_FROM_ROWS = 7
CRUMBS_FROM_ROWS = 28
"""Lower screens have no line to spare for the way that was gone; titles and the header say where one is."""
PASSING: tuple[Scope, ...] = ("help", "price", "card")
"""Screens that are shown of another one: back and forward go to that one."""
_OF = ("node", "ident", "uuid")
"""Fields of a screen that say what it shows."""


class RackrateScreen(Screen[None]):
    """Subclasses set `SCOPE`, compose their parts and say in `draw` what they show now."""

    SCOPE: ClassVar[Scope]
    KEEPS: ClassVar[tuple[str, ...]] = ()
    """Fields that the next screen of this kind begins with: which span is drawn, what is folded."""
    CSS = "RackrateScreen { background: $background; layout: vertical; }"

    def __init__(self) -> None:
        super().__init__()
        self.opened_as: Place | None = None
        """Where it was opened as what is kept and shown again; of the others `place` is worked out."""
        self._bind_anew()

    def on_mount(self) -> None:
        """Textual calls this beside that of the subclass."""
        if self.SCOPE != "fleet":
            self.mount(Crumbs(), before=0)

    def _clear_tooltip(self) -> None:
        """There is none; to find that out, Textual would write down all that is on the screen, at each key."""

    @property
    def place(self) -> Place | None:
        """By which it is found and opened again; None: only what it was opened from can be."""
        if self.opened_as is not None or self.SCOPE in PASSING:
            return self.opened_as
        return Place(self.SCOPE, tuple(value for name in _OF if isinstance(value := getattr(self, name, None), str)))

    def crumb(self) -> str:
        """Its name in the way from the fleet to it."""
        place = self.place
        match place:
            case Place("node", (name,)):
                return clean(name)
            case Place("job", (_, ident)):
                return f"job {clean(ident)}"
            case Place(kind, (*_, last)):
                return clean(f"{kind} {last}")
        return self.SCOPE

    def left(self) -> Kept:
        """What it looks like, to be opened so again."""
        panes = {pane.id: pane.scroll_y for pane in self.query(ScrollView) if pane.id and pane.scroll_y}
        focused = self.focused.id if self.focused is not None else None
        return Kept(panes, focused, {name: getattr(self, name) for name in self.KEEPS})

    def come_back(self, kept: Kept) -> None:
        """Scrolls to where one was; `KEEPS` were set before it was drawn."""
        for ident, at in kept.scrolled.items():
            for pane in self.query(f"#{ident}").results(ScrollView):
                pane.scroll_to(y=at, animate=False)
        for pane in self.query(f"#{kept.focus}") if kept.focus else ():
            pane.focus()

    def _bind_anew(self) -> None:
        """The keys that are in force now, instead of those of when the class was made."""
        bound = self._bindings.key_to_bindings
        for key, members in list(bound.items()):
            bound[key] = [one for one in members if not (one.id or "").startswith(f"{self.SCOPE}.")]
        for key, members in BindingsMap(actions.bindings(self.SCOPE)).key_to_bindings.items():
            bound.setdefault(key, []).extend(members)
        for key in [key for key, members in bound.items() if not members]:
            del bound[key]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What would change something is refused here too, however it is called; a screen without its parts can do nothing."""
        return bool(self.children) and not actions.refuses(action) and super().check_action(action, parameters)

    @property
    def rackrate(self) -> RackrateApp:
        """The app, with its type."""
        from tui.ui.app import RackrateApp

        assert isinstance(self.app, RackrateApp)
        return self.app

    def redraw(self) -> None:
        """Shows the fleet as it is now. A screen that is being put together or taken down is left alone."""
        with suppress(NoMatches, ScreenStackError):
            for crumbs in self.query(Crumbs):
                if crumbs.display:
                    crumbs.show_names(self.rackrate.crumbs(self))
            self._mark_time()
            self.draw()

    def _mark_time(self) -> None:
        """Says in words that another time is shown, where no header does."""
        marks = list(self.query(TimeMark))
        wanted = self.rackrate.travel is not None and not any(header.display for header in self.query(Header))
        if wanted and not marks and self.is_mounted:
            self.mount(TimeMark(), before=0)
        for mark in marks:
            if wanted:
                mark.show_time()
            else:
                mark.remove()

    def draw(self) -> None:
        """What the screen shows now; may rely on all its parts being there."""
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        self.fit_rows()
        self.redraw()

    def on_resize(self, event: events.Resize) -> None:
        self.fit_rows()
        self.call_after_refresh(self.redraw)

    def fit_rows(self) -> None:
        """Gives header, status and footer the lines that a screen of this height can spare."""
        rows = self.app.size.height
        for crumbs in self.query(Crumbs):
            crumbs.display = rows >= CRUMBS_FROM_ROWS
        for header in self.query(Header):
            lines = max(header_height(rows), int(self.rackrate.travel is not None))
            header.styles.height = lines
            header.display = lines > 0
        for status in self.query(StatusLine):
            status.display = rows >= STATUS_FROM_ROWS
        for footer in self.query(Footer):
            footer.display = rows >= FOOTER_FROM_ROWS
            footer.show_keys()

    def action_jobs(self) -> None:
        """The jobs of the whole fleet."""
        self.rackrate.action_jobs()

    def note(self, text: str, style: str = "idle", seconds: float = NOTE_SECONDS) -> None:
        """A sentence in the status line for a few seconds."""
        for status in self.query(StatusLine):
            status.note(text, style, seconds)

    def show_header(self) -> None:
        """The totals of all nodes."""
        app = self.rackrate
        unnamed = any(not crumbs.display for crumbs in self.query(Crumbs))
        for header in self.query(Header):
            header.show_totals(app.totals(), app.costs, app.clock_text(), app.job_counts(), self.crumb() if unnamed else PROGRAM)
