"""Usage rows: who held which GPU and when, and what the node was at that time."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from agent.wire.base import Message
from agent.wire.node import OnPremises, Purchase


UsageKind = Literal["held", "idle", "lost", "down", "host", "cpu"]
EnergySource = Literal["counter", "integrated"]


class UsageRow(Message, kw_only=True):
    """Who held which GPU from `starts_at` (inclusive) to `ends_at` (exclusive), and how busy it was.

    For one GPU the rows of each moment have shares that sum to exactly 1, over the agent's whole life:
    `held` and `idle` while it was measured, `lost` while the driver could not reach it, `down` while nothing measured
    (agent not running, stalled, clock stepped: `reason` says which). A node without GPUs has rows of kind `host`
    with `gpu` None. Rows are immutable; (`node`, `meter`, `sequence`) names one for ever.

    Rows of kind `cpu` stand beside these, with a share of 0: processors and memory that a job without a GPU held, and
    (`taken_from`, with amounts below 0) from which part of the node they are taken. At every moment they sum to 0.
    """

    node: str
    sequence: int
    """From 1, without holes, in the order in which the rows were written."""
    starts_at: datetime
    ends_at: datetime
    gpu: str | None = None
    kind: UsageKind
    reason: str | None = None
    share: Decimal
    """Of one GPU, six places: 0.333333."""
    user: str | None = None
    project: str | None = None
    job: str | None = None
    gpu_seconds: Decimal
    """share x length, exact."""
    utilization_ratio: float | None = None
    """Time-weighted mean over the time that was measured; None if the driver never told. Of a GPU that several hold: what
    the holder did with his share, at most all of it; the GPU's own where the driver does not tell them apart."""
    energy_joules: float | None = None
    energy_source: EnergySource | None = None
    placement: int
    """Id of the `Placement` in force."""
    taken_from: UsageKind | None = None
    """Of kind `cpu`: the kind of the rows of this holder from which it is taken; None for the job itself."""
    vcpus: Decimal | None = None
    """Of kind `cpu`: six places."""
    memory_bytes: int | None = None
    """Of kind `cpu`: whole MiB."""


class Placement(Message, kw_only=True):
    """What the node was, for pricing its rows. A change of any field makes a new one; ids count up per meter."""

    id: int
    node: str
    cloud: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    purchase: Purchase | None = None
    usd_per_hour: str | None = None
    on_premises: OnPremises | None = None
    gpu_count: int
    """GPUs that share the node's price; 0 for a node without."""
    gpu_model: str | None = None
    tags: dict[str, str] = {}
    vcpus: int | None = None
    memory_bytes: int | None = None


class Interruption(Message, kw_only=True):
    """The cloud announced that it ends this node: not its user did. `number` counts up per meter; a later page may tell
    the same one anew, with another time, or as withdrawn."""

    number: int
    cloud: str
    kind: Literal["terminate", "stop", "hibernate"]
    noticed_at: datetime
    at: datetime
    """When it ends, as announced; without a time, when it was noticed."""
    booted_at: datetime | None = None
    """When the machine that ends had started."""
    withdrawn: bool = False
    """The cloud took it back, or the node simply went on running."""


class UsagePage(Message, kw_only=True):
    """`GET /v1/usage?after=SEQ&limit=N`: rows with a sequence above `after`, in order, and the placements they name."""

    node: str
    meter: str
    """Random name of this usage record; a wiped state directory gets a new one, and sequences start again."""
    rows: tuple[UsageRow, ...]
    placements: tuple[Placement, ...]
    last_sequence: int
    """The newest row that exists now; equal to the last row's sequence when the page is complete. 0: no row yet."""
    first_sequence: int = 1
    """The oldest row that is still kept."""
    interruptions: tuple[Interruption, ...] = ()
    """All of this record, on every page: they are few."""
