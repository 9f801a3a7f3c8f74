"""A comparison as JSON and as a table: rounded once to cents, and adding up as shown.

Invariant: shown parts sum to the shown difference, which is the shown bill total minus our shown total; what rounding
leaves over goes to the largest remainders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TextIO

from pricing.compare import PARTS, Comparison, Match, Side
from pricing.money import largest_remainder, to_decimal
from pricing.reports.text import clean, width

CENTS = 2
MOST_ROWS = 20


def record(comparison: Comparison) -> dict[str, object]:
    """For `--json`: totals, the parts of the difference, and every key with what both sides say."""
    ours, bill, parts = shown(comparison)
    return {
        "from": _utc(comparison.start),
        "to": _utc(comparison.end),
        "currency": comparison.currency,
        "bill_total": f"{bill:f}",
        "our_total": f"{ours:f}",
        "difference": f"{bill - ours:f}",
        "matched": f"{to_decimal(comparison.matched, CENTS):f}",
        "parts": {name: f"{amount:f}" for name, amount in parts.items()},
        "bill_lines": comparison.lines,
        "outside_lines": comparison.outside_lines,
        "outside_cost": f"{to_decimal(comparison.outside_cost, CENTS):f}",
        "accounts": list(comparison.accounts),
        "repeated_lines": 0 if comparison.repeated is None else comparison.repeated.lines,
        "rows": [_row(match) for match in comparison.matches],
    }


def shown(comparison: Comparison) -> tuple[Decimal, Decimal, dict[str, Decimal]]:
    """(our total, bill total, the parts of the difference), in cents."""
    ours, bill = to_decimal(comparison.our_total, CENTS), to_decimal(comparison.bill_total, CENTS)
    goal, names = int((bill - ours).scaleb(CENTS)), list(comparison.parts)
    scaled = [amount * 10**CENTS for amount in comparison.parts.values()]
    floor = sum(part.numerator // part.denominator for part in scaled)
    ceiling = sum(-(-part.numerator // part.denominator) for part in scaled)
    units = largest_remainder(scaled, min(max(goal, floor), ceiling))
    if units and sum(units) != goal:  # two totals, each rounded, may be a cent apart from their rounded difference
        largest = max(range(len(units)), key=lambda place: abs(units[place]))
        units[largest] += goal - sum(units)
    return ours, bill, {name: Decimal(unit).scaleb(-CENTS) for name, unit in zip(names, units, strict=True)}


def _row(match: Match) -> dict[str, object]:
    key = match.key
    return {
        "state": match.state, "day": key.day, "region": key.region or None, "instance_type": key.instance_type or None,
        "node": key.node or None, "bill_cost": _cost(match.bill), "our_cost": _cost(match.ours),
        "bill_hours": _hours(match.bill), "our_hours": _hours(match.ours),
        "difference": f"{to_decimal(match.difference, 4):f}",
        "explained": {name: f"{to_decimal(amount, 4):f}" for name, amount in match.parts.items()},
    }  # fmt: skip


def _cost(side: Side | None) -> str | None:
    return None if side is None else f"{to_decimal(side.cost, 4):f}"


def _hours(side: Side | None) -> float | None:
    return None if side is None or side.hours is None else float(round(side.hours, 4))


def write(comparison: Comparison, stream: TextIO) -> None:
    """The sums, then what differs most."""
    ours, bill, parts = shown(comparison)
    names = {"missing": "measured here, missing in the bill", "surplus": "in the bill, not measured here"}
    lines = [("bill", bill), ("ours", ours), ("difference", bill - ours)]
    lines += [(f"  {PARTS[name]}", amount) for name, amount in parts.items() if amount]
    wide = max(width(name) for name, _ in lines)
    for name, amount in lines:
        stream.write(f"{name}{' ' * (wide - width(name))}  {amount:>14,.2f} {comparison.currency}\n")
    differing = [match for match in comparison.matches if abs(match.difference) >= Fraction(1, 200)]
    differing.sort(key=lambda match: -abs(match.difference))
    same = sum(match.state == "matched" for match in comparison.matches if abs(match.difference) < Fraction(1, 200))
    stream.write(f"\n{same} of {len(comparison.matches)} agree to the cent (lines by day, region, type, node)\n")
    if differing:
        stream.write("\n" + "\n".join(_table(list(_rows(differing[:MOST_ROWS], names)))) + "\n")
    if len(differing) > MOST_ROWS:
        stream.write(f"({len(differing) - MOST_ROWS} more: use --json)\n")


def notes(comparison: Comparison, *, account: str | None = None) -> Iterator[str]:
    """What a reader should know beside the figures. `account`: whose lines were asked for."""
    if comparison.outside_cost:
        left = f"{float(comparison.outside_cost):,.2f} {comparison.currency}"
        yield f"{left} of the bill lie outside the range and were left out ({comparison.outside_lines} whole line{'s' * (comparison.outside_lines != 1)})"
    if account is None and comparison.accounts:
        several = len(comparison.accounts) > 1
        named = ", ".join(clean(one) for one in comparison.accounts[:5]) + (", …" if len(comparison.accounts) > 5 else "")
        yield f"the bill is of account{'s' * several} {named}: with --account ID only lines of that account are compared"
    repeated = comparison.repeated
    if repeated is not None:
        yield (
            f"{repeated.lines:,} lines ({float(repeated.cost):,.2f} {comparison.currency}) say in every cell what another line "
            f"says (first row {repeated.row}, like row {repeated.original}) and are counted: is a part of the bill in the file "
            "twice?"
        )


def _rows(matches: Sequence[Match], names: dict[str, str]) -> Iterator[tuple[str, ...]]:
    yield ("DAY", "REGION", "TYPE", "NODE", "BILL", "OURS", "DIFFERENCE", "BILL H", "OUR H", "WHY")
    for match in matches:
        key, parts = match.key, sorted(match.parts, key=lambda name: -abs(match.parts[name]))
        why = names.get(match.state) or ", ".join(PARTS[name] for name in parts)
        yield (
            key.day, key.region or "–", key.instance_type or "–", key.node or "–",
            *("–" if side is None else f"{to_decimal(side.cost, CENTS):,.2f}" for side in (match.bill, match.ours)),
            f"{to_decimal(match.difference, CENTS):,.2f}",
            *("–" if hours is None else f"{hours:,.2f}" for hours in (_hours(match.bill), _hours(match.ours))), why,
        )  # fmt: skip


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(width(row[place]) for row in cleaned) for place in range(len(cleaned[0]))]
    right = range(4, 9)
    return [
        "  ".join(
            (" " * (wide - width(cell)) + cell) if place in right else (cell + " " * (wide - width(cell)))
            for place, (cell, wide) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cleaned
    ]


def _utc(instant: object) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
