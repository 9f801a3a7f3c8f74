"""The filter language of the app and the commands: `state:idle gpu:A100 user:me util<20 $>5 !spot`.

Invariant: the same text selects the same nodes everywhere; a wrong query is an error that points at the spot.
Terms are joined by AND; `!` negates one; `key:text` holds for a part of the text, any case; `key<number` and
`key>number` compare; a bare word looks in the node's name, type, users, models, place and tags. A value that is not known matches no comparison.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Callable

from tui.columns import gpu_state_text
from tui.errors import WrongUsage
from tui.fleet import NodeView

Predicate = Callable[[NodeView, float], bool]
_TEXT_KEYS = ("node", "state", "gpu", "user", "project", "type", "cloud", "region", "zone", "buy", "tag", "alert")
_NUMBER_KEYS = ("util", "mem", "power", "gpus", "idle", "cost", "$", "age")


def parse(text: str) -> Predicate:
    """Compiles a query; an empty one selects everything. Raises `WrongUsage`."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUsage(f"query `{text}`: {error}; close the quotation.") from None
    terms = [_term(word, text) for word in words]
    return lambda node, now: all(term(node, now) for term in terms)


def _term(word: str, text: str) -> Predicate:
    if word.startswith("!") and len(word) > 1:
        inner = _term(word[1:], text)
        return lambda node, now: not inner(node, now)
    for sign in ("<=", ">=", "<", ">"):
        key, found, number = word.partition(sign)
        if found:
            return _comparison(key, sign, number, word, text)
    key, found, wanted = word.partition(":")
    if not found:
        needle = word.casefold()
        return lambda node, now: any(needle in value.casefold() for value in _bare(node))
    if key not in _TEXT_KEYS:
        raise _error(word, text, f"unknown key `{key}`; there are {', '.join(_TEXT_KEYS)}")
    needle = _me(wanted).casefold()
    return lambda node, now: any(needle in value.casefold() for value in texts(node, key, now))


def _me(wanted: str) -> str:
    return getpass.getuser() if wanted == "me" else wanted


def _comparison(key: str, sign: str, number: str, word: str, text: str) -> Predicate:
    if key not in _NUMBER_KEYS:
        raise _error(word, text, f"unknown number `{key}`; there are {', '.join(_NUMBER_KEYS)}")
    try:
        limit = float(number.rstrip("%"))
    except ValueError:
        raise _error(word, text, f"`{number}` is no number") from None
    compare: Callable[[float], bool] = {
        "<": lambda v: v < limit,
        ">": lambda v: v > limit,
        "<=": lambda v: v <= limit,
        ">=": lambda v: v >= limit,
    }[sign]

    def holds(node: NodeView, now: float) -> bool:
        value = number_of(node, key, now)
        return value is not None and compare(value)

    return holds


def _error(word: str, text: str, why: str) -> WrongUsage:
    return WrongUsage(f"query at character {text.find(word) + 1} (`{word}`): {why}.")


def number_of(node: NodeView, key: str, now: float) -> float | None:
    """`util` and `mem` in per cent, `power` in watts, `cost`/`$` and `idle` in $/h, `age` in seconds."""
    match key:
        case "util":
            return None if node.utilization_ratio is None else node.utilization_ratio * 100
        case "mem":
            return None if node.memory_ratio is None else node.memory_ratio * 100
        case "power":
            return node.power_watts
        case "gpus":
            return len(node.gpus)
        case "idle":
            return None if node.idle_usd_per_hour is None else float(node.idle_usd_per_hour)
        case "age":
            return node.age_seconds(now)
        case _:
            return None if node.usd_per_hour is None else float(node.usd_per_hour)


def texts(node: NodeView, key: str, now: float) -> list[str]:
    """All texts of a node under a key."""
    info = node.info
    match key:
        case "node":
            return [node.name]
        case "state":
            return [node.state(now), *(gpu_state_text(use) for use in node.uses)]
        case "gpu":
            return [gpu.model or "" for gpu in node.gpus]
        case "user":
            return list(node.users)
        case "project":
            return [p.project for use in node.uses for p in use.gpu.processes or () if p.project]
        case "tag":
            return [f"{k}={v}" for k, v in all_tags(node).items()]
        case "alert":
            return [alert.rule for alert in node.alerts.values()]
    field = {"type": "instance_type", "buy": "purchase"}.get(key, key)
    value = getattr(info, field, None) if info else None
    return [value] if value else []


def all_tags(node: NodeView) -> dict[str, str]:
    """The agent's tags, overlaid by those of the client's configuration."""
    return {**(node.info.tags if node.info else {}), **node.tags}


def _bare(node: NodeView) -> list[str]:
    keys = ("node", "gpu", "user", "project", "type", "cloud", "region", "zone", "buy", "tag")
    return [value for key in keys for value in texts(node, key, 0.0)]
