"""What a model is worth: right answers, bytes, milliseconds, samples a second, and dollars for a million samples.

Invariant: each figure is measured on the model as it is stored; what is not known (no held-out samples, no price) is None.
"""

from __future__ import annotations

import io
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import torch
from torch import nn

from agent.recipes.data import Batch, loader
from agent.recipes.faults import DataFault

WARM = 2
"""Runs before the first that is measured."""
MILLION = 1_000_000


def figures(
    task: Any, model: nn.Module, batch_size: int, repeats: int, device: torch.device, autocast: Callable[[], Any],
    usd_per_hour: Decimal | None,
) -> dict[str, Any]:
    """The model is left in `eval`. Sizes in bytes: as stored, and zipped (zeros take no room there)."""
    model.eval()
    content = stored(model)
    zeros, count = zero_weights(model)
    with torch.inference_mode(), autocast():
        accuracy = right_share(task, model, batch_size, device)
        one, many = (_times(task, model, size, repeats, device) for size in (1, batch_size))
    samples_per_second = batch_size / statistics.median(many)
    return {
        "accuracy": accuracy, "parameters": count, "zero_ratio": zeros / count if count else 0.0,
        "size_bytes": len(content), "zipped_bytes": len(zlib.compress(content, 6)),
        "latency_seconds": statistics.median(one), "latency_seconds_worst": max(one),
        "samples_per_second": samples_per_second, "usd_per_million_samples": cost(samples_per_second, usd_per_hour),
    }  # fmt: skip


def cost(samples_per_second: float, usd_per_hour: Decimal | None) -> str | None:
    """Dollars of a million samples, to six places."""
    if usd_per_hour is None:
        return None
    seconds = Decimal(MILLION) / Decimal(repr(samples_per_second))
    return f"{usd_per_hour * seconds / 3600:.6f}"


def stored(model: nn.Module) -> bytes:
    """As it is written to a file."""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.getvalue()


def zero_weights(model: nn.Module) -> tuple[int, int]:
    """How many weights are 0, of how many; those of int8 layers are counted by their int8 values."""
    zeros = count = 0
    for one in model.parameters():
        values = getattr(one, "qdata", one)
        zeros, count = zeros + int((values == 0).sum()), count + values.numel()
    return zeros, count


def right_share(task: Any, model: nn.Module, batch_size: int, device: torch.device) -> float | None:
    """Of the samples that are kept apart; None: there are none."""
    numbers = task.source.held if task.source.held_out else ()
    right, count = 0.0, 0
    for loaded in loader(task.source, _groups(numbers, batch_size), 0, pinned=False):
        if not loaded.batch:
            raise DataFault("no sample of those that are kept apart can be read.")
        found = task.right(model, task.prepare(loaded.batch, None, device))
        right, count = right + float(found.sum()), count + len(found)
    return right / count if count else None


def _groups(numbers: Sequence[int], size: int) -> list[list[int]]:
    return [list(numbers[at : at + size]) for at in range(0, len(numbers), size)]


def _times(task: Any, model: nn.Module, size: int, repeats: int, device: torch.device) -> list[float]:
    """Seconds of each run with a batch of `size`, its data on the device already."""
    (loaded,) = loader(task.source, [task.source.order(size, 0).step(1)], 0, pinned=False)
    if not loaded.batch:
        raise DataFault("no sample of a batch can be read, nor one in its place.")
    batch: Batch = task.prepare(loaded.batch, None, device)
    found = []
    for run in range(WARM + repeats):
        _wait(device)
        began = time.perf_counter()
        task.logits(model, batch)
        _wait(device)
        if run >= WARM:
            found.append(time.perf_counter() - began)
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
