"""Advice beside something else: what would be (`--what-if`), and what became of it (`--judge-on`), as text and for JSON.

Invariant: as in `advice_text`: readable at 80 columns, outside text is cleaned, a figure that is not known is `–`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pricing.advice import Advice, cents
from tui import format as fmt
from tui.advice_text import folded, moment, money, span, wrapped

if TYPE_CHECKING:
    from pricing.advice_judge import Judgement, Verdict
    from pricing.what_if import Pair


def comparison(
    now: Advice, then: Advice, pairs: Sequence[Pair], changes: Sequence[str], most: int, width: int
) -> Iterator[str]:
    """Both sides, one piece of advice a line."""
    for line in changes:
        yield from wrapped(f"What if: {line}", width, "  ")
    yield ""
    rows = [
        ("a month now", now.spend_per_month, then.spend_per_month),
        ("advice together", now.saving_per_month, then.saving_per_month),
    ]
    cells = [(name, money(one), money(other), _change(one, other)) for name, one, other in rows]
    for pair in pairs[:most]:
        action = pair.then or pair.now
        assert action is not None  # noqa: S101 - a pair has one of the two
        one, other = (None if side is None else side.saving_per_month for side in pair)
        cells.append(
            (
                f"{action.kind}: {fmt.clean(action.what)}",
                money(one),
                money(other),
                _change(one or Fraction(0), other or Fraction(0)),
            )
        )
    widths = [
        max(len(head), *(len(cell[place]) for cell in cells))
        for place, head in ((1, "AS IT IS"), (2, "WHAT IF"), (3, "CHANGE"))
    ]
    room = max(24, width - sum(widths) - 6)
    yield "  ".join(
        ["".ljust(room), *(head.rjust(size) for head, size in zip(("AS IT IS", "WHAT IF", "CHANGE"), widths, strict=True))]
    )
    for name, *figures in cells:
        lines = folded(name, room) or [""]
        yield "  ".join(
            [lines[0].ljust(room), *(figure.rjust(size) for figure, size in zip(figures, widths, strict=True))]
        ).rstrip()
        yield from (f"  {line}" for line in lines[1:])
    if len(pairs) > most:
        yield f"({len(pairs) - most} more: --top {len(pairs)})"


def _change(one: Fraction | None, other: Fraction | None) -> str:
    if one is None or other is None:
        return fmt.UNKNOWN
    return ("+" if other > one else "") + money(other - one)


def comparison_record(pairs: Sequence[Pair], changes: Sequence[str]) -> dict[str, Any]:
    return {
        "changes": list(changes),
        "pairs": [
            {
                "kind": (pair.now or pair.then).kind,  # type: ignore[union-attr]
                "what": None if pair.now is None else pair.now.what,
                "what_if": None if pair.then is None else pair.then.what,
                "saving_per_month": None if pair.now is None else str(cents(pair.now.saving_per_month)),
                "saving_per_month_what_if": None if pair.then is None else str(cents(pair.then.saving_per_month)),
            }
            for pair in pairs
        ],
    }


def judgement(found: Judgement, width: int) -> Iterator[str]:
    """What became of the advised purchases."""
    later = found.later
    yield from wrapped(
        f"Judged on {later.start:%Y-%m-%d %H:00} to {later.end:%Y-%m-%d %H:00} UTC ({later.known_hours:,} h), "
        "which the advice did not see:",
        width,
    )
    without, total = found.without.total, found.with_advice.total
    yield f"  without the advice      {money(without, whole=False):>16}"
    yield f"  with it                 {money(total, whole=False):>16}"
    yield f"  saved                   {money(without - total, whole=False):>16}  ({_percent(without - total, without)})"
    told = f"{money(found.together.advised, whole=False):>16}  ({span(*found.together.advised_range)})"
    yield f"  promised for that long  {told}"
    if found.hindsight is not None:
        yield f"  best in hindsight       {money(found.hindsight, whole=False):>16}  (the best numbers of the same commitments)"
    for days, (count, realised) in found.look_backs.items():
        told = f"{money(realised, whole=False):>16}  (the clouds' rule: {count} instead of {found.count})"
        yield f"  {f'look back {days} days':<22}  {told}"
    for one in found.single:
        used = fmt.UNKNOWN if one.used_ratio is None else f"{100 * one.used_ratio:.1f} %"
        text = f"- {one.name}: saved {money(one.realised)} of {money(one.advised)} promised; {used} of it was used"
        yield from (f"  {line}" for line in wrapped(text, width - 2, "  "))


def _percent(part: Fraction, whole: Fraction) -> str:
    return fmt.UNKNOWN if not whole else f"{100 * float(part / whole):.1f} % of it"


def judgement_record(found: Judgement) -> dict[str, Any]:
    def told(one: Verdict) -> dict[str, Any]:
        return {
            "what": one.name, "promised": str(cents(one.advised)),
            "promised_range": [str(cents(end)) for end in one.advised_range],
            "realised": str(cents(one.realised)), "used_ratio": one.used_ratio,
        }  # fmt: skip

    return {
        "from": moment(found.later.start),
        "to": moment(found.later.end),
        "known_hours": found.later.known_hours,
        "cost_without": str(cents(found.without.total)),
        "cost_with": str(cents(found.with_advice.total)),
        "best_in_hindsight": None if found.hindsight is None else str(cents(found.hindsight)),
        "look_backs": {
            str(days): {"count": count, "realised": str(cents(realised))}
            for days, (count, realised) in found.look_backs.items()
        },
        "together": told(found.together),
        "actions": [told(one) for one in found.single],
        "partial": bool(found.later.partial or found.without.unpriced),
        "notes": [*found.later.notes, *(f"{key} ({purchase}) has no known price" for key, purchase in found.without.unpriced)],
    }
