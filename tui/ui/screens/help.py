"""Help, made from the registry of actions, with what the signs mean and the filter language; what is chosen is run.

Invariant: a key that exists is listed here, because both come from the same place; those of the screen from which it was
opened stand first.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual import events
from textual.app import ComposeResult

from tui.columns import FLEET_COLUMNS, Column
from tui.format import counted
from tui.job_rows import JOB_COLUMNS
from tui.query import Words
from tui.ui import actions
from tui.ui.actions import Action, Scope
from tui.ui.lines import BLANK, Line, cropped, fitted, width
from tui.ui.panes.node import rule
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.line_table import Cells, LineTable
from tui.ui.widgets.status import FilterBar, Footer, StatusLine

_SIGNS: tuple[tuple[str, str, str], ...] = (
    ("▁▂▃▄▅▆▇█", "accent", "a GPU each, by utilisation"),
    ("○", "idle", "a GPU that nobody holds: it costs and does nothing"),
    ("✗", "lost", "a GPU that the driver lost"),
    ("·", "accent", "a GPU whose driver does not tell"),
    ("–", "dim", "not known (never 0); the node's screen says why"),
    ("3+12", "text", "jobs that run, and jobs that wait"),
    ("!1m43s", "lost", "the cloud takes the node away: the time that is left"),
    ("█▓▒░ ╱", "accent", "parts of what a day cost, the dearest first; hatched: idle"),
    ("~", "text", "an estimate, or a sum with a part that has no price"),
    ("live stale lost", "text", "by the age of the newest sample: to 3 s, to 15 s, older"),
    ("✓ ! ✗", "text", "events: what is well again, what to look at, what is bad"),
)
_FILTERS: tuple[tuple[str, str], ...] = (
    ("train", "a word in the name, type, users, models, place or tags"),
    ("state:idle", "keys: node state gpu user project job type cloud region zone buy tag alert"),
    ("util<20 cost>5", "numbers: util mem (%) power (W) gpus free idle cost ($/h) age; = and != too"),
    ("util:10..20 age>5m", "a range; times with s m h d"),
    ("user:me !spot", "both hold; ! negates one; user:me is exactly you"),
    ("a or (b c)", "either, and groups; or binds least"),
    ("user:=ada user:", "the whole text; any text at all"),
    ("node:/gpu-0[1-3]/", "a regular expression, any case"),
    ('tag:team="red hot"', "quotes keep blanks and signs"),
    ("@mine", "a filter that is kept: K keeps one, :forget mine forgets it; [filters] in config.toml"),
    ("Tab →", "Tab completes keys and values, Right takes what is shown behind the cursor"),
    ("state:failed", "of jobs: id state node user project cause name why; state also knows done and failed"),
    ("cost>5 run>1h", "of jobs: gpus cost ($) run wait (times) priority attempt"),
    ("kind:job level:bad", "of events: kind node job user what level cause rule severity; age cost"),
    ("F1", "while a filter is typed: what can be asked of these rows"),
)
_WORDS = Words((), (), lambda row, key, now: [], lambda row, key, now: None, lambda row: [row.plain], seconds=())
TITLE = "Enter runs what is under the cursor, / searches, Esc leaves"


class HelpRow(NamedTuple):
    """A line; `action` is run by Enter; a `heading` is shown as long as something below it is."""

    line: Line
    action: Action | None = None
    heading: bool = False

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.line)


def help_rows(cells: int, scope: Scope | None = None) -> list[HelpRow]:
    """Everything that can be pressed, what of it on this screen first, and what is to be seen."""
    here = [action for action in actions.of(scope)] if scope is not None else []
    rows: list[HelpRow] = []
    if here:
        rows += _section(f"On this screen ({scope})", [HelpRow(_key_line(action), action) for action in here], cells)
    for group, members in actions.groups().items():
        rows += _section(group, [HelpRow(_key_line(one), one) for one in members if one not in here], cells)
    for title, columns in (("Columns of the fleet", FLEET_COLUMNS), ("Columns of jobs", JOB_COLUMNS)):
        rows += _section(title, [HelpRow(_column_line(column)) for column in columns], cells)
    signs = [HelpRow(((f"  {fitted(sign, 17)}", style), (text, "text"))) for sign, style, text in _SIGNS]
    filters = [HelpRow(((f"  {fitted(example, 19)}", "key"), (text, "text"))) for example, text in _FILTERS]
    return [*rows, *_section("Signs", signs, cells), *_section("Filters", filters, cells)[:-1]]


def _section(title: str, rows: list[HelpRow], cells: int) -> list[HelpRow]:
    return [HelpRow(rule(title, cells), heading=True), *rows, HelpRow(BLANK)] if rows else []


def help_lines(cells: int) -> list[Line]:
    """All of it as lines."""
    return [row.line for row in help_rows(cells)]


def _column_line(column: Column) -> Line:
    sorts = f"sorts by it with {column.sort_key}" if column.sort_key else ""
    return ((f"  {column.sort_key or ' '}  ", "key"), (fitted(column.title, 12), "text"), (sorts, "dim"))


def _key_line(action: actions.Action) -> Line:
    return (
        (f"  {fitted(action.shown, 9) if len(action.shown) < 9 else action.shown + ' '}", "key"),
        (f" {fitted(actions.other_keys(action), 12)}" if len(action.shown) < 9 else " ", "dim"),
        (action.title, "text"),
    )


class HelpTable(LineTable):
    """Rows are lines; the cursor stands on actions first."""

    def __init__(self) -> None:
        super().__init__(id="page")
        self.rows: dict[str, HelpRow] = {}

    def on_resize(self, event: events.Resize) -> None:
        self.forget()
        self.set_titles([("what", TITLE, self.room, False)], ("", False))

    def cells_of(self, key: str) -> Cells:
        line = cropped(self.rows[key].line, self.room)
        return ((*line, (" " * max(0, self.room - width(line)), "text")),)

    @property
    def plain(self) -> str:
        """What it shows, without styles."""
        return "\n".join(row.plain.rstrip() for row in self.rows.values())

    def show_rows(self, rows: list[HelpRow]) -> None:
        """Other lines."""
        self.rows = {str(place): row for place, row in enumerate(rows)}
        self.forget()
        self.cursor_key = next((key for key, row in self.rows.items() if row.action is not None), None)
        self.set_keys(list(self.rows))
        self.scroll_to(y=0, animate=False)
        self.refresh()


class HelpScreen(RackrateScreen):
    """`scope`: of the screen from which it was opened; what is chosen runs there."""

    SCOPE = "help"
    BINDINGS: ClassVar = actions.bindings("help")

    def __init__(self, scope: Scope | None = None) -> None:
        super().__init__()
        self._of = scope
        self._shown: tuple[int, str] = (-1, "")

    def compose(self) -> ComposeResult:
        yield HelpTable()
        yield FilterBar(_WORDS, "word: sort, Ctrl, budget")
        yield StatusLine(self.rackrate.clock)
        yield Footer("help")

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def table(self) -> HelpTable:
        return self.query_one(HelpTable)

    def draw(self) -> None:
        wanted = (self.app.size.width, self.query_one(FilterBar).applied)
        if wanted != self._shown:
            self._shown = wanted
            self.table.show_rows(self._rows(*wanted))
            self.table.explain(((("  Nothing of that name. Esc clears the search.", "dim"),),))
        found = sum(row.action is not None for row in self.table.rows.values())
        search: Line = ((f" /{wanted[1]} ", "accent"),) if wanted[1] else ((" ", "dim"),)
        self.query_one(StatusLine).show_line((*search, (counted(found, "action"), "text"), ("   rackrate keys", "key"), (" lists and changes them", "dim")))

    def _rows(self, cells: int, search: str) -> list[HelpRow]:
        rows = help_rows(max(20, cells - 4), self._of)
        if not search:
            return rows
        words = search.casefold().split()
        found: list[HelpRow] = []
        for row in rows:
            if row.heading or (row.line and all(word in row.plain.casefold() for word in words)):
                found.append(row)
        return [row for place, row in enumerate(found) if not row.heading or (place + 1 < len(found) and not found[place + 1].heading)]

    # -- what is done -----------------------------------------------------------------------------------------------------

    def action_run(self) -> None:
        """Leaves the help and runs the action under the cursor on the screen below."""
        row = self.table.rows.get(self.table.cursor_key or "")
        action = row.action if row is not None else None
        if action is None:
            self.note("Nothing to run on this line.", "dim")
        elif self._of is None or not ({self._of, "app"} & set(action.scopes)):
            self.note(f"{action.shown} is not for this screen, but for: {', '.join(action.scopes)}.", "dim")
        elif not action.call or action.id == "sort_column":
            self.note("This is pressed on the screen itself.", "dim")
        else:
            app = self.app
            app.pop_screen()
            app.call_later(app.run_action, action.call, app.screen)

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        self.action_run()

    def action_filter(self) -> None:
        self.query_one(FilterBar).open()
        self.redraw()

    def on_filter_bar_changed(self, event: FilterBar.Changed) -> None:
        self.redraw()

    def on_filter_bar_closed(self, event: FilterBar.Closed) -> None:
        self.table.focus()
        self.redraw()

    def action_back(self) -> None:
        """Clears the search; where there is none, leaves."""
        bar = self.query_one(FilterBar)
        if bar.applied or bar.is_open:
            bar.clear()
        else:
            self.app.pop_screen()
