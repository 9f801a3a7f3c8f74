"""Which pieces of advice go together: overlaps, the best set that can be done at once, and what is spent now.

Invariant: in `together` no node is changed twice, no node-hour is saved on twice, and of each group there is one at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from pricing.advice import HOURS_PER_MONTH, KINDS, SCALABLE, Action, Advice, Case
from pricing.demand import DemandKey

LEAST_SHARE = Fraction(1, 100)
TOLERANCE = Fraction(1, 1_000_000)
"""Of a key's node-hours: sums of measured times are floats."""


def ranked(case: Case, found: Iterable[Action], notes: Sequence[str]) -> Advice:
    """The actions by what they save, largest first; ties by kind and words."""
    actions = tuple(
        sorted(
            (action for action in found if action.saving_per_month > 0),
            key=lambda action: (-action.saving_per_month, KINDS.index(action.kind), action.what),
        )
    )
    hours = _node_hours(case, actions)
    shares = chosen(actions, hours)
    spend, spend_notes = _spend(case)
    told = (*case.demand.notes, *notes, *spend_notes, *case.card.notes)
    return Advice(
        actions=actions,
        overlaps=tuple(
            tuple(other for other in range(len(actions)) if other != one and collide(actions[one], actions[other], hours))
            for one in range(len(actions))
        ),
        together=tuple(sorted(shares)),
        shares=shares,
        saving_per_month=sum((actions[place].saving_per_month * share for place, share in shares.items()), Fraction(0)),
        saving_range=_range(actions, shares),
        spend_per_month=spend,
        notes=tuple(dict.fromkeys(told)),
        partial=case.demand.partial or bool(spend_notes),
    )


def _range(actions: Sequence[Action], shares: Mapping[int, Fraction]) -> tuple[Fraction, Fraction]:
    low, high = (
        sum((actions[place].saving_range[end] * share for place, share in shares.items()), Fraction(0)) for end in (0, 1)
    )
    return low, high


def _node_hours(case: Case, actions: Sequence[Action]) -> dict[DemandKey, Fraction]:
    """What there is to claim of each key in a month; what runs on spot already apart (`DemandKey.as_spot`)."""
    demand, hours = case.demand, {}
    claimed = {key for action in actions for key in action.claims}
    for key in demand.counts if demand.known_hours else ():
        parts = {key: demand.committable(key), key.as_spot(): demand.on_spot(key)[demand.known]}
        hours |= {one: Fraction(HOURS_PER_MONTH * float(part.mean())) for one, part in parts.items() if one in claimed}
    return hours


def collide(one: Action, other: Action, hours: dict[DemandKey, Fraction]) -> bool:
    """Whether their savings cannot be added."""
    if one.group and one.group == other.group:
        return True
    if set(one.nodes) & set(other.nodes):
        return True
    shared = set(one.claims) & set(other.claims)
    return any(key in hours and one.claims[key] + other.claims[key] > hours[key] * (1 + TOLERANCE) for key in shared)


def chosen(actions: Sequence[Action], hours: Mapping[DemandKey, Fraction]) -> dict[int, Fraction]:
    """Place -> share: each action that nothing chosen before it stands against; what is sure before what is partial."""
    left = dict(hours)
    groups: set[str] = set()
    nodes: set[str] = set()
    shares: dict[int, Fraction] = {}
    for place in sorted(range(len(actions)), key=lambda place: (actions[place].partial, place)):
        action = actions[place]
        if (action.group and action.group in groups) or nodes & set(action.nodes):
            continue
        share = _share(action, left, hours)
        if not share:
            continue
        for key, amount in action.claims.items():
            if key in left:
                left[key] = max(Fraction(0), left[key] - amount * share)
        groups |= {action.group} if action.group else set()
        nodes |= set(action.nodes)
        shares[place] = share
    return shares


def _share(action: Action, left: Mapping[DemandKey, Fraction], hours: Mapping[DemandKey, Fraction]) -> Fraction:
    """How much of it the node-hours that are left allow; 0 where it does not fit."""
    parts = [left[key] / amount for key, amount in action.claims.items() if key in left and amount]
    part = min(parts, default=Fraction(1))
    if part * (1 + TOLERANCE) >= 1:
        return Fraction(1)
    return part if action.kind in SCALABLE and part >= LEAST_SHARE else Fraction(0)


def _spend(case: Case) -> tuple[Fraction | None, list[str]]:
    """What the evidence costs a month as it is bought and covered."""
    from pricing.advice_cost import cost_of

    if not case.demand.known_hours:
        return None, []
    cost = cost_of(case.demand, case.card, case.terms.commitments)
    notes = [unpriced_note(case, key, purchase) for key, purchase in cost.unpriced]
    if not cost.priced_hours and not cost.committed:
        return None, notes
    return cost.total * HOURS_PER_MONTH / case.demand.known_hours, notes


def unpriced_note(case: Case, key: DemandKey, purchase: str) -> str:
    """Why some of the demand is in no figure."""
    why_not = getattr(case.card, "why_not", None)
    reason = why_not(key, purchase) if why_not is not None else None
    what = f"{key} ({purchase.replace('_', ' ')}) has no known price: it is in no saving and in no cost."
    return f"{what} {reason.partition(';')[0].rstrip('.')}." if reason else what
