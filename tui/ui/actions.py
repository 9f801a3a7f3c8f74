"""What can be done in the app, as it is in force now: it feeds key bindings, footer, help and palette.

Invariant: what changes something on a node (`changes`) asks first, in a dialog or a form: no key alone does it. The actions
themselves stand in `tui.ui.registry`.
"""

from __future__ import annotations

from collections.abc import Iterator

from textual.binding import Binding

from tui.ui.action import EVERYWHERE as EVERYWHERE
from tui.ui.action import LOOKS as LOOKS
from tui.ui.action import MONEY as MONEY
from tui.ui.action import SCREENS as SCREENS
from tui.ui.action import TABLES as TABLES
from tui.ui.action import Action, Scope
from tui.ui.registry import ACTIONS

MORE_NAMES = {
    "f1": "F1", "f2": "F2", "f3": "F3", "f4": "F4", "f6": "F6", "f7": "F7", "f8": "F8", "f9": "F9", "f10": "F10",
    "ctrl+p": "Ctrl+P", "backspace": "Backspace", "ctrl+right": "Ctrl+→", "ctrl+left": "Ctrl+←", "shift+f6": "Shift+F6",
    "ctrl+q": "Ctrl+Q", "f5": "F5", "f11": "F11", "f12": "F12", "insert": "Ins", "delete": "Del", "ctrl+insert": "Ctrl+Ins",
    "ctrl+t": "Ctrl+T", "alt+left": "Alt+←", "alt+right": "Alt+→", "minus": "-", "plus": "+", "shift+tab": "Shift+Tab", "shift+f5": "Shift+F5", "shift+f7": "Shift+F7",
    "ctrl+space": "Ctrl+Space", "shift+f8": "Shift+F8", "left": "←", "right": "→", "shift+left": "Shift+←", "shift+right": "Shift+→",
    "shift+f9": "Shift+F9",
    "shift+f10": "Shift+F10",
    "shift+f11": "Shift+F11",
}  # fmt: skip


class _InForce:
    """What the running app goes by: its configuration may have changed keys and taken away what changes something."""

    actions: tuple[Action, ...] = ACTIONS
    read_only: bool = False
    held: str = ""
    """Why what changes something is refused for now."""


def put_in_force(actions: tuple[Action, ...] = ACTIONS, *, read_only: bool = False) -> None:
    """From now on these are the actions there are; `read_only`: without those that change something."""
    _InForce.actions = tuple(action for action in actions if not (read_only and action.changes))
    _InForce.read_only = read_only


def hold(why: str) -> None:
    """Refuses what changes something for this reason, without taking its keys away; empty: no longer."""
    _InForce.held = why


def held() -> str:
    """Why what changes something is refused for now; empty: it is not."""
    return _InForce.held


def in_force() -> tuple[Action, ...]:
    """All actions there are now."""
    return _InForce.actions


def read_only() -> bool:
    """Whether what changes something is refused."""
    return _InForce.read_only


def refuses(call: str) -> bool:
    """Whether running `call` (`cancel_job`) would change something that must stay as it is."""
    name = call.partition("(")[0].removeprefix("app.")
    return bool(_InForce.read_only or _InForce.held) and any(one.changes and one.call.partition("(")[0].removeprefix("app.") == name for one in ACTIONS)


def key_of(ident: str) -> str:
    """The first key of an action, to be named in a sentence."""
    return next((action.shown for action in _InForce.actions if action.id == ident), "–")


def unknown_key(scope: Scope, key: str, name: str) -> str:
    """What is said to a key that means nothing."""
    changes = any(one.changes and key in one.keys and scope in one.scopes for one in ACTIONS)
    if changes and (_InForce.read_only or _InForce.held):
        return f"{name} is off: {_InForce.held or 'this is read-only'}."
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
    return " ".join(MORE_NAMES[key] for key in action.keys if key in MORE_NAMES and MORE_NAMES[key] != action.shown)


def palette(scope: Scope) -> list[Action]:
    """What the palette offers on a screen."""
    return [action for action in of(scope) if action.palette and action.id != "palette"]


def groups() -> dict[str, list[Action]]:
    """All actions by group, in their order, for the help."""
    found: dict[str, list[Action]] = {}
    for action in _InForce.actions:
        found.setdefault(action.group, []).append(action)
    return found
