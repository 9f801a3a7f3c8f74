"""One registry of everything that can be done in the app: it feeds key bindings, footer, help and palette.

Invariant: no two actions of one screen share a key; each can be reached without letters (arrows, function keys, palette).
The app only reads: there is nothing here that changes a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
from textual.binding import Binding

Scope = Literal["app", "fleet", "node", "alerts", "help"]
SCREENS: tuple[Scope, ...] = ("fleet", "node", "alerts", "help")


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


EVERYWHERE: tuple[Scope, ...] = SCREENS
_COLUMN_KEYS = "1234567890"

ACTIONS: tuple[Action, ...] = (
    Action(id="open", keys=("enter",), shown="Enter", title="Open the node under the cursor", group="Look", call="open",
           scopes=("fleet", "alerts"), footer="open"),
    Action(id="back", keys=("escape", "backspace"), shown="Esc", title="Back; in the fleet: clear the filter", group="Look",
           call="back", scopes=EVERYWHERE, footer="back"),
    Action(id="filter", keys=("slash", "f3"), shown="/", title="Filter the nodes", group="Look", call="filter",
           scopes=("fleet",), footer="filter"),
    Action(id="alerts", keys=("a", "f4"), shown="a", title="Alerts of the whole fleet", group="Look", call="app.alerts",
           scopes=("fleet", "node"), footer="alerts"),
    Action(id="next_node", keys=("right_square_bracket", "ctrl+right"), shown="]", title="Next node", group="Look",
           call="step_node(1)", scopes=("node",), footer="next"),
    Action(id="previous_node", keys=("left_square_bracket", "ctrl+left"), shown="[", title="Previous node", group="Look",
           call="step_node(-1)", scopes=("node",)),
    Action(id="sort_next", keys=("s", "f6"), shown="s", title="Sort by the next column", group="Order", call="sort_next(1)",
           scopes=("fleet",), footer="sort"),
    Action(id="sort_previous", keys=("S", "shift+f6"), shown="S", title="Sort by the column before", group="Order",
           call="sort_next(-1)", scopes=("fleet",)),
    Action(id="reverse", keys=("r", "f7"), shown="r", title="Reverse the order", group="Order", call="reverse",
           scopes=("fleet",)),
    Action(id="sort_column", keys=tuple(_COLUMN_KEYS), shown="0-9", title="Sort by the column with this number",
           group="Order", call="sort_key", scopes=("fleet",), palette=False),
    Action(id="columns", keys=("w", "f8"), shown="w", title="Show the columns that are hidden", group="Order", call="columns",
           scopes=("fleet",)),
    Action(id="move", keys=(), shown="arrows PgUp PgDn Home End", title="Move; the order of rows holds still meanwhile",
           group="Move", call="", scopes=EVERYWHERE, palette=False),
    Action(id="mouse", keys=(), shown="click, wheel", title="Click a row, a title to sort by it; twice to open",
           group="Move", call="", scopes=("fleet", "alerts"), palette=False),
    Action(id="help", keys=("question_mark", "f1"), shown="?", title="This help", group="Program", call="app.help",
           scopes=("fleet", "node", "alerts"), footer="help"),
    Action(id="palette", keys=("colon", "ctrl+p", "f2"), shown=":", title="All actions, by name", group="Program",
           call="app.palette", scopes=EVERYWHERE, footer="menu"),
    Action(id="theme", keys=("t", "f9"), shown="t", title="Next theme", group="Program", call="app.next_theme",
           scopes=EVERYWHERE),
    Action(id="quit", keys=("q", "f10"), shown="q", title="Quit", group="Program", call="app.leave", scopes=EVERYWHERE,
           footer="quit"),
    Action(id="interrupt", keys=("ctrl+c", "ctrl+q"), shown="Ctrl+C", title="Quit, from anywhere", group="Program",
           call="app.leave", scopes=("app",), priority=True, palette=False),
)  # fmt: skip
_MORE_NAMES = {
    "f1": "F1", "f2": "F2", "f3": "F3", "f4": "F4", "f6": "F6", "f7": "F7", "f8": "F8", "f9": "F9", "f10": "F10",
    "ctrl+p": "Ctrl+P", "backspace": "Backspace", "ctrl+right": "Ctrl+→", "ctrl+left": "Ctrl+←", "shift+f6": "Shift+F6",
    "ctrl+q": "Ctrl+Q",
}  # fmt: skip


def of(scope: Scope) -> Iterator[Action]:
    """The actions of one screen, in their order."""
    return (action for action in ACTIONS if scope in action.scopes)


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
    return [(action.shown, action.footer) for action in of(scope) if action.footer]


def other_keys(action: Action) -> str:
    """The keys beside the one that is shown first: `F3`, `Backspace`."""
    return " ".join(_MORE_NAMES[key] for key in action.keys if key in _MORE_NAMES)


def palette(scope: Scope) -> list[Action]:
    """What the palette offers on a screen."""
    return [action for action in of(scope) if action.palette and action.id != "palette"]


def groups() -> dict[str, list[Action]]:
    """All actions by group, in their order, for the help."""
    found: dict[str, list[Action]] = {}
    for action in ACTIONS:
        found.setdefault(action.group, []).append(action)
    return found
