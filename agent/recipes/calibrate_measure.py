"""What `calibrate` measures: each thing once, as often as it is asked.

Invariant: a `Measurement` holds all that it needs (memory, files, a model) from the moment that it is made, so that its
repeats can be spread over the whole of a calibration; what a machine does not have (a precision, a second rank) is absent.
"""

from __future__ import annotations

import importlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from agent.recipes.calibrate import RECIPES, Calibrate
from agent.recipes.data import generator
from agent.recipes.faults import DataFault, RecipeFault, WrongSettings
from agent.recipes.journal import Journal
from agent.recipes.ranks import Ranks
from agent.recipes.settings import Settings, read

PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ALL_REDUCE_BYTES = 1 << 26
ALL_REDUCES = 3
PIECE_BYTES = 1 << 22
MB = 1 << 20
TAKEN = (
    "steps", "data", "cache", "samples", "max_broken", "workers", "device", "deterministic", "threads", "checkpoint_dir", "checkpoint_every",
    "keep_checkpoints", "tensorboard", "log_every", "held_out",
)  # fmt: skip
"""Settings of a recipe that a figure would not tell: they are those of the calibration."""
SAMPLES = 2048
"""Made for a recipe's measurement."""


@dataclass
class Measurement:
    """`once`: one repeat, in `unit`. `about`: under which conditions, complete once it was measured."""

    name: str
    unit: str
    once: Callable[[], float]
    about: dict[str, Any] = field(default_factory=dict)


class Silent(Journal):
    """Of a recipe whose speed alone is wanted."""

    def __init__(self) -> None:
        super().__init__(speaks=False)
        self.samples_per_second = 0.0
        """Since the step's line before."""
        self.stopped = False

    def line(self, **values: object) -> None:
        self.stopped = self.stopped or values.get("event") == "stopped"
        if "event" not in values:
            self.samples_per_second = float(str(values["samples_per_second"]))


def measurements(settings: Calibrate, team: Ranks, kept: ExitStack) -> Iterator[Measurement]:
    """All that this machine has; `kept` removes what they need. Raises `RecipeFault`s."""
    recipes = chosen(settings)
    yield from matrix_products(settings, team)
    yield memory_copy(settings, team)
    if team.device.type == "cuda":
        yield host_to_device(settings, team)
    if team.world > 1:
        yield all_reduce(team)
    if settings.disk_mb and team.first:
        yield disk_read(settings, kept)
    for name, flags in recipes.items():
        yield recipe_speed(name, settings, team, flags)


def timed(settings: Calibrate, device: torch.device, work: Callable[[], object]) -> Callable[[], float]:
    """Measures the seconds of one `work`, which is repeated for the least time."""
    count = 0

    def once() -> float:
        nonlocal count
        if not count:
            work()
            _wait(device)
            count = max(1, int(settings.seconds / max(1e-9, _seconds(1))))
        return _seconds(count) / count

    def _seconds(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            work()
        _wait(device)
        return time.perf_counter() - began

    return once


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_products(settings: Calibrate, team: Ranks) -> Iterator[Measurement]:
    """Two square matrices multiplied, 2 n^3 operations: operations a second for each precision that the device has."""
    side = settings.size or (8192 if team.device.type == "cuda" else 1024)
    for name, dtype in PRECISIONS.items():
        if (name in ("tf32", "fp16") and team.device.type != "cuda") or not _has(name, team.device):
            continue
        one, other = (torch.randn(side, side, generator=generator(0, part)).to(team.device, dtype) for part in (1, 2))
        seconds = timed(settings, team.device, lambda one=one, other=other: one @ other)  # type: ignore[misc]
        yield Measurement(f"matmul_{name}", "flops", _product(seconds, 2 * side**3, tf32=name == "tf32"), {"side": side})


def _product(seconds: Callable[[], float], operations: int, *, tf32: bool) -> Callable[[], float]:
    def once() -> float:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        try:
            return operations / seconds()
        finally:
            torch.set_float32_matmul_precision(before)

    return once


def _has(name: str, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return torch.cuda.get_device_capability(device) >= {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3)}.get(name, (0, 0))


def memory_copy(settings: Calibrate, team: Ranks) -> Measurement:
    """One part of the device's memory copied to another: bytes read and written a second."""
    size = (settings.memory_mb or (1024 if team.device.type == "cuda" else 256)) * MB
    one = torch.zeros(size // 8, dtype=torch.int64, device=team.device)
    other = torch.empty_like(one)
    seconds = timed(settings, team.device, lambda: other.copy_(one))
    return Measurement("memory_copy", "bytes_per_second", lambda: 2 * size / seconds(), {"bytes": size})


def host_to_device(settings: Calibrate, team: Ranks) -> Measurement:
    """From page-locked memory of the host to the GPU: bytes a second."""
    size = (settings.memory_mb or 256) * MB
    here = torch.zeros(size, dtype=torch.uint8).pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=team.device)
    seconds = timed(settings, team.device, lambda: there.copy_(here, non_blocking=True))
    return Measurement("host_to_device", "bytes_per_second", lambda: size / seconds(), {"bytes": size})


def all_reduce(team: Ranks) -> Measurement:
    """Over all ranks; bytes a second as nccl-tests' bus bandwidth, 2 (n - 1) / n x bytes / seconds (its PERFORMANCE.md)."""
    values = torch.zeros(ALL_REDUCE_BYTES // 4, device=team.device)
    moved = 2 * (team.world - 1) / team.world * ALL_REDUCE_BYTES

    def once() -> float:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(ALL_REDUCES):  # as often on every rank, or they would wait for each other for ever
            dist.all_reduce(values)
        _wait(team.device)
        return moved * ALL_REDUCES / (time.perf_counter() - began)

    return Measurement("all_reduce", "bytes_per_second", once, {"bytes": ALL_REDUCE_BYTES, "ranks": team.world})


def disk_read(settings: Calibrate, kept: ExitStack) -> Measurement:
    """A file written, forgotten by the kernel's cache, and read from its start to its end: bytes a second.

    With O_DIRECT where the file system has it, else after posix_fadvise(DONTNEED), which is told. Raises `DataFault`.
    """
    folder = Path(settings.folder or os.environ.get("RACKRATE_CACHE_DIR") or tempfile.gettempdir())
    size, about = settings.disk_mb * MB, {"bytes": settings.disk_mb * MB, "direct": True}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".rackrate-calibrate-")
    except OSError as error:
        raise DataFault(f"--folder {folder}: no file can be written there ({error.strerror}); --disk-mb 0 leaves the disk out.") from None
    kept.callback(Path(name).unlink, missing_ok=True)

    def once() -> float:
        try:
            seconds, direct = _read_once(name)
        except OSError as error:
            raise _no_disk(folder, error) from None
        about["direct"] = about["direct"] and direct
        return size / seconds

    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            piece = os.urandom(PIECE_BYTES)
            for _ in range(0, size, PIECE_BYTES):
                file.write(piece)
            os.fsync(file.fileno())
    except OSError as error:
        raise _no_disk(folder, error) from None
    return Measurement("disk_read", "bytes_per_second", once, about)


def _no_disk(folder: Path, error: OSError) -> DataFault:
    return DataFault(f"--folder {folder}: the disk cannot be measured ({error.strerror}); --disk-mb 0 leaves it out.")


def _read_once(name: str) -> tuple[float, bool]:
    direct = True
    try:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        direct, handle = False, os.open(name, os.O_RDONLY)
    try:
        with mmap.mmap(-1, PIECE_BYTES) as room:  # page-aligned, as O_DIRECT wants it
            if not direct:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            began = time.perf_counter()
            while os.readv(handle, [room]):
                pass
            return time.perf_counter() - began, direct
    finally:
        os.close(handle)


def chosen(settings: Calibrate) -> dict[str, list[str]]:
    """The recipes to measure, each with the flags of `changes`. Raises `WrongSettings`."""
    names = [] if settings.recipes == "none" else [one.strip() for one in settings.recipes.split(",") if one.strip()]
    for name in names:
        if name not in RECIPES:
            raise WrongSettings(f"--recipes {name}: there is no such recipe to measure; {', '.join(RECIPES)}, or none.")
    found: dict[str, list[str]] = {name: [] for name in names}
    for text in filter(None, (one.strip() for one in settings.changes.split(","))):
        place, sign, value = text.partition("=")
        name, dot, key = place.partition(".")
        if not (sign and dot and key):
            raise WrongSettings(f"--changes {text}: it is written RECIPE.SETTING=VALUE, as in language.width=768.")
        if name not in found:
            raise WrongSettings(f"--changes {text}: {name} is not among the recipes that are measured ({', '.join(found) or 'none'}).")
        if key.strip().replace("-", "_") in TAKEN:
            raise WrongSettings(f"--changes {text}: {key} is no setting of the model; in a calibration it is the same for all recipes.")
        found[name].append(f"--{key.strip().replace('_', '-')}={value.strip()}")
    return found


def recipe_speed(name: str, settings: Calibrate, team: Ranks, changes: list[str]) -> Measurement:
    """Samples a second of all ranks, in a training on made data: of its second half, when every kernel has been chosen."""
    from agent.recipes import parallel
    from agent.recipes.train import Trainer

    kind = getattr(importlib.import_module(f"agent.recipes.{name}"), name.capitalize())
    half = settings.steps // 2
    flags = {
        "steps": 2 * half, "checkpoint-every": 0, "held-out": 0, "samples": SAMPLES, "precision": settings.precision,
        "device": settings.device, "deterministic": str(settings.deterministic).lower(), "tensorboard": "off", "log-every": half,
        **({"batch-size": settings.batch_size} if settings.batch_size else {}),
    }  # fmt: skip
    its = read(kind, name, [f"--{key}={value}" for key, value in flags.items()] + changes)
    task = importlib.import_module(f"agent.recipes.{name}_task").make(its)
    general = {one.name for one in fields(Settings)} - {"accumulate"}
    about = {key: value for key, value in task.about.items() if isinstance(value, (int, str))}
    own = {one.name: getattr(its, one.name) for one in fields(its) if one.name not in general}
    if "model" in about:
        own["model"] = about["model"]  # which one `auto` is here
    if "parallel" in own and parallel.kind(its, team) == parallel.DDP:
        own |= {"parallel": parallel.DDP, "tensor_ranks": 0}  # of one rank alone, whatever is asked
    about |= {"batch_size": its.batch_size, "ranks": team.world, "settings": own}

    def once() -> float:
        journal = Silent()
        trainer = Trainer(its, task, team, None, journal)
        trainer.run()
        if journal.stopped:
            raise RecipeFault("it was told to stop, and has measured nothing.")
        about["precision"] = trainer.precision
        about["parameters"] = sum(one.numel() for one in trainer.plain.parameters())
        return journal.samples_per_second

    return Measurement(f"recipe_{name}", "samples_per_second", once, about)
