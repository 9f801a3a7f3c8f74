"""Advice: what to buy, stop, shrink or move, ranked by what it saves, each with its evidence card.

Invariant: it does nothing by itself; it is computed in a thread that says how far it is and can be broken off; what is
dismissed stays dismissed, with its reason, until it is taken back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult

from pricing.advice import Action, Advice
from tui import dismissed as kept
from tui import format as fmt
from tui.advice_case import Found, find
from tui.dismissed import Dismissed, identity
from tui.errors import Failed, RackrateError
from tui.ui import actions
from tui.ui.lines import BLANK, Line, cropped, joined, wrapped
from tui.ui.panes.advice import card_lines, headline_lines, sums, title_line
from tui.ui.reading import Reading
from tui.ui.screens.ask_text import AskText
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.advice_table import AdviceRow, AdviceTable, line_of, rows_of
from tui.ui.widgets.header import Header
from tui.ui.widgets.line_table import LineTable
from tui.ui.widgets.lines_view import LinesView, RaisedLines
from tui.ui.widgets.status import Footer, StatusLine

REST = 300
"""Advice changes slowly: it is computed again by itself after so many times as long as it took."""
CARD_FROM_ROWS = 30
WORDS_FROM_ROWS, WORDS_ROWS = 18, 3
_NOTHING: tuple[Line, ...] = (
    (("  Nothing that is known to save money was found.", "strong"),),
    BLANK,
    (("  rackrate advise --help", "key"), ("    tells what can be told that the ledger does not know", "dim")),
)


class Ranked(NamedTuple):
    """What was found, without what was dismissed."""

    found: Found
    advice: Advice
    dismissed: dict[str, Dismissed]


class AdviceActions(RackrateScreen):
    """A screen with a piece of advice in its focus."""

    def row_here(self) -> AdviceRow | None:
        raise NotImplementedError

    def changed(self, what: str) -> None:
        """Something was dismissed or taken back."""
        raise NotImplementedError

    def action_dismiss(self) -> None:
        row, folder = self.row_here(), self.rackrate.files.data_dir
        if row is None:
            self.note("There is no advice here.", "dim")
            return
        if folder is None:
            self.note("There is no data directory in which it could be kept.", "lost")
            return
        action, ident, now = row.action, identity(row.action), self.rackrate.now().astimezone(UTC)
        if row.dismissed is not None:
            self._keep(lambda: kept.restore(folder, ident), "taken back")
            return

        def answered(reason: str | None) -> None:
            if reason:
                self._keep(lambda: kept.dismiss(folder, action, reason, now), "dismissed")

        hint = f"The reason is kept in {folder / kept.FILE}. Enter dismisses it, Esc does not."
        self.app.push_screen(AskText(f"Dismiss: {row.what}", hint, example="why"), answered)

    def _keep(self, work: Callable[[], object], what: str) -> None:
        async def body() -> None:
            from pricing.errors import PricingError

            try:
                await asyncio.to_thread(work)
            except (OSError, PricingError, RackrateError) as error:
                self.note(fmt.clean(str(error)), "lost")
                return
            self.changed(what)

        self.rackrate.asking.start(body())


class AdviceScreen(AdviceActions):
    """Enter shows the evidence card."""

    SCOPE = "advice"
    BINDINGS: ClassVar = actions.bindings("advice")
    CSS = "AdviceScreen #headline, AdviceScreen #card { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.with_dismissed = False
        self._found: Reading[Found] = Reading(self, REST)
        self._ranked: Reading[Ranked] = Reading(self)
        self._changes = 0
        self._step = ""
        self._halt = threading.Event()
        self._card: tuple[object, list[Line]] = (None, [])

    def compose(self) -> ComposeResult:
        yield Header()
        yield RaisedLines(id="title")
        for ident in ("headline", "card"):
            pane = LinesView(id=ident)
            pane.can_focus = False
            if ident == "card":
                yield AdviceTable()
            yield pane
        yield StatusLine(self.rackrate.clock)
        yield Footer("advice")

    def on_mount(self) -> None:
        self.table.focus()
        self.rackrate.asking.job_lists(view.name for view in self.rackrate.fleet)

    @property
    def table(self) -> AdviceTable:
        return self.query_one(AdviceTable)

    def row_here(self) -> AdviceRow | None:
        return self.table.chosen

    @property
    def ranked(self) -> Ranked | None:
        """What is on the screen."""
        return self._ranked.value

    # -- what is computed ----------------------------------------------------------------------------------------

    def _want(self) -> None:
        app, files = self.rackrate, self.rackrate.files
        if not self._halt.is_set() and self._found.due("advice", app.ledger_version):
            jobs, now = [view.job for view in app.fleet.jobs()], app.now()
            self._step = "starting"
            self._found.want("advice", app.ledger_version, lambda: find(files, jobs, now, self._stepped))
        found, folder = self._found.value, files.data_dir
        if found is not None:
            self._ranked.want((found.at, self._changes), 0, lambda: _ranked(found, kept.load(folder)))

    def _stepped(self, step: str) -> None:
        """In the thread: what it does next."""
        if self._halt.is_set():
            raise Failed("Broken off; u computes it anew.")
        self._step = step

    def on_reading_done(self, event: Reading.Done) -> None:
        event.reading.take(event)
        if self._found.value is not None and not self._found.value.case.demand.known_hours:
            self._found.no_rest()
        self.redraw()

    def action_break_off(self) -> None:
        if self._found.busy:
            self._halt.set()
            self.redraw()
        else:
            self.note("Nothing is being computed.", "dim")

    def action_again(self) -> None:
        if self._found.busy:
            self.note("It is being computed; b breaks it off.", "dim")
            return
        self._halt.clear()
        self._found.again()
        self.redraw()

    # -- what is shown ----------------------------------------------------------------------------------------------

    def draw(self) -> None:
        self._want()
        self.show_header()
        columns, rows = self.app.size
        ranked, table = self._ranked.value, self.table
        title, found = self.query_one("#title", RaisedLines), self._found.value
        title.display = rows >= 8
        title.show([title_line(found, self._doing(), len(ranked.dismissed) if ranked else 0, columns)])
        if ranked is not None:
            table.show_rows(rows_of(ranked.advice, ranked.found.actions, ranked.dismissed, self.with_dismissed))
        table.explain(self._empty(ranked))
        self._show_headline(ranked, columns, rows)
        self._show_card(ranked, columns, rows)
        self.query_one(StatusLine).show_line(self._status(ranked, columns))

    def _doing(self) -> str:
        if not self._found.busy:
            return ""
        return "breaking off after this step ..." if self._halt.is_set() else f"{self._step} ..."

    def _empty(self, ranked: Ranked | None) -> tuple[Line, ...]:
        if error := self._error():
            return ((("  " + fmt.clean(error), "lost"),),)
        if ranked is None:
            return ((("  Computing from what the ledger tells; b breaks it off.", "dim"),),)
        return _NOTHING

    def _error(self) -> str | None:
        return self._found.error or self._ranked.error

    def _show_headline(self, ranked: Ranked | None, columns: int, rows: int) -> None:
        pane = self.query_one("#headline", LinesView)
        lines = headline_lines(ranked.found, ranked.advice, columns, 2) if ranked is not None and rows >= 16 else []
        pane.display = bool(lines)
        pane.styles.height = len(lines)
        pane.show(lines)

    def _show_card(self, ranked: Ranked | None, columns: int, rows: int) -> None:
        """Below the list, of the row under the cursor: its card on a high screen, else what it says in full."""
        pane, row = self.query_one("#card", LinesView), self.table.chosen
        pane.display = ranked is not None and row is not None and rows >= WORDS_FROM_ROWS
        if ranked is None or row is None or not pane.display:
            return
        if rows < CARD_FROM_ROWS:
            words = wrapped(row.what, "text", columns - 1, " ")[:WORDS_ROWS]
            pane.styles.height = 1 + WORDS_ROWS
            pane.show([(("─" * columns, "rule"),), *words])
            return
        height = max(10, min(rows - 10 - len(self.table.keys), rows * 2 // 3))
        key = (id(ranked), identity(row.action), columns, height)
        if self._card[0] != key:
            lines = [(("─" * columns, "rule"),), *_card(ranked, row, columns - 1)]
            if len(lines) > height:
                lines = [*lines[: height - 1], ((f"    … {len(lines) - height + 1} more: Enter", "dim"),)]
            self._card = (key, lines)
        pane.styles.height = min(height, len(self._card[1]))
        pane.show(self._card[1])

    def _status(self, ranked: Ranked | None, columns: int) -> Line:
        error = self._error()
        if error and ranked is not None:
            return cropped(((f" {fmt.clean(error)}", "idle"),), columns)
        if ranked is None:
            return ()
        count = len(ranked.advice.notes)
        notes = ((f"{fmt.counted(count, 'note')}: rackrate advise", "dim"),) if count else ()
        return joined([((" ", "dim"), *sums(ranked.advice)[0]), *sums(ranked.advice)[1:], *([notes] if notes else [])], "  ", columns)

    # -- what can be done -----------------------------------------------------------------------------------------------

    def changed(self, what: str) -> None:
        self._changes += 1
        self.note(f"{what}; d shows what was dismissed", "accent")
        self.redraw()

    def action_dismissed(self) -> None:
        """Shows what was dismissed below the others, or leaves it out."""
        self.with_dismissed = not self.with_dismissed
        if self.with_dismissed and self.ranked is not None and not self.ranked.dismissed:
            self.note("Nothing was dismissed.", "dim")
        self.redraw()

    def action_open(self) -> None:
        if self.table.chosen is not None:
            self.app.push_screen(CardScreen(self))

    def step(self, step: int) -> None:
        """The cursor goes to another row."""
        self.table.move_to(self.table.position(self.table.cursor_key) + step)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        self.redraw()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_open()

    def action_back(self) -> None:
        self.app.pop_screen()


class CardScreen(AdviceActions):
    """The evidence card of the row under the list's cursor."""

    SCOPE = "card"
    BINDINGS: ClassVar = actions.bindings("card")

    def __init__(self, parent: AdviceScreen) -> None:
        super().__init__()
        self._list = parent

    def compose(self) -> ComposeResult:
        yield RaisedLines(id="title")
        yield LinesView(id="page")
        yield StatusLine(self.rackrate.clock)
        yield Footer("card")

    def on_mount(self) -> None:
        self.query_one("#page").focus()

    def row_here(self) -> AdviceRow | None:
        return self._list.row_here()

    def draw(self) -> None:
        row, ranked, cells = self.row_here(), self._list.ranked, self.app.size.width
        if row is None or ranked is None:
            return
        self.query_one("#title", LinesView).show([cropped(line_of(row), cells)])
        self.query_one("#page", LinesView).show(_card(ranked, row, cells - 1))
        self.query_one(StatusLine).show_line(((" as of ", "dim"), (f"{ranked.found.at:%Y-%m-%d %H:%M} UTC", "text")))

    def changed(self, what: str) -> None:
        self._list.changed(what)
        self.action_back()

    def action_step(self, step: int) -> None:
        self._list.step(step)
        self.query_one("#page", LinesView).scroll_to(y=0, animate=False)
        self.redraw()

    def action_back(self) -> None:
        if self.app.screen is self:
            self.app.pop_screen()


def _ranked(found: Found, dismissed: dict[str, Dismissed]) -> Ranked:
    """Only what is still found counts as dismissed here."""
    known = {identity(action) for action in found.actions}
    left_out = {key: one for key, one in dismissed.items() if key in known}
    return Ranked(found, found.ranked(lambda action: identity(action) not in left_out), left_out)


def _card(ranked: Ranked, row: AdviceRow, cells: int) -> list[Line]:
    """Of dismissed advice the card is made of it alone."""
    if row.place is not None:
        return card_lines(ranked.advice, row.place, cells)
    alone = _alone(ranked.found, row.action)
    return card_lines(alone, 0, cells, row.dismissed)


def _alone(found: Found, action: Action) -> Advice:
    return found.ranked(lambda one: one is action)
