"""GPUs that something of an ended job may still be on: kept from others until that is gone.

Invariant: a drained GPU is given to nobody, over restarts of the agent too: the job's own row remembers it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent.jobs.gpu_check import Trace, strays
from agent.jobs.node_shape import GpuView
from agent.jobs.rows import JobRow

NOTE = "drained"


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one job. `plan`: of its cgroup, where that still has processes."""

    trace: Trace
    unit: str
    sentence: str
    begun_ms: int
    plan: dict[str, object] | None = None
    boot_id: str = ""


class Drains:
    """Belongs to the event loop."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self.all: dict[str, Drain] = {}

    def add(self, drain: Drain) -> None:
        self.all[drain.trace.job] = drain

    def remove(self, job: str) -> None:
        self.all.pop(job, None)

    def recall(self, rows: Iterable[JobRow]) -> None:
        """After a restart of the agent. A reboot ends every process."""
        for row in rows:
            if text := row.notes.get(NOTE):
                drain = msgspec.json.decode(text, type=Drain)
                if drain.boot_id == self._boot_id:
                    self.all[row.id] = drain

    def gpus(self) -> dict[str, str]:
        """GPU -> why nobody gets it."""
        return {uuid: drain.sentence for drain in self.all.values() for uuid in drain.trace.gpus}

    @staticmethod
    def note(drain: Drain) -> str:
        return msgspec.json.encode(drain).decode()


def seen_left(drain: Drain, view: GpuView) -> list[str]:
    """What the driver still shows of it."""
    return strays(drain.trace, view)
