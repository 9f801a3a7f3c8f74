"""Advice as the command shows it: the ranked list, the evidence card, and the JSON record.

Invariant: readable at 80 columns; outside text is cleaned; a figure that is not known is `–`, and what is partial is marked.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from pricing.advice import Action, Advice, Call, Case, cents
from tui import format as fmt

NARROWEST = 60
LISTED = 12
"""How many entries of a list in the evidence are shown."""


def money(amount: Fraction | None, *, whole: bool = True) -> str:
    """`$1,234`, below 100 (or not `whole`) with cents."""
    if amount is None:
        return fmt.UNKNOWN
    if not amount:
        return "$0" if whole else "$0.00"
    sign = "-" if amount < 0 else ""
    if whole and abs(amount) >= 100:
        return f"{sign}${round(abs(amount)):,}"
    return f"{sign}${abs(cents(amount)):,}"


def span(low: Fraction, high: Fraction) -> str:
    return money(low) if low == high else f"{money(low)} to {money(high)}"


# --- the record ----------------------------------------------------------------------------------------------------------


def record(advice: Advice, case: Case, actions: Sequence[Action] | None = None) -> dict[str, Any]:
    """For `--json`."""
    shown = advice.actions if actions is None else actions
    places = {id(action): place for place, action in enumerate(advice.actions)}
    return {
        "actions": [_action_record(advice, action, places[id(action)]) for action in shown],
        "together": {
            "ranks": [place + 1 for place in advice.together],
            "saving_per_month": str(cents(advice.saving_per_month)),
            "saving_range": [str(cents(end)) for end in advice.saving_range],
            "sure_saving_per_month": str(cents(advice.sure_per_month)),
        },
        "spend_per_month": None if advice.spend_per_month is None else str(cents(advice.spend_per_month)),
        "currency": "USD",
        "from": moment(case.demand.start) if case.demand.known_hours else None,
        "to": moment(case.demand.end) if case.demand.known_hours else None,
        "known_hours": case.demand.known_hours,
        "hours": case.demand.hours,
        "partial": advice.partial,
        "notes": list(advice.notes),
    }


def moment(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _action_record(advice: Advice, action: Action, place: int) -> dict[str, Any]:
    return {
        "kind": action.kind,
        "what": action.what,
        "saving_per_month": str(cents(action.saving_per_month)),
        "saving_range": [str(cents(end)) for end in action.saving_range],
        "evidence": plain(action.evidence),
        "break_even": plain(action.break_even),
        "risks": list(action.risks),
        "how": list(action.how),
        "rank": place + 1,
        "partial": action.partial,
        "counted_in_total": float(advice.shares.get(place, 0)),
        "not_together_with": [other + 1 for other in advice.overlaps[place]],
        "calls": [call_record(call) for call in action.calls],
    }


def call_record(call: Call) -> dict[str, Any]:
    return {
        "service": call.service, "region": call.region, "operation": call.operation, "parameters": plain(call.parameters),
        "note": call.note or None,
    }  # fmt: skip


def plain(value: Any) -> Any:
    """What JSON has: fractions to decimal text, numpy numbers to Python's, dates to ISO."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, Fraction):
        return str(cents(value)) if value.denominator != 1 else str(value.numerator)
    if isinstance(value, str) or value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Sequence | set | frozenset):
        return [plain(part) for part in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


# --- the list ------------------------------------------------------------------------------------------------------------


def listing(advice: Advice, case: Case, most: int, width: int) -> Iterator[str]:
    """The ranked list, what is sure before what is not; what adds up, and how to read on."""
    yield from wrapped(headline(advice, case), width)
    if not advice.actions:
        return
    yield ""
    order = in_order(advice)[:most]
    shown = [advice.actions[place] for place in order]
    ranks = [f"{place + 1}{rank_mark(advice.shares.get(place))}" for place in order]
    saves = [money(action.saving_per_month) + ("~" if action.partial else "") for action in shown]
    ranges = [span(*action.saving_range) for action in shown]
    heads = ("#", "KIND", "SAVES/MONTH", "RANGE")
    kinds = [action.kind.replace("capacity_block", "block") for action in shown]
    columns = (ranks, kinds, saves, ranges)
    widths = [max(len(head), *map(len, column)) for head, column in zip(heads, columns, strict=True)]
    indent = sum(widths) + 2 * len(widths)
    stacked = width - indent < 30
    yield _row(heads, widths, "" if stacked else "WHAT")
    for place, action in enumerate(shown):
        if action.partial and place and not shown[place - 1].partial:
            yield "~ only if more holds than is known (`show N` says what):"
        cells = [column[place] for column in columns]
        lines = folded(fmt.clean(action.what), width - 4 if stacked else width - indent) or [""]
        yield _row(cells, widths, "" if stacked else lines[0])
        yield from (("    " if stacked else " " * indent) + line for line in lines[not stacked :])
    yield ""
    yield from _footer(advice, shown, width)


def in_order(advice: Advice) -> list[int]:
    """Places, what is sure before what rests in part on what is not known."""
    return sorted(range(len(advice.actions)), key=lambda place: (advice.actions[place].partial, place))


def _row(cells: Sequence[str], widths: Sequence[int], what: str) -> str:
    sides = (str.ljust, str.ljust, str.rjust, str.rjust)
    parts = [side(cell, size) for side, cell, size in zip(sides, cells, widths, strict=True)]
    return "  ".join((*parts, what)).rstrip()


def rank_mark(share: Fraction | None) -> str:
    """`*` counted in the total, `+` for a part of it."""
    return "" if share is None else "*" if share == 1 else "+"


def headline(advice: Advice, case: Case) -> str:
    demand = case.demand
    if not demand.known_hours:
        return "No advice yet: the ledger tells of no whole hour. Run `rackrate sync` for some days, or give --usage FILE."
    spend = (
        "what it costs now is not known" if advice.spend_per_month is None else f"now {money(advice.spend_per_month)} a month"
    )
    hours = f"{demand.known_hours:,} of {demand.hours:,} h" if demand.known_hours != demand.hours else f"{demand.hours:,} h"
    nodes = "" if case.fleet is None else f", {fmt.counted(sum(node.running for node in case.fleet.nodes), 'node')} running"
    pools = f"{len(demand.counts)} pool{'' if len(demand.counts) == 1 else 's'} of nodes{nodes}"
    first = f"{demand.start:%Y-%m-%d} to {demand.end:%Y-%m-%d} ({hours}, {pools}): {spend}."
    if advice.actions:
        return first
    return f"{first} No advice: nothing that saves money was found{' in what is known' if advice.partial else ''}."


def _footer(advice: Advice, shown: Sequence[Action], width: int) -> Iterator[str]:
    total = f"* Together {money(advice.saving_per_month)} a month ({span(*advice.saving_range)})"
    if advice.spend_per_month:
        total += f", {100 * float(advice.saving_per_month / advice.spend_per_month):.0f} % of the spend"
    if any(advice.actions[place].partial for place in advice.together):
        total += f"; {money(advice.sure_per_month)} of it without what is marked ~"
    yield from wrapped(f"{total}.", width, "  ")
    parts = [f"{100 * float(share):.0f} % of {place + 1}" for place, share in advice.shares.items() if share < 1]
    if parts:
        yield from wrapped(f"+ Counted for the nodes and hours that the others leave: {', '.join(parts)}.", width, "  ")
    if len(advice.together) < len(advice.actions):
        yield from wrapped(
            "Without a mark: it would save on the same nodes or hours as those with one, and is not added.", width, "  "
        )
    if all(action.partial for action in shown):
        yield from wrapped("~ rests in part on what is not known: `rackrate advise show N` says on what.", width, "  ")
    if len(advice.actions) > len(shown):
        yield from wrapped(f"({len(advice.actions) - len(shown)} more: --top {len(advice.actions)})", width, "  ")
    yield from wrapped("The evidence of each: rackrate advise show N (with the same options).", width, "  ")


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        fmt.clean(text), max(NARROWEST, width), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]  # fmt: skip


def folded(text: str, room: int) -> list[str]:
    """For a column: names are not cut at hyphens, but what is longer than the column is."""
    return textwrap.wrap(text, room, break_on_hyphens=False)


# --- the card -------------------------------------------------------------------------------------------------------------


def card(advice: Advice, place: int, width: int) -> Iterator[str]:
    """All about one action."""
    action = advice.actions[place]
    yield from wrapped(f"{place + 1}. {action.what}", width, "   ")
    saving = f"{money(action.saving_per_month, whole=False)} a month ({span(*action.saving_range)})"
    forward = "walk_forward" in action.evidence
    known = "the range is of how demand may go on" if forward else "the range is of the evidence alone"
    yield from wrapped(f"   saves {saving} if what was seen goes on; {known}", width, "   ")
    if action.partial:
        yield "   partial: some of what it rests on is not known (see below)"
    if others := advice.overlaps[place]:
        told = ", ".join(str(other + 1) for other in others[:12])
        yield from wrapped(f"   not to be added to: {told} (the same nodes or hours, or one of several ways)", width, "   ")
    yield ""
    yield "Evidence"
    yield from facts(action.evidence, width)
    yield ""
    yield "Break-even"
    yield from facts(action.break_even, width) if action.break_even else iter(("  it costs nothing",))
    yield ""
    yield "What would make it wrong"
    for risk in action.risks:
        yield from (f"  {line}" for line in wrapped(f"- {risk}", width - 2, "  "))
    yield ""
    yield "How"
    yield from commands(action, width)
    for call in action.calls:
        yield from call_lines(call, width)


def commands(action: Action, width: int) -> Iterator[str]:
    """As they are typed: long ones go on in the next line, before an option."""
    for command in action.how:
        line = "  "
        for part in _options(fmt.clean(command)):
            if len(line) > 2 and len(line) + len(part) > width - 2:
                yield f"{line.rstrip()} \\"
                line = "      "
            line += part
        yield line.rstrip()


def _options(command: str) -> list[str]:
    """Cut before each ` --`, which is never within one word of a shell."""
    return [f"{part} " for part in re.split(r" (?=--[a-z])", command)]


def facts(evidence: Mapping[str, Any], width: int) -> Iterator[str]:
    """`key: value`, lists of records as one line each."""
    size = min(28, max((len(key) for key in evidence), default=0))
    for key, value in evidence.items():
        if isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[0], Mapping):
            yield f"  {fmt.clean(key.replace('_', ' '))}"
            for entry in value[:LISTED]:
                told = ", ".join(
                    f"{name.replace('_', ' ')} {_value(part)}" for name, part in entry.items() if part not in (None, "")
                )
                yield from (f"    {line}" for line in wrapped(told, width - 4, "  "))
            if len(value) > LISTED:
                yield f"    and {len(value) - LISTED} more (--json has all)"
            continue
        title = fmt.clean(key.replace("_", " ")).ljust(size)
        yield from (f"  {line}" for line in wrapped(f"{title}  {_value(value)}", width - 2, " " * (size + 2)))


def _value(value: Any) -> str:
    value = plain(value)
    if value is None or value == "":
        return fmt.UNKNOWN
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value(part)}" for key, part in value.items()) or fmt.UNKNOWN
    if isinstance(value, list):
        told = ", ".join(_value(part) for part in value[:LISTED])
        return told + (f" and {len(value) - LISTED} more" if len(value) > LISTED else "") or fmt.UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if isinstance(value, float) else fmt.clean(str(value))


def call_lines(call: Call, width: int) -> Iterator[str]:
    """The boto3 call."""
    yield f"  boto3 {call.service} {call.region} {call.operation}"
    for name, value in call.parameters.items():
        yield from (f"    {line}" for line in wrapped(f"{name} = {plain(value)!r}", width - 4, "  "))
    if call.note:
        yield from (f"    {line}" for line in wrapped(f"({call.note})", width - 4, " "))
