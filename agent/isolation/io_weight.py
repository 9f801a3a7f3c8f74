"""Whether an I/O weight has any effect here, and which file takes it.

Invariant: a weight that no disk would heed is not written and is told as not enforced: the files exist also without one.
"""

from __future__ import annotations

from pathlib import Path

from agent.isolation.capacity import text


def io_weight_file(sys: Path, unified: Path | None, *, version: int) -> str | None:
    """`io.weight` where io.cost is on, the scheduler's own file where a disk uses BFQ (or CFQ); None: no effect."""
    if version == 2 and unified is not None and "enable=1" in (text(unified / "io.cost.qos") or ""):
        return "io.weight"
    schedulers = _schedulers(sys)
    if "bfq" in schedulers:
        return "io.bfq.weight" if version == 2 else "blkio.bfq.weight"
    return "blkio.weight" if version == 1 and "cfq" in schedulers else None


def _schedulers(sys: Path) -> set[str]:
    """Those in use: the one in brackets, of each disk."""
    found = set()
    for path in (sys / "block").glob("*/queue/scheduler"):
        chosen = (text(path) or "").partition("[")[2].partition("]")[0]
        if chosen:
            found.add(chosen)
    return found
