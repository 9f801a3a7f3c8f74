"""Makes a trained model smaller, in four ways, and says what each costs and gains.

    python -m agent.recipes.compress --checkpoint /data/run-7/checkpoints --usd-per-hour 1.21
    rackrate run --recipe compress --set checkpoint=/data/run-7/checkpoints --set methods=quantise,distil

Invariant: this file needs no torch: what it does is in compress_run.py, compress_models.py and compress_measure.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from agent.recipes.entry import main
from agent.recipes.settings import Machine, setting

METHODS = ("prune", "cut", "quantise", "distil")


@dataclass(frozen=True, kw_only=True)
class Compress(Machine):
    """Prunes, quantises and distils a checkpoint of another recipe, and measures each result against the original."""

    INSTEAD: ClassVar[Mapping[str, str]] = {"checkpoint_dir": "out"}

    checkpoint: str = setting("", "folder of the checkpoints of a training (its --checkpoint-dir); it has to be given")
    methods: str = setting("prune,cut,quantise,distil", "which of prune, cut, quantise and distil, in this order")
    out: str = setting("", "where results and report.json go; none: RACKRATE_CHECKPOINT_DIR, else ./compressed")
    data: str = setting("", "folder of the data; none: that of the training")
    prune: float = setting(0.5, "share of the weights that are set to 0, the smallest first", least=0)
    cut: float = setting(0.25, "share of the inner units (channels, neurons) that are removed, the weakest first", least=0)
    quantise: str = setting("int8_dynamic", "int8_dynamic: weights and activations; int8_weights: weights alone",
                            choices=("int8_dynamic", "int8_weights"))
    student: float = setting(0.5, "size of the distilled model, as a share of the original's width", least=0)
    temperature: float = setting(2.0, "how soft the original's answers are that the student learns", least=0.01)
    tune_steps: int = setting(100, "steps of training after pruning and after cutting; 0: none", least=0)
    distil_steps: int = setting(500, "steps of training of the student", least=1)
    learning_rate: float = setting(0.0, "of that training; 0: for tuning a tenth of the original's, for the student the original's", least=0)
    batch_size: int = setting(64, "samples a step, and at once where throughput is measured", least=1)
    repeats: int = setting(20, "of each measurement of time; the median counts", least=3)
    usd_per_hour: str = setting("", "price of what this runs on, for the cost of a million samples; none: not told, in a job its own")
    price_from: str = setting("", "who says that price; told beside the cost")
    checkpoint_every: int = setting(100, "steps between checkpoints of these trainings; 0: only at their ends and when it is stopped", least=0)
    seed: int = setting(0, "of the student's weights and of the order", least=0)


if __name__ == "__main__":
    sys.exit(main(Compress, "compress", work="agent.recipes.compress_run"))
