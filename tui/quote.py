"""What a job would cost before it is sent: where it would run, what that costs an hour and in all, and what else there is.

Invariant: money is exact and comes from the plan of the node and from the catalog; how long it runs is measured, or the time
limit, or not known, and a figure that rests on either says on which. No clock, no network: everything is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import msgspec

from agent import wire
from pricing.weights import Weights
from tui.job_price import part_of, without_gpu

if TYPE_CHECKING:
    from pricing.budgets import BudgetState
    from pricing.catalog import Catalog, InstanceType
    from tui.fleet import Fleet, NodeView

HOUR = 3600
DONE = "exit:0"
MOST_LOOKED_AT = 50_000
"""Jobs of before among which the same one is looked for."""
Basis = Literal["measured", "calibration", "limit"]


class Measured(msgspec.Struct, frozen=True):
    """How long the same command took before, of those runs that ended well. Seconds."""

    runs: int
    middle: Fraction
    shortest: Fraction
    longest: Fraction
    elsewhere: bool = False
    """On another model of GPU."""


class Calibrated(msgspec.Struct, frozen=True):
    """How long a recipe would take, by calibrations. Seconds."""

    how: Literal["measured", "scaled", "peak"]
    seconds: Fraction
    shortest: Fraction | None
    longest: Fraction | None
    """None: no range is known."""
    why: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A node as a quote needs it."""

    node: str
    usd_per_hour: Fraction | None = None
    """Of the whole node."""
    info: wire.NodeInfo | None = None
    gpu_count: int = 0
    gpu_model: str | None = None
    """As the driver calls it."""
    gpu_memory_bytes: int | None = None


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another way to run it."""

    kind: Literal["spot", "on_demand", "type", "share"]
    what: str
    usd_per_hour: Fraction
    usd: Fraction | None
    """Expected in all; None: how long it runs is not known."""
    seconds: Fraction | None = None
    against: tuple[str, ...] = ()
    """Sentences: what speaks against it."""
    scaled: bool = False
    """Its time is not measured, but scaled by peak figures of the GPUs."""
    instance_type: str | None = None
    cloud: str | None = None
    region: str | None = None
    source: str = ""
    as_of: date | None = None


class BudgetLeft(msgspec.Struct, frozen=True):
    """Of the budget of the job's project."""

    name: str
    left: Fraction | None
    """None: what was spent is not known. Below 0: it is overdrawn."""
    amount: Fraction
    currency: str
    complete: bool


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """Amounts in US dollars, exact; None: not known."""

    node: str
    starts_now: bool
    reason: str
    gpus: str
    """`2 of 8 A100`, `half of one A100`, empty."""
    usd_per_hour: Fraction | None
    basis: Basis | None
    """What `seconds` rests on."""
    seconds: Fraction | None
    usd: Fraction | None
    """Expected."""
    limit_seconds: Fraction | None
    most_usd: Fraction | None
    """What it can come to at most: by the time limit, and no more than its own budget."""
    measured: Measured | None
    budget: BudgetLeft | None
    alternatives: tuple[Alternative, ...]
    calibrated: Calibrated | None = None
    """Of a recipe that tells its steps."""

    @property
    def over_budget(self) -> bool:
        """More is expected than the project's budget has left."""
        left = self.budget.left if self.budget is not None and self.budget.currency == "USD" else None
        cost = self.usd if self.usd is not None else self.most_usd
        return left is not None and cost is not None and cost > left


def place_of(view: NodeView) -> Place:
    """What is known of the node now."""
    totals = [gpu.memory_total_bytes for gpu in view.gpus if gpu.memory_total_bytes]
    models = [gpu.model for gpu in view.gpus if gpu.model]
    return Place(
        node=view.name, usd_per_hour=view.usd_per_hour, info=view.info, gpu_count=len(view.gpus),
        gpu_model=models[0] if models else None, gpu_memory_bytes=min(totals) if totals else None,
    )  # fmt: skip


def measured(jobs: Iterable[tuple[wire.Job, str | None]], spec: wire.JobSpec, model: str | None) -> Measured | None:
    """`jobs`: of before, with the model of their GPUs. Those on the same model count; where there is none, those on others."""
    here: list[Fraction] = []
    elsewhere: list[Fraction] = []
    for job, on in jobs:
        if job.command != spec.command or job.state != "ended" or job.cause != DONE or job.shell != spec.shell:
            continue
        if (job.gpus_wanted, job.gpu_share) != (spec.gpus, spec.gpu_share) or job.started_at is None or job.ended_at is None:
            continue
        ran = job.ended_at - job.started_at
        if ran.total_seconds() > 0:
            seconds = Fraction(ran.days * 86_400 + ran.seconds) + Fraction(ran.microseconds, 1_000_000)
            (here if on == model or without_gpu(spec) else elsewhere).append(seconds)
    found = sorted(here or elsewhere)
    if not found:
        return None
    return Measured(len(found), found[(len(found) - 1) // 2], found[0], found[-1], elsewhere=not here)


def jobs_of(fleet: Fleet) -> Iterable[tuple[wire.Job, str | None]]:
    """All jobs that the fleet knows, each with the model of its node's GPUs."""
    left = MOST_LOOKED_AT
    for view in fleet:
        model = next((gpu.model for gpu in view.gpus if gpu.model), None)
        for job in view.jobs:
            yield job.job, model
            left -= 1
        if left <= 0:
            return


def quote(
    spec: wire.JobSpec,
    plan: wire.JobPlan,
    place: Place,
    catalog: Catalog,
    *,
    before: Measured | None = None,
    budget: BudgetLeft | None = None,
    weights: Weights | None = None,
    gpu_memory_seen: int | None = None,
    share_refused: str | None = None,
    of_types: Mapping[tuple[str, str], str] = {},
    calibrated: Calibrated | None = None,
) -> Quote:
    """`of_types`: (cloud, instance type) -> a node of the fleet; `gpu_memory_seen`: what the same command holds of one GPU now; `share_refused`: why the node takes no half of a GPU."""
    from tui.quote_alternatives import Situation, alternatives

    price = _price(spec, plan, place, weights)
    limit = None if spec.time_limit_seconds is None else Fraction(spec.time_limit_seconds)
    seconds, basis = _seconds(before, calibrated, limit)
    most = cost_of(price, limit)
    if spec.budget_usd is not None:
        most = Fraction(spec.budget_usd) if most is None else min(most, Fraction(spec.budget_usd))
    situation = Situation(
        spec=spec, place=place, catalog=catalog, seconds=seconds, basis=basis, usd_per_hour=price, shape=shape_of(place, catalog),
        gpu_memory_seen=gpu_memory_seen, share_refused=share_refused, of_types=of_types,
    )  # fmt: skip
    return Quote(
        node=place.node, starts_now=plan.starts_now, reason=plan.reason, gpus=_held(spec, place, situation.shape),
        usd_per_hour=price, basis=basis, seconds=seconds, usd=cost_of(price, seconds), limit_seconds=limit, most_usd=most,
        measured=before, budget=budget, alternatives=tuple(alternatives(situation)), calibrated=calibrated,
    )  # fmt: skip


def cost_of(usd_per_hour: Fraction | None, seconds: Fraction | None) -> Fraction | None:
    return None if usd_per_hour is None or seconds is None else usd_per_hour * seconds / HOUR


def _price(spec: wire.JobSpec, plan: wire.JobPlan, place: Place, weights: Weights | None) -> Fraction | None:
    """As the node's plan says; of a job without a GPU what reports will come to, which a node does not know."""
    if plan.usd_per_hour is not None:
        return Fraction(plan.usd_per_hour)
    if not without_gpu(spec) or place.info is None or place.usd_per_hour is None:
        return None
    node = place.usd_per_hour
    exact = Decimal(node.numerator) / Decimal(node.denominator)
    return part_of(spec, place.info, exact, weights or Weights())


def _seconds(before: Measured | None, calibrated: Calibrated | None, limit: Fraction | None) -> tuple[Fraction | None, Basis | None]:
    """A run of before counts, then a calibration, but never beyond the limit at which it is stopped."""
    if before is not None:
        return (before.middle if limit is None else min(before.middle, limit)), "measured"
    if calibrated is not None:
        return (calibrated.seconds if limit is None else min(calibrated.seconds, limit)), "calibration"
    return (limit, "limit") if limit is not None else (None, None)


def _held(spec: wire.JobSpec, place: Place, shape: InstanceType | None) -> str:
    model = (shape.gpu_model if shape is not None else None) or place.gpu_model or "GPU"
    if spec.gpu_share is not None:
        return f"{spec.gpu_share.normalize():f} of one {model}"
    return f"{spec.gpus} of {place.gpu_count} {model}" if spec.gpus else ""


def shape_of(place: Place, catalog: Catalog) -> InstanceType | None:
    """The node's instance type; of a type that no table has, one made of what its driver tells."""
    from pricing.hardware import gpus
    from pricing.instances import InstanceType

    info = place.info
    found = None if info is None else catalog.instance(info.cloud, info.instance_type)
    if found is not None and found.gpu_count and found.gpu_model:
        return found
    words = (place.gpu_model or "").replace("-", " ").split()
    model = next((gpu for gpu in gpus() if gpu.model in words), None)
    if model is None or not place.gpu_count:
        return None
    near = min((gpu for gpu in gpus() if gpu.model == model.model), key=lambda gpu: abs(gpu.memory_bytes - (place.gpu_memory_bytes or 0)))
    return InstanceType(
        cloud="on_premises", instance_type="", gpu_model=near.model, gpu_count=place.gpu_count,
        gpu_memory_bytes=place.gpu_memory_bytes or near.memory_bytes, vcpus=info.cpu_count if info else None,
        memory_bytes=info.memory_total_bytes if info else None, nvme_bytes=None, network=None,
    )  # fmt: skip


def budget_left(states: Sequence[BudgetState], project: str | None) -> BudgetLeft | None:
    """Of the tightest budget of that project."""
    if not project:
        return None
    found = [
        BudgetLeft(
            state.budget.name, state.budget.amount.fraction - state.spent if state.known else None,
            state.budget.amount.fraction, state.budget.amount.currency, state.complete,
        )
        for state in states
        if (state.budget.key, state.budget.value) == ("project", project)
    ]  # fmt: skip
    return min(found, key=lambda one: (one.left is None, one.left or 0), default=None)


def types_of(fleet: Fleet) -> dict[tuple[str, str], str]:
    """(cloud, instance type) -> the first node of it."""
    found: dict[tuple[str, str], str] = {}
    for view in fleet:
        if view.info is not None and view.info.cloud and view.info.instance_type:
            found.setdefault((view.info.cloud, view.info.instance_type), view.name)
    return found


def memory_seen(fleet: Fleet, spec: wire.JobSpec) -> int | None:
    """The most memory of one GPU that a process of the same command holds now; None: none runs, or it is not told."""
    ids = {(view.name, job.job.id) for view in fleet for job in view.jobs if job.job.command == spec.command}
    return memory_of(fleet, ids)


def memory_of(fleet: Fleet, ids: set[tuple[str, str]]) -> int | None:
    """Of the jobs with these (node, id)."""
    seen = [
        process.memory_used_bytes
        for name in {name for name, _ in ids}
        if name in fleet
        for gpu in fleet[name].gpus
        for process in gpu.processes or ()
        if (name, process.job) in ids and process.memory_used_bytes
    ]
    return max(seen, default=None)
