"""Each piece of CSS is parsed once in a process, whichever stylesheet asks for it.

Textual parses all pieces anew when a screen with CSS of its own opens for the first time, and remembers fewer of them than
the app has when a widget of a new kind comes. Invariant: the rules are those that Textual makes of the same text with the
same variables; what was parsed is never changed.
"""

from __future__ import annotations

from typing import Any

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_PARSED: dict[tuple[tuple[str, str], ...], dict[tuple[Any, ...], list[RuleSet]]] = {}
"""By the variables, of which each theme has its own, and by the piece."""


class KeptStylesheet(Stylesheet):
    """What one has parsed, another takes over."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parsed = _PARSED.setdefault(tuple(self._variables.items()), {})

    def set_variables(self, variables: dict[str, str]) -> None:
        super().set_variables(variables)
        self._parsed = _PARSED.setdefault(tuple(variables.items()), {})

    def _parse_rules(
        self, css: str, read_from: tuple[str, str], is_default_rules: bool = False, tie_breaker: int = 0, scope: str = ""
    ) -> list[RuleSet]:
        piece = (css, read_from, is_default_rules, tie_breaker, scope)
        if (rules := self._parsed.get(piece)) is None:
            rules = self._parsed[piece] = super()._parse_rules(css, read_from, is_default_rules, tie_breaker, scope)
        return rules

    def reparse(self) -> None:
        """As Textual's, in place: a piece with an error leaves the rules as they were."""
        self.parse()
