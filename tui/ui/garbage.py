"""When Python's collector of cycles runs in the app: between two ticks, never within one.

Invariant: it looks at what is young only, which is bounded by what a fleet's streams hold at one moment; what is older is looked
at once in a hundred times. (Left to itself it begins in the middle of a tick, and both together are what a key waits for.)
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 20_000
"""Made and not yet gone since the last time: a collection is due. Samples hold no cycles, and looking for some among those of
1,000 nodes costs as much as drawing them."""
OLDER_TURNS = 100


def begin() -> None:
    """From now on `collect` says when."""
    gc.disable()


def settle() -> None:
    """What the start has made stays to the end: it is never looked at."""
    gc.freeze()


def collect(young: int = YOUNG_OBJECTS) -> int:
    """Called each second; returns which generation was looked at, or -1."""
    counts = gc.get_count()
    if counts[0] < young:
        return -1
    generation = 1 if counts[1] >= OLDER_TURNS else 0
    gc.collect(generation)
    return generation
