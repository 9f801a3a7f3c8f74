"""Requests that cost money: whoever pays is asked before they leave, with how many there are and what they cost.

Invariant: where nobody can be asked, nothing leaves without `--yes-spend N`; and never more than N, or than the cap.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tui.errors import WrongUsage

if TYPE_CHECKING:
    from pricing.sources.aws_costs import Budget
    from tui.progress import LiveLine


def add_spending_options(parser: argparse.ArgumentParser) -> None:
    """`--yes-spend` and `--spend-cap`."""
    parser.add_argument(
        "--yes-spend", type=_requests, metavar="N", help="allow N requests to Cost Explorer ($0.01 each) without being asked"
    )
    parser.add_argument(
        "--spend-cap", type=_requests, default=20, metavar="N", help="never more requests than that, however often asked (20)"
    )


def _requests(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is no number of requests from 1 to 1000")
    return int(text)


def budget_of(arguments: argparse.Namespace, what: str, line: LiveLine) -> Budget:
    """The leave to send requests: the option's, or that of the person at the terminal. `what` they are for."""
    from pricing.sources.aws_costs import Budget

    if arguments.yes_spend is not None:
        return Budget(lambda requests: True, arguments.yes_spend)
    budget: Budget | None = None

    def allow(requests: int) -> bool:
        line.clear()
        return _asked(requests, what, budget.used if budget is not None else 0)

    budget = Budget(allow, arguments.spend_cap)
    return budget


def _asked(requests: int, what: str, sent: int) -> bool:
    from pricing.sources.aws_costs import COST_OF_REQUEST

    price, count = f"${requests * COST_OF_REQUEST:.2f}", _counted(requests)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongUsage(
            f"{what} needs {count} to Cost Explorer, which charges {price} for them: "
            f"allow them with --yes-spend {requests} (or more, for an answer of several pages)."
        )
    more = _counted(requests, " more") if sent else count
    sys.stderr.write(f"{what} needs {more} to Cost Explorer, which charges {price} for them. Send them? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say_spent(budget: Budget) -> None:
    """What it came to."""
    from tui.output import say

    if budget.used:
        say(f"(Cost Explorer: {_counted(budget.used)}, ${budget.spent:.2f})")


def _counted(requests: int, more: str = "") -> str:
    return f"{requests}{more} request{'' if requests == 1 else 's'}"
