"""A workload: what is to be computed, on how much data, by when, and within which limits. Plain data, no reading.

Invariant: every quantity carries its unit in its name; what nobody told is None, and what is assumed in its place is said
by the part of the planner that assumes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Literal

Task = Literal["train", "infer"]
Sharding = Literal["none", "full"]
OPTIMIZER_BYTES = {"none": 0, "sgd": 0, "sgd_momentum": 4, "adam": 8, "adamw": 8, "adam_8bit": 2, "lion": 4}
"""Of state a parameter, in fp32 (8-bit Adam: one byte for each moment)."""
TIERS = ("local_nvme", "attached_ssd", "block", "shared", "object")
RUNTIMES = ("cuda", "rocm")


@dataclass(frozen=True, slots=True)
class Model:
    """`flops_per_sample`: of a whole step for one sample, forward and backward where it trains."""

    parameters: Fraction
    precision: str
    task: Task = "train"
    fallback: str | None = None
    """The precision taken where the hardware lacks the one asked for."""
    flops_per_sample: Fraction | None = None
    tokens_per_sample: Fraction | None = None
    exchanged_parameters: Fraction | None = None
    """Those whose gradients all GPUs exchange; None: all of them."""
    gradient_bytes: int = 4
    """Of a parameter, as it is exchanged: PyTorch's autocast keeps gradients in fp32."""
    optimizer: str = "adam"
    sharding: Sharding = "none"
    gpu_memory_bytes: Fraction | None = None
    """Measured: what one GPU needs; stands for the estimate."""
    activation_bytes_per_sample: Fraction | None = None
    activation_checkpointing: bool = False
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    memory_traffic_per_sample: Fraction | None = None
    """Bytes to and from the GPU's memory, where that is what limits (embeddings)."""


@dataclass(frozen=True, slots=True)
class Data:
    """`cloud` and `region`: where it lies; None: wherever the GPUs are."""

    size_bytes: Fraction
    bytes_per_sample: Fraction
    tiers: tuple[str, ...] = TIERS
    cloud: str | None = None
    region: str | None = None
    cpu_seconds_per_sample: Fraction | None = None
    """Of one CPU thread, to read and prepare one sample."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    size_bytes: Fraction
    every_seconds: Fraction | None
    """None: an hour, or Young's interval where the job may be interrupted."""
    keep: int = 2
    asynchronous: bool = False
    """The GPUs wait only until it is in the node's memory."""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    deadline_seconds: Fraction | None = None
    startup_seconds: Fraction = Fraction(300)
    interruptible: bool = False
    changeover_seconds: Fraction = Fraction(600)
    interruptions_per_hour: Fraction | None = None
    """Of one spot node."""
    spot_wait_seconds: Fraction | None = None
    late_chance: Fraction = Fraction(1, 20)
    """Up to which chance to be late a plan still counts as in time."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Throughput of this very workload on some GPUs of one model."""

    gpu_model: str
    samples_per_second: Fraction
    """Of all `gpus` together."""
    source: str
    gpus: int = 1
    precision: str | None = None
    """None: the workload's."""
    gpu_memory_bytes: Fraction | None = None
    """Which of several sizes of the model; None: any."""
    as_of: date | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Empty: no limit of that kind."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    gpu_models: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    purchases: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ("cuda",)
    max_nodes: int = 4
    gpus: int | None = None
    """Exactly so many, in all."""
    local_nvme_bytes: Fraction | None = None
    """At least so much on each node."""
    budget_usd: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Assumed:
    """What the planner assumes where nothing was measured; None: the defaults that `planner_speed` states."""

    efficiency: Fraction | None = None
    """Of the peak, on one GPU."""
    overlap: Fraction = Fraction(1, 2)
    """The share of the backward pass of the last micro-batch behind which the exchange of gradients can hide."""
    link_efficiency: Fraction = Fraction(77, 100)
    network_efficiency: Fraction = Fraction(6, 10)
    memory_reserve: Fraction = Fraction(1, 10)


@dataclass(frozen=True, slots=True)
class Reference:
    """The hardware that the user has in mind; it is shown beside what was found."""

    gpu_model: str
    gpus: int
    local_nvme_bytes: Fraction | None = None


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A price set, or changed by a factor, for every offer that matches. `instance_type` may be a pattern."""

    instance_type: str = "*"
    cloud: str | None = None
    region: str | None = None
    purchase: str | None = None
    usd_per_hour: Fraction | None = None
    factor: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    model: Model
    samples: Fraction
    """In all: of every epoch together."""
    epochs: Fraction
    global_batch: int | None
    data: Data | None = None
    checkpoint: Checkpoint | None = None
    run: Run = field(default_factory=Run)
    measured: tuple[Measured, ...] = ()
    limits: Limits = field(default_factory=Limits)
    assumed: Assumed = field(default_factory=Assumed)
    reference: Reference | None = None
    prices: tuple[PriceChange, ...] = ()
    note: str = ""


def with_measured(workload: Workload, more: Iterable[Measured]) -> Workload:
    """The workload with throughput that was measured elsewhere (a recipe's calibration) beside its own."""
    return replace(workload, measured=(*workload.measured, *more))
