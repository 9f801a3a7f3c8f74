"""What was used, as the ledger takes it: one stretch of one GPU (or of a host), and what the node was meanwhile.

Invariant: times are whole UTC milliseconds, intervals half-open, shares whole millionths, energy whole millijoules;
so nothing that is added up here is ever rounded. What is not known is `None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

WHOLE_SHARE = 1_000_000
"""One whole GPU, in millionths."""

KINDS = ("held", "idle", "lost", "down", "host")
"""`held` by someone; `idle`; `lost` to the driver; `down`: nothing measured; `host`: a node without GPUs."""

CPU = "cpu"
"""Kind of the rows that stand beside these: what a job without a GPU held of processors and memory."""

ENERGY_SOURCES = ("counter", "integrated")


class Usage(NamedTuple):
    """One usage row of an agent. Immutable; (node, meter, `sequence`) names it for ever."""

    sequence: int
    starts_ms: int
    ends_ms: int
    gpu: str | None
    kind: str
    reason: str | None
    share_millionths: int
    user: str | None
    project: str | None
    job: str | None
    utilization_ratio: float | None
    """Time-weighted mean, 0-1; None if the driver never told."""
    energy_millijoules: int | None
    energy_source: str | None
    placement: int
    """The `number` of the `Placed` in force."""
    taken_from: str | None = None
    """Of kind `cpu`: the kind of the rows from which it is taken; None for the job itself."""
    vcpus_millionths: int = 0
    """Of kind `cpu`; below 0 for those from whom it is taken."""
    memory_mib: int = 0


class Owned(NamedTuple):
    """What an owned node costs: bought for `purchase_usd`, written off over `years`, fed with `power_usd_per_kwh`."""

    purchase_usd: Decimal
    years: Decimal
    power_watts: Decimal | None = None
    power_usd_per_kwh: Decimal | None = None


class Placed(NamedTuple):
    """What a node was, for pricing its rows. `number` is the agent's own, unique within one meter."""

    number: int
    node: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: str | None = None
    usd_per_hour: str | None = None
    on_premises: Owned | None = None
    gpu_count: int = 0
    """GPUs that share the node's price; 0 for a node without."""
    gpu_model: str | None = None
    tags: Mapping[str, str] = {}
    vcpus: int | None = None
    memory_bytes: int | None = None


class Interruption(NamedTuple):
    """A cloud announced that it ends a node. `number` is the agent's own, unique within one meter."""

    number: int
    cloud: str
    kind: str
    noticed_ms: int
    at_ms: int
    """When it ends."""
    booted_ms: int | None
    """When the machine that ends had started; None if that is not known."""
    withdrawn: bool = False
    """It did not happen."""
