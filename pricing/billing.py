"""How long a machine is billed for, which is not how long it ran: granularity, minimum, a free first hour.

Invariant: `billed` is never below what the rule's own words say and is a whole number of its granularity, unless it
is 0. What a report counts by default is the time that was measured; the difference is counted (as `idle_billing_cost`)
only where the terms say `[billing] count_minimum = true`, because when a machine really began and ended is not in the
usage rows: an agent starts after its machine, and a placement also ends when its configuration changes. That a cloud took
a node back is in the ledger (see `interrupted`): a first hour that is free then is free in every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

SECOND, HOUR = 1, 3600


@dataclass(frozen=True, slots=True)
class Rule:
    """The billing of one cloud and purchase option; None stands for every one."""

    cloud: str | None = None
    purchase: str | None = None
    granularity_seconds: int = SECOND
    """Time that has begun is billed whole."""
    minimum_seconds: int = 0
    first_hour_free_if_interrupted: bool = False
    """Nothing is billed when the cloud (not the user) ends the machine within its first hour."""


RULES = (
    Rule("aws", "spot", minimum_seconds=60, first_hour_free_if_interrupted=True),
    Rule("aws", "capacity_block"),
    Rule("aws", minimum_seconds=60),
    Rule("gcp", minimum_seconds=60),
    Rule("hetzner", granularity_seconds=HOUR),
    Rule(),
)
"""As the providers document them for Linux; the first that matches counts. A capacity block is paid for as a whole, in
advance. Azure and Alibaba bill by the second. Prices on premises have no such rule."""


def rule_for(cloud: str | None, purchase: str | None, overrides: Sequence[Rule] = ()) -> Rule:
    """The user's own rules before those that are documented."""
    for rule in (*overrides, *RULES):
        if rule.cloud in (None, cloud) and rule.purchase in (None, purchase or "on_demand"):
            return rule
    return Rule()


def billed(seconds: Fraction, rule: Rule, *, interrupted: bool = False) -> Fraction:
    """The seconds that are billed for a machine that ran for `seconds`; `interrupted`: the cloud took it back."""
    if seconds <= 0:
        return Fraction(0)
    if interrupted and rule.first_hour_free_if_interrupted and seconds < HOUR:
        return Fraction(0)
    longer = max(seconds, Fraction(rule.minimum_seconds))
    return Fraction(-(-longer // rule.granularity_seconds) * rule.granularity_seconds)
