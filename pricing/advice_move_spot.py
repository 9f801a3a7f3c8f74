"""Spot that runs already, in another region, cloud or type with the same GPUs: places are ranked apart for spot and on demand.

Invariant: both places are compared with their interruptions counted, and spot there is below on demand there; data counts as
for every other move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from pricing import advice_spot
from pricing.advice import HOURS_PER_MONTH, Action, Case, about, cents
from pricing.advice_move import MONTHS, REACHES, Data, data_of, moving, same_work
from pricing.advice_spot import SpotPlace, thin
from pricing.commitment_mix_owned import cloud_of
from pricing.demand import DemandKey
from pricing.instances import InstanceType


class _Target(NamedTuple):
    key: DemandKey
    place: SpotPlace
    here: Fraction
    """What an hour of work costs now; where that place's interruptions are not known, with those of the other one if better."""
    reach: str
    once: Fraction
    monthly: Fraction
    saving: Fraction


def actions(
    case: Case,
    shapes: Mapping[DemandKey, InstanceType],
    index: Mapping[int | Fraction, list[tuple[DemandKey, InstanceType]]],
) -> list[Action]:
    """Of each type and region with spot nodes the best other place of each reach. `index`: GPU count -> types on offer."""
    found = []
    for key, shape in shapes.items():
        nodes = Fraction(float(case.demand.on_spot(key)[case.demand.known].mean()))
        here = advice_spot.place_of(case, key) if nodes else None
        if here is None or shape.gpu_count is None:
            continue
        targets = [
            target
            for other, other_shape in index.get(shape.gpu_count, ())
            if same_work(case, key, shape, other, other_shape) and (target := _target(case, key, nodes, here, other)) is not None
        ]
        for reach in REACHES:
            fit = [one for one in targets if one.reach == reach]
            if fit:
                found.append(_action(case, key, nodes, here, min(fit, key=lambda one: (-one.saving, one.key))))
    return found


def _target(case: Case, key: DemandKey, nodes: Fraction, here: SpotPlace, other: DemandKey) -> _Target | None:
    place = advice_spot.place_of(case, other)
    on_demand = case.card.on_demand(key)
    if place is None or on_demand is None or place.rate.estimated:
        return None
    lost, _ = advice_spot.lost_hours(case)
    alike = advice_spot.cost_of_work(here.price, on_demand.usd_per_hour, place.risk, lost)
    now = min(here.effective, alike) if here.risk.assumed else here.effective
    if place.effective >= now or place.price >= here.price:
        return None
    reach, once, monthly = moving(case, key, other, data_of(case, key))
    saving = nodes * HOURS_PER_MONTH * (now - place.effective) - monthly - once / MONTHS
    return _Target(other, place, now, reach, once, monthly, saving) if saving > 0 else None


def _action(case: Case, key: DemandKey, nodes: Fraction, here: SpotPlace, to: _Target) -> Action:
    data, hours = data_of(case, key), nodes * HOURS_PER_MONTH
    cloud = f" of {cloud_of(case, to.key)}" if to.reach == "cloud" else ""
    far = to.reach != "type"
    low = to.saving - (to.monthly + to.once / MONTHS if far else 0)
    return Action(
        kind="move",
        what=f"run the {about(nodes)} spot {key} on spot {to.key}{cloud}",
        saving_per_month=to.saving,
        saving_range=(max(Fraction(0), low), hours * (to.here - to.place.effective)),
        evidence=_evidence(case, nodes, here, to, data),
        break_even=None,
        risks=_risks(here, to, data),
        how=(
            f"start spot nodes of {to.key.instance_type} in {to.place.zone or to.key.region}; run a job of each kind there first",
        ),
        partial=(far and data.assumed) or to.place.risk.assumed or here.risk.assumed or thin(case),
        claims={key.as_spot(): hours},
        group=f"move spot {key.cloud or ''} {key}",
    )


def _evidence(case: Case, nodes: Fraction, here: SpotPlace, to: _Target, data: Data) -> dict[str, object]:
    return {
        "hours": case.demand.known_hours,
        "days": round(case.demand.days, 1),
        "nodes_on_spot": round(float(nodes), 3),
        "spot_usd_per_hour": advice_spot.cents4(here.price),
        "effective_usd_per_hour": advice_spot.cents4(to.here),
        "hazard_source": here.risk.source,
        "to_spot_usd_per_hour": advice_spot.cents4(to.place.price),
        "to_effective_usd_per_hour": advice_spot.cents4(to.place.effective),
        "to_hazard_source": to.place.risk.source,
        "to_rate_source": to.place.rate.source,
        "to_rate_as_of": None if to.place.rate.as_of is None else to.place.rate.as_of.isoformat(),
        "move_once_usd": str(cents(to.once)),
        "transfer_usd_per_month": str(cents(to.monthly)),
        "data": "stays where it is" if to.reach == "type" else data.source,
    }


def _risks(here: SpotPlace, to: _Target, data: Data) -> tuple[str, ...]:
    found: list[str] = []
    if to.reach != "type" and data.assumed:
        found.append(f"How much data moves along is not known ({data.source}).")
    if here.history_ratio is None or to.place.history_ratio is None:
        found.append("The spot prices are of one moment, without a history.")
    places: Sequence[SpotPlace] = (here, to.place)
    if any(place.risk.assumed for place in places):
        found.append("How often spot is interrupted is not observed in both places.")
    found.append("Quota, capacity and where the data may lie are not checked.")
    return tuple(found)
