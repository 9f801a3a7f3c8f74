"""The measurements of `calibrate`, each with its median and its spread.

Invariant: a figure is the median of `repeats` runs, and `spread_ratio` half of what lies between the lowest and the highest of
them, as a part of the median: measured again on the same machine at rest, the medians differ by less than both spreads
together. What a machine does not have (a precision, a second rank) is absent, never 0.
"""

from __future__ import annotations

import contextlib
import importlib
import mmap
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from agent.recipes.calibrate import RECIPES, Calibrate
from agent.recipes.data import generator
from agent.recipes.faults import DataFault, WrongSettings
from agent.recipes.journal import Journal
from agent.recipes.ranks import Ranks, ranks

Figure = dict[str, Any]
PRECISIONS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
ALL_REDUCE_BYTES = 1 << 26
ALL_REDUCES = 3
PIECE_BYTES = 1 << 22
MB = 1 << 20


class Silent(Journal):
    """Of a recipe whose speed alone is wanted."""

    def __init__(self) -> None:
        super().__init__(speaks=False)
        self.ended: dict[str, object] = {}

    def line(self, **values: object) -> None:
        if values.get("event") == "end":
            self.ended = values


def run(settings: Calibrate, journal: Journal | None = None, team: Ranks | None = None) -> list[Figure]:
    """All measurements, each told as a line when it is there. Raises `RecipeFault`s."""
    with contextlib.nullcontext(team) if team else ranks(settings.device) as found:
        journal = journal or Journal(speaks=found.first)
        journal.line(event="start", recipe="calibrate", **hardware(found))
        figures = []
        for figure in _figures(settings, found):
            figures.append(figure)
            journal.line(event="figure", **figure)
        journal.line(event="end", figures=len(figures))
        return figures


def hardware(team: Ranks) -> dict[str, object]:
    """What was measured, and when (UTC)."""
    gpu = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else None
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"), "ranks": team.world, "device": team.device.type, "gpu": gpu,
        "gpu_memory_bytes": torch.cuda.get_device_properties(team.device).total_memory if gpu else None,
        "cpu": cpu_model(), "threads": torch.get_num_threads(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "host": platform.node(),
    }  # fmt: skip


def cpu_model() -> str | None:
    """As the kernel calls it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def _figures(settings: Calibrate, team: Ranks) -> Iterator[Figure]:
    yield from matrix_products(settings, team)
    yield memory_copy(settings, team)
    if team.device.type == "cuda":
        yield host_to_device(settings, team)
    if team.world > 1:
        yield all_reduce(settings, team)
    if settings.disk_mb and team.first:
        yield disk_read(settings)
    for name in _recipes(settings):
        yield recipe_speed(name, settings, team)


def figure(name: str, unit: str, values: list[float], **more: object) -> Figure:
    """`values` of the repeats, each in `unit`."""
    middle = statistics.median(values)
    return {"name": name, "value": middle, "unit": unit, "spread_ratio": (max(values) - min(values)) / 2 / middle,
            "repeats": len(values), **more}  # fmt: skip


def timed(settings: Calibrate, device: torch.device, work: Callable[[], object]) -> list[float]:
    """Seconds of one `work`, in each of the repeats; each repeats it for the least time."""
    work()
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    count = max(1, int(settings.seconds / max(1e-9, time.perf_counter() - began)))
    found = []
    for _ in range(settings.repeats):
        began = time.perf_counter()
        for _ in range(count):
            work()
        _wait(device)
        found.append((time.perf_counter() - began) / count)
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matrix_products(settings: Calibrate, team: Ranks) -> Iterator[Figure]:
    """Two square matrices multiplied, 2 n^3 operations: operations a second for each precision that the device has."""
    side = settings.size or (8192 if team.device.type == "cuda" else 1024)
    for name, dtype in PRECISIONS.items():
        if (name in ("tf32", "fp16") and team.device.type != "cuda") or not _has(name, team.device):
            continue
        one, other = (torch.randn(side, side, generator=generator(0, part)).to(team.device, dtype) for part in (1, 2))
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            seconds = timed(settings, team.device, lambda one=one, other=other: one @ other)  # type: ignore[misc]
        finally:
            torch.set_float32_matmul_precision(before)
        yield figure(f"matmul_{name}", "flops", [2 * side**3 / each for each in seconds], side=side)


def _has(name: str, device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return torch.cuda.get_device_capability(device) >= {"tf32": (8, 0), "bf16": (8, 0), "fp16": (5, 3)}.get(name, (0, 0))


def memory_copy(settings: Calibrate, team: Ranks) -> Figure:
    """One part of the device's memory copied to another: bytes read and written a second."""
    size = (settings.memory_mb or (1024 if team.device.type == "cuda" else 256)) * MB
    one = torch.zeros(size // 8, dtype=torch.int64, device=team.device)
    other = torch.empty_like(one)
    seconds = timed(settings, team.device, lambda: other.copy_(one))
    return figure("memory_copy", "bytes_per_second", [2 * size / each for each in seconds], bytes=size)


def host_to_device(settings: Calibrate, team: Ranks) -> Figure:
    """From page-locked memory of the host to the GPU: bytes a second."""
    size = (settings.memory_mb or 256) * MB
    here = torch.zeros(size, dtype=torch.uint8).pin_memory()
    there = torch.empty(size, dtype=torch.uint8, device=team.device)
    seconds = timed(settings, team.device, lambda: there.copy_(here, non_blocking=True))
    return figure("host_to_device", "bytes_per_second", [size / each for each in seconds], bytes=size)


def all_reduce(settings: Calibrate, team: Ranks) -> Figure:
    """Over all ranks; bytes a second as nccl-tests' bus bandwidth, 2 (n - 1) / n x bytes / seconds (its PERFORMANCE.md)."""
    values = torch.zeros(ALL_REDUCE_BYTES // 4, device=team.device)
    found = []
    for _ in range(settings.repeats + 1):  # as often on every rank, or they would wait for each other for ever
        dist.barrier()
        began = time.perf_counter()
        for _ in range(ALL_REDUCES):
            dist.all_reduce(values)
        _wait(team.device)
        found.append((time.perf_counter() - began) / ALL_REDUCES)
    moved = 2 * (team.world - 1) / team.world * ALL_REDUCE_BYTES
    return figure("all_reduce", "bytes_per_second", [moved / each for each in found[1:]], bytes=ALL_REDUCE_BYTES, ranks=team.world)


def disk_read(settings: Calibrate) -> Figure:
    """A file written, forgotten by the kernel's cache, and read from its start to its end: bytes a second.

    With O_DIRECT where the file system has it, else after posix_fadvise(DONTNEED), which is told. Raises `DataFault`.
    """
    folder = Path(settings.folder or os.environ.get("RACKRATE_CACHE_DIR") or tempfile.gettempdir())
    size = settings.disk_mb * MB
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".rackrate-calibrate-")
    except OSError as error:
        raise DataFault(f"--folder {folder}: no file can be written there ({error.strerror}); --disk-mb 0 leaves the disk out.") from None
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            piece = os.urandom(PIECE_BYTES)
            for _ in range(0, size, PIECE_BYTES):
                file.write(piece)
            os.fsync(file.fileno())
        found = [_read_once(name) for _ in range(settings.repeats)]
    except OSError as error:
        raise DataFault(f"--folder {folder}: the disk cannot be measured ({error.strerror}); --disk-mb 0 leaves it out.") from None
    finally:
        Path(name).unlink(missing_ok=True)
    direct = all(direct for _, direct in found)
    return figure("disk_read", "bytes_per_second", [size / seconds for seconds, _ in found], bytes=size, direct=direct)


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


def _recipes(settings: Calibrate) -> list[str]:
    names = [] if settings.recipes == "none" else [one.strip() for one in settings.recipes.split(",") if one.strip()]
    for name in names:
        if name not in RECIPES:
            raise WrongSettings(f"--recipes {name}: there is no such recipe to measure; {', '.join(RECIPES)}, or none.")
    return names


def recipe_speed(name: str, settings: Calibrate, team: Ranks) -> Figure:
    """Samples a second of all ranks, in a training on made data with the settings that ship; the first repeat warms up."""
    from agent.recipes.train import Trainer

    kind = getattr(importlib.import_module(f"agent.recipes.{name}"), name.capitalize())
    its = kind(
        steps=settings.steps, checkpoint_every=0, held_out=0, samples=2048, precision=settings.precision, device=settings.device,
        deterministic=settings.deterministic, tensorboard="off", log_every=settings.steps,
        **({"batch_size": settings.batch_size} if settings.batch_size else {}),
    )  # fmt: skip
    task = importlib.import_module(f"agent.recipes.{name}_task").make(its)
    speeds = []
    for _ in range(settings.repeats + 1):
        journal = Silent()
        with tempfile.TemporaryDirectory(prefix="rackrate-calibrate-") as folder:
            trainer = Trainer(its, task, team, Path(folder), journal)
            trainer.run()
        speeds.append(float(str(journal.ended["samples_per_second"])))
    about = {key: value for key, value in task.about.items() if isinstance(value, (int, str))}
    parameters = sum(one.numel() for one in trainer.plain.parameters())
    return figure(f"recipe_{name}", "samples_per_second", speeds[1:], batch_size=its.batch_size, precision=trainer.precision,
                  ranks=team.world, parameters=parameters, **about)  # fmt: skip
