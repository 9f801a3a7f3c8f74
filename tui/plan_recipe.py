"""What training a recipe would take and cost: on every instance type that the catalog knows, and on a job's own node.

Invariant: every row says whether its speed was measured, scaled or taken from peak figures; money is exact in the speed and
the price that it rests on, and what has no known price is last. Start-up, staging of data and checkpoints are not in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tui.errors import RackrateError, WrongUsage
from tui.quote import Calibrated, Place, cost_of, shape_of

if TYPE_CHECKING:
    from agent import wire
    from pricing.calibration import Calibration, Estimate, Target, Work
    from pricing.catalog import Catalog
    from pricing.instances import InstanceType
    from pricing.planner_money import Prices, Rate
    from pricing.planner_workload import Measured

MILLION = 1_000_000
PRICED = ("vision", "language", "recommender")
SMALLEST_RATE = 1e-9


class Asked(NamedTuple):
    """How much training."""

    recipe: str
    settings: Mapping[str, Any]
    samples: Fraction
    epoch_samples: Fraction | None
    """None: how many the data have is not known."""

    @property
    def work(self) -> Work:
        from pricing.calibration import Work

        return Work(
            recipe=self.recipe, settings=self.settings, batch_size=self.settings["batch_size"], precision=self.settings["precision"]
        )

    @property
    def tokens_per_sample(self) -> int | None:
        return self.settings.get("context") if self.recipe == "language" else None


class Row(NamedTuple):
    """One instance type at its cheapest place, or a node that was measured. Seconds and US dollars of the whole run."""

    cloud: str | None
    region: str | None
    instance_type: str | None
    node: str | None
    gpu_model: str
    gpus: int
    estimate: Estimate
    usd_per_hour: Fraction | None
    purchase: str | None
    as_of: date | None
    source: str
    seconds: Fraction
    shortest: Fraction | None
    longest: Fraction | None

    @property
    def usd(self) -> Fraction | None:
        return cost_of(self.usd_per_hour, self.seconds)

    def per_samples(self, samples: Fraction | None) -> Fraction | None:
        """Dollars of so many."""
        if samples is None:
            return None
        return cost_of(self.usd_per_hour, samples / rate_of(self.estimate.samples_per_second))

    def order(self) -> tuple[object, ...]:
        return (self.usd is None, self.usd or 0, self.seconds, self.cloud or "", self.instance_type or "", self.node or "")


class Found(NamedTuple):
    """`left_out`: why types have no row, with how many."""

    rows: list[Row]
    left_out: Counter[str]
    late: int
    """Rows that the deadline took away."""
    soonest: Row | None


class Wish(NamedTuple):
    """Which types, how paid, by when."""

    purchases: tuple[str, ...] = ("on_demand",)
    clouds: tuple[str, ...] = ()
    gpu_models: tuple[str, ...] = ()
    gpus: int | None = None
    deadline_seconds: float | None = None


def asked(
    recipe: str, sets: Mapping[str, object], where: str, *, steps: int | None = None, epochs: Fraction | None = None,
    samples: Fraction | None = None, epoch_samples: Fraction | None = None,
) -> Asked:  # fmt: skip
    """Raises `WrongUsage`."""
    from tui import recipes

    if recipe not in PRICED:
        recipes.defaults(recipe)
        raise WrongUsage(f"--recipe {recipe}: it trains nothing by samples; {', '.join(PRICED)} do.")
    settings = recipes.settings(recipe, sets, where)
    if settings["batch_size"] < 1 or settings["steps"] < 1:
        raise WrongUsage(f"{where}: batch_size and steps have to be at least 1.")
    if epoch_samples is None and not settings["data"]:
        epoch_samples = Fraction(settings["samples"])
    if epochs is not None:
        if epoch_samples is None:
            raise WrongUsage("--epochs: how many samples the data have is not known here; say so with --epoch-samples.")
        samples = epochs * epoch_samples
    if samples is None:
        samples = Fraction((steps or settings["steps"]) * settings["batch_size"])
    return Asked(recipe, settings, samples, epoch_samples)


def rows(ask: Asked, wish: Wish, catalog: Catalog, prices: Prices, kept: Sequence[Calibration]) -> Found:
    """Cheapest first."""
    from pricing.catalog import CLOUDS

    estimating = Estimating(ask.work, kept)
    found, left_out = list(_of_nodes(ask, wish, catalog, estimating)), Counter[str]()
    for cloud in wish.clouds or CLOUDS:
        for shape in catalog.instances(cloud):
            if shape.kind == "cpu" or (wish.gpu_models and (shape.gpu_model or "").lower() not in wish.gpu_models):
                continue
            one = _of_type(ask, wish, shape, catalog, prices, estimating)
            if isinstance(one, str):
                left_out[one] += 1
            else:
                found.append(one)
    found.sort(key=Row.order)
    limit = wish.deadline_seconds
    in_time = [row for row in found if limit is None or row.seconds <= limit]
    soonest = min(found, key=lambda row: row.seconds, default=None)
    return Found(in_time, left_out, len(found) - len(in_time), soonest)


class Estimating:
    """Types that differ in their name alone are judged once."""

    def __init__(self, work: Work, kept: Sequence[Calibration]) -> None:
        self.work, self.kept = work, kept
        self._known: dict[object, Estimate | str] = {}

    def of(self, target: Target) -> Estimate | str:
        from pricing.calibration import estimate

        gpu = target.gpu
        key = (gpu and (gpu.model, gpu.form, gpu.memory_bytes), target.count, target.wiring.inside, target.node) if gpu else None
        if key is None:
            return estimate(self.work, target, self.kept)
        if key not in self._known:
            self._known[key] = estimate(self.work, target, self.kept)
        return self._known[key]


def _of_type(ask: Asked, wish: Wish, shape: InstanceType, catalog: Catalog, prices: Prices, estimating: Estimating) -> Row | str:
    from pricing.calibration import target_of

    target = target_of(shape, wish.gpus)
    if isinstance(target, str):
        return target
    rate = _rate(shape, wish, catalog, prices)
    if rate is None:
        return f"the catalog has no {' or '.join(wish.purchases)} offer of it"
    found = estimating.of(target)
    if isinstance(found, str):
        return found
    usd = prices.in_usd(rate.per_hour, rate.currency)
    return _row(ask, target, found, rate.cloud, rate.region, rate.instance_type, None, usd, rate)


def _rate(shape: InstanceType, wish: Wish, catalog: Catalog, prices: Prices) -> Rate | None:
    from pricing.planner_money import cheapest

    offers = catalog.offers(shape.cloud, instance_type=shape.instance_type)
    return cheapest([prices.rate(offer) for offer in offers if offer.purchase in wish.purchases], prices)


def _of_nodes(ask: Asked, wish: Wish, catalog: Catalog, estimating: Estimating) -> Iterable[Row]:
    """Machines that were measured and are of no type that the catalog prices as a GPU's."""
    from pricing.calibration import Target

    newest = {one.node or one.host: one for one in sorted(estimating.kept, key=lambda one: one.measured_at)}
    for name, one in newest.items():
        shape = catalog.instance(one.cloud, one.instance_type)
        if name is None or (shape is not None and shape.gpu_count and one.gpu):
            continue
        if (wish.clouds and one.cloud not in wish.clouds) or (wish.gpu_models and (one.row is None or one.row.model.lower() not in wish.gpu_models)):
            continue
        count = (wish.gpus or one.gpu_count or one.ranks) if one.gpu else 0
        if (wish.gpus and not one.gpu) or count > max(one.gpu_count, one.ranks):
            continue
        target = Target(gpu=one.row if one.gpu else None, count=count, cloud=one.cloud, instance_type=one.instance_type, node=name)
        found = estimating.of(target)
        if not isinstance(found, str) and (target.gpu is not None or not one.gpu):
            usd = Fraction(one.usd_per_hour) if one.usd_per_hour else None
            yield _row(ask, target, found, one.cloud, one.region, one.instance_type, name, usd, None)


def _row(
    ask: Asked, target: Target, found: Estimate, cloud: str | None, region: str | None, kind: str | None, node: str | None,
    usd_per_hour: Fraction | None, rate: Rate | None,
) -> Row:  # fmt: skip
    shortest = None if found.high is None else ask.samples / rate_of(found.high)
    longest = None if found.low is None or found.low <= SMALLEST_RATE else ask.samples / rate_of(found.low)
    return Row(
        cloud, region, kind, node, target.gpu.model if target.gpu else "CPU", target.count, found, usd_per_hour,
        rate.purchase if rate else None, rate.as_of if rate else None, rate.source if rate else "as its calibration says",
        ask.samples / rate_of(found.samples_per_second), shortest, longest,
    )  # fmt: skip


def rate_of(samples_per_second: float) -> Fraction:
    return Fraction(samples_per_second).limit_denominator(MILLION) or Fraction(1, MILLION)


def measured_of(kept: Sequence[Calibration], recipe: str) -> list[Measured]:
    """For the planner: the recipe's measured throughput on each GPU, the newest of each kind."""
    from pricing.planner_workload import Measured

    found: dict[object, Measured] = {}
    for one in sorted(kept, key=lambda one: one.measured_at):
        figure, row = one.figure(f"recipe_{recipe}"), one.row if one.gpu else None
        if figure is None or row is None:
            continue
        precision = figure.about.get("precision")
        found[row.model, row.form, row.memory_bytes, one.ranks, precision] = Measured(
            gpu_model=row.model, samples_per_second=rate_of(figure.value), gpus=one.ranks, precision=precision,
            source=f"calibration {one.id} on {one.node or one.host}, {figure.spread_ratio:.1%} spread",
            gpu_memory_bytes=Fraction(row.memory_bytes), as_of=one.measured_at.date(),
        )  # fmt: skip
    return list(found.values())


# -- a job on its own node -----------------------------------------------------------------------------------------------


def calibration_of(data_dir: Path, spec: wire.JobSpec, place: Place, catalog: Catalog) -> Calibrated | None:
    """Of a job that runs a recipe; None where nothing tells its speed, or the file is damaged: a quote is never the end of a job."""
    from tui import calibrations, recipes

    found = recipes.of_command(spec.command)
    if found is None or found[0] not in PRICED or spec.gpu_share is not None:
        return None
    try:
        ask = asked(*found, "--set")
        kept = calibrations.load(data_dir)
    except RackrateError:
        return None
    return _on_place(ask, spec.gpus, place, catalog, kept)


def _on_place(ask: Asked, gpus: int, place: Place, catalog: Catalog, kept: Sequence[Calibration]) -> Calibrated | None:
    from pricing.calibration import Target, estimate, target_of

    info = place.info
    target: Target | str = Target(
        gpu=None, count=0, node=place.node, cloud=info.cloud if info else None, instance_type=info.instance_type if info else None
    )
    if gpus:
        shape = shape_of(place, catalog)
        target = "its GPUs are not known" if shape is None else target_of(shape, gpus)
        if isinstance(target, str):
            return None
        target = replace(target, node=place.node)
    found = estimate(ask.work, target, kept)
    if isinstance(found, str):
        return None
    row = _row(ask, target, found, None, None, None, place.node, None, None)
    return Calibrated(found.how, row.seconds, row.shortest, row.longest, found.why)


def prices_of(pricing: Any, now: datetime) -> Prices:
    """The list prices under the user's terms."""
    from pricing.calendar import milliseconds
    from pricing.currency import Exchange
    from pricing.planner_money import Prices

    return Prices((), pricing.terms.exchange or Exchange(), pricing.terms.discounts, (), milliseconds(now))


__all__ = ["Asked", "Found", "Row", "Wish", "asked", "calibration_of", "measured_of", "prices_of", "rows"]
