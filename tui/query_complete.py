"""What could stand at the end of a query that is being typed: keys, values that rows have, filters that are kept.

Invariant: every option, put in, is read as a term; values that rows have most often come first; nothing here is slow: at most
`MOST_ROWS` rows are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from tui.query import Words
from tui.query_tree import spell_value

MOST_ROWS = 2000
MOST_OPTIONS = 50
_BREAKS = " \t\n()"


class Options(NamedTuple):
    """`text[start:]` may become any of these; `shown` are their short names."""

    start: int
    terms: tuple[str, ...]
    shown: tuple[str, ...]


NONE = Options(0, (), ())


def options(text: str, words: Words, rows: Callable[[], Iterable[Any]], now: float, named: Mapping[str, str] = {}) -> Options:
    """For the term at the end of `text`."""
    start = _last_term(text)
    if start is None:
        return NONE
    term = text[start:]
    bare = term.lstrip("!")
    start += len(term) - len(bare)
    if bare.startswith("@"):
        found = [f"@{name}" for name in sorted(named) if name.startswith(bare[1:])]
        return _options(start, found, found)
    key, colon, typed = bare.partition(":")
    if not colon:
        keys = [f"{key}:" for key in words.text_keys] + [f"{key}<" for key in words.number_keys if key != "$"]
        found = [key for key in keys if key.startswith(bare) and len(key) > len(bare)]
        return _options(start, found, found)
    if key not in words.text_keys:
        return NONE
    whole = "=" * typed.startswith("=")
    typed = typed.removeprefix("=").lstrip("\"'")
    values = _values(key, typed.casefold(), words, rows, now)
    return _options(start, [f"{key}:{whole}{spell_value(value)}" for value in values], values)


def _options(start: int, terms: list[str], shown: list[str]) -> Options:
    return Options(start, tuple(terms[:MOST_OPTIONS]), tuple(shown[:MOST_OPTIONS]))


def _values(key: str, typed: str, words: Words, rows: Callable[[], Iterable[Any]], now: float) -> list[str]:
    """Those that begin with what is typed, then those that hold it; what many rows have first."""
    counts = Counter(text for row in islice(rows(), MOST_ROWS) for text in set(words.texts(row, key, now)))
    known = words.known.get(key, ())
    every = dict.fromkeys([*(text for text, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))), *known])
    every.pop("", None)
    fitting = [value for value in every if typed in value.casefold() and value.casefold() != typed and value.isprintable()]
    return sorted(fitting, key=lambda value: not value.casefold().startswith(typed))


def _last_term(text: str) -> int | None:
    """Where the term at the end begins; None inside a regular expression."""
    start, at, quote, regex = 0, 0, "", False
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
        elif regex:
            regex = sign != "/"
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in _BREAKS:
            start = at + 1
        elif sign in "\"'":
            quote = sign
        elif sign == "/" and text[start:at].lstrip("!")[-1:] in ("", ":"):
            regex = True
        at += 1
    return None if regex else start


def extended(text: str, found: Options) -> str | None:
    """`text` with what is missing of the first option behind it, where that is a plain continuation."""
    typed = text[found.start :]
    for term in found.terms:
        if len(term) > len(typed) and term.casefold().startswith(typed.casefold()):
            return text + term[len(typed) :]
    return None
