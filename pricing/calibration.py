"""How fast a recipe trains on some GPUs, by what was measured: there, or elsewhere and scaled, or by peak figures alone.

Invariant: `measured` is said only of the same GPUs, as many of them, the same settings, precision and batch; `scaled` names
the measurement and by what; `peak` rests on data sheets and a published share of them, and has no range. What cannot be
compared is a sentence, never a figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from math import log
from typing import Any, NamedTuple

from pricing.calibration_work import BOUND, Settings, different, settled, size_of
from pricing.hardware import Gpu, Wiring, gpu_of, gpus, wiring_of
from pricing.instances import InstanceType, name_key
from pricing.planner_memory import memory_of, misfit
from pricing.planner_speed import OTHER_EFFICIENCY, TOKEN_EFFICIENCY, VECTOR_EFFICIENCY, How, exchange_of
from pricing.planner_workload import Assumed, Model, Sharding, Workload

AUTO = "auto"
RESERVE = Assumed().memory_reserve
NO_GPU_WIRING = Wiring("pcie", "unknown", "tcp", None, False, "a node without a type: PCIe is counted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The median of the repeats and its spread, as the recipe `calibrate` tells them."""

    name: str
    value: float
    unit: str
    spread_ratio: float
    repeats: int
    about: Mapping[str, Any]

    def agrees(self, other: Figure) -> bool:
        """They differ by no more than both spreads together."""
        return abs(self.value - other.value) <= self.value * self.spread_ratio + other.value * other.spread_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """One run of the recipe, and what it ran on. None: not known."""

    id: str
    measured_at: datetime
    node: str | None
    cloud: str | None
    region: str | None
    instance_type: str | None
    usd_per_hour: str | None
    """Of the whole node, when it was measured."""
    gpu: str | None
    """As torch calls it; None: a CPU was measured."""
    gpu_count: int
    """Of the node."""
    gpu_memory_bytes: int | None
    ranks: int
    cpu: str | None
    threads: int | None
    torch: str | None
    cuda: str | None
    driver: str | None
    host: str | None
    figures: tuple[Figure, ...]

    def figure(self, name: str) -> Figure | None:
        return next((one for one in self.figures if one.name == name), None)

    @property
    def row(self) -> Gpu | None:
        """The GPU's figures: its model and form by the driver's words, and of these the nearest memory."""
        words = (self.gpu or "").replace("-", " ").split()
        models = [one for one in gpus() if set(one.model.split()) <= set(words)]
        form = "pcie" if "PCIE" in map(str.upper, words) else "nvl" if "NVL" in words else "sxm"
        found = [one for one in models if one.form == form] or models
        return min(found, key=lambda one: (abs(one.memory_bytes - (self.gpu_memory_bytes or 0)), -len(one.model)), default=None)

    @property
    def hardware(self) -> str:
        """`2 x NVIDIA H200`, or the CPU."""
        return f"{self.ranks} x {self.gpu}" if self.gpu else self.cpu or "a CPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`settings`: all of the recipe's. `batch_size`: of all ranks together."""

    recipe: str
    settings: Settings
    batch_size: int
    precision: str = AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`count` GPUs of one node; 0: its CPUs, of which no peak figure is at hand."""

    gpu: Gpu | None
    count: int
    wiring: Wiring = NO_GPU_WIRING
    cloud: str | None = None
    instance_type: str | None = None
    node: str | None = None


class Estimate(NamedTuple):
    """Samples a second of all GPUs together; `low` and `high` None: no range is known (`peak`)."""

    how: How
    samples_per_second: float
    low: float | None
    high: float | None
    precision: str
    why: str
    calibration: Calibration | None
    by: str = ""
    """What it was scaled by."""

    @property
    def source(self) -> str:
        """What it rests on, without what it was scaled by."""
        return self.why.removesuffix(f" by {self.by}") if self.by else self.why


def target_of(shape: InstanceType, count: int | None = None) -> Target | str:
    """`count` GPUs of it, else all; why not as a text."""
    wiring = wiring_of(shape)
    gpu = gpu_of(shape, wiring.form) if shape.kind == "gpu" else None
    if gpu is None or shape.gpu_count is None:
        return "no figures of its GPU are at hand"
    if not isinstance(shape.gpu_count, int):
        return "it has a part of a GPU"
    if gpu.runtime != "cuda":
        return f"the {gpu.model} needs {gpu.runtime}"
    if count and count > shape.gpu_count:
        return f"it has {shape.gpu_count} GPU{'s' * (shape.gpu_count != 1)}"
    return Target(gpu=gpu, count=count or shape.gpu_count, wiring=wiring, cloud=shape.cloud, instance_type=shape.instance_type)


def estimate(work: Work, target: Target, calibrations: Sequence[Calibration]) -> Estimate | str:
    """By the nearest measurement that can be compared, else by peak figures; a text: why nothing tells it."""
    if target.count and work.batch_size % target.count:
        return f"a batch of {work.batch_size} cannot be shared by {target.count} GPUs"
    precision = precision_on(work.precision, target.gpu)
    if precision is None:
        return f"the {target.gpu.model if target.gpu else 'CPU'} has no {work.precision}"
    found, reasons = [], []
    for base in calibrations:
        one = _from(base, work, target, precision, calibrations)
        if isinstance(one, str):
            reasons.append(one)
        elif one is not None:
            found.append(one)
    best = min(found, key=lambda one: one[0])[1] if found else None
    if best is not None and best.how == "measured":
        return best
    if (reason := _misfit(work, target, precision)) is not None:
        return reason
    if best is not None:
        return best
    by_peak = _by_peak(work, target, precision, calibrations)
    return by_peak or (reasons[0] if reasons else f"the recipe {work.recipe} was not measured on anything that it can be scaled from")


def _misfit(work: Work, target: Target, precision: str) -> str | None:
    """Why a language model does not fit, however few samples are computed at once; of others no memory is told."""
    gpu, settings = target.gpu, settled(work.recipe, work.settings, {})
    size = size_of(work.recipe, settings) if work.recipe == "language" else None
    if gpu is None or size is None:
        return None
    model = Model(
        Fraction(size.parameters), precision, tokens_per_sample=Fraction(settings["context"]), optimizer="adamw", layers=settings["layers"],
        hidden=settings["width"], heads=settings["heads"], activation_checkpointing=True, sharding=_sharding(settings),
    )  # fmt: skip
    return misfit(memory_of(model, precision, target.count, gpu.memory_bytes, RESERVE), f"{gpu.model} of {gpu.memory_bytes / 1e9:,.0f} GB")


def _sharding(settings: Settings) -> Sharding:
    return "full" if settings.get("parallel", "ddp") != "ddp" else "none"


def precision_on(asked: str, gpu: Gpu | None) -> str | None:
    """As the recipes choose it; None: the hardware has it not."""
    if gpu is None:
        return "fp32" if asked == AUTO else None if asked == "fp16" else asked
    if asked == AUTO:
        return "fp16" if gpu.lacks("bf16") or (gpu.compute_capability or 0) < 8 else "bf16"
    return None if gpu.lacks(asked) else asked


def _from(
    base: Calibration, work: Work, target: Target, precision: str, others: Sequence[Calibration]
) -> tuple[tuple[Any, ...], Estimate] | str | None:
    """(how near it is, the estimate); None: it did not measure the recipe. A text: why it cannot be compared."""
    figure = base.figure(f"recipe_{work.recipe}")
    if figure is None:
        return None
    measured = figure.about.get("settings", {})
    asked = settled(work.recipe, work.settings, measured)
    kept, counted = different(work.recipe, measured, asked)
    where = f"measured on {base.node or base.host}"
    if kept:
        return f"{where} with {_told(measured, kept)}, and {_told(asked, kept)} is asked: not comparable"
    computed = _computed(work.recipe, measured, asked) if counted else 1.0
    if computed is None:
        return f"{where} with {_told(measured, counted)}, and {_told(asked, counted)} is asked: not comparable"
    row, was = base.row, str(figure.about.get("precision", "fp32"))
    ratios = _ratios(work.recipe, base, row, was, target, precision, others)
    if isinstance(ratios, str):
        return ratios
    rate, low, high, words = ratios
    batch = int(figure.about.get("batch_size", work.batch_size))
    each = figure.value / base.ranks * computed
    scaled = [_together(work, asked, target, base.ranks, each * ratio, precision) for ratio in (rate, low, high)]
    same = rate == low == high == 1.0 and was == precision
    changes = [*words, *_changes(base, target, counted, computed, batch, work.batch_size)]
    nearness = (not same, base.ranks != max(1, target.count), bool(counted), was != precision, batch != work.batch_size, abs(log(rate)))
    how: How = "scaled" if any(nearness[:5]) else "measured"
    source = f"{base.hardware}, {base.measured_at:%Y-%m-%d}, {base.node or base.host}"
    by = ", ".join(changes)
    why = f"from {source} by {by}" if changes else source
    spread = figure.spread_ratio
    return (*nearness, -base.measured_at.timestamp()), Estimate(
        how, scaled[0], scaled[1] * max(0.0, 1 - spread), scaled[2] * (1 + spread), precision, why, base, by
    )


def _told(settings: Settings, names: Iterable[str]) -> str:
    return " ".join(f"{name}={settings.get(name)}" for name in names)


def _computed(recipe: str, measured: Settings, asked: Settings) -> float | None:
    """How much faster, by the operations of a sample alone."""
    one, other = size_of(recipe, measured), size_of(recipe, asked)
    return None if one is None or other is None else one.flops_per_sample / other.flops_per_sample


def _changes(base: Calibration, target: Target, counted: Sequence[str], computed: float, batch: int, asked: int) -> Iterator[str]:
    if counted:
        yield f"{1 / computed:.3g} x the operations of a sample ({', '.join(counted)})"
    if base.ranks != max(1, target.count):
        yield f"the number of GPUs, {base.ranks} to {target.count}"
    if batch != asked:
        yield f"samples a second at a batch of {batch}, not {asked}"


def _ratios(
    recipe: str, base: Calibration, row: Gpu | None, was: str, target: Target, precision: str, others: Sequence[Calibration]
) -> tuple[float, float, float, list[str]] | str:
    """(expected, lowest, highest, by what) of one GPU's speed to the measured one's."""
    if base.gpu is None or target.gpu is None:
        if base.gpu is None and target.gpu is None and _same_node(base, target):
            return 1.0, 1.0, 1.0, []
        return f"measured on {base.hardware}, of which no peak figure is at hand to scale by"
    if row is None:
        return f"no figures of the {base.gpu} are at hand to scale by"
    if row == target.gpu and was == precision:
        return 1.0, 1.0, 1.0, []
    near = next((one for one in _newest(others) if one.row == target.gpu), None)
    matrix = _ratio(base, f"matmul_{was}", row.flops.get(was), near, f"matmul_{precision}", target.gpu.flops.get(precision))
    memory = _ratio(base, "memory_copy", row.memory_bytes_per_second, near, "memory_copy", target.gpu.memory_bytes_per_second)
    chosen = matrix if BOUND.get(recipe, "matrix") == "matrix" else memory
    if chosen is None:
        return f"no peak figure of the {target.gpu.model} or the {row.model} is at hand to scale by"
    both = [one for one in (matrix, memory) if one is not None]
    low, high = min(one.ratio * (1 - one.spread) for one in both), max(one.ratio * (1 + one.spread) for one in both)
    what = "matrix products" if chosen is matrix else "memory bandwidth"
    return chosen.ratio, low, high, [f"{chosen.ratio:.3g} x {'measured' if chosen.measured else 'peak'} {what}"]


class _Ratio(NamedTuple):
    """The target's to the base's."""

    ratio: float
    measured: bool
    spread: float
    """Of both measurements together."""


def _newest(calibrations: Iterable[Calibration]) -> list[Calibration]:
    return sorted(calibrations, key=lambda one: one.measured_at, reverse=True)


def _ratio(
    base: Calibration, name: str, peak: float | None, near: Calibration | None, near_name: str, near_peak: float | None
) -> _Ratio | None:
    """What both nodes reach counts before what data sheets promise."""
    one, other = base.figure(name), near.figure(near_name) if near is not None else None
    if one is not None and other is not None:
        return _Ratio(other.value / one.value, True, one.spread_ratio + other.spread_ratio)
    return _Ratio(near_peak / peak, False, 0.0) if peak and near_peak else None


def _same_node(base: Calibration, target: Target) -> bool:
    if target.node is not None and (base.node or base.host) == target.node:
        return True
    if not base.cloud or not base.instance_type or base.cloud != target.cloud or target.instance_type is None:
        return False
    return name_key(base.cloud, base.instance_type) == name_key(base.cloud, target.instance_type)


def _together(work: Work, settings: Settings, target: Target, ranks: int, each: float, precision: str) -> float:
    """Of all GPUs, from the speed of one; on more than were measured with the exchange of gradients, where it is known."""
    count = max(1, target.count)
    size = size_of(work.recipe, settings)
    if target.gpu is None or count <= ranks or size is None:
        return each * count
    return work.batch_size / _step(work, settings, target, each, precision, size.parameters)


def _step(work: Work, settings: Settings, target: Target, each: float, precision: str, parameters: int) -> float:
    """Seconds."""
    assert target.gpu is not None
    model = Model(Fraction(parameters), precision, sharding=_sharding(settings))
    workload = Workload(work.recipe, model, Fraction(work.batch_size), Fraction(1), work.batch_size)
    compute = work.batch_size / target.count / each
    exchange = exchange_of(workload, target.gpu, target.wiring, 1, target.count, precision, compute, int(settings.get("accumulate") or 1))
    return compute + (exchange.exposed_seconds if exchange else 0.0)


def _by_peak(work: Work, target: Target, precision: str, others: Sequence[Calibration]) -> Estimate | None:
    """The published share of a GPU's peak; no more than what its own matrix products reach, where they were measured."""
    settings = settled(work.recipe, work.settings, {})
    size, peak = size_of(work.recipe, settings), target.gpu.flops.get(precision) if target.gpu else None
    if size is None or not peak or target.gpu is None:
        return None
    if precision == "fp32" or not target.gpu.matrix:
        share = float(VECTOR_EFFICIENCY)
    else:
        share = float(TOKEN_EFFICIENCY if work.recipe == "language" else OTHER_EFFICIENCY)
    own = next((one for near in _newest(others) if near.row == target.gpu and (one := near.figure(f"matmul_{precision}"))), None)
    reached = min(share * peak, own.value) if own else share * peak
    each = reached / size.flops_per_sample
    why = f"{reached / peak:.0%} of its peak of {peak / 1e12:,.3g} TFLOPS in {precision}: nothing was measured"
    return Estimate("peak", _together(work, settings, target, 0, each, precision), None, None, precision, why, None)
