"""Which GPUs and CPUs a job gets: near each other, near the CPUs, and so that what is left stays together.

Invariant: a GPU is given whole to one job, or in shares of one user that sum to at most 1,000,000 millionths and whose
memory caps sum to at most its memory; CPU sets do not overlap; memory limits sum to at most the machine's. A GPU that
is lost, drained, or held by a process that is no job is never given.

Pure: the same arguments give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from agent.jobs.cause import size
from agent.jobs.room import Room
from agent.jobs.shapes import WHOLE, GpuShape, Held, NodeShape, Placed, Wanted, cpu_millis_of, share_of, share_text

__all__ = [
    "WHOLE",
    "GpuShape",
    "Held",
    "NodeShape",
    "Placed",
    "Wanted",
    "choose",
    "cpu_millis_of",
    "place",
    "ranges",
    "refusal",
    "share_of",
]

_NOWHERE = -1
"""NUMA node of a GPU whose own is not known."""
_MOST_SETS = 2_000


def refusal(wanted: Wanted, node: NodeShape) -> str | None:
    """Why this node could not run it even if it were empty and whole, in a sentence; for the submit."""
    cpus = sum(map(len, node.cpus.values()))
    if wanted.gpus > len(node.gpus):
        return f"the job asks for {wanted.gpus} GPU{'s' * (wanted.gpus != 1)}, and this node has {len(node.gpus) or 'none'}"
    if wanted.share is not None:
        return _share_refusal(wanted, node)
    if wanted.cpu_millis > 1000 * cpus:
        return f"the job asks for {wanted.cpu_millis / 1000:g} CPUs, and jobs can have {cpus} on this node"
    if wanted.memory_bytes is not None and node.memory_bytes is not None and wanted.memory_bytes > node.memory_bytes:
        return (
            f"the job asks for {size(wanted.memory_bytes)} of memory, and jobs can have {size(node.memory_bytes)} on this node"
        )
    return None


def _share_refusal(wanted: Wanted, node: NodeShape) -> str | None:
    if not node.gpus:
        return "the job asks for a share of a GPU, and this node has none"
    able = [gpu for gpu in node.gpus if gpu.mps_ok and not gpu.mig]
    if not able:
        why = next((gpu.mps_reason for gpu in node.gpus if gpu.mps_reason), "MPS cannot work with MIG")
        return f"no GPU of this node can be shared: {why}"
    memory = [gpu.memory_bytes for gpu in able]
    if wanted.gpu_memory_bytes is not None and all(have is not None and wanted.gpu_memory_bytes > have for have in memory):
        most = max(have for have in memory if have is not None)
        return f"the job asks for {size(wanted.gpu_memory_bytes)} of GPU memory, and the largest GPU that can be shared has {size(most)}"
    return refusal(Wanted(cpu_millis=wanted.cpu_millis, memory_bytes=wanted.memory_bytes), node)


def place(wanted: Wanted, node: NodeShape, taken: Iterable[Held]) -> Placed | str:
    """Where it runs, or the sentence that says what it waits for."""
    if node.closed is not None:
        return node.closed
    return choose(wanted, Room(node, taken))


def choose(wanted: Wanted, room: Room) -> Placed | str:
    """As `place`, in a room that is already reckoned up; does not take it."""
    lacking = room.lacks(wanted)
    if lacking is not None:
        return f"waits for {lacking}"
    if wanted.share is not None:
        gpus, why = _share(wanted, room)
    elif wanted.gpus:
        gpus, why = _whole(wanted, room)
    else:
        gpus, why = [], ""
    cpus = _cpus(wanted, room, [gpu.numa_node for gpu in gpus if gpu.numa_node is not None])
    near = {room.cpu_node[cpu] for cpu in cpus} | {gpu.numa_node for gpu in gpus if gpu.numa_node is not None}
    return Placed(
        gpus=tuple(gpu.uuid for gpu in gpus),
        gpu_indexes=tuple(gpu.index for gpu in gpus),
        cpu_ids=tuple(cpus),
        numa_nodes=tuple(sorted(near)),
        reason=_reason(gpus, cpus, room, why),
    )


def held_by(job: str, wanted: Wanted, placed: Placed) -> Held:
    """What a job holds that was placed so."""
    return Held(
        job=job,
        user=wanted.user,
        gpus=placed.gpus,
        share=wanted.share,
        gpu_memory_bytes=wanted.gpu_memory_bytes,
        cpu_ids=placed.cpu_ids,
        cpu_millis=wanted.cpu_millis,
        memory_bytes=wanted.memory_bytes,
    )


def _share(wanted: Wanted, room: Room) -> tuple[list[GpuShape], str]:
    """The fullest GPU that has room; a fresh one only where none is shared yet, and then off the most broken NUMA node."""
    free = _by_numa(room.free_gpus())

    def rank(one: tuple[GpuShape, int]) -> tuple[bool, int, int, int]:
        gpu, left = one
        return left == WHOLE, left, len(free.get(_numa(gpu), ())), gpu.index

    gpu, left = min(room.sharable(wanted), key=rank)
    share = wanted.share or 0
    return [gpu], f"{share_text(share)} of it, {share_text(left - share)} left{' beside others' if left < WHOLE else ''}"


def _whole(wanted: Wanted, room: Room) -> tuple[list[GpuShape], str]:
    groups = _by_numa(room.free_gpus())
    cpus = {numa: len(free) for numa, free in room.free_cpus().items()}

    def rank(numa: int) -> tuple[bool, int, int]:
        short_of_cpus = numa != _NOWHERE and bool(cpus) and 1000 * cpus.get(numa, 0) < wanted.cpu_millis
        return short_of_cpus, len(groups[numa]), numa

    alone = [numa for numa, gpus in groups.items() if len(gpus) >= wanted.gpus]
    if alone:
        chosen = _together(groups[min(alone, key=rank)], wanted.gpus, room)
        why = "best fit"
    else:
        chosen, why = _across(groups, wanted.gpus, room), "no NUMA node has so many free"
    left = max((len([gpu for gpu in gpus if gpu not in chosen]) for gpus in groups.values()), default=0)
    return chosen, f"{why}: leaves {left or 'none'} together" if left > 1 or not left else f"{why}: leaves 1"


def _across(groups: dict[int, list[GpuShape]], count: int, room: Room) -> list[GpuShape]:
    """From as few NUMA nodes as can be: the fullest first, and of the last one only what is needed."""
    chosen: list[GpuShape] = []
    for numa in sorted(groups, key=lambda numa: (-len(groups[numa]), numa)):
        chosen += _together(groups[numa], min(count - len(chosen), len(groups[numa])), room)
    return sorted(chosen, key=lambda gpu: gpu.index)


def _together(gpus: Sequence[GpuShape], count: int, room: Room) -> list[GpuShape]:
    """`count` of them: most NVLink pairs inside, fewest broken, then the closest indexes."""
    links = {frozenset(pair) for pair in room.node.links}
    free = {gpu.uuid for gpu in gpus}

    def rank(some: Sequence[GpuShape]) -> tuple[int, int, int, int]:
        names = {gpu.uuid for gpu in some}
        inside = sum(1 for pair in links if pair <= names)
        broken = sum(1 for pair in links if pair <= free and len(pair & names) == 1)
        return -inside, broken, some[-1].index - some[0].index, _edges(some, gpus)

    if not links or comb(len(gpus), count) > _MOST_SETS:
        sets: Iterable[Sequence[GpuShape]] = (gpus[start : start + count] for start in range(len(gpus) - count + 1))
    else:
        sets = combinations(gpus, count)
    return list(min(sets, key=lambda some: (*rank(some), some[0].index) if count else (0,)))


def _edges(some: Sequence[GpuShape], gpus: Sequence[GpuShape]) -> int:
    """How many neighbours that stay free they have: a run is better cut at its end than in its middle."""
    free = {gpu.index for gpu in gpus}
    ours = {gpu.index for gpu in some}
    return len({index + step for index in ours for step in (-1, 1)} & free - ours)


def _cpus(wanted: Wanted, room: Room, near: Sequence[int]) -> list[int]:
    """Whole CPUs in nobody's set: of the GPUs' NUMA nodes first, evenly, then where the fewest are left over."""
    if not wanted.cpu_millis or wanted.cpu_millis % 1000:
        return []
    count, free = wanted.cpu_millis // 1000, room.free_cpus()
    nodes = sorted(set(near) & free.keys())
    picked: list[int] = []
    for place, numa in enumerate(nodes):
        even = -(-(count - len(picked)) // (len(nodes) - place))
        picked += _run(free[numa], min(even, len(free[numa])))
    while len(picked) < count:
        rest = {numa: [cpu for cpu in cpus if cpu not in picked] for numa, cpus in free.items()}
        missing = count - len(picked)
        numa = min((numa for numa in rest if rest[numa]), key=lambda numa: _fit(numa, len(rest[numa]), missing, nodes))
        picked += _run(rest[numa], min(missing, len(rest[numa])))
    return sorted(picked)


def _fit(numa: int, free: int, missing: int, near: Sequence[int]) -> tuple[bool, bool, int, int]:
    return numa not in near, free < missing, free if free >= missing else -free, numa


def _run(cpus: Sequence[int], count: int) -> list[int]:
    """`count` of them, next to each other where such a run is: the shortest that is long enough."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    enough = [run for run in runs if len(run) >= count]
    return min(enough, key=len)[:count] if enough else list(cpus[:count])


def _numa(gpu: GpuShape) -> int:
    return _NOWHERE if gpu.numa_node is None else gpu.numa_node


def _by_numa(gpus: Iterable[GpuShape]) -> dict[int, list[GpuShape]]:
    groups: dict[int, list[GpuShape]] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        groups.setdefault(_numa(gpu), []).append(gpu)
    return groups


def _reason(gpus: Sequence[GpuShape], cpus: Sequence[int], room: Room, why: str) -> str:
    nodes = sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None} or {room.cpu_node[cpu] for cpu in cpus})
    parts = []
    if gpus:
        parts.append(f"GPU{'s' if len(gpus) > 1 else ''} {ranges([gpu.index for gpu in gpus])}")
    if not gpus and cpus:
        parts.append(f"CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}")
    if nodes and len(room.node.cpus) > 1:
        parts.append(f"on NUMA node{'s' if len(nodes) > 1 else ''} {ranges(nodes)}")
    if gpus and cpus:
        parts.append(f"with CPU{'s' if len(cpus) > 1 else ''} {ranges(cpus)}")
    return (" ".join(parts) or "any CPU that is free") + (f"; {why}" if why else "")


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,8`, as the kernel writes a cpuset."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
