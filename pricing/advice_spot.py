"""Spot: which work could move there, to which zone, what it costs with its interruptions, and the chance to be late.

Invariant: spot is never advised at or above the on-demand rate once restarts, lost work and the hours without spot are
counted; an unknown hazard is reckoned with a high one; whether work may be interrupted is never assumed: where nobody tells,
the advice says `if` and is partial.

What an hour of work costs: spot is there for a share a of the time, and interrupted lambda times an hour; each interruption
costs d hours (changeover and the work since the last checkpoint), and without spot the work runs on demand:
a x spot x (1 + lambda d) + (1 - a) x on-demand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from pricing.advice import HOURS_PER_MONTH, Action, Case, about, cents
from pricing.advice_spot_risk import Risk, risk_of
from pricing.commitment_mix_owned import uncovered
from pricing.demand import DemandKey
from pricing.rate_card import Rate
from pricing.zones import is_local

CHANGEOVER_HOURS = 0.2
"""Boot and restore, where it was not measured: the middle of what "Can't Be Late" (NSDI 2024) measured."""
CHECKPOINT_HOURS = 0.5
"""Between checkpoints, where nobody tells: half of it is lost on average."""
HISTORY_DAYS = 30
LEAST_DAYS = 7
"""Of evidence; less is partial."""
MOST_HOURS = 0.5
"""Of a type's hours that job records must tell of, before their silence means that nothing bears interruptions."""
DEARER = Fraction(3, 2)
"""What the price of one moment may become: of GCP's GPU machines from May to August 2026 the mean until August was above 1.54
times the price of a week in one case of twenty (karpenter-provider-gcp, weekly); of AWS's p2 and p3 in early 2020 the mean of
the next month was above 1.05 times in as many (stanford-futuredata/training_on_a_dime)."""
SHOWN = 4


class SpotJob(NamedTuple):
    """One job of the records, as far as spot goes. Hours of a node."""

    name: str
    key: DemandKey
    node_hours_per_month: float
    interruptible: bool
    checkpoints: bool | None = None
    """None: not told; it is advised, and partial."""
    changeover_hours: float | None = None
    """Measured: from an end to the next attempt's first progress."""
    work_hours: float | None = None
    """Of one run; None: it goes on and on."""
    deadline_hours: float | None = None


class SpotPlace(NamedTuple):
    """Spot of a type in one zone (or region). $ per node-hour."""

    zone: str | None
    price: Fraction
    """The mean of what is known of the last 30 days; the rate of the card where no history is there."""
    now: Fraction
    effective: Fraction
    """Per hour of work."""
    risk: Risk
    rate: Rate
    history_ratio: Fraction | None
    """Share of the 30 days that the price history tells of."""


def changeover_of(attempts: Sequence[tuple[float | None, float | None, str | None]]) -> float | None:
    """Hours from a spot end to the next start, the middle one. `attempts`: (start, end, cause of the end), in seconds."""
    gaps = sorted(
        (after[0] - before[1]) / 3600
        for before, after in zip(attempts, attempts[1:], strict=False)
        if before[2] in ("spot_reclaim", "preempted") and before[1] is not None and after[0] is not None and after[0] >= before[1]
    )
    return gaps[len(gaps) // 2] if gaps else None


def interruptible(case: Case, key: DemandKey) -> Fraction | None:
    """The share of a key's work that is known to bear interruptions; None: nobody tells."""
    told = case.options.get("interruptible")
    if isinstance(told, Mapping):
        told = told.get(key, told.get(key.instance_type))
    if told is not None:
        return Fraction(str(round(float(told), 6)))  # type: ignore[arg-type]
    jobs = [job for job in _jobs(case) if job.key == key]
    whole = case.demand.per_month(key) if key in case.demand.counts else 0.0
    if not jobs or not whole:
        return None
    told_of, moving = (sum(job.node_hours_per_month for job in some) for some in (jobs, [job for job in jobs if _moves(job)]))
    if not moving and told_of < MOST_HOURS * whole:
        return None
    return Fraction(min(1.0, moving / whole))


def _jobs(case: Case) -> Sequence[SpotJob]:
    return case.options.get("jobs", ())  # type: ignore[return-value]


def _moves(job: SpotJob) -> bool:
    return job.interruptible and job.checkpoints is not False


def lost_hours(case: Case, jobs: Sequence[SpotJob] = ()) -> tuple[float, str]:
    """(what an interruption costs, where that comes from)."""
    measured = [job.changeover_hours for job in jobs if job.changeover_hours is not None]
    every = float(case.options.get("checkpoint_hours", CHECKPOINT_HOURS))  # type: ignore[arg-type]
    if measured:
        return max(
            measured
        ) + every / 2, f"changeover measured on {len(measured)} jobs (the longest), checkpoint every {every:g} h"
    told = case.options.get("changeover_hours")
    if told is not None:
        return float(told) + every / 2, f"changeover as given, checkpoint every {every:g} h"  # type: ignore[arg-type]
    return CHANGEOVER_HOURS + every / 2, f"assumed: changeover {CHANGEOVER_HOURS:g} h, checkpoint every {every:g} h"


def places(case: Case, key: DemandKey, jobs: Sequence[SpotJob] = ()) -> list[SpotPlace]:
    """Where spot is on offer in the region and cheaper than on demand, the cheapest first."""
    on_demand = case.card.on_demand(key)
    if on_demand is None:
        return []
    lost, _ = lost_hours(case, jobs)
    found = []
    for rate in case.card.rates(key, "spot"):
        if rate.zone is not None and is_local(rate.zone):
            continue  # another place, with a contract of its own
        risk = risk_of(case, key, rate.zone)
        price, known = _mean(case, key, rate)
        effective = cost_of_work(price, on_demand.usd_per_hour, risk, lost)
        if max(price, rate.usd_per_hour) < on_demand.usd_per_hour and effective < on_demand.usd_per_hour:
            found.append(SpotPlace(rate.zone, price, rate.usd_per_hour, effective, risk, rate, known))
    return sorted(found, key=lambda place: (place.effective, place.zone or ""))


def place_of(case: Case, key: DemandKey) -> SpotPlace | None:
    """The place that is reckoned with."""
    found = places(case, key, [job for job in _jobs(case) if job.key == key])
    return chosen(found) if found else None


def chosen(offered: Sequence[SpotPlace]) -> SpotPlace:
    """The cheapest by its history; of prices of one moment only, the middle one: the cheapest may be gone within the hour."""
    known = [place for place in offered if place.history_ratio is not None]
    return known[0] if known else offered[(len(offered) - 1) // 2]


def cost_of_work(spot: Fraction, on_demand: Fraction, risk: Risk, lost_hours: float) -> Fraction:
    """Per hour of work, the hours without spot on demand."""
    there, more = (
        Fraction(risk.availability).limit_denominator(10_000),
        Fraction(1 + risk.per_hour * lost_hours).limit_denominator(10_000),
    )
    return there * spot * more + (1 - there) * on_demand


def _mean(case: Case, key: DemandKey, rate: Rate) -> tuple[Fraction, Fraction | None]:
    """The mean spot price of the last days, where the history tells at least half of them."""
    history = case.options.get("spot_history")
    if history is None:
        return rate.usd_per_hour, None
    for series in history.find(instance_type=key.instance_type, zone=rate.zone):  # type: ignore[attr-defined]
        if rate.zone is not None:
            mean = history[series].mean(case.now - timedelta(days=HISTORY_DAYS), case.now)  # type: ignore[index]
            if mean.value is not None and mean.known_ratio >= Fraction(1, 2):
                return mean.value, mean.known_ratio
    return rate.usd_per_hour, None


# --- the advice ----------------------------------------------------------------------------------------------------------


def notes(case: Case) -> list[str]:
    """Work that could be cheaper on spot, if its jobs were said to bear interruptions."""
    found = []
    for key, hours in uncovered(case).items():
        if _jobs(case) and "interruptible" not in case.options and interruptible(case, key) == 0:
            place, on_demand = place_of(case, key), case.card.on_demand(key)
            if place is not None and on_demand is not None:
                saving = Fraction(float(hours.mean())) * HOURS_PER_MONTH * (on_demand.usd_per_hour - place.effective)
                found.append(
                    f"{key}: none of its jobs is marked as interruptible (`rackrate run --interruptible`); spot would save up "
                    f"to ${float(saving):,.0f} a month."
                )
    return found


def actions(case: Case) -> list[Action]:
    """One per type and region whose work would be cheaper on spot."""
    left = uncovered(case)
    found = []
    for key, hours in left.items():
        jobs = [job for job in _jobs(case) if job.key == key]
        share = interruptible(case, key)
        if share == 0:
            continue
        offered = places(case, key, jobs)
        if offered:
            found.append(_action(case, key, float(hours.mean()), share, offered, jobs))
    return [action for action in found if action.saving_per_month > 0]


def _action(
    case: Case, key: DemandKey, nodes: float, share: Fraction | None, offered: Sequence[SpotPlace], jobs: Sequence[SpotJob]
) -> Action:
    moving = [job for job in jobs if _moves(job)]
    best, on_demand = chosen(offered), case.card.on_demand(key)
    assert on_demand is not None  # noqa: S101 - `places` asked for it
    hours = Fraction(nodes) * HOURS_PER_MONTH * (1 if share is None else share)
    saving = hours * (on_demand.usd_per_hour - best.effective)
    lost, lost_from = lost_hours(case, moving)
    worse = best.risk._replace(
        per_hour=2 * best.risk.per_hour, availability=best.risk.availability / (2 - best.risk.availability)
    )
    dear = max(best.now, best.price)
    if best.history_ratio is None:
        dear = min(on_demand.usd_per_hour, dear * DEARER)
    low = hours * (on_demand.usd_per_hour - cost_of_work(dear, on_demand.usd_per_hour, worse, lost))
    high = hours * (on_demand.usd_per_hour - min(min(place.price, place.now) for place in offered))
    where = best.zone or key.region
    told = f" ({len(moving)} jobs: {', '.join(job.name for job in moving[:SHOWN])})" if moving else ""
    condition = "if interruptible: " if share is None else ""
    chance = _deadline(case, key, best, moving, on_demand.usd_per_hour)
    return Action(
        kind="spot",
        what=f"{condition}run {about(hours / HOURS_PER_MONTH)} {key} on spot in {where}{told}",
        saving_per_month=saving,
        saving_range=(Fraction(0) if share is None else max(Fraction(0), min(low, saving)), max(high, saving)),
        evidence=_evidence(case, key, nodes, share, offered, moving, lost, lost_from) | chance,
        break_even=_break_even(best, on_demand.usd_per_hour, lost),
        risks=_risks(case.demand.days, best, share, moving, chance),
        how=_how(key, best, moving),
        partial=share is None or best.risk.assumed or thin(case) or any(job.checkpoints is None for job in moving),
        claims={key: hours},
    )  # fmt: skip


def thin(case: Case) -> bool:
    """Evidence that tells too little."""
    return case.demand.partial or case.demand.days < LEAST_DAYS


def _evidence(
    case: Case, key: DemandKey, nodes: float, share: Fraction | None, offered: Sequence[SpotPlace], jobs: Sequence[SpotJob],
    lost: float, lost_from: str,
) -> dict[str, object]:  # fmt: skip
    best, on_demand = chosen(offered), case.card.on_demand(key)
    return {
        "on_demand_usd_per_hour": None if on_demand is None else cents4(on_demand.usd_per_hour),
        "hours": case.demand.known_hours,
        "days": round(case.demand.days, 1),
        "nodes_on_demand": round(nodes, 3),
        "share_on_spot_now": spot_share(case, key),
        "interruptible_share": None if share is None else round(float(share), 4),
        "jobs": [job.name for job in jobs],
        "spot_usd_per_hour": cents4(best.price),
        "spot_usd_per_hour_now": cents4(best.now),
        "effective_usd_per_hour": cents4(best.effective),
        "price_source": best.rate.source,
        "price_as_of": None if best.rate.as_of is None else best.rate.as_of.isoformat(),
        "history_ratio": None if best.history_ratio is None else round(float(best.history_ratio), 3),
        "interruptions_per_hour": round(best.risk.per_hour, 4),
        "availability_ratio": round(best.risk.availability, 3),
        "hazard_source": best.risk.source,
        "interrupted_percent": best.risk.bucket,
        "lost_hours_per_interruption": round(lost, 3),
        "lost_hours_source": lost_from,
        "time_ratio": round((1 + best.risk.per_hour * lost), 3),
        "time_ratio_spot_only": round((1 + best.risk.per_hour * lost) / best.risk.availability, 3),
        "zones": {str(place.zone or key.region): cents4(place.effective) for place in offered[:SHOWN]},
    }


def cents4(amount: Fraction) -> str:
    """$ per hour, four places: what is shown, never reckoned with."""
    return f"{float(amount):.4f}"


def spot_share(case: Case, key: DemandKey) -> float:
    whole = float(case.demand.counts[key][case.demand.known].sum())
    return round(float(case.demand.on_spot(key)[case.demand.known].sum()) / whole, 4) if whole else 0.0


def _break_even(best: SpotPlace, on_demand: Fraction, lost: float) -> dict[str, object]:
    """The spot price, and the interruptions an hour, from which on it saves nothing."""
    price = on_demand / Fraction(1 + best.risk.per_hour * lost)
    hazard = (float(on_demand / best.price) - 1) / lost if lost else math.inf
    return {
        "spot_usd_per_hour": cents4(price),
        "interruptions_per_hour": None if math.isinf(hazard) else round(hazard, 2),
        "text": "Above this spot price, or with more interruptions, on demand is cheaper.",
    }


def _deadline(case: Case, key: DemandKey, best: SpotPlace, jobs: Sequence[SpotJob], on_demand: Fraction) -> dict[str, object]:
    """Expected time, cost and chance to be late of the job with the least room, by our policy on the fitted model."""
    told = [(job.work_hours, job.deadline_hours or case.deadline_hours) for job in jobs] or _longest(case, key)
    dated = [(work, deadline) for work, deadline in told if work and deadline]
    if not dated:
        return {}
    from pricing.errors import PricingError
    from pricing.spot import expected
    from pricing.spot_hazard import SpotModel

    work, deadline = max(dated, key=lambda pair: pair[0] / pair[1])
    back = max(0.05, (1 - best.risk.availability) / max(best.risk.availability * best.risk.per_hour, 1e-6))
    measured = [job.changeover_hours for job in jobs if job.changeover_hours is not None]
    changeover = max(measured, default=float(case.options.get("changeover_hours", CHANGEOVER_HOURS)))  # type: ignore[arg-type]
    try:
        one = expected(
            "rackrate", SpotModel.of_hazard(best.risk.per_hour, back), work_hours=work, deadline_hours=deadline,
            changeover_hours=changeover, on_demand=float(on_demand), spot=float(best.price),
        )  # fmt: skip
    except (PricingError, NotImplementedError) as fault:
        return {"deadline": str(fault) or "not known"}
    return {
        "deadline": {
            "work_hours": work, "deadline_hours": deadline, "policy": one.policy, "finish_hours": round(one.finish_hours, 2),
            "cost": str(cents(Fraction(one.cost))), "on_demand_cost": str(cents(Fraction(one.on_demand_cost))),
            "late_chance": one.late_chance, "spot_hours": round(one.spot_hours, 2),
            "on_demand_hours": round(one.on_demand_hours, 2),
            "source": one.source,
        }
    }  # fmt: skip


def _longest(case: Case, key: DemandKey) -> list[tuple[float | None, float | None]]:
    """The longest job of the ledger on these nodes, where a deadline is told and no job records are there."""
    if case.fleet is None or case.deadline_hours is None:
        return []
    hours = [job.node_hours / max(1, len(job.nodes)) for job in case.fleet.jobs if job.key == key and job.name.job is not None]
    return [(max(hours), case.deadline_hours)] if hours else []


def _risks(
    days: float, best: SpotPlace, share: Fraction | None, jobs: Sequence[SpotJob], chance: Mapping[str, object]
) -> tuple[str, ...]:
    found = []
    if days < LEAST_DAYS:
        found.append(f"The evidence is {days:.1f} days, too short to tell what a month is like.")
    if share is None:
        found.append(
            "Whether this work bears interruptions is not known: it saves nothing where it does not (--interruptible tells)."
        )
    if any(job.checkpoints is None for job in jobs):
        found.append("Whether these jobs write checkpoints is not told: without them an interruption costs all that was done.")
    if best.risk.assumed:
        found.append(f"How often spot is interrupted here is not observed: reckoned with {best.risk.source}.")
    if best.history_ratio is None:
        found.append(
            "The price is of one moment, without a history (the low end reckons with half as much again): spot prices move "
            "between 10 % of on-demand and all of it."
        )
    if best.rate.estimated:
        found.append(f"The spot price is an estimate ({best.rate.source}).")
    if jobs and not chance:
        found.append("Without a deadline a job may wait for spot; with one, run it with a policy that falls back to on-demand.")
    found.append("A price or interruption rate above the break-even makes on-demand the cheaper one.")
    return tuple(found)


def _how(key: DemandKey, best: SpotPlace, jobs: Sequence[SpotJob]) -> tuple[str, ...]:
    run = ["rackrate run --interruptible -- COMMAND"]
    if key.cloud not in ("aws", None):
        return (*run, f"start the nodes of {key.instance_type} as spot in {best.zone or key.region}")
    place = f" --placement AvailabilityZoneId={best.zone}" if best.zone else ""
    return (
        *run,
        f"aws ec2 run-instances --region {key.region} --instance-type {key.instance_type}{place} "
        "--launch-template LaunchTemplateName=TEMPLATE --instance-market-options MarketType=spot",
    )
