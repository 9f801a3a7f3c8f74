"""What a job is held to, as numbers: the same for every kind of host.

Invariant: a limit that is `None` or empty was not asked for, and nothing is written for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import msgspec

QUOTA_PERIOD_US = 100_000
QUOTA_LEAST_US = 1_000
WEIGHTS = range(1, 10_001)
_V1_SHARES_AT_100 = 1024
_V1_SHARES = (2, 262_144)
_BFQ_WEIGHTS = (1, 1000)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one attempt of a job. Weights have the scale of cgroup v2: 1 to 10,000, 100 is everybody's."""

    memory_bytes: int | None = None
    cpu_ids: tuple[int, ...] = ()
    """Pinned to these CPUs (cpuset)."""
    numa_nodes: tuple[int, ...] = ()
    """Memory comes from these NUMA nodes (cpuset)."""
    cpus: Decimal | None = None
    """Gives the weight (100 a CPU) unless `cpu_weight` does, and the quota where `cpu_quota` asks for one."""
    cpu_quota: bool = False
    cpu_weight: int | None = None
    pids: int | None = None
    """Processes and threads."""
    io_weight: int | None = None
    device_paths: tuple[str, ...] | None = None
    """GPU device files that may be opened (v1 devices controller only); None: no such limit, empty: none of them."""

    @property
    def weight(self) -> int | None:
        """The CPU weight: what was asked for, or what belongs to that many CPUs."""
        if self.cpu_weight is not None or self.cpus is None:
            return self.cpu_weight
        return max(WEIGHTS[0], min(WEIGHTS[-1], round(self.cpus * 100)))


def quota_us(cpus: Decimal) -> int:
    """Microseconds of CPU time in each period of 100 ms."""
    return max(QUOTA_LEAST_US, round(cpus * QUOTA_PERIOD_US))


def v1_shares(weight: int) -> int:
    """`cpu.shares` of version 1 for a weight of version 2."""
    return max(_V1_SHARES[0], min(_V1_SHARES[1], weight * _V1_SHARES_AT_100 // 100))


def bfq_weight(weight: int) -> int:
    """BFQ knows only 1 to 1000."""
    return max(_BFQ_WEIGHTS[0], min(_BFQ_WEIGHTS[1], weight))


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,8`: as the kernel writes a list of CPUs or nodes, so that what is read back is equal."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def numbers(text: str) -> tuple[int, ...]:
    """The reverse of `ranges`; an empty text has none. Raises ValueError."""
    found: list[int] = []
    for part in text.strip().split(","):
        if part:
            low, _, high = part.partition("-")
            found.extend(range(int(low), int(high or low) + 1))
    return tuple(found)


def size(count: int) -> str:
    """Bytes for a person: `64.0 GiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
