"""One short deterministic training of every recipe, and a process that starts each and has it kill itself.

    python -m tests.agent.recipes.small_runs FOLDER

Every training is a fork of this process, which has imported torch once: it is killed with -9 after step `at`, and keeps its
checkpoints in FOLDER/NAME. What became of each is printed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from agent.recipes import compress_run, recommender_task
from agent.recipes.compress import Compress
from agent.recipes.recommender import Recommender
from agent.recipes.train import Trainer
from tests.agent.recipes import small, small_language
from tests.agent.recipes.small import ALONE, Watched

RECOMMENDER = Recommender(
    batch_size=256, steps=120, warmup_steps=5, learning_rate=0.2, samples=8192, held_out=512, people=60, items=40, width=8, hidden=16,
    checkpoint_every=0, device="cpu", tensorboard="off",
)  # fmt: skip
Weights = Mapping[str, torch.Tensor]
EVERY = 4
SHORT: dict[str, Any] = {"steps": 12, "checkpoint_every": EVERY, "deterministic": True}
COMPRESS = Compress(
    methods="prune,distil", tune_steps=6, distil_steps=12, checkpoint_every=EVERY, batch_size=16, repeats=3, device="cpu", deterministic=True,
    learning_rate=0.01,
)  # fmt: skip
ORIGINAL = "original"
"""Checkpoints of a language model, for compress."""


class Case(NamedTuple):
    """`run` trains to the end, or on from where it was killed, and gives the weights. `at`: the step of a line."""

    run: Callable[[Path, Watched], Weights]
    at: int
    since: tuple[int, ...]
    """First steps of the run that goes on: the newest checkpoint may have been in writing."""


def vision(folder: Path, journal: Watched) -> Weights:
    return small.weights(small.train(folder, journal, **SHORT))


def language(folder: Path, journal: Watched) -> Weights:
    trainer = small_language.begun(folder, journal, dropout=0.1, **SHORT)
    trainer.run()
    return small.weights(trainer)


def recommender(folder: Path, journal: Watched) -> Weights:
    settings = replace(RECOMMENDER, **SHORT)
    trainer = Trainer(settings, recommender_task.make(settings), ALONE, folder, journal)
    trainer.run()
    return small.weights(trainer)


def compress(folder: Path, journal: Watched) -> Weights:
    """Tunes what was pruned, then teaches a student; steps are counted through both."""
    compress_run.run(replace(COMPRESS, checkpoint=str(folder.parent / ORIGINAL), out=str(folder)), journal)
    whole = {name: compress_run.load(folder / name).state_dict() for name in ("prune", "distil")}
    return {f"{name}.{key}": value for name, one in whole.items() for key, value in one.items()}


CASES = {
    "vision": Case(vision, 10, (5, 9)),
    "language": Case(language, 10, (5, 9)),
    "recommender": Case(recommender, 10, (5, 9)),
    "compress": Case(compress, 16, (11, 15)),
}


def original(folder: Path) -> None:
    small_language.begun(folder / ORIGINAL, steps=2, held_out=0, dropout=0.1).run()


def killed(name: str, folder: Path) -> int:
    """The signal that ended it, or 0."""
    child = os.fork()
    if not child:
        try:
            CASES[name].run(folder / name, Watched(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == CASES[name].at else None))
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: killed(name, Path(sys.argv[1])) for name in CASES}))
