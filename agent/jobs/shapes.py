"""What a node has, what a job wants, what it holds and what it is given: the words of placement and scheduler.

Invariant: shares are whole millionths of one GPU and CPUs whole thousandths, so sums are exact.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from agent.errors import JobRefused
from agent.jobs.dependencies import Need

WHOLE = 1_000_000


class GpuShape(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the queue sees it."""

    uuid: str
    index: int
    numa_node: int | None = None
    state: str = "ok"
    """As in wire.Gpu; only `ok` is given."""
    foreign: bool = False
    """A process that is no job of ours holds it."""
    foreign_reason: str | None = None
    """Who, for the sentence: `python (4711) of ann`."""
    drained: str | None = None
    """Why it must not be used (an unkillable job's process is still on it)."""
    memory_bytes: int | None = None
    mig: bool = False
    mps_ok: bool = True
    mps_reason: str | None = None
    """Why MPS cannot work on it."""
    mps_clients: int = 48
    """Most share jobs at once."""


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[GpuShape, ...] = ()
    cpus: dict[int, tuple[int, ...]] = {}
    """NUMA node -> the CPUs that jobs may have."""
    memory_bytes: int | None = None
    """What all memory limits may sum to; None: not known, not counted."""
    links: tuple[tuple[str, str], ...] = ()
    """Pairs of GPU UUIDs with NVLink between them, where known."""
    closed: str | None = None
    """Why nothing may start now (a spot notice, the agent is closing), in a sentence."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a job needs. `share` in millionths of one GPU; `cpu_millis` thousandths of a CPU (whole ones get a cpuset)."""

    user: str | None = None
    gpus: int = 0
    share: int | None = None
    gpu_memory_bytes: int | None = None
    cpu_millis: int = 0
    memory_bytes: int | None = None


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has."""

    job: str
    user: str | None = None
    gpus: tuple[str, ...] = ()
    share: int | None = None
    """None: its GPUs are its alone."""
    gpu_memory_bytes: int | None = None
    cpu_ids: tuple[int, ...] = ()
    cpu_millis: int = 0
    memory_bytes: int | None = None


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[str, ...] = ()
    gpu_indexes: tuple[int, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    """Empty: no cpuset of its own."""
    numa_nodes: tuple[int, ...] = ()
    """Of its CPUs and GPUs. To wall its memory in there is the caller's choice: a limit above that node's memory would
    then end in an OOM kill."""
    reason: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A queued job. Make it once per change of its row (`waiting_of`) and keep it."""

    id: str
    wanted: Wanted
    submitted_ms: int
    priority: int = 0
    deadline_ms: int | None = None
    longest_ms: int | None = None
    """Time limit plus grace: how long it can hold what it gets. None: no limit."""
    interruptible: bool = False
    after: tuple[Need, ...] = ()
    array: str | None = None
    array_index: int | None = None
    array_at_once: int | None = None
    not_before_ms: int | None = None


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A job that holds something: starting, running, stopping or reserved."""

    held: Held
    priority: int = 0
    interruptible: bool = False
    started_ms: int = 0
    ends_ms: int | None = None
    """The latest moment at which its place is free: start + time limit + grace, or of a stop the end of its grace."""
    limit_ms: int | None = None
    """Its time limit, for the sentence."""
    stopping: bool = False
    array: str | None = None

    @property
    def id(self) -> str:
        return self.held.job


def share_of(share: Decimal | None) -> int | None:
    """`JobSpec.gpu_share` in millionths. JobRefused: not above 0 and below 1, or finer than a millionth."""
    if share is None:
        return None
    if not share.is_finite() or not 0 < share < 1:
        raise JobRefused(f"a share of a GPU is above 0 and below 1, not {share}; for a whole one ask for gpus = 1")
    millionths = share * WHOLE
    if millionths != int(millionths):
        raise JobRefused(f"a share of a GPU has at most 6 decimal places, which {share} has not")
    return int(millionths)


def cpu_millis_of(cpus: Decimal | None) -> int:
    """`JobSpec.cpus` in thousandths; 0: not said. JobRefused: not above 0, or finer than a thousandth."""
    if cpus is None:
        return 0
    if not cpus.is_finite() or not 0 < cpus < 1_000_000:
        raise JobRefused(f"the number of CPUs is above 0, not {cpus}")
    if cpus * 1000 != int(cpus * 1000):
        raise JobRefused(f"the number of CPUs has at most 3 decimal places, which {cpus} has not")
    return int(cpus * 1000)


def share_text(millionths: int) -> str:
    """`0.25`, without an exponent."""
    return f"{millionths / WHOLE:.6f}".rstrip("0").rstrip(".")
