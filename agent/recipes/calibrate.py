"""Measures a node: arithmetic by precision, memory, the way to the GPU, all-reduce, the disk, and each recipe's speed.

    rackrate calibrate gpu-01
    torchrun --nproc-per-node 8 -m agent.recipes.calibrate

Invariant: this file needs no torch: what it does is in calibrate_run.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

from agent.recipes.entry import main
from agent.recipes.settings import Machine, setting

RECIPES = ("vision", "language", "recommender")


@dataclass(frozen=True, kw_only=True)
class Calibrate(Machine):
    """A short, repeatable measurement of a node, for prices of work instead of hours."""

    TELLS: ClassVar[str] = "One JSON line a round and a figure goes to stdout; nothing is kept."

    recipes: str = setting("vision,language,recommender", "whose speed is measured, with their settings as they ship; none: none of them")
    changes: str = setting("", "other settings of them, such as language.width=768,language.layers=12")
    repeats: int = setting(7, "rounds, each of which measures everything once; the median counts, and how far they lie apart is its spread", least=3)
    seconds: float = setting(0.5, "least time of each measurement in a round", least=0.001)
    size: int = setting(0, "side of the matrices; 0: 8192 on a GPU, 1024 on a CPU", least=0)
    memory_mb: int = setting(0, "of the memory that is copied; 0: 1024 on a GPU, 256 on a CPU", least=0)
    disk_mb: int = setting(256, "of the file that is written and read; 0: the disk is not measured", least=0)
    folder: str = setting("", "where that file is; none: RACKRATE_CACHE_DIR, else the folder for temporary files")
    steps: int = setting(20, "of each recipe in a round; the second half counts", least=2)
    batch_size: int = setting(0, "of each recipe; 0: its own", least=0)


if __name__ == "__main__":
    sys.exit(main(Calibrate, "calibrate", work="agent.recipes.calibrate_run"))
