"""One registry of everything that can be done in the app: it feeds key bindings, footer, help and palette.

Invariant: no two actions of one screen share a key; each can be reached without letters (arrows, function keys, palette).
What changes something on a node (`changes`) asks first, in a dialog or a form: no key alone does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from textual.binding import Binding

Scope = Literal[
    "app", "fleet", "node", "alerts", "jobs", "job", "submit", "costs", "market", "price", "advice", "card", "help"
]  # fmt: skip
SCREENS: tuple[Scope, ...] = ("fleet", "node", "alerts", "jobs", "job", "submit", "costs", "market", "price", "advice", "card", "help")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """`keys` are Textual's names; `shown` is how a person reads them; `footer` is its short name there (empty: not shown)."""

    id: str
    keys: tuple[str, ...]
    shown: str
    title: str
    group: str
    call: str
    scopes: tuple[Scope, ...]
    footer: str = ""
    priority: bool = False
    palette: bool = True
    late: bool = False
    """In the footer only where there is room left after all others."""
    changes: bool = False
    """It changes something on a node: it opens a dialog or a form first, where Enter alone does nothing."""


EVERYWHERE: tuple[Scope, ...] = SCREENS
_COLUMN_KEYS = "1234567890"

TABLES: tuple[Scope, ...] = ("fleet", "jobs", "costs", "market")
MONEY: tuple[Scope, ...] = ("costs", "market", "advice")
LOOKS: tuple[Scope, ...] = tuple(scope for scope in SCREENS if scope != "submit")
"""Screens on which nothing is typed."""

ACTIONS: tuple[Action, ...] = (
    Action(id="open", keys=("enter",), shown="Enter", title="Open what is under the cursor", group="Look", call="open",
           scopes=("fleet", "alerts", "jobs", "market", "advice"), footer="open"),
    Action(id="narrow", keys=("enter",), shown="Enter", title="Only this group, by the next grouping", group="Money",
           call="open", scopes=("costs",), footer="drill"),
    Action(id="back", keys=("escape", "backspace"), shown="Esc", title="Back; in a table: clear the filter", group="Look",
           call="back", scopes=LOOKS, footer="back"),
    Action(id="leave", keys=("escape",), shown="Esc", title="Back; the form keeps what was typed", group="Look",
           call="back", scopes=("submit",), footer="back"),
    Action(id="filter", keys=("slash", "f3"), shown="/", title="Filter the rows", group="Look", call="filter",
           scopes=(*TABLES, "alerts"), footer="filter"),
    Action(id="jobs", keys=("j", "f5"), shown="j", title="Jobs of the fleet, or of this node", group="Look", call="jobs",
           scopes=("fleet", "node", "alerts"), footer="jobs"),
    Action(id="alerts", keys=("a", "f4"), shown="a", title="Alerts of the whole fleet", group="Look", call="app.alerts",
           scopes=("fleet", "node", "jobs"), footer="alerts"),
    Action(id="costs", keys=("c", "f12"), shown="c", title="Costs of the month, and budgets", group="Money", call="app.costs",
           scopes=("fleet", "node", "alerts", "market", "price", "advice"), footer="costs", late=True),
    Action(id="market", keys=("m", "shift+f5"), shown="m", title="Market: what a GPU-hour costs everywhere", group="Money",
           call="app.market", scopes=("fleet", "node", "alerts", "jobs", "job", "costs", "advice"), footer="market", late=True),
    Action(id="advice", keys=("v", "shift+f7"), shown="v", title="Advice: what would save money", group="Money",
           call="app.advice", scopes=("fleet", "node", "alerts", "jobs", "job", "costs", "market"), footer="advice", late=True),
    Action(id="dismiss", keys=("x", "delete"), shown="x", title="Dismiss advice with a reason; dismissed: take it back",
           group="Money", call="dismiss", scopes=("advice", "card"), footer="dismiss"),
    Action(id="dismissed", keys=("d", "f8"), shown="d", title="Show what was dismissed, or leave it out", group="Money",
           call="dismissed", scopes=("advice",), footer="dismissed"),
    Action(id="break_off", keys=("b", "f6"), shown="b", title="Break off computing advice", group="Money", call="break_off",
           scopes=("advice",)),
    Action(id="next_card", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Card of the next advice",
           group="Money", call="step(1)", scopes=("card",), footer="next"),
    Action(id="previous_card", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Card of the advice before",
           group="Money", call="step(-1)", scopes=("card",)),
    Action(id="more_days", keys=("right_square_bracket", "ctrl+right"), shown="]", title="More days of a price", group="Money",
           call="days(1)", scopes=("price",), footer="more days"),
    Action(id="fewer_days", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Fewer days of a price", group="Money",
           call="days(-1)", scopes=("price",), footer="fewer"),
    Action(id="costs_from_jobs", keys=("C",), shown="C", title="Costs of the month, and budgets", group="Money",
           call="app.costs", scopes=("jobs", "job")),
    Action(id="grouping", keys=("g", "f11"), shown="g", title="Costs by the next grouping", group="Money", call="grouping(1)",
           scopes=("costs",), footer="group by"),
    Action(id="grouping_back", keys=("G",), shown="G", title="Costs by the grouping before", group="Money",
           call="grouping(-1)", scopes=("costs",)),
    Action(id="month_before", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Costs of the month before",
           group="Money", call="month(-1)", scopes=("costs",), footer="month before"),
    Action(id="month_after", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Costs of the month after",
           group="Money", call="month(1)", scopes=("costs",)),
    Action(id="export", keys=("e", "f4"), shown="e", title="Write what is on the screen as CSV", group="Money", call="export",
           scopes=("costs",), footer="export"),
    Action(id="again", keys=("u", "f5"), shown="u", title="Read it again now", group="Money", call="again", scopes=MONEY),
    Action(id="job_node", keys=("g", "f11"), shown="g", title="The node of this job", group="Look", call="open_node",
           scopes=("jobs", "job")),
    Action(id="next_node", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Next node", group="Look",
           call="step_node(1)", scopes=("node",), footer="next"),
    Action(id="previous_node", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Previous node", group="Look",
           call="step_node(-1)", scopes=("node",)),
    Action(id="next_attempt", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Log of the next attempt",
           group="Look", call="step_attempt(1)", scopes=("job",)),
    Action(id="previous_attempt", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Log of the attempt before",
           group="Look", call="step_attempt(-1)", scopes=("job",)),
    Action(id="pane", keys=("tab", "shift+tab"), shown="Tab", title="From the facts of a job to its log and back",
           group="Look", call="switch_pane", scopes=("job",), footer="log/facts"),
    Action(id="whole_log", keys=("l", "f6"), shown="l", title="The log on the whole screen", group="Look", call="whole_log",
           scopes=("job",), footer="whole log"),
    Action(id="submit", keys=("n", "insert"), shown="n", title="Submit a new job", group="Jobs", call="submit",
           scopes=("jobs", "node"), footer="new", changes=True),
    Action(id="cancel", keys=("x", "delete"), shown="x", title="Stop the job; again: by force", group="Jobs", call="cancel_job",
           scopes=("jobs", "job"), footer="stop", changes=True),
    Action(id="signal", keys=("k", "f12"), shown="k", title="Send the job a signal", group="Jobs", call="signal_job",
           scopes=("jobs", "job"), footer="signal", late=True, changes=True),
    Action(id="copy", keys=("c", "ctrl+insert"), shown="c", title="Copy the job's id", group="Jobs", call="copy_id",
           scopes=("jobs", "job"), footer="copy id", late=True),
    Action(id="try", keys=("f5", "ctrl+t"), shown="F5", title="Dry run: where the job would run, and for how much",
           group="Jobs", call="try_out", scopes=("submit",), footer="dry run"),
    Action(id="send", keys=("ctrl+s", "f7"), shown="Ctrl+S", title="Send the job; what was not tried is tried first",
           group="Jobs", call="send", scopes=("submit",), footer="send", changes=True),
    Action(id="sort_next", keys=("s", "f6"), shown="s", title="Sort by the next column", group="Order", call="sort_next(1)",
           scopes=TABLES, footer="sort", late=True),
    Action(id="sort_previous", keys=("S", "shift+f6"), shown="S", title="Sort by the column before", group="Order",
           call="sort_next(-1)", scopes=TABLES),
    Action(id="reverse", keys=("r", "f7"), shown="r", title="Reverse the order", group="Order", call="reverse",
           scopes=TABLES),
    Action(id="sort_column", keys=tuple(_COLUMN_KEYS), shown="0-9", title="Sort by the column with this number",
           group="Order", call="sort_key", scopes=TABLES, palette=False),
    Action(id="columns", keys=("w", "f8"), shown="w", title="Show the columns that are hidden", group="Order", call="columns",
           scopes=TABLES),
    Action(id="move", keys=(), shown="arrows PgUp PgDn Home End", title="Move; the order of rows holds still meanwhile",
           group="Move", call="", scopes=EVERYWHERE, palette=False),
    Action(id="mouse", keys=(), shown="click, wheel", title="Click a row, a title to sort by it; twice to open",
           group="Move", call="", scopes=("fleet", "alerts", "jobs", *MONEY), palette=False),
    Action(id="help", keys=("question_mark", "f1"), shown="?", title="This help", group="Program", call="app.help",
           scopes=("fleet", "node", "alerts", "jobs", "job", "price", "card", *MONEY), footer="help"),
    Action(id="help_typing", keys=("f1",), shown="F1", title="This help, where letters are typed", group="Program",
           call="app.help", scopes=("submit",), footer="help"),
    Action(id="palette", keys=("colon", "ctrl+p", "f2"), shown=":", title="All actions, by name", group="Program",
           call="app.palette", scopes=LOOKS, footer="menu"),
    Action(id="palette_typing", keys=("f2", "ctrl+p"), shown="F2", title="All actions, where letters are typed",
           group="Program", call="app.palette", scopes=("submit",), footer="menu", palette=False),
    Action(id="theme", keys=("t", "f9"), shown="t", title="Next theme", group="Program", call="app.next_theme",
           scopes=LOOKS),
    Action(id="quit", keys=("q", "f10"), shown="q", title="Quit", group="Program", call="app.leave", scopes=LOOKS,
           footer="quit"),
    Action(id="interrupt", keys=("ctrl+c", "ctrl+q"), shown="Ctrl+C", title="Quit, from anywhere", group="Program",
           call="app.leave", scopes=("app",), priority=True, palette=False),
)  # fmt: skip
_MORE_NAMES = {
    "f1": "F1", "f2": "F2", "f3": "F3", "f4": "F4", "f6": "F6", "f7": "F7", "f8": "F8", "f9": "F9", "f10": "F10",
    "ctrl+p": "Ctrl+P", "backspace": "Backspace", "ctrl+right": "Ctrl+→", "ctrl+left": "Ctrl+←", "shift+f6": "Shift+F6",
    "ctrl+q": "Ctrl+Q", "f5": "F5", "f11": "F11", "f12": "F12", "insert": "Ins", "delete": "Del", "ctrl+insert": "Ctrl+Ins",
    "ctrl+t": "Ctrl+T", "shift+tab": "Shift+Tab", "shift+f5": "Shift+F5", "shift+f7": "Shift+F7",
}  # fmt: skip


class _InForce:
    """What the running app goes by: its configuration may have changed keys and taken away what changes something."""

    actions: tuple[Action, ...] = ACTIONS
    read_only: bool = False


def put_in_force(actions: tuple[Action, ...] = ACTIONS, *, read_only: bool = False) -> None:
    """From now on these are the actions there are; `read_only`: without those that change something."""
    _InForce.actions = tuple(action for action in actions if not (read_only and action.changes))
    _InForce.read_only = read_only


def in_force() -> tuple[Action, ...]:
    """All actions there are now."""
    return _InForce.actions


def read_only() -> bool:
    """Whether what changes something is refused."""
    return _InForce.read_only


def refuses(call: str) -> bool:
    """Whether running `call` (`cancel_job`) would change something that must stay as it is."""
    name = call.partition("(")[0].removeprefix("app.")
    return _InForce.read_only and any(one.changes and one.call.partition("(")[0].removeprefix("app.") == name for one in ACTIONS)


def key_of(ident: str) -> str:
    """The first key of an action, to be named in a sentence."""
    return next((action.shown for action in _InForce.actions if action.id == ident), "–")


def unknown_key(scope: Scope, key: str, name: str) -> str:
    """What is said to a key that means nothing."""
    if _InForce.read_only and any(one.changes and key in one.keys and scope in one.scopes for one in ACTIONS):
        return f"{name} is off: this is read-only."
    return f"{name} does nothing here; {key_of('help')} shows the keys."


def of(scope: Scope) -> Iterator[Action]:
    """The actions of one screen, in their order."""
    return (action for action in _InForce.actions if scope in action.scopes)


def bindings(scope: Scope) -> list[Binding]:
    """Textual's bindings of a screen."""
    return [
        Binding(key, f"sort_key({key!r})" if action.id == "sort_column" else action.call, action.title,
                show=False, priority=action.priority, id=f"{scope}.{action.id}.{key}")
        for action in of(scope)
        for key in action.keys
    ]  # fmt: skip


def footer(scope: Scope) -> list[tuple[str, str]]:
    """(key, short name) of what the footer names, the most useful first."""
    named = [action for action in of(scope) if action.footer]
    return [(action.shown, action.footer) for action in sorted(named, key=lambda action: action.late)]


def other_keys(action: Action) -> str:
    """The keys beside the one that is shown first: `F3`, `Backspace`."""
    return " ".join(_MORE_NAMES[key] for key in action.keys if key in _MORE_NAMES and _MORE_NAMES[key] != action.shown)


def palette(scope: Scope) -> list[Action]:
    """What the palette offers on a screen."""
    return [action for action in of(scope) if action.palette and action.id != "palette"]


def groups() -> dict[str, list[Action]]:
    """All actions by group, in their order, for the help."""
    found: dict[str, list[Action]] = {}
    for action in _InForce.actions:
        found.setdefault(action.group, []).append(action)
    return found
