"""Evidence cards as lines, and the sentences above the list.

Invariant: the words and figures are those of `rackrate advise show N`; here they only get their styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pricing.advice import Action, Advice
from tui import format as fmt
from tui.advice_case import Found
from tui.advice_text import card, headline, money, span
from tui.dismissed import Dismissed
from tui.ui.lines import BLANK, Line, cropped, joined, spread, width, wrapped
from tui.ui.panes.node import rule

TITLES = ("Evidence", "Break-even", "What would make it wrong", "How")
_FACT = re.compile(r"(  \S(?:.*?\S)?  +)(\S.*)")


def card_lines(advice: Advice, place: int, cells: int, dismissed: Dismissed | None = None) -> list[Line]:
    """All about one piece of advice."""
    return [*_dismissal(dismissed, cells), *_styled(card(advice, place, cells), cells)]


def _dismissal(dismissed: Dismissed | None, cells: int) -> list[Line]:
    if dismissed is None:
        return []
    told = f"dismissed on {dismissed.dismissed_at:%Y-%m-%d}, when it saved ${dismissed.saving_per_month}: {dismissed.reason}"
    return [*wrapped(fmt.clean(told), "idle", cells), BLANK]


def _styled(texts: Iterable[str], cells: int) -> list[Line]:
    lines: list[Line] = []
    part = ""
    for text in texts:
        if text in TITLES:
            part = text
            lines.append(rule(text, cells))
        elif not part:
            style = "accent" if text.startswith("   saves") else "idle" if text.startswith("   partial") else "strong"
            lines.append(((text, style),))
        elif part in TITLES[:2] and (fact := _FACT.match(text)):
            lines.append(((fact[1], "dim"), (fact[2], "text")))
        else:
            lines.append(((text, "key" if part == "How" and text.startswith("  rackrate") else "text"),))
    return [cropped(line, cells) for line in lines]


def title_line(found: Found | None, doing: str, hidden: int, cells: int) -> Line:
    """From when the advice is, and at the end what is going on."""
    end: Line = ((f"{doing} ", "idle"),) if doing else ()
    parts: list[Line] = [((" Advice", "title"),)]
    if found is not None:
        parts.append((("as of ", "dim"), (f"{found.at:%Y-%m-%d %H:%M} UTC", "text")))
        if hidden:
            parts.append(((f"{hidden} dismissed", "dim"), (" d", "key")))
    return spread(joined(parts, "   ", cells - width(end) - 2), end, cells)


def headline_lines(found: Found, advice: Advice, cells: int, most: int) -> list[Line]:
    """What it rests on."""
    return wrapped(fmt.clean(headline(advice, found.case)), "dim", cells - 1, " ")[:most]


def sums(advice: Advice) -> tuple[Line, ...]:
    """What can be done together saves together."""
    count = len(advice.actions)
    parts: list[Line] = [((f"{count} piece{'s' * (count != 1)} of advice", "text"),)]
    if advice.together:
        parts.append((("together ", "dim"), (f"{money(advice.saving_per_month)}/month", "strong")))
        parts.append(((f"({span(*advice.saving_range)})", "text"),))
    if advice.spend_per_month is not None:
        parts.append((("of ", "dim"), (f"{money(advice.spend_per_month)} spent", "text")))
    return tuple(parts)


def kind_text(action: Action) -> str:
    return action.kind.replace("capacity_block", "block")
