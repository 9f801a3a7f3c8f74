"""Processors and memory of jobs without a GPU, on a node whose whole price is laid on its GPUs (or on its host).

Invariant: at every moment what these jobs hold and what is taken for it from the holders of the node sum to exactly 0, in
vCPUs and in memory: so whatever a vCPU is worth, the node costs what it costs, and nothing is counted twice.

Such a job has one row (kind `cpu`) with what it asked for: its CPUs (half a one where it asked for none), and its memory
where it asked for some. Beside it stand rows that say from whom that is taken: everyone who holds a part of the node's GPUs,
and what is idle of them, in proportion to their parts. They count up to what the node has. While nothing is measured
(`down`) there are none: that time belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.meter_holders import Holder, Tenure
from agent.meter_placement import PlacementRef
from agent.meter_track import Stretch
from agent.wire import UsageKind

MIB = 1 << 20


class CpuClaim(NamedTuple):
    """What one job without a GPU holds: thousandths of a CPU, and bytes."""

    user: str | None
    project: str | None
    job: str
    cpu_millis: int
    memory_bytes: int


class CpuPart(NamedTuple):
    """`vcpus` in millionths, `memory` in MiB: above 0 for a job, below for whoever it is taken from (`taken_from`: as what)."""

    holder: Holder
    taken_from: UsageKind | None
    vcpus: int
    memory: int


def parts_of(
    claims: Sequence[CpuClaim], tenures: Iterable[Tenure], cpu_count: int | None, memory_bytes: int | None
) -> tuple[CpuPart, ...]:
    """All of one moment; they sum to 0. Empty where no job holds anything, or nobody has the node."""
    shares: dict[tuple[UsageKind, Holder], int] = {}
    for tenure in tenures:
        for part in tenure.parts:
            shares[part.kind, part.holder] = shares.get((part.kind, part.holder), 0) + part.share
    if not shares:
        return ()
    vcpus = _fitting([claim.cpu_millis * 1000 for claim in claims], None if cpu_count is None else cpu_count * 1_000_000)
    memory = _fitting([-(-claim.memory_bytes // MIB) for claim in claims], None if memory_bytes is None else memory_bytes // MIB)
    jobs = [
        CpuPart(Holder(claim.user, claim.project, claim.job), None, *held)
        for claim, *held in zip(claims, vcpus, memory, strict=True)
    ]
    taken = zip(shares, _spread(sum(vcpus), shares.values()), _spread(sum(memory), shares.values()), strict=True)
    lenders = [CpuPart(holder, kind, -cpu, -mib) for (kind, holder), cpu, mib in taken]
    return tuple(part for part in (*jobs, *lenders) if part.vcpus or part.memory)


def _fitting(asked: Sequence[int], there_is: int | None) -> list[int]:
    """What was asked for, scaled down where it is more than there is."""
    whole = sum(asked)
    if there_is is None or whole <= there_is:
        return list(asked)
    return [one * there_is // whole for one in asked]


def _spread(amount: int, shares: Iterable[int]) -> Iterator[int]:
    """`amount` in proportion to the shares, in whole numbers that sum to it."""
    weights = list(shares)
    whole, past, given = sum(weights), 0, 0
    for weight in weights:
        past += weight
        edge = amount * past // whole
        yield edge - given
        given = edge


class CpuTrack:
    """The open stretch of all such rows. Finished ones are appended to `rows`."""

    def __init__(self, row_ms: int, rows: list[Stretch]) -> None:
        self._row_ms = row_ms
        self._rows = rows
        self._parts: tuple[CpuPart, ...] = ()
        self._seen: tuple[object, ...] = ()
        self._placement: PlacementRef | None = None
        self._starts_ms = self._until_ms = 0

    def extend(self, until_ms: int) -> None:
        """The time up to `until_ms` is as it was; cut at whole multiples of the row length."""
        while self._parts and (edge := (self._starts_ms // self._row_ms + 1) * self._row_ms) <= until_ms:
            self._until_ms = edge
            self.finish()
        self._until_ms = until_ms

    def skip(self, until_ms: int) -> None:
        """Nothing is known of the time up to `until_ms`."""
        self.finish()
        self._starts_ms = self._until_ms = until_ms

    def enter(
        self, claims: tuple[CpuClaim, ...], tenures: tuple[Tenure, ...], placement: PlacementRef, has: tuple[int | None, int | None]
    ) -> None:
        """From now on these jobs hold that, on a node that is held so. `has`: its CPUs, and its memory in bytes."""
        seen = (claims, tenures, placement, has) if claims else ()
        if seen == self._seen:
            return
        self.finish()
        self._seen, self._placement = seen, placement
        self._parts = parts_of(claims, tenures, *has) if claims else ()

    def finish(self) -> None:
        """Closes the open stretch, if it has any length."""
        if self._until_ms > self._starts_ms and self._placement is not None:
            self._rows += (self._stretch(part, self._placement) for part in self._parts)
        self._starts_ms = self._until_ms

    def _stretch(self, part: CpuPart, placement: PlacementRef) -> Stretch:
        return Stretch(
            None, "cpu", None, part.holder, 0, placement, self._starts_ms, self._until_ms, None, 0, None, None,
            part.taken_from, part.vcpus, part.memory,
        )  # fmt: skip
