"""The trainings of compress: a model that is tuned after pruning or cutting, and a student.

Invariant: as in train.py: after step N the weights depend on the settings, the original and N alone, however often the
training was killed and run again. Steps are counted through all trainings of a run, so that its lines are one curve.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agent.recipes.checkpoints import Checkpoints
from agent.recipes.compress import Compress
from agent.recipes.data import Batch, BrokenFiles, Steps, generator, loader, mix
from agent.recipes.faults import DataFault, RecipeFault
from agent.recipes.journal import Journal
from agent.recipes.pace import Pace
from agent.recipes.stop import SoftStop
from agent.recipes.train import DTYPES, rate, reseed


class Stopped(Exception):
    """Told to stop, and saved."""


class Lesson(NamedTuple):
    """One training: `loss` of a batch is what the model learns by, `highest` its learning rate."""

    name: str
    model: nn.Module
    task: Any
    highest: float
    loss: Callable[[Batch], Tensor]


class Lessons:
    """All trainings of a run. `steps`: of each, in their order; `made_of`: what their weights depend on."""

    def __init__(
        self, settings: Compress, out: Path, steps: Mapping[str, int], made_of: Mapping[str, Any], max_broken: float,
        device: torch.device, precision: str, journal: Journal, stop: SoftStop,
    ) -> None:  # fmt: skip
        self._settings, self._out, self._steps, self._max_broken = settings, out, steps, max_broken
        self._device, self._precision, self._journal, self._stop = device, precision, journal, stop
        self._broken: dict[str, BrokenFiles] = {}
        words = json.dumps(made_of, sort_keys=True)
        self._mark = hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def names(self) -> list[str]:
        return list(self._steps)

    def steps(self, name: str) -> int:
        return self._steps[name]

    @property
    def total(self) -> int:
        return sum(self._steps.values())

    def before(self, name: str) -> int:
        """Steps of those that come first."""
        return sum(self._steps[one] for one in self.names[: self.names.index(name)])

    def done(self, name: str) -> int:
        """Steps of it that a killed run has left, by the name of its newest checkpoint; whether that is whole is seen later."""
        return max((int(path.name[5:]) for path in self._folder(name).glob("step-*")), default=0)

    def forget(self, name: str) -> None:
        """Its checkpoints: its result is written, or they are of other settings."""
        for path in self._out.glob(f".training-{name}-*"):
            shutil.rmtree(path, ignore_errors=True)

    def train(self, lesson: Lesson) -> None:
        """To its end. Raises `Stopped`, and `RecipeFault`s."""
        steps = self._steps[lesson.name]
        if not steps:
            return
        task, settings = lesson.task, self._settings
        for path in self._out.glob(f".training-{lesson.name}-*"):
            if path != self._folder(lesson.name):
                shutil.rmtree(path, ignore_errors=True)
        kept = Checkpoints(self._folder(lesson.name), {"method": lesson.name}, keep=1)
        optimizer = task.optimizer(lesson.model.train())
        scaler = torch.amp.GradScaler(self._device.type, enabled=self._precision == "fp16")
        first = self._resume(kept, lesson.model, optimizer, scaler)
        source = task.source
        broken = self._broken.setdefault(source.version, BrokenFiles(source, self._max_broken))  # each is told once
        order = source.order(settings.batch_size, settings.seed)
        pace = Pace(settings.batch_size, first, self._device)
        batches = loader(source, Steps(order, slice(None), first + 1, steps), 0, pinned=False)
        for step, loaded in enumerate(pace.watched(batches), first + 1):
            for sentence in broken.met(loaded.broken):
                self._journal.say(f"rackrate: {sentence}")
            if not loaded.batch:
                raise DataFault("no sample of a batch can be read, nor one in its place.")
            found = self._step(lesson, optimizer, scaler, step, loaded.batch)
            self._told(lesson.name, step, found, pace)
            asked = self._stop.asked is not None
            if asked or step == steps or (settings.checkpoint_every and step % settings.checkpoint_every == 0):
                state = {"model": lesson.model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
                kept.save(step, state)
            if asked:
                kept.wait()
                raise Stopped
        kept.wait()
        lesson.model.eval()

    def _folder(self, name: str) -> Path:
        return self._out / f".training-{name}-{self._mark}"

    def _resume(self, kept: Checkpoints, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: Any) -> int:
        found, skipped = kept.newest()
        for sentence in skipped:
            self._journal.say(f"rackrate: {sentence}.")
        if found is None:
            return 0
        model.load_state_dict(found.state["model"])
        optimizer.load_state_dict(found.state["optimizer"])
        if found.state["scaler"]:
            scaler.load_state_dict(found.state["scaler"])
        self._journal.say(f"rackrate: goes on from {found.path}, after step {found.step}.")
        return found.step

    def _step(self, lesson: Lesson, optimizer: torch.optim.Optimizer, scaler: Any, step: int, batch: Batch) -> float:
        settings, number, task = self._settings, step - 1, lesson.task
        reseed(mix(settings.seed, step), self._device)  # dropout and the like
        draws = task.draws(settings.batch_size, generator(settings.seed, 1, number))
        for group in optimizer.param_groups:
            group["lr"] = lesson.highest * rate(number, 0, self._steps[lesson.name])
        with torch.autocast(self._device.type, DTYPES[self._precision], enabled=self._precision != "fp32"):
            found = lesson.loss(task.prepare(batch, draws[: len(next(iter(batch.values())))], self._device))
        scaler.scale(found).backward()
        if task.clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(lesson.model.parameters(), task.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return float(found.detach())

    def _told(self, name: str, step: int, loss: float, pace: Pace) -> None:
        """Raises `RecipeFault` for a loss that is none."""
        if not math.isfinite(loss):
            raise RecipeFault(f"the loss of step {step} of {name} is {loss}: try a lower --learning-rate.")
        self._journal.line(step=self.before(name) + step, method=name, time=int(time.time()), loss=loss, **pace.since(step))
