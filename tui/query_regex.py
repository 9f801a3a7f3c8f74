"""Regular expressions that cannot hang: read by Python's own parser, matched by an automaton in time linear in the text.

Invariant: matching takes at most `POSITIONS` steps a character, whatever the expression and the text are; what an automaton
cannot do (look-around, back-references, `\\b`) is refused with a sentence. Matching looks for a part and ignores case, as
the rest of a query does. Method: the position automaton (Glushkov 1961), made deterministic while it runs.
"""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as parser
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

LONGEST = 200
"""Characters of an expression."""
POSITIONS = 200
"""Characters and classes of an expression once `{2,5}` is written out."""
TEXT_LIMIT = 1000
"""How many characters of a text are looked at."""
SPAN_STEPS = 3000
"""Characters that are looked at for the places in one text: `a(.*b)?` looks to its end from each of them."""
_REMEMBERED = 4096
_BEGIN, _END = "begin", "end"
Sign = str
Test = Callable[[Sign], bool]
_REFUSED = {
    sre.ASSERT: "look-ahead", sre.ASSERT_NOT: "look-ahead", sre.GROUPREF: "a back-reference",
    sre.GROUPREF_EXISTS: "a condition", sre.ATOMIC_GROUP: "an atomic group", sre.POSSESSIVE_REPEAT: "a possessive repetition",
}  # fmt: skip


class PatternError(ValueError):
    """Why an expression is refused; `at` is the character."""

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.at = at


class _Part(NamedTuple):
    """Of a part of the expression: whether it matches nothing, and the positions (bits) that begin and end it."""

    empty: bool
    first: int
    last: int


class Automaton:
    """`search(text)` is whether the expression matches a part of the text."""

    def __init__(self, regex: str) -> None:
        if len(regex) > LONGEST:
            raise PatternError(f"it has more than {LONGEST} characters", LONGEST)
        self._tests: list[Test] = []
        self._follow: list[int] = []
        self._work = 0
        tree = _parsed(regex)
        if tree.state.flags & ~(re.IGNORECASE | re.UNICODE):
            raise PatternError("flags are not supported: case is ignored anyway")
        self._empty, self._first, self._last = self._sequence(list(tree))
        self._steps: dict[tuple[int, str], int] = {}
        self._allowed: dict[str, int] = {}
        self._known: dict[str, bool] = {}

    def search(self, text: str) -> bool:
        """Looks at the first `TEXT_LIMIT` characters."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[text] = self._empty or self._run(text[:TEXT_LIMIT])
        return found

    def found(self, text: str) -> bool:
        """As `search`, of all of the text, and nothing is remembered."""
        return self._empty or self._run(text)

    def spans(self, text: str, steps: int = SPAN_STEPS) -> list[tuple[int, int]]:
        """Where it matches: from the left, each as long as it can be, none empty. After so many steps the rest is left out."""
        found: list[tuple[int, int]] = []
        at = 0
        while at < len(text) and steps > 0:
            span, looked = self._span(text[: at + steps] if at + steps < len(text) else text, at)
            if span is None:
                break
            found.append(span)
            at, steps = span[1], steps - looked
        return found

    def _span(self, text: str, start: int) -> tuple[tuple[int, int] | None, int]:
        """The first match that begins at `start` or later, and how many characters were looked at. Each state carries
        where its match began."""
        best: tuple[int, int] | None = None
        begun = self._began({}, _BEGIN, 0) if not start else {}
        for at in range(start, len(text) + 1):
            sign = text[at] if at < len(text) else _END
            begun = self._began(begun, sign, at if best is None else None)
            ends = [since for place, since in begun.items() if self._last >> place & 1]
            end = min(at + 1, len(text))
            since = min(ends, default=None)
            if since is not None and since < end and (best is None or since <= best[0]):
                best = (since, end)
            if best is not None:
                begun = {place: since for place, since in begun.items() if since <= best[0]}
                if not begun:
                    return best, at - start + 1
        return best, len(text) - start + 1

    def _began(self, begun: dict[int, int], sign: Sign, at: int | None) -> dict[int, int]:
        """Position -> where the leftmost match that has come to it began. `at`: one may begin here."""
        starts = {} if at is None else dict.fromkeys(_bits(self._first), at)
        for place, since in begun.items():
            for following in _bits(self._follow[place]):
                if since < starts.get(following, since + 1):
                    starts[following] = since
        allowed = self._allowing(sign)
        return {place: since for place, since in starts.items() if allowed >> place & 1}

    def _run(self, text: str) -> bool:
        state, steps, last = self._step(0, _BEGIN), self._steps, self._last
        for sign in text:
            if state & last:
                return True
            following = steps.get((state, sign))
            state = self._step(state, sign) if following is None else following
        return bool(state & last) or bool(self._step(state, _END) & last)

    def _step(self, state: int, sign: str) -> int:
        following, rest = self._first, state
        while rest:
            bit = rest & -rest
            following |= self._follow[bit.bit_length() - 1]
            rest ^= bit
        following &= self._allowing(sign)
        if len(self._steps) >= _REMEMBERED:
            self._steps.clear()
        self._steps[state, sign] = following
        return following

    def _allowing(self, sign: Sign) -> int:
        """The positions that take this character."""
        allowed = self._allowed.get(sign)
        if allowed is None:
            allowed = self._allowed[sign] = sum(1 << place for place, test in enumerate(self._tests) if test(sign))
        return allowed

    # -- building ---------------------------------------------------------------------------------------------------

    def _position(self, test: Test) -> _Part:
        if len(self._tests) >= POSITIONS:
            raise PatternError(f"it has more than {POSITIONS} characters once its repetitions are written out")
        self._tests.append(test)
        self._follow.append(0)
        bit = 1 << (len(self._tests) - 1)
        return _Part(False, bit, bit)

    def _link(self, last: int, first: int) -> None:
        while last:
            bit = last & -last
            self._follow[bit.bit_length() - 1] |= first
            last ^= bit

    def _sequence(self, items: list[Any]) -> _Part:
        whole = _Part(True, 0, 0)
        self._work += 1
        if self._work > 10 * POSITIONS:  # `(((){99}){99}){99}` has no positions at all
            raise PatternError("its repetitions inside each other are too many")
        for item in items:
            whole = self._joined(whole, self._part(*item))
        return whole

    def _joined(self, left: _Part, right: _Part) -> _Part:
        self._link(left.last, right.first)
        return _Part(
            left.empty and right.empty,
            left.first | (right.first if left.empty else 0),
            right.last | (left.last if right.empty else 0),
        )

    def _part(self, code: Any, argument: Any) -> _Part:
        if code in _REFUSED:
            raise PatternError(f"{_REFUSED[code]} is not supported")
        if code is sre.SUBPATTERN:
            if argument[1] or argument[2]:
                raise PatternError("flags are not supported: case is ignored anyway")
            return self._sequence(list(argument[3]))
        if code is sre.BRANCH:
            parts = [self._sequence(list(branch)) for branch in argument[1]]
            firsts, lasts = (_union(part.first for part in parts), _union(part.last for part in parts))
            return _Part(any(part.empty for part in parts), firsts, lasts)
        if code in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            return self._repeat(*argument)
        return self._position(_test(code, argument))

    def _repeat(self, least: int, most: Any, body: Any) -> _Part:
        """`x{2,4}` as `xx(x(x)?)?`, which nothing but the number of positions limits; `x{2,}` as `xxx*`."""
        if least > POSITIONS or (most is not sre.MAXREPEAT and most > POSITIONS):
            raise PatternError(f"a repetition of more than {POSITIONS}")
        whole = _Part(True, 0, 0)
        for _ in range(least):
            whole = self._joined(whole, self._sequence(list(body)))
        if most is sre.MAXREPEAT:
            part = self._sequence(list(body))
            self._link(part.last, part.first)
            return self._joined(whole, part._replace(empty=True))
        for _ in range(most - least):
            whole = self._joined(whole, self._sequence(list(body))._replace(empty=True))
        return whole


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit.bit_length() - 1
        mask ^= bit


def _parsed(regex: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parser.parse(regex, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(getattr(error, "msg", "it is too deep"), getattr(error, "pos", 0) or 0) from None


def _union(bits: Any) -> int:
    found = 0
    for each in bits:
        found |= each
    return found


def _test(code: Any, argument: Any) -> Test:
    """What one position takes. `^` and `$` take the marks before and behind the text."""
    if code is sre.AT:
        if argument in (sre.AT_BEGINNING, sre.AT_BEGINNING_STRING):
            return lambda sign: sign is _BEGIN
        if argument in (sre.AT_END, sre.AT_END_STRING):
            return lambda sign: sign is _END
        raise PatternError("\\b is not supported: write (^|[^a-z]) or such")
    inner = _inner(code, argument)
    return lambda sign: sign is not _BEGIN and sign is not _END and inner(sign)


def _inner(code: Any, argument: Any) -> Test:
    if code is sre.ANY:
        return lambda sign: sign != "\n"
    if code is sre.IN and argument and argument[0][0] is sre.NEGATE:
        some = [_inner(*item) for item in argument[1:]]
        return lambda sign: not any(test(sign) for test in some)
    if code is sre.IN:
        some = [_inner(*item) for item in argument]
        return lambda sign: any(test(sign) for test in some)
    if code is sre.NOT_LITERAL:
        wanted = chr(argument)
        return lambda sign: sign.lower() != wanted.lower()
    if code is sre.LITERAL:
        wanted = chr(argument)
        return lambda sign: sign.lower() == wanted.lower()
    if code is sre.RANGE:
        low, high = argument
        return lambda sign: any(len(form) == 1 and low <= ord(form) <= high for form in (sign, sign.lower(), sign.upper()))
    if code is sre.CATEGORY:
        return _CATEGORIES[argument]
    raise PatternError("something that is not supported")


_CATEGORIES: dict[Any, Test] = {
    sre.CATEGORY_DIGIT: str.isdecimal,
    sre.CATEGORY_NOT_DIGIT: lambda sign: not sign.isdecimal(),
    sre.CATEGORY_SPACE: str.isspace,
    sre.CATEGORY_NOT_SPACE: lambda sign: not sign.isspace(),
    sre.CATEGORY_WORD: lambda sign: sign.isalnum() or sign == "_",
    sre.CATEGORY_NOT_WORD: lambda sign: not (sign.isalnum() or sign == "_"),
}


@lru_cache(64)
def compile_pattern(regex: str) -> Automaton:
    """Raises `PatternError`."""
    return Automaton(regex)
