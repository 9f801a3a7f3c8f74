"""Reads a query into its tree: `state:idle (gpu:A100 or gpu:H100) name:/gpu-0[1-3]/ util<20 !user:me @mine`.

Invariant: what cannot be read is one `QueryError` that knows the spot; nothing is guessed and nothing is left out.
`a b` needs both, `a or b` one of them; `or` binds less tightly than standing side by side; parentheses group; `!` negates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from tui.errors import WrongUsage
from tui.query_regex import PatternError, compile_pattern
from tui.query_tree import All, Compare, Everything, Named, Not, Pattern, Range, Some, Text, Tree, Word

LONGEST = 2000
"""Characters of a query."""
DEEPEST = 40
"""Parentheses, negations and named filters inside each other."""
_KEY = re.compile(r"(?P<key>[A-Za-z_$][\w$-]*)(?P<sign>:|<=|>=|!=|<|>|=)")
_KEYWORD = re.compile(r"(or|and|OR|AND)(?=[\s()]|$)")
_NAME = re.compile(r"[\w-]+")
_NUMBER = re.compile(r"\$?(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>%|[smhdw])?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_QUOTES = "\"'"


class QueryError(WrongUsage):
    """`str()` is one line with the column; `start` and `end` are the spot in `text`, for a caret below it."""

    def __init__(self, text: str, start: int, end: int, why: str) -> None:
        self.text, self.start, self.end, self.why = text, start, max(end, start + 1), why
        spot = text[start:end].strip()
        super().__init__(f"query at character {start + 1}{f' (`{spot}`)' if spot else ''}: {why}{'' if why.endswith('?') else '.'}")

    def caret(self, before: int = 0) -> str:
        """The line to stand below `before` cells and the query: `      ^^^^`."""
        from rich.cells import cell_len

        clean = " ".join(self.text.split("\n"))
        return " " * (before + cell_len(clean[: self.start])) + "^" * max(1, cell_len(clean[self.start : self.end]))


class Keys(NamedTuple):
    """Which keys there are: of text, of numbers, and which numbers are seconds (`5m`, `2h`)."""

    text: tuple[str, ...]
    number: tuple[str, ...]
    seconds: tuple[str, ...] = ()


def read(text: str, keys: Keys, named: Mapping[str, str] = {}, _inside: tuple[str, ...] = ()) -> Tree:
    """The tree of a query. `named`: what `@name` stands for. Raises `QueryError`."""
    if len(text) > LONGEST:
        raise QueryError(text, LONGEST, LONGEST + 1, f"a query has at most {LONGEST} characters")
    return _Reader(text, keys, named, _inside).whole()


class _Reader:
    def __init__(self, text: str, keys: Keys, named: Mapping[str, str], inside: tuple[str, ...]) -> None:
        self.text, self.keys, self.named, self.inside = text, keys, named, inside
        self.at = 0
        self.depth = len(inside)

    # -- the grammar ----------------------------------------------------------------------------------------------

    def whole(self) -> Tree:
        self.skip()
        if self.at == len(self.text):
            return Everything()
        tree = self.some()
        if self.at < len(self.text):
            raise self.error(self.at, self.at + 1, "this parenthesis closes nothing; put the text in quotes if it is meant")
        return tree

    def some(self) -> Tree:
        terms = [self.all()]
        while (found := self.keyword("or")) is not None:
            terms.append(self.all(after=found))
        return terms[0] if len(terms) == 1 else Some(tuple(terms))

    def all(self, after: tuple[int, str] | None = None) -> Tree:
        """Terms up to `or`, `)` or the end; there is at least one."""
        terms: list[Tree] = []
        while True:
            while (found := self.keyword("and")) is not None:
                if not terms:
                    raise self.lonely(found)
                after = found
            if self.at == len(self.text) or self.text[self.at] == ")" or _is_or(self.text, self.at):
                break
            terms.append(self.term())
            after = None
        if after is not None:
            raise self.lonely(after)
        if not terms:
            raise self.nothing()
        return terms[0] if len(terms) == 1 else All(tuple(terms))

    def lonely(self, found: tuple[int, str]) -> QueryError:
        start, word = found
        return self.error(start, start + len(word), f'`{word}` stands between two terms; the word itself is written "{word}"')

    def nothing(self) -> QueryError:
        if (found := self.keyword("or")) is not None:
            return self.lonely(found)
        return self.error(self.at, self.at + 1, "a term is missing here")

    def term(self) -> Tree:
        start = self.at
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(start, start + 1, f"more than {DEEPEST} parentheses and negations inside each other")
        tree = self.term_here(start)
        self.depth -= 1
        return tree

    def term_here(self, start: int) -> Tree:
        sign = self.text[start]
        if sign == "!":
            self.at += 1
            if self.at == len(self.text) or self.text[self.at] in " \t\n)":
                raise self.error(start, start + 1, "`!` negates the term behind it, without a blank between them")
            return Not(self.term())
        if sign == "(":
            return self.group(start)
        tree = self.kept(start) if sign == "@" else self.regex(None, start) if sign == "/" else self.plain(start)
        self.skip()
        return tree

    def group(self, start: int) -> Tree:
        self.at += 1
        self.skip()
        if self.text[self.at : self.at + 1] == ")":
            raise self.error(start, self.at + 1, "there is nothing between these parentheses")
        tree = self.some() if self.at < len(self.text) else None
        if tree is None or self.text[self.at : self.at + 1] != ")":
            raise self.error(start, start + 1, "this parenthesis is not closed")
        self.at += 1
        self.skip()
        return tree

    def plain(self, start: int) -> Tree:
        found = _KEY.match(self.text, start)
        if found is None:
            return Word(self.value(start))
        key, sign = found["key"], found["sign"]
        self.known(key, start)
        self.at = found.end()
        if key in self.keys.number:
            return self.number(key, sign, start)
        if sign != ":":
            raise self.error(start, self.at, f"`{key}` is text: write {key}:part, {key}:=whole or {key}:/regex/")
        if self.text[self.at : self.at + 1] == "/":
            return self.regex(key, self.at)
        whole = self.text[self.at : self.at + 1] == "="
        self.at += whole
        return Text(key, self.value(start), whole)

    def known(self, key: str, start: int) -> None:
        every = (*self.keys.text, *self.keys.number)
        if key in every:
            return
        import difflib

        near = difflib.get_close_matches(key.lower(), every, 1, 0.6)
        listed = f"there are {', '.join(self.keys.text)}; numbers: {', '.join(self.keys.number)}"
        raise self.error(start, start + len(key), f"unknown key `{key}`; {f'did you mean `{near[0]}`?' if near else listed}")

    # -- what stands in a term ----------------------------------------------------------------------------------------

    def kept(self, start: int) -> Tree:
        found = _NAME.match(self.text, start + 1)
        self.at = found.end() if found else start + 1
        name = found.group() if found else ""
        if name not in self.named:
            kept = ", ".join(f"@{one}" for one in sorted(self.named))
            hint = f"there are {kept}" if kept else f'keep one under [filters] in config.toml: {name or "name"} = "user:me"'
            raise self.error(start, self.at, f"no filter of this name is kept; {hint}")
        if name in self.inside:
            raise self.error(start, self.at, f"the filter `{name}` means itself")
        try:
            return Named(name, read(self.named[name], self.keys, self.named, (*self.inside, name)))
        except QueryError as fault:
            raise self.error(start, self.at, f"in the filter `{name}`, {str(fault).removesuffix('.')}") from None

    def regex(self, key: str | None, start: int) -> Tree:
        """From the first slash to the one that ends it; a slash inside is written `\\/`."""
        signs, at = [], start + 1
        while at < len(self.text) and self.text[at] != "/":
            step = 2 if self.text[at] == "\\" else 1
            pair = self.text[at : at + step]
            signs.append("/" if pair == "\\/" else pair)
            at += step
        if at >= len(self.text):
            raise self.error(start, len(self.text), "the regular expression is not closed: it ends with `/`; a path goes in quotes")
        self.at = at + 1
        if self.at < len(self.text) and self.text[self.at] not in " \t\n)":
            raise self.error(start, self.at + 1, "a regular expression ends with `/` and a blank; a path goes in quotes")
        try:
            compile_pattern(regex := "".join(signs))
        except PatternError as fault:
            place = min(start + 1 + fault.at, self.at - 1)
            raise self.error(place, place + 1, f"regular expression: {fault}") from None
        return Pattern(key, regex)

    def number(self, key: str, sign: str, start: int) -> Tree:
        word_at = self.at
        word = self.value(start)
        if sign == ":" and ".." in word:
            low, _, high = word.partition("..")
            if low or high:
                ends = (self.amount(key, low, word_at) if low else None, self.amount(key, high, word_at) if high else None)
                if None not in ends and ends[0] > ends[1]:
                    raise self.error(word_at, self.at, "the range ends before it begins")
                return Range(key, *ends)
        return Compare(key, "=" if sign == ":" else sign, self.amount(key, word, word_at if word else start))

    def amount(self, key: str, word: str, start: int) -> float:
        found = _NUMBER.fullmatch(word)
        unit = found["unit"] if found else None
        timed = key in self.keys.seconds
        if found is None or (unit in _SECONDS and not timed) or (unit == "%" and timed):
            units = " with s, m, h, d or w" if timed else ""
            shown = f"`{word}` is no number" if word else "a number is missing"
            raise self.error(start, self.at, f"{shown}: write {key}<20{'m' * timed}, {key}:10..20{units}")
        value = float(found["number"]) * _SECONDS.get(unit or "", 1)
        if not math.isfinite(value):
            raise self.error(start, self.at, f"`{word}` is too large")
        return value

    # -- characters -----------------------------------------------------------------------------------------------------

    def value(self, start: int) -> str:
        """Up to the next blank or parenthesis; quotes and backslashes keep those in."""
        signs: list[str] = []
        while self.at < len(self.text) and (sign := self.text[self.at]) not in " \t\n()":
            if sign in _QUOTES:
                signs.append(self.quoted(sign))
            elif sign == "\\" and self.at + 1 < len(self.text):
                signs.append(self.text[self.at + 1])
                self.at += 2
            else:
                signs.append(sign)
                self.at += 1
        if self.text[self.at : self.at + 1] == "(":
            raise self.error(self.at, self.at + 1, "a parenthesis inside a word: put the word in quotes, or a blank before it")
        return "".join(signs)

    def quoted(self, quote: str) -> str:
        start, at, signs = self.at, self.at + 1, []
        while at < len(self.text) and self.text[at] != quote:
            at += quote == '"' and self.text[at] == "\\" and self.text[at + 1 : at + 2] in ('"', "\\")
            signs.append(self.text[at])
            at += 1
        if at >= len(self.text):
            raise self.error(start, start + 1, "No closing quotation; close the quotation")
        self.at = at + 1
        return "".join(signs)

    def keyword(self, word: str) -> tuple[int, str] | None:
        """Takes the keyword if it stands here."""
        found = _KEYWORD.match(self.text, self.at)
        if found is None or found.group().lower() != word:
            return None
        start = self.at
        self.at = found.end()
        self.skip()
        return start, found.group()

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def error(self, start: int, end: int, why: str) -> QueryError:
        return QueryError(self.text, start, end, why)


def _is_or(text: str, at: int) -> bool:
    found = _KEYWORD.match(text, at)
    return found is not None and found.group().lower() == "or"
