"""What a query says, as a tree, and the tree as text again.

Invariant: `read(spell(tree)) == tree`: what is spelled means what was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

KEYWORDS = ("or", "and")
_PLAIN = re.compile(r"[\w.+-]+")
_PLAIN_VALUE = re.compile(r"[\w.+-][\w.+=-]*")


class Everything(NamedTuple):
    """The empty query."""


class Word(NamedTuple):
    """A part of the text of any of the usual keys."""

    text: str


class Text(NamedTuple):
    """`key:part`, or `key:=whole` where `whole` is set. An empty part: there is any text."""

    key: str
    text: str
    whole: bool = False


class Pattern(NamedTuple):
    """`key:/regex/`; without a key (None) `/regex/` over the usual keys."""

    key: str | None
    regex: str


class Compare(NamedTuple):
    """`key<5`; `sign` is one of `<`, `>`, `<=`, `>=`, `=`, `!=`."""

    key: str
    sign: str
    number: float


class Range(NamedTuple):
    """`key:10..20`, both ends included; None: open."""

    key: str
    low: float | None
    high: float | None


class Not(NamedTuple):
    term: Tree


class All(NamedTuple):
    """Every one holds."""

    terms: tuple[Tree, ...]


class Some(NamedTuple):
    """At least one holds: `a or b`."""

    terms: tuple[Tree, ...]


class Named(NamedTuple):
    """`@name`: a filter that is kept, and what it stands for."""

    name: str
    term: Tree


Tree = Everything | Word | Text | Pattern | Compare | Range | Not | All | Some | Named


def leaves(tree: Tree, negated: bool = False) -> Iterator[tuple[Tree, bool]]:
    """The terms of a query that hold no others, and whether each is negated."""
    match tree:
        case All(terms) | Some(terms):
            for term in terms:
                yield from leaves(term, negated)
        case Not(term):
            yield from leaves(term, not negated)
        case Named(_, term):
            yield from leaves(term, negated)
        case _:
            yield tree, negated


def spell(tree: Tree) -> str:
    """The shortest query that means `tree`."""
    match tree:
        case Everything():
            return ""
        case All(terms):
            return " ".join(_inside(term, All) for term in terms)
        case Some(terms):
            return " or ".join(_inside(term, Some) for term in terms)
        case Not(term):
            return "!" + _inside(term, Not)
        case Named(name, _):
            return f"@{name}"
        case Word(text):
            return text if _PLAIN.fullmatch(text) and text.lower() not in KEYWORDS else quoted(text)
        case Text(key, text, whole):
            return f"{key}:{'=' * whole}{spell_value(text)}"
        case Pattern(key, regex):
            return f"{f'{key}:' if key is not None else ''}/{_slashed(regex)}/"
        case Compare(key, sign, number):
            return f"{key}{sign}{spell_number(number)}"
        case Range(key, low, high):
            return f"{key}:{'' if low is None else spell_number(low)}..{'' if high is None else spell_number(high)}"


def _inside(term: Tree, outer: type) -> str:
    """With parentheses where it would be read differently without them."""
    loose = isinstance(term, Some | All) if outer is not Some else isinstance(term, Some)
    return f"({spell(term)})" if loose else spell(term)


def spell_number(number: float) -> str:
    """`5`, `0.25`: exact, and as short as it can be."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def spell_value(text: str) -> str:
    """A value behind `key:`, in quotes where it needs them."""
    return text if not text or _PLAIN_VALUE.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """In double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _slashed(regex: str) -> str:
    """`/` inside a regular expression is written `\\/`."""
    return "".join(pair if len(pair) == 2 else pair.replace("/", "\\/") for pair in re.findall(r"\\.|.", regex, re.DOTALL))
