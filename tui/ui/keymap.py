"""The keys of the registry of actions: changed by config.toml, and printed.

Invariant: a key never means two things on one screen, and no action is out of reach: what would make it so is refused with a
sentence that names both actions.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from textual.keys import _character_to_key

from tui.errors import ConfigurationError
from tui.ui.actions import MORE_NAMES, Action, Scope

FIXED = {
    "up": "moves", "down": "moves", "left": "moves", "right": "moves", "pageup": "moves", "pagedown": "moves", "home": "moves",
    "end": "moves", "ctrl+home": "moves", "ctrl+end": "moves", "ctrl+c": "quits from anywhere", "ctrl+q": "quits from anywhere",
}  # fmt: skip
"""Keys that no screen may lack."""
CANNOT = {
    "move": "the arrows always move", "mouse": "it has no key", "interrupt": "it is the way out from anywhere",
    "sort_column": "the digits are the columns' own",
}  # fmt: skip
_NAMED = {
    "escape": "Esc", "enter": "Enter", "tab": "Tab", "space": "Space", "backspace": "Backspace", "insert": "Ins", "delete": "Del",
}  # fmt: skip
_ARROWS = {"←": "left", "→": "right"}
_ALSO = {"esc": "escape", "return": "enter", "ins": "insert", "del": "delete"}
_CONTROL = re.compile(r"(?:(?:ctrl|shift|alt)\+)*(?:f(?:[1-9]|1[0-9]|2[0-4])|" + "|".join(_NAMED) + r")|(?:ctrl|alt)\+[a-z]|(?:ctrl|shift|alt)\+(?:left|right)|ctrl\+@|left|right")
_SHOWN = {
    "slash": "/", "question_mark": "?", "colon": ":", "left_square_bracket": "[", "right_square_bracket": "]", "space": "Space",
    **_NAMED, **MORE_NAMES,
}  # fmt: skip


def key_of(text: str) -> str | None:
    """Textual's name of a key as a person writes it: `Q`, `/`, `F5`, `Ctrl+T`, `Esc`; None: there is no such key."""
    if text in _ARROWS:
        return _ARROWS[text]
    if len(text) == 1:
        return _character_to_key(text) if text.isprintable() and not text.isspace() else "space" if text == " " else None
    plain = text.lower().replace(" ", "").replace("→", "right").replace("←", "left")
    head, plus, last = plain.rpartition("+")
    plain = f"{head}{plus}{_ALSO.get(last, last)}"
    return plain if _CONTROL.fullmatch(plain) else None


def shown_key(key: str) -> str:
    """As a person reads it."""
    if key in _SHOWN:
        return _SHOWN[key]
    if len(key) == 1:
        return key
    for code in range(33, 127):
        if _character_to_key(chr(code)) == key:
            return chr(code)
    return "+".join(_NAMED.get(part, part.capitalize()) for part in key.split("+"))


def remapped(actions: Sequence[Action], keys: Mapping[str, str | Sequence[str]], where: str) -> tuple[Action, ...]:
    """The registry with other keys: id of an action -> its keys. Raises `ConfigurationError`."""
    known = {action.id: action for action in actions}
    for ident in keys:
        if ident not in known:
            near = difflib.get_close_matches(ident, known, 1)
            hint = f"did you mean `{near[0]}`?" if near else "`rackrate keys` lists them."
            raise ConfigurationError(f"{where}: keys: there is no action `{ident}`; {hint}")
        if ident in CANNOT:
            raise ConfigurationError(f"{where}: keys: `{ident}` stays as it is: {CANNOT[ident]}.")
    changed = tuple(_with_keys(one, keys[one.id], where) if one.id in keys else one for one in actions)
    changed = tuple(_like(one, keys[one.like], changed, where) if one.like in keys and one.id not in keys else one for one in changed)
    _check(changed, keys, where)
    return changed


def _like(action: Action, wanted: str | Sequence[str], others: Sequence[Action], where: str) -> Action:
    """With those of the keys that are free on its screens."""
    found = _with_keys(action, wanted, where)
    taken = {key for one in others if one.id != action.id and set(one.scopes) & set(action.scopes) for key in one.keys}
    keys = tuple(key for key in found.keys if key not in taken)
    return msgspec.structs.replace(found, keys=keys, shown=shown_key(keys[0]) if keys else "")


def _with_keys(action: Action, wanted: str | Sequence[str], where: str) -> Action:
    texts = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    found = []
    for text in texts:
        key = key_of(text)
        if key is None:
            raise ConfigurationError(
                f"{where}: keys: {action.id}: `{text}` is no key; write one like Q, /, F5, Ctrl+T, Shift+F6, Esc or Ins."
            )
        if key in FIXED:
            raise ConfigurationError(f"{where}: keys: {action.id}: `{text}` {FIXED[key]} on every screen; choose another key.")
        if "submit" in action.scopes and (len(text) == 1 or key in ("enter", "tab", "backspace", "delete", "space")):
            raise ConfigurationError(
                f"{where}: keys: {action.id}: `{text}` is typed into the form; choose a function key or one with Ctrl."
            )
        found.append(key)
    if not found and not action.palette:
        raise ConfigurationError(f"{where}: keys: {action.id}: it needs a key, as it is not in the palette.")
    shown = shown_key(found[0]) if found else "–"
    return msgspec.structs.replace(action, keys=tuple(dict.fromkeys(found)), shown=shown)


def _check(actions: Sequence[Action], keys: Mapping[str, Any], where: str) -> None:
    """No key twice on a screen; the palette stays in reach everywhere."""
    for scope in dict.fromkeys(scope for action in actions for scope in action.scopes):
        taken: dict[str, Action] = {}
        for action in actions:
            for key in action.keys if scope in action.scopes else ():
                if key in taken:
                    raise _conflict(taken[key], action, key, scope, keys, where)
                taken[key] = action
        if scope != "app" and not any(action.call == "app.palette" for action in taken.values()):
            raise ConfigurationError(f"{where}: keys: nothing would open the palette on the screen `{scope}`; leave it one key.")


def _conflict(one: Action, other: Action, key: str, scope: Scope, keys: Mapping[str, Any], where: str) -> ConfigurationError:
    if other.id in keys and one.id not in keys:
        one, other = other, one
    return ConfigurationError(
        f"{where}: keys: `{shown_key(key)}` would be both `{one.id}` ({one.title}) and `{other.id}` ({other.title}) on the screen"
        f" `{scope}`; give one of them another key."
    )


# -- printed ----------------------------------------------------------------------------------------------------------


def keys_text(action: Action) -> str:
    """`q, F10`; what is no key (arrows, mouse) as it is shown."""
    if not action.keys or action.id == "sort_column":
        return action.shown
    return ", ".join(shown_key(key) for key in action.keys)


def records(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [
        {
            "id": action.id, "title": action.title, "group": action.group, "keys": [shown_key(key) for key in action.keys],
            "screens": list(action.scopes), "palette": action.palette, "changes": action.changes,
        }
        for action in actions
    ]  # fmt: skip


def where_text(action: Action, screens: Sequence[Scope]) -> str:
    """`fleet, jobs`, or `all`, or `all but submit`."""
    missing = [scope for scope in screens if scope not in action.scopes]
    if "app" in action.scopes or not missing:
        return "all"
    if len(missing) <= 2 < len(screens) - 2:
        return f"all but {', '.join(missing)}"
    return ", ".join(action.scopes)


def markdown(actions: Iterable[Action], screens: Sequence[Scope]) -> list[str]:
    """A table for the README."""
    lines = ["| keys | does | on the screens | name |", "|---|---|---|---|"]
    for action in actions:
        keys = " ".join(f"`{part}`" for part in keys_text(action).split(", ")) if action.keys else action.shown
        lines.append(f"| {keys} | {action.title}{' *' * action.changes} | {where_text(action, screens)} | `{action.id}` |")
    return lines
