"""The filter language of the app and the commands: `state:idle (gpu:A100 or gpu:H100) user:me util<20 cost>5 !name:/^test/`.

Invariant: the same text selects the same rows everywhere; a wrong query is an error that points at the spot.
`key:part` holds for a part of the text, any case; `key:=whole` for the whole text, `key:/regex/` for a regular expression,
`key:` for any text at all. `key<20`, `key=8`, `key:10..20` compare numbers; a value that is not known matches no comparison.
A bare word looks in the usual keys. Terms side by side all hold, `or` is either, `!` negates, `@mine` is a filter of
config.toml. `user:me` is exactly the user who asks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tui.columns import gpu_state_text
from tui.fleet import NodeView
from tui.query_parse import Keys, QueryError, read
from tui.query_regex import compile_pattern
from tui.query_tree import All, Compare, Everything, Named, Not, Pattern, Range, Some, Text, Tree, Word
from tui.whoami import user_name

__all__ = ["NODE_WORDS", "Predicate", "QueryError", "Words", "compile_tree", "parse", "parse_tree"]
Predicate = Callable[[Any, float], bool]
_TEXT_KEYS = ("node", "state", "gpu", "user", "project", "type", "cloud", "region", "zone", "buy", "tag", "alert", "job")
_NUMBER_KEYS = ("util", "mem", "power", "gpus", "free", "idle", "cost", "$", "age")
PURCHASES = ("on_demand", "spot", "reserved_1y", "reserved_3y", "savings_plan_1y", "savings_plan_3y", "capacity_block")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip


class Words(NamedTuple):
    """What can be asked of one kind of rows: the keys, and where a row's texts and numbers come from."""

    text_keys: tuple[str, ...]
    number_keys: tuple[str, ...]
    texts: Callable[[Any, str, float], list[str]]
    number: Callable[[Any, str, float], float | None]
    bare: Callable[[Any], list[str]]
    """Where a word without a key is looked for."""
    seconds: tuple[str, ...] = ("age",)
    """Number keys that are times: `age>5m`."""
    known: Mapping[str, tuple[str, ...]] = {}
    """Values that a key has whatever rows there are: `state` -> `live`, ..."""

    @property
    def keys(self) -> Keys:
        return Keys(self.text_keys, self.number_keys, self.seconds)


def parse(text: str, words: Words | None = None, named: Mapping[str, str] = {}) -> Predicate:
    """Compiles a query, of nodes unless other `words` are given; an empty one selects everything. Raises `QueryError`."""
    words = words or NODE_WORDS
    return compile_tree(read(text, words.keys, named), words)


def parse_tree(text: str, words: Words, named: Mapping[str, str] = {}) -> Tree:
    """What a query says. Raises `QueryError`."""
    return read(text, words.keys, named)


def compile_tree(tree: Tree, words: Words) -> Predicate:
    """The test of a row, by its texts and numbers."""
    match tree:
        case Everything():
            return lambda row, now: True
        case Not(term):
            inner = compile_tree(term, words)
            return lambda row, now: not inner(row, now)
        case All(terms):
            tests = [compile_tree(term, words) for term in terms]
            return lambda row, now: all(test(row, now) for test in tests)
        case Some(terms):
            tests = [compile_tree(term, words) for term in terms]
            return lambda row, now: any(test(row, now) for test in tests)
        case Named(_, term):
            return compile_tree(term, words)
        case Compare() | Range():
            return _of_number(tree, words)
    return _of_text(tree, words)


def _of_number(tree: Compare | Range, words: Words) -> Predicate:
    key, number = tree.key, words.number
    if isinstance(tree, Range):
        low = float("-inf") if tree.low is None else tree.low
        high = float("inf") if tree.high is None else tree.high
        return lambda row, now: (value := number(row, key, now)) is not None and low <= value <= high
    holds, limit = _SIGNS[tree.sign], tree.number
    return lambda row, now: (value := number(row, key, now)) is not None and holds(value, limit)


def _of_text(tree: Word | Text | Pattern, words: Words) -> Predicate:
    test = _test(tree)
    if isinstance(tree, Word) or tree.key is None:
        bare = words.bare
        return lambda row, now: any(map(test, bare(row)))
    key, texts = tree.key, words.texts
    return lambda row, now: any(map(test, texts(row, key, now)))


def _test(tree: Word | Text | Pattern) -> Callable[[str], bool]:
    if isinstance(tree, Pattern):
        return compile_pattern(tree.regex).search
    if isinstance(tree, Text) and tree.key == "user" and tree.text == "me" and not tree.whole:
        mine = user_name().casefold()
        return lambda text: text.casefold() == mine
    needle = tree.text.casefold()
    if isinstance(tree, Text) and tree.whole:
        return lambda text: text.casefold() == needle
    if not needle:
        return bool
    return lambda text: needle in text.casefold()


def number_of(node: NodeView, key: str, now: float) -> float | None:
    """`util` and `mem` in per cent, `power` in watts, `cost`/`$` and `idle` in $/h, `age` in seconds; `free` GPUs are held by nobody."""
    match key:
        case "util":
            return None if node.utilization_ratio is None else node.utilization_ratio * 100
        case "mem":
            return None if node.memory_ratio is None else node.memory_ratio * 100
        case "power":
            return node.power_watts
        case "gpus":
            return len(node.gpus)
        case "free":
            return sum(use.held is False and use.gpu.state == "ok" for use in node.uses) if node.sample else None
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
            return [node.state(now), *(["draining"] if node.draining else []), *(gpu_state_text(use) for use in node.uses)]
        case "gpu":
            return [gpu.model or "" for gpu in node.gpus]
        case "user":
            return list(node.users)
        case "project":
            return [p.project for gpu in node.gpus for p in (*(gpu.processes or ()), *gpu.allocations) if p.project]
        case "job":
            return [p.job for gpu in node.gpus for p in (*(gpu.processes or ()), *gpu.allocations) if p.job]
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


def bare_texts(node: NodeView) -> list[str]:
    """Where a bare word is looked for."""
    keys = ("node", "gpu", "user", "project", "type", "cloud", "region", "zone", "buy", "tag")
    return [value for key in keys for value in texts(node, key, 0.0)]


NODE_STATES = ("live", "stale", "lost", "connecting", "draining")
GPU_STATES = ("busy", "idle", "ok", "lost", "unsupported")
CLOUDS = ("aws", "gcp", "azure", "alibaba", "on_premises")
NODE_WORDS = Words(
    _TEXT_KEYS, _NUMBER_KEYS, texts, number_of, bare_texts,
    known={"state": (*NODE_STATES, "busy", "idle"), "user": ("me",), "buy": PURCHASES},
)  # fmt: skip
