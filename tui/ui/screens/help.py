"""Help, made from the registry of actions, with what the signs mean and the filter language.

Invariant: a key that exists is listed here, because both come from the same place.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult

from tui.columns import FLEET_COLUMNS, Column
from tui.job_rows import JOB_COLUMNS
from tui.ui import actions
from tui.ui.lines import BLANK, Line, fitted
from tui.ui.panes.node import rule
from tui.ui.screens.base import RackrateScreen
from tui.ui.widgets.lines_view import LinesView
from tui.ui.widgets.status import Footer

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
    ("@mine", "a filter that is kept: [filters] in config.toml"),
    ("Tab →", "Tab completes keys and values, Right takes what is shown behind the cursor"),
    ("state:failed", "of jobs: id state node user project cause name why; state also knows done and failed"),
    ("cost>5 run>1h", "of jobs: gpus cost ($) run wait (times) priority attempt"),
)


def help_lines(cells: int) -> list[Line]:
    """Everything that can be pressed, and what is to be seen."""
    lines: list[Line] = []
    for group, members in actions.groups().items():
        lines.append(rule(group, cells))
        lines += [_key_line(action) for action in members]
        lines.append(BLANK)
    for title, columns in (("Columns of the fleet", FLEET_COLUMNS), ("Columns of jobs", JOB_COLUMNS)):
        lines += [rule(title, cells), *map(_column_line, columns), BLANK]
    lines.pop()
    lines += [BLANK, rule("Signs", cells)]
    lines += [((f"  {fitted(sign, 17)}", style), (text, "text")) for sign, style, text in _SIGNS]
    lines += [BLANK, rule("Filters", cells)]
    lines += [((f"  {fitted(example, 19)}", "key"), (text, "text")) for example, text in _FILTERS]
    return lines


def _column_line(column: Column) -> Line:
    sorts = f"sorts by it with {column.sort_key}" if column.sort_key else ""
    return ((f"  {column.sort_key or ' '}  ", "key"), (fitted(column.title, 12), "text"), (sorts, "dim"))


def _key_line(action: actions.Action) -> Line:
    return (
        (f"  {fitted(action.shown, 9) if len(action.shown) < 9 else action.shown + ' '}", "key"),
        (f" {fitted(actions.other_keys(action), 12)}" if len(action.shown) < 9 else " ", "dim"),
        (action.title, "text"),
    )


class HelpScreen(RackrateScreen):
    """Scrolls with the arrows."""

    SCOPE = "help"
    BINDINGS: ClassVar = [*actions.bindings("help")]

    def compose(self) -> ComposeResult:
        yield LinesView(id="page")
        yield Footer("help")

    def on_mount(self) -> None:
        self.query_one("#page").focus()

    def draw(self) -> None:
        self.query_one("#page", LinesView).show(help_lines(max(20, self.app.size.width - 1)))

    def action_back(self) -> None:
        self.app.pop_screen()
