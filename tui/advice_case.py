"""What advice is computed from when nothing but the ledger tells: what ran, what it costs, and the usual assumptions.

Invariant: `rackrate advise` and the app's screen of advice make the same case of the same ledger. Reads; never says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from tui.money_files import MoneyFiles

if TYPE_CHECKING:
    from agent import wire
    from pricing.advice import Action, Advice, Case, Need
    from pricing.catalog import Catalog
    from pricing.demand import Demand
    from pricing.fleet_use import FleetUse
    from pricing.ledger import Ledger
    from pricing.rate_card import RateCard
    from pricing.rates import Pricing

DAYS = 365
IDLE_DAYS = 7
IDLE_BELOW_PERCENT = 20.0
Step = Callable[[str], None]
"""Told what is done next; what it raises ends the work."""


def evidence(ledger: Ledger, start: datetime, end: datetime, idle_days: int = IDLE_DAYS) -> tuple[Demand, FleetUse | None]:
    """What ran in [start, end), and what single nodes did."""
    from pricing.calendar import milliseconds
    from pricing.demand import from_ledger
    from pricing.fleet_read import read_fleet

    span = milliseconds(start), milliseconds(end)
    return from_ledger(ledger, *span), read_fleet(ledger, *span, idle_days)


def kept_spot_history(catalog: Catalog) -> dict[str, Any]:
    """Spot prices over time as the price book keeps them; nothing without one."""
    from pricing.spot_history import CatalogHistory

    return {"spot_history": CatalogHistory(catalog)} if catalog.history is not None else {}


def case_of(
    demand: Demand,
    fleet: FleetUse | None,
    pricing: Pricing,
    now: datetime,
    told: Mapping[str, Any],
    card: RateCard | None = None,
    needs: tuple[Need, ...] = (),
    deadline: float | None = None,
) -> tuple[Case, list[str]]:
    """The case, and notes on terms that were left out. `card`: other prices than the catalog's under the terms."""
    from pricing.advice import Case
    from pricing.rate_card import CatalogCard, in_dollars

    terms, left_out = in_dollars(pricing.terms, now)
    rates = CatalogCard(pricing.catalog, pricing.terms, now) if card is None else card
    at = min(now, demand.end) if demand.known_hours else now
    return Case(demand, rates, at, terms, fleet, needs, deadline, told), list(left_out)


class Found(NamedTuple):
    """All that was found, before it is ranked: what is dismissed changes what goes together."""

    case: Case
    actions: tuple[Action, ...]
    notes: tuple[str, ...]
    at: datetime

    def ranked(self, wanted: Callable[[Action], bool]) -> Advice:
        """The advice of what is wanted."""
        from pricing.advice_rank import ranked

        return ranked(self.case, filter(wanted, self.actions), self.notes)


def find(files: MoneyFiles, jobs: Sequence[wire.Job], now: datetime, step: Step) -> Found:
    """As `rackrate advise` finds it without options. `jobs`: those that the nodes tell of. PricingError."""
    from pricing.advice import KINDS, found
    from pricing.demand import with_clouds
    from pricing.ledger import Ledger

    step("reading prices and terms")
    pricing = files.pricing()
    step("reading what ran")
    with Ledger.open(files.ledger if files.has_ledger and files.ledger is not None else ":memory:") as ledger:
        demand, fleet = evidence(ledger, now - timedelta(days=DAYS), now)
    demand = with_clouds(demand, pricing.catalog)
    told = {"idle_days": IDLE_DAYS, "idle_below": IDLE_BELOW_PERCENT / 100, **kept_spot_history(pricing.catalog)}
    if fleet is not None:
        told["jobs"] = _spot_jobs(jobs, demand, fleet)
    case, notes = case_of(demand, fleet, pricing, now, told)
    actions, more = found(case, KINDS, lambda kind, done, count: step(f"looking for what to {_WORDS[kind]} ({done + 1} of {count})"))
    step("ranking")
    return Found(case, tuple(actions), (*more, *notes), now)


_WORDS = {
    "commit": "commit to", "spot": "move to spot", "stop": "stop or shrink", "shrink": "stop or shrink", "move": "move",
    "capacity_block": "reserve in blocks",
}  # fmt: skip


def _spot_jobs(jobs: Iterable[wire.Job], demand: Demand, fleet: FleetUse) -> tuple[Any, ...]:
    from tui.advise_jobs import spot_jobs

    return spot_jobs(jobs, {node.node: node for node in fleet.nodes}, demand.start, demand.end)
