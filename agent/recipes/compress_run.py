"""The compress recipe's work: reads a checkpoint, makes each smaller model, measures all, writes them and a report.

Invariant: a result's folder is whole when it has its name; run again with the same settings, results that are there are kept,
and a training that was stopped or killed goes on (compress_train.py).
"""

from __future__ import annotations

import copy
import functools
import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agent.recipes import checkpoints, compress_models, memory
from agent.recipes.calibrate import RECIPES
from agent.recipes.checkpoints import Checkpoint, Checkpoints
from agent.recipes.compress import METHODS, Compress
from agent.recipes.compress_measure import cost, figures, stored
from agent.recipes.compress_train import Lesson, Lessons, Stopped
from agent.recipes.data import Batch, mix
from agent.recipes.faults import CheckpointFault, OutOfMemory, WrongSettings
from agent.recipes.journal import Journal
from agent.recipes.ranks import choose
from agent.recipes.stop import SoftStop
from agent.recipes.train import DTYPES, identity_of, precision

REPORT = "report.json"
_HEADS = ("model", "accuracy", "size", "zipped", "latency", "samples/s", "$/million")


def run(settings: Compress, journal: Journal | None = None) -> dict[str, Any]:
    """All of it; the report. Raises `RecipeFault`s."""
    with SoftStop() as stop:
        return _run(Compressing(settings, journal or Journal(speaks=True), stop))


def _run(work: Compressing) -> dict[str, Any]:
    try:
        return work.run()
    except (RuntimeError, MemoryError) as error:
        if not memory.is_out_of_memory(error):
            raise
    raise OutOfMemory(f"{work.settings.batch_size} samples at once do not fit on {work.device}: use a smaller --batch-size.")


class Compressing:
    """One original and what is made of it."""

    def __init__(self, settings: Compress, journal: Journal, stop: SoftStop) -> None:
        self.settings, self.journal, self._stop = settings, journal, stop
        self.methods = _methods(settings)
        self.price = _price(settings.usd_per_hour)
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise WrongSettings("compress is the work of one process: start it without torchrun, on one GPU or none.")
        self.device = choose(settings.device, 0, 1, torch.cuda.device_count() if torch.cuda.is_available() else 0)
        self.precision = precision(settings.precision, self.device)
        torch.use_deterministic_algorithms(settings.deterministic)
        self.found, self.trained, self.task = original(settings.checkpoint, settings.data)
        self.model = self.task.model().to(self.device)
        self.model.load_state_dict(self.found.state["model"])
        if "distil" in self.methods:
            self._student()
        self.out = Path(settings.out or os.environ.get("RACKRATE_CHECKPOINT_DIR") or "compressed")
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointFault(f"{self.out}: results cannot be kept there ({error.strerror}).") from None
        money = {"usd_per_hour": "", "price_from": ""}
        own = asdict(replace(settings, methods="", out="", checkpoint="", **money))
        self.made_of = {"checkpoint": self.found.about["sha256" if "sha256" in self.found.about else checkpoints.FILES], **own}
        steps = {"prune": settings.tune_steps, "cut": settings.tune_steps, "distil": settings.distil_steps}
        steps = {name: steps[name] for name in self.methods if name in steps}
        self.lessons = Lessons(settings, self.out, steps, self.made_of, self.trained.max_broken, self.device, self.precision, journal, stop)

    def run(self) -> dict[str, Any]:
        """The report; empty where it was told to stop."""
        (self.out / checkpoints.STOPPED).unlink(missing_ok=True)
        self._starts()
        makers: dict[str, Callable[[], tuple[Any, nn.Module, dict[str, Any]]]] = {
            "original": lambda: (self.task, self.model, {}),
            "prune": self._pruned, "cut": self._cut, "quantise": self._quantised, "distil": self._distilled,
        }  # fmt: skip
        try:
            rows = {name: self._result(name, makers[name]) for name in ("original", *self.methods)}
        except Stopped:
            return self._stops()
        report = {"checkpoint": str(self.found.path), "recipe": self.task.name, "usd_per_hour": self.settings.usd_per_hour or None,
                  "price_from": self.settings.price_from or None, "device": self.device.type, "precision": self.precision,
                  "results": rows}  # fmt: skip
        _replace(self.out / REPORT, json.dumps(report, indent=1).encode())
        for line in (*table(rows), _priced(self.price, self.settings.price_from)):
            self.journal.say(line)
        self.journal.line(event="end", report=str(self.out / REPORT))
        return report

    def _starts(self) -> None:
        """Where it goes on: after all results that are whole, and what the one behind them had come to."""
        step, source = 0, self.task.source
        for name in self.lessons.names:
            if _before(self.out / name, self.made_of) is None:
                step += self.lessons.done(name)
                break
            step += self.lessons.steps(name)
        self.journal.line(
            event="start", recipe="compress", of=self.task.name, checkpoint=str(self.found.path), of_step=self.found.step,
            step=step, steps=self.lessons.total, batch_size=self.settings.batch_size, samples_an_epoch=source.samples,
            device=self.device.type, precision=self.precision, dataset=source.version, methods=list(self.methods),
        )  # fmt: skip
        if self.found.about.get("dataset") != source.version:
            self.journal.say(f"rackrate: it was trained with the data {self.found.about.get('dataset')}, and these are {source.version}.")

    def _stops(self) -> dict[str, Any]:
        _replace(self.out / checkpoints.STOPPED, json.dumps({"signal": self._stop.asked}).encode())
        self.journal.line(event="stopped", signal=self._stop.asked)
        return {}

    def _result(self, name: str, make: Callable[[], tuple[Any, nn.Module, dict[str, Any]]]) -> dict[str, Any]:
        """Of before, where it was made with these settings of this checkpoint; else it is made. Raises `Stopped`."""
        if (before := _before(self.out / name, self.made_of)) is not None:
            self.journal.say(f"rackrate: {name} is there already, in {self.out / name}.")
            return {**before, "usd_per_million_samples": cost(before["samples_per_second"], self.price)}
        if self._stop.asked is not None:
            raise Stopped
        task, model, about = make()
        found = figures(task, model, self.settings.batch_size, self.settings.repeats, self.device, self._autocast, self.price)
        facts = {"recipe": task.name, checkpoints.LAYOUT: task.layout, "settings": asdict(task.settings), "made_of": self.made_of, **about, "figures": found}
        self._write(name, model, facts)
        self.lessons.forget(name)
        self.journal.line(event="result", name=name, **found)
        return found

    def _pruned(self) -> tuple[Any, nn.Module, dict[str, Any]]:
        model = copy.deepcopy(self.model)
        compress_models.prune_weights(model, self.settings.prune)
        self.lessons.train(Lesson("prune", model, self.task, self._tuned(), lambda batch: self.task.loss(model, batch)))
        compress_models.fix(model)
        return self.task, model, {"share": self.settings.prune}

    def _cut(self) -> tuple[Any, nn.Module, dict[str, Any]]:
        model = copy.deepcopy(self.model)
        kept = compress_models.cut_units(model, self.settings.cut)
        self.lessons.train(Lesson("cut", model, self.task, self._tuned(), lambda batch: self.task.loss(model, batch)))
        return self.task, model, {"kept": kept}

    def _quantised(self) -> tuple[Any, nn.Module, dict[str, Any]]:
        model = copy.deepcopy(self.model).eval()
        return self.task, model, {"quantised": self.settings.quantise,
                                  "quantised_ratio": compress_models.quantise(model, self.settings.quantise)}  # fmt: skip

    def _distilled(self) -> tuple[Any, nn.Module, dict[str, Any]]:
        task = self._student()
        torch.manual_seed(mix(self.settings.seed))
        student = task.model().to(self.device)
        teacher = self.model.eval()

        def loss(batch: Batch) -> Tensor:
            with torch.no_grad():
                wanted = task.logits(teacher, batch)
            found = compress_models.likeness(task.logits(student, batch), wanted, self.settings.temperature)
            return (found + task.loss(student, batch)) / 2

        self.lessons.train(Lesson("distil", student, task, self.settings.learning_rate or self.trained.learning_rate, loss))
        return task, student, {"teacher": str(self.found.path)}

    def _student(self) -> Any:
        """Its task. Raises `WrongSettings` where it would not be smaller."""
        task = _task_module(self.task.name).make(compress_models.smaller(self.task.name, self.task.settings, self.settings.student))
        with torch.device("meta"):
            student = task.model()
        if sum(one.numel() for one in student.parameters()) >= sum(one.numel() for one in self.model.parameters()):
            raise WrongSettings(
                f"--student {self.settings.student:g}: the student would not be smaller than the original, which is as small as they get;"
                " leave distil out of --methods."
            )
        return task

    def _tuned(self) -> float:
        return self.settings.learning_rate or self.trained.learning_rate / 10

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, DTYPES[self.precision], enabled=self.precision != "fp32")

    def _write(self, name: str, model: nn.Module, facts: Mapping[str, Any]) -> None:
        aside = self.out / f".writing-{name}"
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            content = stored(model)
            (aside / checkpoints.STATE).write_bytes(content)
            known = {**facts, "sha256": hashlib.sha256(content).hexdigest()}
            (aside / checkpoints.ABOUT).write_text(json.dumps(known, indent=1))
            shutil.rmtree(self.out / name, ignore_errors=True)
            os.replace(aside, self.out / name)
        except OSError as error:
            raise CheckpointFault(f"{self.out / name}: the result could not be written ({error.strerror}).") from None


def original(folder: str, data: str) -> tuple[Checkpoint, Any, Any]:
    """The newest whole checkpoint of a training, its settings and its task. Raises `CheckpointFault` and `WrongSettings`."""
    if not folder:
        raise WrongSettings("--checkpoint: which folder of checkpoints is to be compressed? The first line of a training names its own.")
    path = Path(folder)
    if not path.is_dir():
        raise CheckpointFault(f"--checkpoint {folder} {'is no folder' if path.exists() else 'does not exist'} on this node.")
    found, skipped = Checkpoints(path, {}, read_any=True).newest()
    if found is None:
        why = f" ({'; '.join(skipped)})" if skipped else ""
        raise CheckpointFault(f"--checkpoint {folder} holds no whole checkpoint{why}.")
    recipe = str(found.about["model"].get("recipe"))
    if recipe not in RECIPES:
        raise CheckpointFault(f"{found.path} is of a recipe `{recipe}`; those of {', '.join(RECIPES)} can be compressed.")
    checkpoints.check_layout(found.path, found.about, _task_module(recipe).LAYOUT)
    kind = getattr(importlib.import_module(f"agent.recipes.{recipe}"), recipe.capitalize())
    known = {one.name for one in fields(kind)}
    given = {key: value for key, value in found.about.get("settings", {}).items() if key in known}
    trained = kind(**{**given, **({"data": data} if data else {})})
    task = _task_module(recipe).make(trained)
    if differences := checkpoints.differences(found.about["model"], identity_of(task)):
        raise CheckpointFault(f"{found.path} does not go with --data {trained.data or 'none'} ({differences}).")
    return found, trained, task


def load(folder: Path) -> nn.Module:
    """A result as a model that answers. Raises `CheckpointFault` where it is not whole."""
    about = json.loads((folder / checkpoints.ABOUT).read_bytes())
    content = (folder / checkpoints.STATE).read_bytes()
    if hashlib.sha256(content).hexdigest() != about["sha256"]:
        raise CheckpointFault(f"{folder} is half-written or damaged.")
    checkpoints.check_layout(folder, {"model": about}, _task_module(about["recipe"]).LAYOUT)
    kind = getattr(importlib.import_module(f"agent.recipes.{about['recipe']}"), about["recipe"].capitalize())
    model: nn.Module = _task_module(about["recipe"]).make(kind(**about["settings"])).model()
    compress_models.take_out(model, about.get("kept", {}))
    if "quantised" in about:
        compress_models.quantise(model, about["quantised"])
    model.load_state_dict(torch.load(folder / checkpoints.STATE, map_location="cpu", weights_only=True), assign=True)
    return model.eval()


@functools.cache
def _task_module(recipe: str) -> Any:
    return importlib.import_module(f"agent.recipes.{recipe}_task")


def _before(folder: Path, made_of: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        about = json.loads((folder / checkpoints.ABOUT).read_bytes())
        same = about["made_of"] == json.loads(json.dumps(made_of)) and about["layout"] == _task_module(about["recipe"]).LAYOUT
        whole = hashlib.sha256((folder / checkpoints.STATE).read_bytes()).hexdigest() == about["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return about["figures"] if same and whole else None


def _methods(settings: Compress) -> tuple[str, ...]:
    given = [one.strip() for one in settings.methods.split(",") if one.strip()]
    for one in given:
        if one not in METHODS:
            raise WrongSettings(f"--methods {one}: there is no such method; {', '.join(METHODS)}.")
    for name in ("prune", "cut", "student"):
        if getattr(settings, name) >= 1:
            raise WrongSettings(f"--{name} {getattr(settings, name):g} leaves nothing, or everything: it is below 1.")
    return tuple(dict.fromkeys(given))


def _price(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price <= 0:
        raise WrongSettings(f"--usd-per-hour {text}: it has to be a number above 0, as in 1.21.")
    return price


def _priced(price: Decimal | None, source: str) -> str:
    if price is None:
        return "$/million is not known: what this runs on has no price here; say it with --usd-per-hour."
    return f"$/million samples: at ${price.normalize():f} an hour, {source or 'as --usd-per-hour says'}."


def _replace(path: Path, content: bytes) -> None:
    aside = path.with_name(f".{path.name}.tmp")
    try:
        aside.write_bytes(content)
        os.replace(aside, path)
    except OSError as error:
        raise CheckpointFault(f"{path} could not be written ({error.strerror}).") from None


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """For a person: each result beside the original."""
    lines = [_HEADS]
    for name, row in rows.items():
        accuracy = "–" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
        sizes = [f"{row[key] / 1e6:.2f} MB" for key in ("size_bytes", "zipped_bytes")]
        latency, speed = f"{row['latency_seconds'] * 1e3:.2f} ms", f"{row['samples_per_second']:,.0f}"
        lines.append((name, accuracy, *sizes, latency, speed, row["usd_per_million_samples"] or "–"))
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEADS))]
    return ["  ".join(cell.ljust(widths[0]) if not place else cell.rjust(widths[place]) for place, cell in enumerate(line)) for line in lines]
