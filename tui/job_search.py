"""What is looked for in a log: plain text or `/a regular expression/`, case ignored, and where it is in a line.

Invariant: looking takes time linear in the text, whatever is looked for and whatever the job wrote; what is seen on the screen
is what is looked at: colours and other control sequences are no part of it.
"""

from __future__ import annotations

import re
import re._constants as sre
import re._parser as parser
from functools import lru_cache
from typing import NamedTuple

from tui.query_regex import PatternError, compile_pattern
from tui.sgr import looks

__all__ = ["PatternError", "Wanted", "plain_of", "wanted"]

SPANNED = 4096
"""Characters of a line in which single matches are marked."""


class Wanted(NamedTuple):
    """`text` as it was typed."""

    text: str
    regex: bool

    def matches(self, plain: str) -> bool:
        """Whether a line holds it."""
        if not self.regex:
            return _literal(self.text).search(plain) is not None
        needed = needed_by(self._inner)
        return (not needed or _literal(needed).search(plain) is not None) and compile_pattern(self._inner).found(plain)

    def spans(self, plain: str) -> list[tuple[int, int]]:
        """Where, from the left, without overlap."""
        shown = plain[:SPANNED]
        if self.regex:
            return compile_pattern(self._inner).spans(shown)
        return [match.span() for match in _literal(self.text).finditer(shown)]

    def may_be_in(self, block: str) -> bool:
        """False: none of its lines holds it. Cheap."""
        needed = needed_by(self._inner) if self.regex else self.text
        return not needed or "\x1b" in block or "\x9b" in block or _literal(needed).search(block) is not None

    @property
    def _inner(self) -> str:
        return self.text[1:-1]


def wanted(text: str) -> Wanted | None:
    """None: nothing is looked for. Raises `PatternError`."""
    if not text:
        return None
    regex = len(text) > 2 and text.startswith("/") and text.endswith("/")
    if regex:
        compile_pattern(text[1:-1])
    return Wanted(text, regex)


@lru_cache(64)
def needed_by(regex: str) -> str:
    """The longest text that is in all that the expression matches, as far as it stands there in the open; may be empty."""
    runs, run = [""], ""
    for code, argument in parser.parse(regex, re.IGNORECASE):
        run = run + chr(argument) if code is sre.LITERAL else ""
        runs.append(run)
    return max(runs, key=len)


def plain_of(text: str) -> str:
    """A line as it is seen."""
    return text if text.isprintable() else "".join(part for part, _ in looks(text)[0])


@lru_cache(64)
def _literal(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text), re.IGNORECASE)
