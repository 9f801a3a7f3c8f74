"""What single nodes, GPUs and jobs of a ledger did lately: how busy they were, and who held them.

Invariant: utilisation that was not measured is None and never low; sums are of the ledger's whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pricing.demand import DemandKey
from pricing.usage import Owned


class HolderName(NamedTuple):
    user: str | None
    project: str | None
    job: str | None


class GpuUse(NamedTuple):
    """One GPU of one node in the window."""

    gpu: str
    hours: float
    """That the ledger tells of."""
    held_hours: float
    measured_hours: float
    """GPU time of which the utilisation is known."""
    busy_hours: float
    """Utilisation x time, of the measured time."""
    most_busy_day: float | None
    """Utilisation of its busiest day; None when nothing was measured."""


class HolderUse(NamedTuple):
    """What one holder did on one node in the window, in GPU-hours (node-hours of a node without GPUs)."""

    node: str
    name: HolderName
    held_hours: float
    measured_hours: float
    busy_hours: float
    days: int
    """On how many of the window's days."""
    most_busy_day: float | None
    """Its utilisation on its busiest day; None when nothing was measured."""


class NodeUse(NamedTuple):
    """One node in the window. Hours are GPU-hours unless they say otherwise."""

    node: str
    key: DemandKey | None
    cloud: str | None
    zone: str | None
    purchase: str
    usd_per_hour: str | None
    on_premises: Owned | None
    gpu_count: int
    gpu_model: str | None
    node_hours: float
    held_hours: float
    idle_hours: float
    dark_hours: float
    """Lost to the driver, or nothing measured."""
    measured_hours: float
    busy_hours: float
    days: int
    """Days of the window with rows."""
    most_busy_day: float | None
    least_measured_day: float
    """Of its days, the smallest share of the time of which the utilisation is known."""
    running: bool
    """It has rows in the last day of the window."""
    peak_held: int | None
    """The most of its GPUs that were held at some time within one hour; None where only sums are left."""
    gpus: tuple[GpuUse, ...]
    """Empty where only sums are left (`rackrate ledger retain`), or for a node without GPUs."""
    holders: tuple[HolderUse, ...]


class JobUse(NamedTuple):
    """One job (or holder without a job) over the whole range."""

    name: HolderName
    key: DemandKey | None
    purchase: str
    nodes: tuple[str, ...]
    first_day: int
    """UTC days since 1970."""
    last_day: int
    gpu_hours: float
    node_hours: float
    """GPU-hours over the GPUs of its nodes."""
    measured_hours: float
    busy_hours: float


@dataclass(frozen=True)
class FleetUse:
    """The window [first_hour, last_hour) of nodes; the jobs are of the whole range."""

    first_hour: int
    last_hour: int
    nodes: tuple[NodeUse, ...]
    jobs: tuple[JobUse, ...]
    owners: Mapping[str, str]
    """Node -> its tag `owner` or `team`, where it has one."""
    held_by_hour: Mapping[tuple[DemandKey, str], Sequence[int]] = field(default_factory=dict)
    """(type and place, purchase) -> how many GPUs were held at some time within each hour of the window."""
    notes: tuple[str, ...] = ()

    @property
    def hours(self) -> int:
        return self.last_hour - self.first_hour
