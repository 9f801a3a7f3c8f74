"""What is free on a node: the books of placement and scheduler, kept up to date while they try things out.

Invariant: `take` and `give_back` of the same things leave the books as they were; `lacks(wanted)` is None exactly when
`placement.choose` finds a place, so whether something fits never depends on which GPUs or CPUs were picked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.jobs.cause import size
from agent.jobs.shapes import WHOLE, GpuShape, Held, NodeShape, Wanted, share_text


class Sharing:
    """One GPU that is in use: by one job alone, or by several of one user."""

    __slots__ = ("alone", "clients", "memory", "share", "user")

    def __init__(self, user: str | None) -> None:
        self.alone = 0
        self.share = 0
        self.memory = 0
        self.clients = 0
        self.user = user

    def copy(self) -> Sharing:
        made = Sharing(self.user)
        made.alone, made.share, made.memory, made.clients = self.alone, self.share, self.memory, self.clients
        return made


class Room:
    """A node and what is taken of it; made to be copied and changed."""

    def __init__(self, node: NodeShape, taken: Iterable[Held] = ()) -> None:
        self.node = node
        self.usable: dict[str, GpuShape] = {gpu.uuid: gpu for gpu in node.gpus if unusable(gpu) is None}
        self.broken = _broken(node)
        self.used: dict[str, Sharing] = {}
        self.cpu_node: dict[int, int] = {cpu: numa for numa, cpus in node.cpus.items() for cpu in cpus}
        self.cpu_users: dict[int, int] = {}
        """CPU -> how many jobs have it in their set (after a change of the configuration more than one can)."""
        self.cpus_used = 0
        self.gpus_used = 0
        """Of the usable ones."""
        self.loose_millis = 0
        """CPUs of jobs without a set."""
        self.memory = 0
        for held in taken:
            self.take(held)

    def copy(self) -> Room:
        made = object.__new__(Room)
        made.node, made.usable, made.broken, made.cpu_node = self.node, self.usable, self.broken, self.cpu_node
        made.used = {uuid: sharing.copy() for uuid, sharing in self.used.items()}
        made.cpu_users = dict(self.cpu_users)
        made.cpus_used, made.gpus_used = self.cpus_used, self.gpus_used
        made.loose_millis, made.memory = self.loose_millis, self.memory
        return made

    def take(self, held: Held) -> None:
        self._count(held, 1)

    def give_back(self, held: Held) -> None:
        self._count(held, -1)

    def _count(self, held: Held, sign: int) -> None:
        for uuid in held.gpus:
            self._count_gpu(uuid, held, sign)
        for cpu in held.cpu_ids:
            self._count_cpu(cpu, sign)
        if not held.cpu_ids:
            self.loose_millis += sign * held.cpu_millis
        self.memory += sign * (held.memory_bytes or 0)

    def _count_cpu(self, cpu: int, sign: int) -> None:
        before = self.cpu_users.get(cpu, 0)
        if before + sign:
            self.cpu_users[cpu] = before + sign
        else:
            del self.cpu_users[cpu]
        if cpu in self.cpu_node:
            self.cpus_used += bool(before + sign) - bool(before)

    def _count_gpu(self, uuid: str, held: Held, sign: int) -> None:
        sharing = self.used.get(uuid)
        if sharing is None:
            sharing = self.used[uuid] = Sharing(held.user)
            self.gpus_used += uuid in self.usable
        if held.share is None:
            sharing.alone += sign
        else:
            sharing.share += sign * held.share
            sharing.memory += sign * (held.gpu_memory_bytes or 0)
            sharing.clients += sign
        if not sharing.alone and not sharing.clients:
            del self.used[uuid]
            self.gpus_used -= uuid in self.usable

    @property
    def memory_free(self) -> int | None:
        return None if self.node.memory_bytes is None else self.node.memory_bytes - self.memory

    @property
    def cpu_millis_free(self) -> int:
        return 1000 * (len(self.cpu_node) - self.cpus_used) - self.loose_millis

    def free_gpus(self) -> list[GpuShape]:
        return [gpu for uuid, gpu in self.usable.items() if uuid not in self.used]

    def free_cpus(self) -> dict[int, list[int]]:
        """NUMA node -> its CPUs that are in nobody's set, ascending."""
        return {numa: sorted(cpu for cpu in cpus if cpu not in self.cpu_users) for numa, cpus in self.node.cpus.items()}

    def sharable(self, wanted: Wanted) -> Iterator[tuple[GpuShape, int]]:
        """(GPU, millionths left on it before) of those that have room for this share; unshared ones are last."""
        for fresh in (False, True):
            for uuid, gpu in self.usable.items():
                sharing = self.used.get(uuid)
                if (sharing is None) == fresh and _shares(gpu, sharing, wanted):
                    yield gpu, WHOLE - (sharing.share if sharing else 0)

    def fits(self, wanted: Wanted) -> bool:
        """Whether `lacks` is None, in less time."""
        if wanted.gpus > len(self.usable) - self.gpus_used:
            return False
        if wanted.cpu_millis and wanted.cpu_millis > self.cpu_millis_free:
            return False
        if wanted.memory_bytes is not None and self.memory_free is not None and wanted.memory_bytes > self.memory_free:
            return False
        return wanted.share is None or next(self.sharable(wanted), None) is not None

    def lacks(self, wanted: Wanted) -> str | None:
        """`2 GPUs: 1 of 8 is free`, the first thing that is not there; None: it fits."""
        if wanted.gpus > len(self.usable) - self.gpus_used:
            return self._no_gpus(wanted.gpus)
        if wanted.share is not None and next(self.sharable(wanted), None) is None:
            return self._no_share(wanted)
        if wanted.cpu_millis and wanted.cpu_millis > self.cpu_millis_free:
            free, total = max(0, self.cpu_millis_free), 1000 * len(self.cpu_node)
            return f"{_cpus(wanted.cpu_millis)}: {free / 1000:g} of {total // 1000} {'is' if free == 1000 else 'are'} free"
        if wanted.memory_bytes is not None and self.memory_free is not None and wanted.memory_bytes > self.memory_free:
            free = size(max(0, self.memory_free))
            return f"{size(wanted.memory_bytes)} of memory: {free} of {size(self.node.memory_bytes or 0)} are not promised yet"
        return None

    def _no_gpus(self, count: int) -> str:
        free, total = len(self.usable) - self.gpus_used, len(self.node.gpus)
        text = f"{count} GPU{'s' if count > 1 else ''}: {free or 'none'} of {total} {'is' if free in (0, 1) else 'are'} free"
        return text + self.broken

    def _no_share(self, wanted: Wanted) -> str:
        text = f"{share_text(wanted.share or 0)} of a GPU"
        if wanted.gpu_memory_bytes is not None:
            text += f" with {size(wanted.gpu_memory_bytes)} of its memory"
        strangers = sum(
            1 for uuid, used in self.used.items() if uuid in self.usable and used.clients and used.user != wanted.user
        )
        other = f"; {strangers} shared by another user, and a GPU is shared by one user at a time" if strangers else ""
        return f"{text}: none of {len(self.node.gpus)} has so much left{other}{self.broken}"


def _broken(node: NodeShape) -> str:
    """The GPUs that are given to nobody, as the end of a sentence."""
    reasons = [f"GPU {gpu.index} {reason}" for gpu in node.gpus if (reason := unusable(gpu)) is not None]
    return f" ({'; '.join(reasons[:4])}{'; …' if len(reasons) > 4 else ''})" if reasons else ""


def unusable(gpu: GpuShape) -> str | None:
    """Why this GPU is given to nobody."""
    if gpu.drained is not None:
        return f"is not used: {gpu.drained}"
    if gpu.state != "ok":
        return {"lost": "is lost", "unsupported": "is not supported"}.get(gpu.state, f"has the state {gpu.state}")
    if gpu.foreign:
        return f"is held by {gpu.foreign_reason or 'a process that is not a job'}"
    return None


def _shares(gpu: GpuShape, sharing: Sharing | None, wanted: Wanted) -> bool:
    if wanted.share is None or gpu.mig or not gpu.mps_ok:
        return False
    memory = wanted.gpu_memory_bytes or 0
    if sharing is None:
        return gpu.memory_bytes is None or memory <= gpu.memory_bytes
    return (
        not sharing.alone
        and sharing.user == wanted.user
        and sharing.share + wanted.share <= WHOLE
        and sharing.clients < gpu.mps_clients
        and (gpu.memory_bytes is None or sharing.memory + memory <= gpu.memory_bytes)
    )


def _cpus(millis: int) -> str:
    return f"{millis / 1000:g} CPU{'' if millis == 1000 else 's'}"
