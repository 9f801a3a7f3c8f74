"""Who holds what by the queue's book: GPUs and their shares, and processors and memory of jobs without a GPU.

Invariant: what is held is told until nothing is left on it: reservations and GPUs that are being drained too.
"""

from __future__ import annotations

from agent.jobs import costs
from agent.jobs.drains import Drains
from agent.jobs.entries import wanted_of
from agent.jobs.store import JobStore
from agent.meter_claims import Claim
from agent.meter_cpu import CpuClaim


def gpu_claims(store: JobStore, drains: Drains) -> dict[str, tuple[Claim, ...]]:
    """GPU -> who has which share of it."""
    found: dict[str, list[Claim]] = {}
    held = [(row, row.gpus) for row in store.holding()]
    drained = ((store.find(id), drain.trace.gpus) for id, drain in drains.all.items())
    held += [(row, gpus) for row, gpus in drained if row is not None]  # the GPUs of then: it may run again on others
    for row, gpus in held:
        share = costs.WHOLE if row.spec.gpu_share is None else costs.millionths(0, row.spec.gpu_share)
        for uuid in gpus:
            found.setdefault(uuid, []).append(Claim(row.user, row.spec.project, row.id, share))
    return {uuid: tuple(claims) for uuid, claims in found.items()}


def cpu_claims(store: JobStore) -> tuple[CpuClaim, ...]:
    """What jobs without a GPU hold of processors and memory."""
    wanted = ((row, wanted_of(row)) for row in store.holding() if not row.gpus)
    return tuple(
        CpuClaim(row.user, row.spec.project, row.id, one.cpu_millis, one.memory_bytes or 0)
        for row, one in sorted(wanted, key=lambda pair: pair[0].id)
    )
