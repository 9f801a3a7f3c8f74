"""A vision training that takes seconds on one core."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from agent.recipes import vision_task
from agent.recipes.data import Batch
from agent.recipes.journal import Journal
from agent.recipes.ranks import Ranks
from agent.recipes.train import Trainer
from agent.recipes.vision import Vision

SETTINGS = Vision(
    model="small", width=8, image_size=16, classes=4, batch_size=16, steps=40, warmup_steps=5, samples=256, held_out=64,
    checkpoint_every=10, deterministic=True, device="cpu", tensorboard="off",
)  # fmt: skip
ALONE = Ranks(0, 1, torch.device("cpu"))


class Watched(Journal):
    """Calls `after(step)` behind each step's line, and keeps all lines."""

    def __init__(self, after: Callable[[int], None] = lambda step: None, *, speaks: bool = True) -> None:
        self.out, self.err = StringIO(), StringIO()
        super().__init__(speaks=speaks, out=self.out, err=self.err)
        self._after = after

    def line(self, **values: object) -> None:
        super().line(**values)
        if "event" not in values:
            self._after(int(str(values["step"])))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]

    @property
    def losses(self) -> dict[int, float]:
        return {one["step"]: one["loss"] for one in self.lines if "event" not in one}

    def event(self, name: str) -> dict[str, Any]:
        (found,) = (one for one in self.lines if one.get("event") == name)
        return found


def train(folder: Path, journal: Journal | None = None, team: Ranks = ALONE, **changes: Any) -> Trainer:
    """Trains to the end, or to a stop."""
    trainer = begun(folder, journal, team, **changes)
    trainer.run()
    return trainer


def begun(folder: Path, journal: Journal | None = None, team: Ranks = ALONE, **changes: Any) -> Trainer:
    settings = replace(SETTINGS, **changes)
    return Trainer(settings, vision_task.make(settings), team, folder, journal or Watched())


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return trainer.plain.state_dict()


def first_batch(trainer: Trainer) -> Batch:
    """This rank's part."""
    (loaded, *_) = trainer._batches()
    return loaded.batch


def gradients(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Of the first step; the trainer is as before."""
    trainer.backward(first_batch(trainer))
    found = {name: one.grad.clone() for name, one in trainer.plain.named_parameters() if one.grad is not None}
    trainer.optimizer.zero_grad(set_to_none=True)
    return found


def as_rank(folder: Path, team: Ranks, at: int) -> None:
    """Keeps the first step's gradients in FOLDER/gradients.pt; the second rank alone is told to stop after step `at`."""
    stops = Watched(lambda step: os.kill(os.getpid(), signal.SIGTERM) if team.rank == 1 and step == at else None)
    trainer = begun(folder / "checkpoints", stops, team)
    found = gradients(trainer)
    if team.first:
        torch.save(found, folder / "gradients.pt")
    trainer.run()
    assert trainer.model is trainer.plain, "what exchanges gradients would outlive the ranks' group"
    (folder / f"rank-{team.rank}").write_text(stops.out.getvalue())
