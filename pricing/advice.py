"""Advice: what to buy, stop, shrink or move, ranked by what it saves a month, with the evidence beside each.

Invariant: only a saving above 0 is told; every figure follows from the demand, the rates and the terms that were given, so it
can be computed again; savings of the same node-hours are never added twice (`Advice.together`). Pure: no clock, no I/O.

Each kind of advice is a module with `actions(case: Case) -> list[Action]` and, where it could not judge something,
`notes(case: Case) -> list[str]` (sentences).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pricing.demand import Demand, DemandKey
from pricing.money import to_decimal
from pricing.owned import Commitment
from pricing.rate_card import HOURS_PER_MONTH, RateCard
from pricing.terms import Terms

if TYPE_CHECKING:
    from pricing.fleet_use import FleetUse

__all__ = ["HOURS_PER_MONTH", "KINDS", "Action", "Advice", "Call", "Case", "Need", "advise", "cents", "found"]

KINDS = ("commit", "spot", "stop", "shrink", "move", "capacity_block")
SCALABLE = ("spot", "move")
"""What can be done for a part of the node-hours, for that part of the saving."""
MODULES = {
    "stop": "advice_idle", "shrink": "advice_idle", "commit": "advice_commit", "spot": "advice_spot",
    "move": "advice_move", "capacity_block": "advice_capacity",
}  # fmt: skip


@dataclass(frozen=True)
class Need:
    """A dated need: `nodes` of a type from `starts_at` to `ends_at`. For capacity blocks."""

    key: DemandKey
    nodes: int
    starts_at: datetime
    ends_at: datetime
    name: str = ""


@dataclass(frozen=True)
class Case:
    """All that advice is computed from."""

    demand: Demand
    card: RateCard
    now: datetime
    terms: Terms = field(default_factory=Terms)
    """Owned commitments and egress items; the discounts are in the card's rates already."""
    fleet: FleetUse | None = None
    """What single nodes, GPUs and jobs did; None when only a usage file tells."""
    needs: tuple[Need, ...] = ()
    deadline_hours: float | None = None
    """How long a job may take that needs `spot` to finish it in time; None: not told."""
    options: Mapping[str, object] = field(default_factory=dict)
    """More, by name: what only one kind of advice asks for."""


@dataclass(frozen=True)
class Call:
    """One call of a cloud's API, as boto3 takes it. What has to be looked up first stands in angle brackets: `<id of gpu-01>`.

    A purchase is two calls: the one that lists offers (`describe_reserved_instances_offerings`, ...) with all its filters,
    then the one that buys, with `<ReservedInstancesOfferingId>` in the place of the answer.
    """

    service: str
    region: str
    operation: str
    """As a method: `purchase_reserved_instances_offering`."""
    parameters: Mapping[str, Any]
    note: str = ""
    """What has to be looked up first, or why it is not made."""


@dataclass(frozen=True)
class Action:
    """One thing to do. Money in USD; a month has 730 hours."""

    kind: str
    what: str
    """One line that names what and how many."""
    saving_per_month: Fraction
    saving_range: tuple[Fraction, Fraction]
    """(low, high), both told as far as the evidence goes."""
    evidence: Mapping[str, object]
    """What it rests on: hours, days, nodes, jobs, rates with source and date, look-back windows, ..."""
    break_even: Mapping[str, object] | None
    """utilisation, hours_per_month, date; None where it costs nothing."""
    risks: tuple[str, ...]
    """What would make it wrong."""
    how: tuple[str, ...]
    """Commands, as they are typed."""
    partial: bool = False
    """Something that it rests on is not known; a risk says what."""
    claims: Mapping[DemandKey, Fraction] = field(default_factory=dict)
    """Node-hours a month whose payment it changes: no two actions may save on the same ones. Those that run on spot already
    are claimed under `DemandKey.as_spot`."""
    nodes: tuple[str, ...] = ()
    """Nodes that it changes."""
    group: str = ""
    """Of actions with the same (non-empty) group only one can be done: other terms, other places for the same work."""
    buys: tuple[Commitment, ...] = ()
    """What it buys, for judging it on later usage."""
    calls: tuple[Call, ...] = ()
    """The API calls that do it."""


@dataclass(frozen=True)
class Advice:
    """Ranked actions, and which of them go together."""

    actions: tuple[Action, ...]
    overlaps: tuple[tuple[int, ...], ...]
    """For each action the places of those that change the same node-hours or nodes, or of which only one can be done."""
    together: tuple[int, ...]
    """Places of actions that can all be done: first what rests on nothing unknown, each time what saves most."""
    shares: Mapping[int, Fraction]
    """Place -> how much of its saving counts there: less than 1 where others leave a part of the hours (`SCALABLE`)."""
    saving_per_month: Fraction
    """Of those together."""
    saving_range: tuple[Fraction, Fraction]
    spend_per_month: Fraction | None
    """What the evidence costs a month as it is bought; None when no price is known."""
    notes: tuple[str, ...]
    partial: bool

    @property
    def sure_per_month(self) -> Fraction:
        """Of those together, what rests on nothing unknown."""
        sure = ((self.actions[place], share) for place, share in self.shares.items() if not self.actions[place].partial)
        return sum((action.saving_per_month * share for action, share in sure), Fraction(0))


def about(count: Fraction) -> str:
    """`2.5`, `3`: how many, to a tenth, of a whole number without it."""
    return f"{float(count):.1f}".removesuffix(".0")


def cents(amount: Fraction) -> Decimal:
    """To the cent, half to even."""
    return to_decimal(amount, 2)


def advise(
    case: Case,
    kinds: Iterable[str] = KINDS,
    *,
    more_notes: Sequence[str] = (),
    wanted: Callable[[Action], bool] = lambda action: True,
) -> Advice:
    """All advice of these kinds that is `wanted`. PricingError where the case itself is wrong."""
    from pricing.advice_rank import ranked

    actions, notes = found(case, kinds)
    return ranked(case, filter(wanted, actions), (*notes, *more_notes))


def found(
    case: Case, kinds: Iterable[str] = KINDS, on_step: Callable[[str, int, int], None] = lambda kind, done, count: None
) -> tuple[list[Action], list[str]]:
    """The actions of these kinds in no order, and the notes. `on_step`: the kind that is looked for next, how many are done
    and how many there are; what it raises ends the search."""
    wanted = [kind for kind in KINDS if kind in set(kinds)]
    actions: list[Action] = []
    notes: list[str] = []
    names = dict.fromkeys(MODULES[kind] for kind in wanted)
    for done, name in enumerate(names):
        on_step(next(kind for kind in wanted if MODULES[kind] == name), done, len(names))
        module = importlib.import_module(f"pricing.{name}")
        actions += [action for action in module.actions(case) if action.kind in wanted]
        notes += module.notes(case) if hasattr(module, "notes") else []
    return actions, notes
