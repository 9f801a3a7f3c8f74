"""Which hardware for a workload: every candidate's time, storage and money, and which of them no other beats in both.

Invariant: an option whose money is not known is listed as unknown and is never the cheapest; scaling all prices scales all
money and changes no order; an offer more never makes the best dearer. Every figure stands on inputs that the plan carries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import NamedTuple

from pricing.calendar import milliseconds
from pricing.catalog import CLOUDS, Catalog
from pricing.currency import Exchange
from pricing.hardware import gpus
from pricing.instances import InstanceType
from pricing.planner_candidates import Candidate, Misfit, candidates
from pricing.planner_money import Cost, Prices, Rate, billed_seconds, cheapest, cost_of
from pricing.planner_spot import HAZARD_PER_HOUR, WAIT_SECONDS, PlainSpot, Place, SpotEstimate, SpotJob, SpotModel
from pricing.planner_storage import Storage, Tier, fed_ratio, options, tiers
from pricing.planner_time import Timing, needed_rate, site_of, timing_of
from pricing.planner_workload import Workload
from pricing.terms import Terms

ONE_OFF = ("on_demand", "spot")
"""What can be bought for one job; the others bind for a year or longer, or come by the day."""


class Option(NamedTuple):
    """One candidate, its data in one place, bought in one way."""

    candidate: Candidate
    storage: Storage | None
    timing: Timing
    rate: Rate
    spot: SpotEstimate | None
    seconds: int
    """From start to end, expected."""
    billed_seconds: int
    cost: Cost
    need_bytes_per_second: float

    @property
    def usd(self) -> Fraction | None:
        return self.cost.total

    @property
    def fed(self) -> float | None:
        """Reading speed to what the GPUs would read; None without data."""
        return None if self.storage is None else fed_ratio(self.storage, self.need_bytes_per_second)

    @property
    def binding(self) -> bool:
        """It needs a commitment beyond this job."""
        return self.rate.purchase not in ONE_OFF

    def order(self) -> tuple[object, ...]:
        """Cheapest first, unknown last; then the faster, then by name."""
        shape, usd = self.candidate.shape, self.usd
        name = (
            shape.cloud,
            shape.instance_type,
            self.candidate.nodes,
            self.rate.purchase,
            self.rate.region,
            self.rate.zone or "",
        )
        place = (
            (self.storage.tier, self.storage.volume_gb, self.storage.tier_bytes_per_second) if self.storage else ("", 0.0, 0.0)
        )
        return (usd is None, usd or 0, self.seconds, *name, *place)


@dataclass(frozen=True, slots=True)
class Plan:
    """`options`: all that can be bought, cheapest first; `front`: those that nothing beats in time and money at once."""

    workload: Workload
    options: tuple[Option, ...]
    front: tuple[Option, ...]
    in_time: tuple[Option, ...]
    """Within the deadline and the budget; all, where there is neither."""
    misfits: tuple[Misfit, ...]
    reference: Plan | None
    """The hardware that the workload names, planned alone."""
    now: datetime

    @property
    def cheapest(self) -> Option | None:
        return self.front[0] if self.front else None

    @property
    def fastest(self) -> Option | None:
        """Of the front."""
        return self.front[-1] if self.front else None

    @property
    def soonest(self) -> Option | None:
        """The least time that any candidate takes, whatever it costs and whether or not that is known."""
        return min(self.options, key=lambda one: (one.seconds, one.order()), default=None)

    def usual_reason(self) -> str | None:
        """Why most types do not fit that the limits and their GPU would allow, as told of the largest GPU."""
        telling = [one for one in self.misfits if one.kind not in ("gpu", "limits")]
        kinds = Counter(one.kind for one in telling).most_common(1)
        largest = {gpu.model: gpu.memory_bytes for gpu in gpus()}
        usual = [one for one in telling if one.kind == kinds[0][0]] if kinds else []
        usual.sort(key=lambda one: -largest.get(one.gpu_model or "", 0))
        return usual[0].reason if usual else None

    def counted(self) -> Counter[str]:
        """How many types do not fit, by kind of reason."""
        return Counter(one.kind for one in self.misfits)


def plan(
    workload: Workload,
    catalog: Catalog,
    now: datetime,
    terms: Terms | None = None,
    *,
    storage: Sequence[Tier] | None = None,
    spot: SpotModel | None = None,
    every_place: bool = False,
) -> Plan:
    """Plans a workload over all clouds of the catalog. `now`: of discounts and exchange rates; `every_place`: not only the
    cheapest region of each type and purchase option. Pure: no clock, no network."""
    terms = terms or Terms()
    table = tuple(tiers() if storage is None else storage)
    prices = Prices(table, terms.exchange or Exchange(), terms.discounts, workload.prices, milliseconds(now))
    found: list[Option] = []
    misfits: list[Misfit] = []
    for shape in _shapes(workload, catalog):
        made, reasons = _of_shape(workload, shape, catalog, prices, spot or PlainSpot(), every_place)
        found.extend(made)
        misfits.extend(reasons)
    ordered = tuple(sorted(found, key=Option.order))
    in_time = tuple(one for one in ordered if late(workload, one) is None)
    front = front_of(in_time, workload.limits.purchases)
    reference = _reference(workload, catalog, now, terms, table, spot)
    return Plan(workload, ordered, front, in_time, tuple(misfits), reference, now)


def _shapes(workload: Workload, catalog: Catalog) -> Iterator[InstanceType]:
    for cloud in CLOUDS:
        for shape in catalog.instances(cloud):
            if shape.kind != "cpu":
                yield shape


def _of_shape(
    workload: Workload, shape: InstanceType, catalog: Catalog, prices: Prices, spot: SpotModel, every_place: bool
) -> tuple[list[Option], list[Misfit]]:
    """Its options, or the one reason why it has none."""
    made: list[Option] = []
    reasons: list[Misfit] = []
    rates: list[Rate] | None = None
    for one in candidates(workload, shape):
        if isinstance(one, Misfit):
            reasons.append(one)
            continue
        if rates is None:
            rates = _rates(workload, shape, catalog, prices, every_place)
            if isinstance(rates, str) or not rates:
                return [], [Misfit(shape.cloud, shape.instance_type, shape.gpu_model, "offers", _no_offer(workload))]
        options_of, why = _options(workload, one, rates, prices, spot)
        made.extend(options_of)
        if why is not None:
            reasons.append(Misfit(shape.cloud, shape.instance_type, shape.gpu_model, "storage", why))
    return made, [] if made else reasons[:1]


def _no_offer(workload: Workload) -> str:
    limits = workload.limits
    what = f" in {', '.join(limits.regions)}" if limits.regions else ""
    return f"the catalog has no offer of it{what} that may be bought"


def _rates(workload: Workload, shape: InstanceType, catalog: Catalog, prices: Prices, every_place: bool) -> list[Rate]:
    """The offers that may be bought: of each purchase option the cheapest place, and the cheapest in the data's own region."""
    allowed = workload.limits.purchases
    groups: dict[tuple[str, bool], list[Rate]] = {}
    for offer in catalog.offers(shape.cloud, instance_type=shape.instance_type):
        if allowed and offer.purchase not in allowed:
            continue
        if offer.purchase == "spot" and not workload.run.interruptible:
            continue
        if workload.limits.regions and offer.region not in workload.limits.regions:
            continue
        data = workload.data
        home = data is not None and data.region is not None and "".join(data.region.lower().split()) == offer.region
        groups.setdefault((offer.purchase, home), []).append(prices.rate(offer))
    if every_place:
        return [rate for rates in groups.values() for rate in rates]
    best = (cheapest(rates, prices) for rates in groups.values())
    return [rate for rate in best if rate is not None]


def _options(
    workload: Workload, candidate: Candidate, rates: Iterable[Rate], prices: Prices, spot: SpotModel
) -> tuple[list[Option], str | None]:
    site = site_of(workload, candidate)
    kept: list[Storage | None] = [None]
    if site is not None:
        ways, reasons = options(site, prices.storage)
        if not ways:
            return [], "; ".join(dict.fromkeys(reasons)) or "its cloud has none of the storage that is allowed"
        kept = list(ways)
    hazard = _hazard(workload) * candidate.nodes
    made = []
    for storage in kept:
        timing = timing_of(workload, candidate, storage, hazard)
        for rate in rates:
            option = _option(workload, candidate, storage, timing, rate, prices, spot)
            if option is not None:
                made.append(option)
    return made, None


def _hazard(workload: Workload) -> float:
    if not workload.run.interruptible:
        return 0.0
    told = workload.run.interruptions_per_hour
    return HAZARD_PER_HOUR if told is None else float(told)


def _option(
    workload: Workload,
    candidate: Candidate,
    storage: Storage | None,
    timing: Timing,
    rate: Rate,
    prices: Prices,
    spot: SpotModel,
) -> Option | None:
    """None: on spot it would practically never end."""
    estimate = None
    seconds = billed = billed_seconds(timing.total)
    if rate.purchase == "spot":
        estimate = spot.estimate(spot_job(workload, candidate, storage, timing, rate))
        if estimate is None:
            return None
        seconds, billed = billed_seconds(estimate.seconds), billed_seconds(estimate.billed_seconds)
    cost = cost_of(workload, rate, candidate.nodes, billed, seconds, storage, prices)
    need = needed_rate(workload, candidate)
    return Option(candidate, storage, timing, rate, estimate, seconds, billed, cost, need)


def spot_job(workload: Workload, candidate: Candidate, storage: Storage | None, timing: Timing, rate: Rate) -> SpotJob:
    """What the spot model is asked. A new node copies the data again where it lies on the node's own disks."""
    run = workload.run
    again = timing.stage if storage is not None and storage.restaged else 0.0
    return SpotJob(
        nodes=candidate.nodes,
        ready_seconds=timing.ready,
        work_seconds=timing.work,
        checkpoint_seconds=timing.checkpoint,
        every_seconds=min(timing.every, timing.work),
        changeover_seconds=float(run.changeover_seconds) + again,
        hazard_per_hour=_hazard(workload),
        wait_seconds=WAIT_SECONDS if run.spot_wait_seconds is None else float(run.spot_wait_seconds),
        deadline_seconds=None if run.deadline_seconds is None else float(run.deadline_seconds),
        place=Place(rate.cloud, rate.region, rate.zone, candidate.shape.instance_type),
        hazard_told=run.interruptions_per_hour is not None,
        wait_told=run.spot_wait_seconds is not None,
    )


def late(workload: Workload, option: Option) -> str | None:
    """Why it does not count as within the deadline and the budget; None when it does."""
    deadline, budget = workload.run.deadline_seconds, workload.limits.budget_usd
    if deadline is not None and option.seconds > deadline:
        return "takes longer than the deadline"
    chance = option.spot.late_chance if option.spot else None
    if chance is not None and chance > workload.run.late_chance:
        return f"is late with a chance of {chance:.0%}"
    if budget is not None and option.usd is not None and option.usd > budget:
        return "costs more than the budget"
    return None


def front_of(found: Iterable[Option], asked: Sequence[str] = ()) -> tuple[Option, ...]:
    """Those that no other beats in time and money at once, cheapest first.

    Unknown money is left out, and so are commitments, but for those that are `asked` for by name.
    """
    front: list[Option] = []
    for one in sorted(
        (one for one in found if one.usd is not None and (not one.binding or one.rate.purchase in asked)), key=Option.order
    ):
        if not front or one.seconds < front[-1].seconds:
            front.append(one)
    return tuple(front)


def _reference(
    workload: Workload, catalog: Catalog, now: datetime, terms: Terms, table: Sequence[Tier], spot: SpotModel | None
) -> Plan | None:
    wanted = workload.reference
    if wanted is None:
        return None
    limits = replace(
        workload.limits, gpu_models=(wanted.gpu_model,), gpus=wanted.gpus, instance_types=(), budget_usd=None,
        max_nodes=max(workload.limits.max_nodes, wanted.gpus),
    )  # fmt: skip
    data = workload.data
    if wanted.local_nvme_bytes is not None and data is not None:
        data = replace(data, tiers=("local_nvme", "attached_ssd"))
    elif wanted.local_nvme_bytes is not None:
        limits = replace(limits, local_nvme_bytes=wanted.local_nvme_bytes)
    alone = replace(workload, limits=limits, data=data, run=replace(workload.run, deadline_seconds=None), reference=None)
    return plan(alone, catalog, now, terms, storage=table, spot=spot)


__all__ = ["Option", "Plan", "front_of", "late", "plan", "spot_job"]
