"""Policies side by side on the same starts: saving, hours, late runs, and how sure that is.

Invariant: every policy meets the same starts. Savings are against the work's hours at the on-demand price, whole ticks
billed, changeovers paid. Hours are those of work done (without changeovers), as in the paper's Table 3.

Standard errors: clustered by zone and stretch of one deadline's length, because starts that overlap see the same market
(Cameron and Miller, "A Practitioner's Guide to Cluster-Robust Inference", 2015, section II); the naive one treats starts as
independent and is too small. Zones of one region move together, so even the clustered one may be too small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pricing.spot import HOUR_MS, Array, Job, Policy, policy_of
from pricing.spot_backtest import Outcome, Worlds, simulate
from pricing.spot_hazard import SHIPPED, SpotModel, fit
from pricing.spot_optimum import optimum
from pricing.spot_own import Rackrate

REFERENCES = ("greedy", "uniform_progress")
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One policy over all starts."""

    policy: str
    runs: int
    late_runs: int
    saving_ratio: float
    standard_error: float | None
    """Clustered; None with a single cluster."""
    on_demand_hours: float
    spot_hours: float
    standard_error_naive: float | None
    billed_on_demand_hours: float
    billed_spot_hours: float
    cost: float
    """$, mean."""
    gap_closed_ratio: float | None
    """Of what lies between greedy and the omniscient optimum; None without it, or where there is no gap."""
    paired_difference: float | None
    """Saving more than Uniform Progress on the same starts; None for itself."""
    paired_standard_error: float | None
    """Clustered."""
    exact: bool = True
    """False: a bound (the omniscient optimum where changeover and tick have no common measure)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """All policies, and by zone."""

    verdicts: tuple[Verdict, ...]
    zones: Mapping[str, tuple[int, float, Mapping[str, float]]]
    """zone -> (starts, availability, policy -> saving)."""
    clusters: int
    savings: Mapping[str, Array]
    """policy -> float64 (runs,)."""


def judge(
    names: Sequence[str],
    worlds: Worlds,
    job: Job,
    *,
    models: SpotModel | Mapping[int, SpotModel] = SHIPPED,
    on_progress: Progress = lambda name: None,
) -> Judgement:
    """`models`: for our own policy, one for all zones or one for each (by its number in `worlds`)."""
    outcomes: dict[str, tuple[Outcome, bool]] = {}
    for name in dict.fromkeys((*names, *REFERENCES)):
        on_progress(name)
        outcomes[name] = _outcome(name, worlds, job, models)
    base = job.work_ms / HOUR_MS * job.on_demand
    savings = {name: 1 - outcome.cost(job) / base for name, (outcome, _) in outcomes.items()}
    clusters = worlds.zone * 1_000_000_007 + (0 if worlds.block is None else worlds.block)
    verdicts = tuple(_verdict(name, *outcomes[name], savings, clusters, job) for name in names)
    return Judgement(verdicts, _by_zone(worlds, names, savings), len(np.unique(clusters)), savings)


def _outcome(name: str, worlds: Worlds, job: Job, models: SpotModel | Mapping[int, SpotModel]) -> tuple[Outcome, bool]:
    if name == "omniscient":
        return optimum(worlds.states, job)
    if name != Rackrate.name or isinstance(models, SpotModel):
        policy: Policy = Rackrate(models) if name == Rackrate.name and isinstance(models, SpotModel) else policy_of(name)
        return simulate(policy, worlds, job), True
    parts = {zone: np.flatnonzero(worlds.zone == zone) for zone in np.unique(worlds.zone)}
    found = [simulate(Rackrate(models[int(zone)]), worlds.of(rows), job) for zone, rows in parts.items()]
    order = np.argsort(np.concatenate(list(parts.values())))
    return Outcome.joined(found, order), True


def _verdict(
    name: str, outcome: Outcome, exact: bool, savings: Mapping[str, Array], clusters: Array, job: Job
) -> Verdict:  # fmt: skip
    saving, tick = savings[name], job.tick_ms / HOUR_MS
    greedy, best = savings["greedy"].mean(), savings.get("omniscient")
    gap = None if best is None or best.mean() - greedy < 1e-9 else float((saving.mean() - greedy) / (best.mean() - greedy))
    paired = None if name == "uniform_progress" else saving - savings["uniform_progress"]
    return Verdict(
        policy=name,
        runs=len(saving),
        late_runs=int(outcome.late.sum()),
        saving_ratio=float(saving.mean()),
        standard_error=clustered(saving, clusters),
        standard_error_naive=clustered(saving, np.arange(len(saving))),
        on_demand_hours=float(outcome.on_demand_work_ms.mean() / HOUR_MS),
        spot_hours=float(outcome.spot_work_ms.mean() / HOUR_MS),
        billed_on_demand_hours=float(outcome.on_demand_ticks.mean() * tick),
        billed_spot_hours=float(outcome.spot_ticks.mean() * tick),
        cost=float(outcome.cost(job).mean()),
        gap_closed_ratio=gap,
        paired_difference=None if paired is None else float(paired.mean()),
        paired_standard_error=None if paired is None else clustered(paired, clusters),
        exact=exact,
    )


def clustered(values: Array, clusters: Array) -> float | None:
    """The standard error of the mean, values of one cluster moving together; None with a single cluster."""
    _, of = np.unique(clusters, return_inverse=True)
    count = int(of.max()) + 1 if len(of) else 0
    if count < 2:
        return None
    sums = np.bincount(of, weights=values - values.mean(), minlength=count)
    return float(np.sqrt(count / (count - 1) * (sums**2).sum()) / len(values))


def _by_zone(
    worlds: Worlds, names: Sequence[str], savings: Mapping[str, Array]
) -> dict[str, tuple[int, float, dict[str, float]]]:  # fmt: skip
    found = {}
    for number in np.unique(worlds.zone):
        rows = worlds.zone == number
        states = worlds.states[rows]
        known = (states != 2).sum()
        name = worlds.zones[int(number)] if worlds.zones else str(number)
        share = float((states == 1).sum() / known) if known else 0.0
        found[name] = (int(rows.sum()), share, {policy: float(savings[policy][rows].mean()) for policy in names})
    return found


def leave_one_out(zones: Sequence[str], traces: Mapping[str, Sequence[tuple[Array, float]]]) -> dict[int, SpotModel]:
    """A model for each zone, fitted on the traces (states, hours of a tick) of all the others."""
    return {
        number: fit([trace for place, found in traces.items() if place != zone for trace in found], f"all zones but {zone}")
        for number, zone in enumerate(zones)
    }
