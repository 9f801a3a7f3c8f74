"""`prices recommended`: what AWS would commit to, by Cost Explorer, to hold against `rackrate advise`.

Invariant: no request leaves before whoever pays has said yes; alternatives are never added up.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.commands.context import Context
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import live_line
from tui.spending import budget_of, say_spent

if TYPE_CHECKING:
    from pricing.sources.aws_costs import Recommendation

LOOKBACKS = {"7": "SEVEN_DAYS", "30": "THIRTY_DAYS", "60": "SIXTY_DAYS"}
TERMS = {"1": "ONE_YEAR", "3": "THREE_YEARS"}
PAYMENTS = {"no": "NO_UPFRONT", "partial": "PARTIAL_UPFRONT", "all": "ALL_UPFRONT"}
DAYS = {name: f"{days}d" for days, name in LOOKBACKS.items()}


def recommended_(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints AWS's own recommendations, largest saving first."""
    found = aws_recommendations(arguments)
    found.sort(key=lambda one: (-one.saving_per_month, one.kind, one.what))
    if arguments.json:
        print_json({"recommendations": [_record(one) for one in found]})
        return ExitCode.DONE
    if not found:
        print("AWS recommends no commitment for EC2 instances")
        return ExitCode.DONE
    rows = [
        (_money(one.saving_per_month, one.currency), _money(one.upfront, one.currency), one.kind.replace("_", " "), fmt.clean(one.what), DAYS[one.lookback])
        for one in found
    ]  # fmt: skip
    print_table(("SAVES/MONTH", "UP FRONT", "KIND", "WHAT", "LOOK-BACK"), rows, ("right", "right", "left", "left", "right"))
    say("(alternatives, not to be added up; each assumes that the days looked back on repeat themselves for the whole term)")
    return ExitCode.DONE


def aws_recommendations(arguments: argparse.Namespace) -> list[Recommendation]:
    """Asked of Cost Explorer under the options `--lookback`, `--term`, `--payment` and those of `tui.spending`."""
    from pricing.sources.aws_costs import aws_recommendations as ask
    from tui.price_sources import aws_session

    lookbacks = [LOOKBACKS[days] for days in dict.fromkeys(arguments.lookback or ["30"])]
    with aws_session() as session, live_line() as line:
        budget = budget_of(arguments, "Asking for recommendations", line)
        try:
            return ask(session, budget, lookbacks, term=TERMS[arguments.term], payment=PAYMENTS[arguments.payment])
        finally:
            line.clear()
            say_spent(budget)


def _record(one: Recommendation) -> dict[str, Any]:
    return {
        "kind": one.kind, "what": one.what, "region": one.region, "instance_type": one.instance_type,
        "count": None if one.count is None else f"{one.count:f}", "per_hour": None if one.per_hour is None else f"{one.per_hour:f}",
        "upfront": f"{one.upfront:f}", "saving_per_month": f"{one.saving_per_month:f}", "currency": one.currency,
        "lookback_days": int(DAYS[one.lookback][:-1]), "term": one.term.lower(), "payment": one.payment.lower(),
    }  # fmt: skip


def _money(amount: Any, currency: str) -> str:
    from pricing.money import Money

    return Money(amount, currency).text(2)
