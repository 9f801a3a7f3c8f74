"""The node as the queue sees it: GPUs with who is on them, CPUs by NUMA node, memory.

Invariant: a GPU is given only after the driver was seen to answer for it, and never while a process that is no job of
ours holds it, or while something of an unkillable job may still be on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from agent import wire
from agent.isolation.host import HostIsolation
from agent.isolation.limits import numbers
from agent.jobs.shapes import GpuShape, NodeShape
from agent.meter_driver import inventory_known, reading_age_ms

UNREAD = "not read yet"
_SYSFS = Path("/sys/devices/system/node")
_DRIVER = Path("/proc/driver/nvidia/gpus")


class GpuView:
    """The newest sample, GPU by GPU."""

    def __init__(self) -> None:
        self.gpus: dict[str, wire.Gpu] = {}
        self.heard = False
        """Whether it is settled which GPUs there are."""
        self.read_at: datetime | None = None
        """When the driver was asked, not when the sample was made."""

    def take(self, sample: wire.Sample) -> None:
        self.gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        self.heard = self.heard or inventory_known(sample)
        if sample.gpus:
            self.read_at = sample.taken_at - timedelta(milliseconds=reading_age_ms(sample))

    def processes(self, uuid: str) -> tuple[wire.Process, ...] | None:
        """None: the driver does not tell, or the GPU is not there."""
        gpu = self.gpus.get(uuid)
        return gpu.processes if gpu is not None else None


class NodeView:
    """Makes a NodeShape of what is known now. What cannot change is read once."""

    def __init__(self, host: HostIsolation, *, sysfs: Path = _SYSFS, driver: Path = _DRIVER) -> None:
        usable = host.capacity.cpu_ids or tuple(sorted(os.sched_getaffinity(0)))
        self.cpus = _by_numa(usable, sysfs)
        self.memory_bytes = host.capacity.memory_bytes or _memory()
        self._driver = driver
        self._minors: dict[str, str] = {}

    @property
    def cpu_count(self) -> int:
        return sum(map(len, self.cpus.values()))

    def shape(
        self,
        inventory: tuple[wire.GpuInventory, ...],
        view: GpuView,
        *,
        foreign: Callable[[wire.Gpu], str | None],
        drained: Mapping[str, str],
        mps: Callable[[wire.GpuInventory], str | None],
        closed: str | None,
    ) -> NodeShape:
        """`foreign`: who else is on a GPU; `drained`: GPU -> why it must not be used; `mps`: why a GPU cannot be shared."""
        shapes = []
        for known in inventory:
            seen = view.gpus.get(known.uuid)
            refused = mps(known)
            stranger = foreign(seen) if seen is not None else None
            shapes.append(
                GpuShape(
                    uuid=known.uuid,
                    index=known.index,
                    numa_node=known.numa_node if known.numa_node is not None and known.numa_node >= 0 else None,
                    state=seen.state if seen is not None else UNREAD,
                    foreign=stranger is not None,
                    foreign_reason=stranger,
                    drained=drained.get(known.uuid),
                    memory_bytes=known.memory_total_bytes,
                    mig=bool(known.mig_enabled),
                    mps_ok=refused is None,
                    mps_reason=refused,
                )
            )
        return NodeShape(gpus=tuple(shapes), cpus=self.cpus, memory_bytes=self.memory_bytes, closed=closed)

    def device_paths(self, gpus: tuple[wire.GpuInventory, ...]) -> tuple[str, ...] | None:
        """/dev/nvidiaN of these GPUs; None where the driver does not say which number one has, and then none is held off."""
        found = []
        for gpu in gpus:
            minor = self._minor(gpu.pci_bus_id)
            if minor is None or not os.path.exists(f"/dev/nvidia{minor}"):
                return None
            found.append(f"/dev/nvidia{minor}")
        return tuple(found)

    def _minor(self, bus: str | None) -> str | None:
        if bus is None:
            return None
        if bus not in self._minors:
            domain, _, rest = bus.lower().partition(":")
            try:
                text = (self._driver / f"{domain[-4:]}:{rest}" / "information").read_text()
            except OSError:
                return None
            for line in text.splitlines():
                name, _, value = line.partition(":")
                if name.strip() == "Device Minor" and value.strip().isdigit():
                    self._minors[bus] = value.strip()
        return self._minors.get(bus)


def _by_numa(usable: tuple[int, ...], sysfs: Path) -> dict[int, tuple[int, ...]]:
    left = set(usable)
    found: dict[int, tuple[int, ...]] = {}
    for folder in sorted(sysfs.glob("node[0-9]*"), key=lambda path: int(path.name[4:])):
        try:
            own = left & set(numbers((folder / "cpulist").read_text()))
        except (OSError, ValueError):
            continue
        if own:
            found[int(folder.name[4:])] = tuple(sorted(own))
            left -= own
    if left:
        found.setdefault(0, ())
        found[0] = tuple(sorted({*found[0], *left}))
    return found


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
