"""The loop that every recipe shares: ranks, precision, pieces of a batch, checkpoints, the soft stop, one line a step.

Invariant: after step N the weights depend on the settings and N alone (bit for bit with --deterministic and as many ranks as
before; within rounding on another number of ranks), however often the training was killed and run again.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from agent.recipes import checkpoints, memory, parallel, shards
from agent.recipes.checkpoints import Checkpoint, Checkpoints
from agent.recipes.data import Batch, BrokenFiles, Loaded, Source, Steps, generator, loader, mix
from agent.recipes.entry import different
from agent.recipes.faults import CheckpointFault, DataFault, OutOfMemory, RecipeFault, WrongSettings
from agent.recipes.journal import Journal, patience
from agent.recipes.pace import Pace
from agent.recipes.ranks import Ranks
from agent.recipes.scalars import Scalars
from agent.recipes.settings import Settings
from agent.recipes.sharded import ShardedCheckpoints, elsewhere
from agent.recipes.stop import SoftStop

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CURVE = ("batch_size", "seed", "learning_rate", "warmup_steps", "weight_decay", "steps", "samples", "block", "mixed_blocks")
"""Settings of which the loss curve depends, so that a resume with others is told."""


class Task(Protocol):
    """What a recipe brings: its model, its data, and what they have to do with each other."""

    name: str
    layout: int
    """Raised when weights of the same names and shapes come to mean something else, so that no checkpoint is misread."""
    identity: Mapping[str, object]
    """What makes the model: settings of which the shape of the weights depends."""
    source: Source
    clip: float
    """Longest gradient; 0: any."""
    about: Mapping[str, object]
    """What else the first line tells, such as the tokens of a sample."""

    def model(self) -> nn.Module: ...

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer: ...

    def draws(self, samples: int, chance: torch.Generator) -> Tensor:
        """Random numbers for the augmentation of so many samples: (samples, any; 0 where there is none)."""

    def prepare(self, batch: Batch, draws: Tensor | None, device: torch.device) -> Batch:
        """On the device, and augmented where there are draws."""

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model answers: (samples, ..., classes), or (samples,) of yes."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean over the batch."""

    def right(self, model: nn.Module, batch: Batch) -> Tensor:
        """Of each sample, how right the model is: (samples,) from 0 to 1."""


class Trainer:
    """One training on one rank. `folder`: of its checkpoints; None: nothing is kept, as where its speed alone is wanted."""

    def __init__(self, settings: Settings, task: Task, team: Ranks, folder: Path | None, journal: Journal | None = None) -> None:
        self.kind, team = parallel.kind(settings, team), parallel.laid_out(settings, team)
        self.settings, self.task, self.team = settings, task, team
        self.part = _pieces_fit(settings, team)
        self.precision = precision(settings.precision, team.device)
        parallel.precision_fits(self.kind, self.precision)
        self.journal, self.folder = journal or Journal(speaks=team.first), folder
        torch.use_deterministic_algorithms(settings.deterministic)
        torch.backends.cudnn.benchmark = not settings.deterministic
        torch.manual_seed(mix(settings.seed))
        self.plain = parallel.placed(task.model(), task, self.kind, team)
        self.optimizer = task.optimizer(self.plain)
        self.scaler = torch.amp.GradScaler(team.device.type, enabled=self.precision == "fp16")
        self._order = task.source.order(settings.batch_size, settings.seed)
        self.saved = self._checkpoints(folder)
        self.step = self._resume()
        self.scalars = Scalars(settings.tensorboard, folder or Path(), self.step, speaks=team.first)
        copies = team.world > 1 and self.kind == parallel.DDP
        self.model: nn.Module = DistributedDataParallel(self.plain) if copies else self.plain
        self._broken = BrokenFiles(task.source, settings.max_broken)

    # The whole of it

    def run(self) -> None:
        """To the end, or to a soft stop: both have saved when this returns."""
        try:
            self._run()
        finally:
            self.model = self.plain  # what exchanges gradients must not outlive the ranks' group: freed last, it never returns

    def _run(self) -> None:
        with SoftStop() as stop, contextlib.closing(self.scalars):
            self._starts()
            pace, loss = Pace(self.settings.batch_size, self.step, self.team.device), math.nan
            for loaded in pace.watched(self._batches()):
                loss, asked = self.team.sum(self.train(self._whole(loaded)) / self.team.world, float(stop.asked is not None))
                self._told(loss, pace, last=bool(asked))
                if asked:
                    return self._stops(stop.asked or "a signal to another rank")
                if self.settings.checkpoint_every and self.step % self.settings.checkpoint_every == 0:
                    self._save()
            self._ends(loss, pace)

    def train(self, batch: Batch) -> float:
        """One step with this rank's part of the batch; its mean loss. Raises `OutOfMemory`."""
        try:
            loss = self.backward(batch)
            self._set_rate()
            if self.task.clip:
                self.scaler.unscale_(self.optimizer)
                parallel.shorten(self.plain.parameters(), self.task.clip, self.kind, self.team)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            return float(loss)
        except (RuntimeError, MemoryError) as error:
            if not memory.is_out_of_memory(error):
                raise
        raise self._out_of_memory(batch)  # outside: the error's traceback would hold the tensors

    def backward(self, batch: Batch) -> Tensor:
        """The gradients of the next step, piece by piece; ranks exchange them with the last one."""
        step, settings = self.step + 1, self.settings
        reseed(mix(settings.seed, step, self.team.place), self.team.device)  # dropout and the like
        draws = self.task.draws(settings.batch_size, generator(settings.seed, 1, step))[self.part]
        size, total = len(draws) // settings.accumulate, torch.zeros((), device=self.team.device)
        for number in range(settings.accumulate):
            piece = slice(number * size, (number + 1) * size)
            with parallel.alone_until(self.model, number == settings.accumulate - 1), self._autocast():
                prepared = self.task.prepare(_cut(batch, piece), draws[piece], self.team.device)
                loss = self.task.loss(self.model, prepared) / settings.accumulate
                self.scaler.scale(loss).backward()
            total += loss.detach()
        return total

    # Its parts

    def _batches(self) -> Iterator[Loaded]:
        steps = Steps(self._order, self.part, self.step + 1, self.settings.steps)
        yield from loader(self.task.source, steps, self.settings.workers, pinned=self.team.device.type == "cuda")

    def _whole(self, loaded: Loaded) -> Batch:
        for sentence in self._broken.met(loaded.broken):
            self.journal.say(f"rackrate: {sentence}")
        if not loaded.batch:
            raise DataFault("no sample of a batch can be read, nor one in its place.")
        return loaded.batch

    def _set_rate(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * rate(self.step, self.settings.warmup_steps, self.settings.steps)

    def _autocast(self) -> Any:
        return torch.autocast(self.team.device.type, DTYPES[self.precision], enabled=self.precision != "fp32")

    def _told(self, loss: float, pace: Pace, *, last: bool) -> None:
        """Raises `RecipeFault` for a loss that is none: no checkpoint may be made of it."""
        if not math.isfinite(loss):
            bf16 = ", or --precision bf16" * (self.precision == "fp16")
            raise RecipeFault(
                f"the loss of step {self.step} is {loss}: try a lower --learning-rate{bf16}; the last checkpoint is from before."
            )
        if last or self.step % self.settings.log_every == 0 or self.step == self.settings.steps:
            samples = self.task.source.samples
            epoch = self.step * self.settings.batch_size / samples if samples else None
            told = {"loss": loss, "epoch": epoch, **pace.since(self.step)}
            self.journal.line(step=self.step, time=int(time.time()), **told)
            self.scalars.add(self.step, {**told, "learning_rate": self.optimizer.param_groups[0]["lr"]})

    def _starts(self) -> None:
        settings, source = self.settings, self.task.source
        if self.scalars.error:
            self.journal.say(f"rackrate: {self.scalars.error}.")
        if self.saved and self.team.first:
            for marker in (checkpoints.STOPPED, checkpoints.FINISHED):
                self.saved.unmark(marker)
        self.journal.line(
            event="start", recipe=self.task.name, step=self.step, steps=settings.steps, ranks=self.team.world,
            parallel=self.kind, device=self.team.device.type, precision=self.precision,
            parameters=sum(one.numel() for one in self.plain.parameters()),
            checkpoints=str(self.folder.absolute()) if self.folder else None, dataset=source.version,
            samples_an_epoch=source.samples, batch_size=settings.batch_size, **self.task.about,
        )  # fmt: skip

    def _stops(self, why: str) -> None:
        self._save()
        self._mark(checkpoints.STOPPED, step=self.step, steps=self.settings.steps, signal=why)
        self.journal.line(event="stopped", step=self.step, steps=self.settings.steps, signal=why)

    def _ends(self, loss: float, pace: Pace) -> None:
        self._save()
        accuracy = self.accuracy()
        known = {"accuracy": accuracy, "dataset": self.task.source.version, "broken_files": len(self._broken.numbers)}
        self._mark(checkpoints.FINISHED, step=self.step, **known)
        self.scalars.add(self.step, {"accuracy": accuracy})
        self.journal.line(event="end", step=self.step, loss=loss, **known, **pace.whole())

    def accuracy(self) -> float | None:
        """Of the samples that are kept apart; each rank judges its share. None: there are none."""
        source, place, parts = self.task.source, self.team.place, self.team.data
        held = source.held if source.held_out else ()
        if not held:
            return None
        numbers = list(held[place::parts])
        even = numbers + [held[0]] * (-(-len(held) // parts) - len(numbers))  # shards take all ranks the same calls
        size = max(1, self.settings.batch_size // parts // self.settings.accumulate)
        groups = [even[at : at + size] for at in range(0, len(even), size)]
        right, count = 0.0, 0
        self.plain.eval()
        with torch.no_grad(), self._autocast():
            for loaded in loader(source, groups, self.settings.workers, pinned=False):
                found = self.task.right(self.plain, self.task.prepare(self._whole(loaded), None, self.team.device))
                found = found[: len(numbers) - count]
                right, count = right + float(found.sum()), count + len(found)
        self.plain.train()
        right, count = self.team.sum(right, count)
        return right / count

    # Checkpoints

    def _checkpoints(self, folder: Path | None) -> Checkpoints | None:
        """Of shards on each rank; else the first has all."""
        if folder is None:
            return None
        identity, keep = identity_of(self.task), self.settings.keep_checkpoints
        if self.kind != parallel.DDP:
            return ShardedCheckpoints(folder, identity, keep, self.team)
        kept = Checkpoints(folder, identity, keep) if self.team.first else None
        if self.team.world > 1 and elsewhere(folder, self.team):
            self.journal.say(f"rackrate: checkpoints are in {folder} on the first rank's node alone, and are lost with it;"
                             " with --checkpoint-dir name a folder that all nodes share.")  # fmt: skip
        return kept

    def _save(self) -> None:
        if self.saved is None:
            return
        known = {"dataset": self.task.source.version, "settings": asdict(self.settings), "ranks": self.team.world}
        known["order"] = self._order.mark(self.step * self.settings.batch_size)
        scaler = self.scaler.state_dict()
        if isinstance(self.saved, ShardedCheckpoints):
            self.saved.save_shards(self.step, self.plain, self.optimizer, scaler=scaler, **known)
        else:
            state = {"model": self.plain.state_dict(), "optimizer": self.optimizer.state_dict(), "scaler": scaler}
            self.saved.save(self.step, state, **known)

    def _mark(self, name: str, **values: object) -> None:
        if self.saved:
            self.saved.wait()
            if self.team.first:
                self.saved.mark(name, **values)

    def _resume(self) -> int:
        """The step to go on from. The first rank looks for it; a folder without shards may be on its node alone."""
        found, fault = None, None
        try:
            found = self._newest() if self.saved and self.team.first else None
        except CheckpointFault as error:
            fault = str(error)
        found, fault = self.team.share((found, fault))
        if fault:
            raise CheckpointFault(fault)
        if found is None:
            return 0
        self._take(found)
        self._order.take(found.about.get("order"))
        return int(found.step)

    def _take(self, found: Checkpoint) -> None:
        """Weights and the optimizer's averages, however many ranks wrote them, and whatever they shared."""
        state, together = found.state, isinstance(self.saved, ShardedCheckpoints)
        scaler = found.about.get("scaler") if found.sharded else state["scaler"]
        if isinstance(self.saved, ShardedCheckpoints):
            self.saved.goes_on_from(found.step)
        if isinstance(self.saved, ShardedCheckpoints) and found.sharded:
            self.saved.load(found.path.name, self.plain, self.optimizer)
        elif found.sharded or together:
            averages = state["averages"] if found.sharded else shards.averages_of(state["optimizer"], self.plain, self.optimizer)
            shards.put(self.plain, self.optimizer, state["model"], averages)
        else:
            self.plain.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        if scaler:
            self.scaler.load_state_dict(scaler)

    def _newest(self) -> Checkpoint | None:
        assert self.saved is not None
        found, skipped = self.saved.newest(gather=self.kind == parallel.DDP)
        about = found.about if found else {}
        notes = different(self.settings, about.get("settings", {}), CURVE)
        if found and about.get("dataset") != self.task.source.version:
            notes.append(f"the data were {about.get('dataset')} in the checkpoint and are {self.task.source.version}")
        for sentence in (*skipped, *notes):
            self.journal.say(f"rackrate: {sentence}.")
        if skipped and found is None:
            self.journal.say(f"rackrate: no checkpoint in {self.folder} is whole: it begins anew.")
        if found:
            self.journal.say(f"rackrate: goes on from {found.path}, after step {found.step}.")
        return found

    # Memory

    def _out_of_memory(self, batch: Batch) -> OutOfMemory:
        settings, device = self.settings, self.team.device
        piece = (self.part.stop - self.part.start) // settings.accumulate
        if self.kind != parallel.DDP:  # no rank can try a smaller one alone
            return OutOfMemory(memory.untried(self.step + 1, piece, settings.accumulate, device))
        self.optimizer.zero_grad(set_to_none=True)
        fixed, capacity, where = memory.room(device)
        if capacity is not None and not self.optimizer.state:  # its averages come with the first step
            capacity -= 2 * sum(one.numel() * one.element_size() for one in self.plain.parameters())
        alone = copy.deepcopy(self.plain) if self.team.world > 1 else self.plain  # gradients of its own wake no other rank
        with patience(f"{piece} samples at once do not fit; smaller batches are tried", speaks=self.team.first):
            fits = memory.fitting(lambda size: self._attempt(alone, _cut(batch, slice(size))), piece, fixed, capacity)
        return OutOfMemory(memory.sentence(self.step + 1, piece, self.team.world, settings.accumulate, fits, where))

    def _attempt(self, model: nn.Module, batch: Batch) -> int | None:
        """Peak (bytes) of a step with this batch on this rank alone; None where it does not fit."""
        device = self.team.device
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
        try:
            count = len(next(iter(batch.values())))
            draws = self.task.draws(count, generator(self.settings.seed))
            with self._autocast():
                self.task.loss(model, self.task.prepare(batch, draws, device)).backward()
            return memory.used_bytes(device) or 0
        except (RuntimeError, MemoryError) as error:
            if not memory.is_out_of_memory(error):
                raise
            return None
        finally:
            model.zero_grad(set_to_none=True)


def identity_of(task: Task) -> dict[str, object]:
    """What a checkpoint has to be of."""
    return {"recipe": task.name, checkpoints.LAYOUT: task.layout, **task.identity}


def rate(step: int, warmup: int, steps: int) -> float:
    """Share of the highest learning rate after `step` steps: a line up, then half a cosine down."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def precision(asked: str, device: torch.device) -> str:
    """Raises `WrongSettings` for one that the device does not have."""
    if asked == "auto":
        if device.type != "cuda":
            return "fp32"
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if asked == "fp16" and device.type != "cuda":
        raise WrongSettings("--precision fp16 needs a GPU; on the CPU use bf16 or fp32.")
    return asked


def _pieces_fit(settings: Settings, team: Ranks) -> slice:
    part = team.part(settings.batch_size)
    if (part.stop - part.start) % settings.accumulate:
        raise WrongSettings(
            f"--accumulate {settings.accumulate} does not divide the {part.stop - part.start} samples of each rank"
            f" (--batch-size {settings.batch_size} over {team.world})."
        )
    return part


def _cut(batch: Batch, piece: slice) -> Batch:
    return {name: values[piece] for name, values in batch.items()}


def reseed(seed: int, device: torch.device) -> None:
    """What `torch.manual_seed` does, for one device: that one notes the whole call stack for GPUs that are not in use."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
