"""Who holds a GPU at one moment, and how one GPU is shared among several holders.

Invariant: the parts of one GPU are whole millionths that sum to exactly 1,000,000; not knowing who holds a GPU
is `held` by a holder without a name, never `idle`.

- Jobs hold what they claim (`meter_claims`): a share given by MPS, or a whole GPU.
- Of a GPU in MIG mode, whoever runs in an instance holds that instance's part (`sensors.mig`); instances without a
  process, and what no instance has, are idle.
- Holders that take turns on a GPU (time-slicing), or share one MIG instance, hold it in equal parts for as long as they are
  there, whatever they compute: who waits with his memory on the GPU keeps others off it. (What each does with his part is
  `utilization`: see `meter_use`.) How often a device plugin would hand a GPU out is not known here; a place that nobody
  took is nobody's, so a GPU with one tenant is wholly his.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from agent.wire import Gpu, Process, UsageKind

WHOLE = 1_000_000


class Holder(NamedTuple):
    """One party to whom time on a GPU belongs; all None: nobody, or nobody known."""

    user: str | None = None
    project: str | None = None
    job: str | None = None


class Part(NamedTuple):
    """What a share of one GPU is, in millionths. `holder` names somebody only where `kind` is `held`."""

    kind: UsageKind
    holder: Holder = Holder()
    share: int = WHOLE


class Tenure(NamedTuple):
    """What a GPU is to its node from one moment on, until it changes. No two parts differ in their share alone."""

    parts: tuple[Part, ...]
    reason: str | None = None

    @property
    def measured(self) -> bool:
        """Whether the driver shows what the GPU does: all of it is `held` or `idle`."""
        return self.parts[0].kind in ("held", "idle")


def shares_of(amount: int, parties: int) -> tuple[int, ...]:
    """`amount` millionths over `parties`, by largest remainder: the first ones get the odd millionths."""
    part, odd = divmod(amount, parties)
    return tuple(part + 1 if place < odd else part for place in range(parties))


@lru_cache(maxsize=1024)
def held_by(*holders: Holder) -> Tenure:
    """A GPU that is wholly held, by each in equal parts."""
    return Tenure(tuple(Part("held", *one) for one in zip(holders, shares_of(WHOLE, len(holders)), strict=True)))


def down(reason: str) -> Tenure:
    return Tenure((Part("down"),), reason)


def lost(reason: str) -> Tenure:
    return Tenure((Part("lost"),), reason)


IDLE = Tenure((Part("idle"),))
HOST = Tenure((Part("host"),))
HELD_BY_UNKNOWN = held_by(Holder())
LOST = lost("gpu_lost")
MISSING = lost("gpu_missing")
NO_DRIVER = lost("driver_unavailable")
HUNG_DRIVER = lost("driver_unresponsive")
UNREADABLE = lost("gpu_error")


def claimants(processes: Iterable[Process]) -> list[Process]:
    """The processes that hold a GPU: those that compute; only where none does, those that draw.

    A display server keeps a context on its GPU all day; beside a training run it must not halve that run's share.
    """
    found = list(processes)
    return [process for process in found if process.kind != "graphics"] or found


def named(process: Process, projects: Mapping[str, str]) -> Holder:
    """To whom a process belongs."""
    project = process.project or (projects.get(process.user) if process.user is not None else None)
    return Holder(process.user, project, process.job)


def holders_of(processes: tuple[Process, ...], projects: Mapping[str, str]) -> tuple[Holder, ...]:
    """The distinct (user, project, job) of the processes, in a fixed order. `projects`: user -> project."""
    parties = {named(one, projects) for one in (claimants(processes) if len(processes) > 1 else processes)}
    return tuple(parties) if len(parties) == 1 else tuple(sorted(parties, key=_order))


def mig_tenure(gpu: Gpu, projects: Mapping[str, str]) -> Tenure | None:
    """The tenure of a GPU in MIG mode; None where the driver does not tell in which instances its processes run."""
    instances, processes = gpu.mig_instances, gpu.processes
    if instances is None:
        return None
    if processes is None:
        return _sliced(tuple((int(one.share * WHOLE), (Holder(),)) for one in instances))
    inside: dict[str | None, list[Process]] = {one.uuid: [] for one in instances}
    for process in claimants(processes):
        if process.mig_instance not in inside:
            return None
        inside[process.mig_instance].append(process)
    return _sliced(tuple((int(one.share * WHOLE), holders_of(tuple(inside[one.uuid]), projects)) for one in instances))


@lru_cache(maxsize=1024)
def _sliced(instances: tuple[tuple[int, tuple[Holder, ...]], ...]) -> Tenure:
    """`instances`: (share, who is in it)."""
    held: dict[Holder, int] = {}
    for whole, holders in instances:
        for holder, share in zip(holders, shares_of(whole, max(1, len(holders))), strict=False):
            held[holder] = held.get(holder, 0) + share
    parts = [Part("held", holder, share) for holder, share in sorted(held.items(), key=lambda item: _order(item[0])) if share]
    rest = WHOLE - sum(part.share for part in parts)
    return Tenure((*parts, Part("idle", share=rest)) if rest else tuple(parts))


def _order(holder: Holder) -> tuple[str, str, str]:
    return (holder.user or "", holder.project or "", holder.job or "")


def tenure_of(gpu: Gpu, projects: Mapping[str, str]) -> Tenure:
    """What the driver says about one GPU, as a tenure."""
    if gpu.state == "lost":
        return LOST
    if gpu.state == "error" and gpu.processes is None:
        return UNREADABLE
    if gpu.mig_enabled and (sliced := mig_tenure(gpu, projects)) is not None:
        return sliced
    if gpu.processes is None:
        return HELD_BY_UNKNOWN
    if not gpu.processes:
        return IDLE
    return held_by(*holders_of(gpu.processes, projects))
