"""Which GPUs and CPUs a job gets: near each other, near the CPUs, and so that what is left stays together.

Invariant: a GPU is given whole to one job, or in shares of one user that sum to at most 1,000,000 millionths and whose
memory caps sum to at most its memory; CPU sets do not overlap; memory limits sum to at most the machine's. A GPU that
is lost, drained, or held by a process that is no job is never given.

Pure: the same arguments give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec

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


def share_of(share: Decimal | None) -> int | None:
    """`JobSpec.gpu_share` in millionths. JobRefused: not above 0 and below 1, or finer than a millionth."""
    raise NotImplementedError


def refusal(wanted: Wanted, node: NodeShape) -> str | None:
    """Why this node could not run it even if it were empty and whole, in a sentence; for the submit."""
    raise NotImplementedError


def place(wanted: Wanted, node: NodeShape, taken: Iterable[Held]) -> Placed | str:
    """Where it runs, or the sentence that says what it waits for."""
    raise NotImplementedError
