"""Making the calls of one piece of advice that the user has typed for: reserved instances of AWS, and nothing else.

Invariant: every other call (savings plans, capacity blocks, stopping nodes) is printed only: savings plans have no dry run, and
a node's instance id is not known to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pricing.rate_card import HOURS_PER_MONTH

if TYPE_CHECKING:
    from pricing.advice import Action
    from pricing.sources.aws_purchase import Wish
    from pricing.sources.aws_session import AwsSession

OPERATION = "purchase_reserved_instances_offering"
HOUR_MS = 3_600_000


def can_make(action: Action) -> bool:
    """Whether all of its purchases are ones that Rackrate makes."""
    return any(call.operation == OPERATION for call in action.calls) and wishes(action) is not None


def wishes(action: Action) -> list[Wish] | None:
    """What it buys; None when some of it is not a reservation of AWS for one or three years."""
    from pricing.sources.aws_purchase import OPTIONS, Wish

    found = []
    for one in action.buys:
        years = round((one.ends_ms - one.starts_ms) / HOUR_MS / (12 * HOURS_PER_MONTH))
        hours = years * 12 * HOURS_PER_MONTH
        if one.cloud != "aws" or one.kind != "reservation" or years not in (1, 3) or not one.region or not one.instance_type:
            return None
        payment = "no_upfront"
        if one.upfront:
            payment = "all_upfront" if one.cost_per_hour * hours <= one.upfront else "partial_upfront"
        if one.count < 1 or payment not in OPTIONS:
            return None
        found.append(Wish(one.region, one.instance_type, years, payment, one.count, one.cost_per_hour))
    return found or None


def make(action: Action, profile: str | None, session: AwsSession | None = None) -> Iterator[str]:
    """Looks each offering up, tries it with DryRun, buys it; a line on each step. SourceFault stops it."""
    from pricing.sources.aws_purchase import buy, find_offering, try_to_buy
    from pricing.sources.aws_session import AwsSession

    with session or AwsSession(profile) as aws:
        planned = [(wish, find_offering(aws, wish)) for wish in wishes(action) or []]
        for wish, offering in planned:
            try_to_buy(aws, offering, wish)
            yield (
                f"dry run passed: {wish.count} x {wish.instance_type} in {wish.region}, {wish.years} y, offering {offering.id}, "
                f"${offering.upfront * wish.count:,} now and ${offering.hourly * wish.count:,} an hour"
            )
        for wish, offering in planned:
            bought = buy(aws, offering, wish)
            yield f"bought {wish.count} x {wish.instance_type}: reservation {bought}; `rackrate prices owned` takes it over"
