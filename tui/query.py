"""The filter language of the app and the commands: `state:idle gpu:A100 user:me util<20 $>5 !spot`.

Invariant: the same text selects the same rows everywhere; a wrong query is an error that points at the spot.
Terms are joined by AND; `!` negates one; `key:text` holds for a part of the text, any case; `key<number` and
`key>number` compare; a bare word looks in the node's name, type, users, models, place and tags. A value that is not known matches no comparison.
"""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from tui.columns import gpu_state_text
from tui.errors import WrongUsage
from tui.fleet import NodeView

Predicate = Callable[[NodeView, float], bool]
_TEXT_KEYS = ("node", "state", "gpu", "user", "project", "type", "cloud", "region", "zone", "buy", "tag", "alert")
_NUMBER_KEYS = ("util", "mem", "power", "gpus", "idle", "cost", "$", "age")


class Words(NamedTuple):
    """What can be asked of one kind of rows: the keys, and where a row's texts and numbers come from."""

    text_keys: tuple[str, ...]
    number_keys: tuple[str, ...]
    texts: Callable[[Any, str, float], list[str]]
    number: Callable[[Any, str, float], float | None]
    bare: Callable[[Any], list[str]]
    """Where a word without a key is looked for."""


def parse(text: str, words: Words | None = None) -> Callable[[Any, float], bool]:
    """Compiles a query, of nodes unless other `words` are given; an empty one selects everything. Raises `WrongUsage`."""
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise WrongUsage(f"query `{text}`: {error}; close the quotation.") from None
    terms = [_term(word, text, words or NODE_WORDS) for word in parts]
    return lambda row, now: all(term(row, now) for term in terms)


def _term(word: str, text: str, words: Words) -> Callable[[Any, float], bool]:
    if word.startswith("!") and len(word) > 1:
        inner = _term(word[1:], text, words)
        return lambda row, now: not inner(row, now)
    for sign in ("<=", ">=", "<", ">"):
        key, found, number = word.partition(sign)
        if found:
            return _comparison(key, sign, number, word, text, words)
    key, found, wanted = word.partition(":")
    if not found:
        needle = word.casefold()
        return lambda row, now: any(needle in value.casefold() for value in words.bare(row))
    if key not in words.text_keys:
        raise _error(word, text, f"unknown key `{key}`; there are {', '.join(words.text_keys)}")
    needle = _me(wanted).casefold()
    return lambda row, now: any(needle in value.casefold() for value in words.texts(row, key, now))


def _me(wanted: str) -> str:
    return getpass.getuser() if wanted == "me" else wanted


def _comparison(key: str, sign: str, number: str, word: str, text: str, words: Words) -> Callable[[Any, float], bool]:
    if key not in words.number_keys:
        raise _error(word, text, f"unknown number `{key}`; there are {', '.join(words.number_keys)}")
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

    def holds(row: Any, now: float) -> bool:
        value = words.number(row, key, now)
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
            return [p.project for gpu in node.gpus for p in (*(gpu.processes or ()), *gpu.allocations) if p.project]
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


NODE_WORDS = Words(_TEXT_KEYS, _NUMBER_KEYS, texts, number_of, _bare)
