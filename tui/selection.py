"""What some nodes cost: per hour, idle, and today so far; the same for the app's status line and `rackrate nodes --sum`.

Invariant: the sum is over exactly the nodes that are named, exact, each node of the ledger once; what is not known adds nothing
and is said. Today is the calendar day of the reader's zone, from the ledger as it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from tui.fleet import Fleet, NodeView, Totals
from tui.fleet_totals import exact_sum

if TYPE_CHECKING:
    from pricing.attribution import CostSummary
    from pricing.ledger import Ledger
    from pricing.rates import Pricing
    from pricing.report import Report


class DayCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What today cost so far, in USD, by the names under which agents write their usage."""

    costs: dict[str, Fraction] = {}
    """Nodes of which at least a part has a price."""
    partial: frozenset[str] = frozenset()
    """Nodes of which some time has no price."""
    missing: bool = False
    """Usage rows of somebody were lost before they were taken."""


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over some nodes. `today` None: nothing of it is known; `today_partial`: some part of it is not."""

    totals: Totals
    today: Fraction | None = None
    today_partial: bool = False


def so_far(ledger: Ledger, pricing: Pricing, now: datetime, tz: str) -> CostSummary:
    """As `pricing.attribution.cost_summary`, with today by node."""
    from pricing import calendar
    from pricing.attribution import CostSummary, attribute

    def until_now(since: datetime, by: tuple[str, ...]) -> Report:
        return attribute(
            ledger, pricing.catalog, since, moment, by, tz=tz, terms=pricing.terms, book=pricing.book, now=moment
        )

    today = calendar.day_start(now, tz)
    moment = max(now, today + timedelta(milliseconds=1))
    return CostSummary(until_now(today, ("node",)), until_now(calendar.month_start(now, tz), ()))


def day_costs(today: Report) -> DayCosts:
    """Of a report by node."""
    from pricing.grouping import LABELS

    rows = [(row.keys[0], row) for row in today.rows if row.keys[0] not in LABELS]
    return DayCosts(
        costs={node: Fraction(cost) for node, row in rows if (cost := row.total_cost) is not None},
        partial=frozenset(node for node, row in rows if not row.complete),
        missing=bool(today.missing),
    )


def ledger_name(view: NodeView) -> str:
    """What its agent calls itself: the ledger knows it by that."""
    return view.info.node if view.info is not None else view.name


def selected(
    fleet: Fleet, names: Iterable[str] | None, now: float, day: DayCosts | None, totals: Totals | None = None
) -> Selected:
    """Over the nodes of those names, or over all. `day` None: the ledger was not read. `totals`: theirs, where they are known."""
    chosen = None if names is None else list(names)
    totals = totals or fleet.totals(now, chosen)
    if day is None:
        return Selected(totals=totals)
    views = list(fleet) if chosen is None else [fleet[name] for name in chosen]
    nodes = {ledger_name(view) for view in views}
    known = nodes & day.costs.keys()
    partial = day.missing or len(known) < len(nodes) or not known.isdisjoint(day.partial)
    if not known:
        return Selected(totals=totals, today=None, today_partial=partial)
    return Selected(totals=totals, today=_sum(day.costs[node] for node in known), today_partial=partial)


def _sum(costs: Iterable[Fraction]) -> Fraction:
    """By denominator first: adding a thousand fractions one by one costs ten times as much."""
    parts: dict[int, int] = {}
    for cost in costs:
        parts[cost.denominator] = parts.get(cost.denominator, 0) + cost.numerator
    return exact_sum(parts)
