"""`report --compare aws`: the ledger against what Cost Explorer says of EC2 instances, by day or month.

Invariant: only what runs on AWS is compared, and what is left aside of our side is told with its amount. No request leaves
before whoever pays has said yes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.errors import Failed, WrongUsage
from tui.output import print_json, print_table, say
from tui.progress import live_line
from tui.spending import budget_of, say_spent

if TYPE_CHECKING:
    import argparse

    from pricing.compare import Comparison
    from pricing.report import Report
    from pricing.sources.aws_bill import Told

AWS = "aws"
NAME = "Cost Explorer"
MOST_DAYS = 35
"""A longer range is told by month."""


def compare_aws(arguments: argparse.Namespace, ours: Report, gpu_counts: dict[str, int | None]) -> None:
    """Asks Cost Explorer for the range of `ours` (by `OUR_KEYS`, in days of UTC), and prints what differs."""
    from pricing.compare import compare
    from pricing.compare_text import record, write

    mine, aside = _of_instances(ours)
    told = _read(arguments, mine)
    result = compare(mine, gpu_counts, told.lines, NAME)
    periods = _periods(result)
    if arguments.json or arguments.format == "json":
        lists = [{"period": name, **{key: _text(sums[key], 2) for key in sums}} for name, sums in periods]
        print_json({**record(result), "periods": lists, "estimated_days": [str(day) for day in told.estimated]})
    else:
        _print_periods(periods)
        write(result, sys.stdout)
    _say_about(told, mine, aside)


def _of_instances(ours: Report) -> tuple[Report, list[tuple[str, Fraction]]]:
    """What runs on AWS, and the amounts of what is not compared."""
    from pricing.compare import ADJUSTMENT, EGRESS, STORAGE

    kept, left = [], dict.fromkeys(("other clouds", "storage and data transfer", "corrections of closed months"), Fraction(0))
    other = {STORAGE: "storage and data transfer", EGRESS: "storage and data transfer", ADJUSTMENT: "corrections of closed months"}
    for row in ours.rows:
        if row.keys[1] == AWS and row.keys[4] not in other:
            kept.append(row)
        else:
            left[other.get(row.keys[4], "other clouds")] += row.total_cost or Fraction(0)
    return replace(ours, rows=tuple(kept)), [(why, amount) for why, amount in left.items() if amount]


def _read(arguments: argparse.Namespace, ours: Report) -> Told:
    from pricing.sources.aws_bill import instance_bill
    from tui.price_sources import aws_session

    start, end = _days(ours.start, ours.end, datetime.now(UTC).date())
    what = f"Comparing {start} to {end - timedelta(days=1)}"
    with aws_session() as session, live_line() as line:
        budget = budget_of(arguments, what, line)
        try:
            told = instance_bill(session, budget, start, end, arguments.account, lambda step: line.tell(f"{NAME}: {step}"))
        finally:
            line.clear()
            say_spent(budget)
    whose = f" for the account {fmt.clean(arguments.account)}" if arguments.account else ""
    if not told.lines:
        raise Failed(
            f"{NAME} tells no charge of EC2 instances from {start} to {end - timedelta(days=1)}{whose}: "
            "is it the right account (AWS_PROFILE), and the right range?"
        )
    foreign = next((one.currency for one in told.lines if one.currency != ours.currency), None)
    if foreign is not None:
        raise WrongUsage(f"{NAME} tells amounts in {foreign}, and the report is in {ours.currency}: use --currency {foreign}.")
    return told


def _days(start: datetime, end: datetime, today: date) -> tuple[date, date]:
    """The whole UTC days that a range touches, as far as they have begun; the second exclusive."""
    if start.date() > today:
        raise WrongUsage(f"--from: {start:%Y-%m-%d} has not begun yet; {NAME} knows what was.")
    last = end.date() if end.time().replace(tzinfo=None) == datetime.min.time() else end.date() + timedelta(days=1)
    return start.date(), min(max(last, start.date() + timedelta(days=1)), today + timedelta(days=1))


def _periods(result: Comparison) -> list[tuple[str, dict[str, Fraction]]]:
    """(day or month, what each side says of instances that ran in it)."""
    days: Callable[[str], str] = (lambda day: day) if result.end - result.start <= timedelta(days=MOST_DAYS) else (lambda day: day[:7])
    found: dict[str, dict[str, Fraction]] = {}
    for match in sorted(result.matches, key=lambda match: match.key.day):
        sums = found.setdefault(days(match.key.day), {"aws": Fraction(0), "ours": Fraction(0), "difference": Fraction(0)})
        sums["aws"] += match.bill.cost if match.bill else Fraction(0)
        sums["ours"] += match.ours.cost if match.ours else Fraction(0)
        sums["difference"] = sums["aws"] - sums["ours"]
    return list(found.items())


def _print_periods(periods: Sequence[tuple[str, dict[str, Fraction]]]) -> None:
    rows = [(name, *(_text(sums[key], 2, ",") for key in ("aws", "ours", "difference"))) for name, sums in periods]
    if rows:
        print_table(("INSTANCES", "AWS", "OURS", "DIFFERENCE"), rows, ("left", "right", "right", "right"))
        print()


def _say_about(told: Told, ours: Report, aside: Sequence[tuple[str, Fraction]]) -> None:
    for why, amount in aside:
        say(f"note: {_text(amount, 2, ',')} {ours.currency} of {why} are ours alone and were not compared")
    if told.estimated:
        first, last = told.estimated[0], told.estimated[-1]
        days = f"{first}" if first == last else f"{len(told.estimated)} days from {first} to {last}"
        say(f"note: AWS may still change the amounts of {days}, and is up to a day behind")


def _text(amount: Fraction, places: int, sign: str = "") -> str:
    from pricing.money import to_decimal

    value: Any = to_decimal(amount, places)
    return f"{value:{sign}f}"
