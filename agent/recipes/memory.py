"""How much memory a step takes, and after one that did not fit, the batch that would.

Invariant: what is told to fit has been tried; where nothing could be tried, nothing is told to fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

HEADROOM = 0.95
"""Of the memory: fragments and the libraries' own work space take the rest."""
_CPU_SAYS = ("can't allocate memory", "cannot allocate memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _CPU_SAYS)
    )


def fitting(attempt: Callable[[int], int | None], failed: int, fixed: int, capacity: int | None) -> int:
    """Largest batch that is known to fit where `failed` did not; 0: not even one sample.

    `attempt(batch)` runs a step and returns its peak (bytes), None where it does not fit. `fixed` (bytes) is in use before
    a step; `capacity` (bytes) is None where it is not known: then it is the largest halving that ran.
    """
    size = failed // 2
    while size:
        peak = attempt(size)
        if peak is not None:
            break
        failed, size = size, size // 2
    if not size or capacity is None or peak is None or peak <= fixed:
        return size
    each = (peak - fixed) / size
    guess = min(failed - 1, int((capacity * HEADROOM - fixed) / each))
    return guess if guess > size and attempt(guess) is not None else size


def sentence(step: int, piece: int, ranks: int, accumulate: int, fits: int, where: str) -> str:
    """`piece`: samples at once on each rank that did not fit; `fits`: that do."""
    did = f"out of memory in step {step}: {piece} sample{'s' * (piece > 1)} at once on {where}"
    if not fits:
        return f"{did} do not fit, and not even one does: use a smaller model, --precision bf16, or a GPU with more memory."
    each = piece * accumulate
    cuts = next(cuts for cuts in range(accumulate + 1, each + 1) if each % cuts == 0 and each // cuts <= fits)
    fitted = fits * accumulate * ranks
    return f"{did} do not fit, {fits} would: use --accumulate {cuts} (same result, slower), or --batch-size {fitted}."


def untried(step: int, piece: int, accumulate: int, device: torch.device) -> str:
    """As `sentence`, where a smaller batch could not be tried: how many samples at once other pieces would be is all that is told."""
    did = f"out of memory in step {step}: {piece} sample{'s' * (piece > 1)} at once on {room(device)[2]} do not fit"
    if piece == 1:
        return f"{did}: share the model over more ranks, or use --checkpoint-activations."
    each = piece * accumulate
    cuts = next(cuts for cuts in range(accumulate + 1, each + 1) if each % cuts == 0)
    return (
        f"{did}. What would fit was not tried, for with shards no rank can try it alone: --accumulate {cuts} is {each // cuts} at once"
        f" (computed; same result, slower), --accumulate {each} is one; or share the model over more ranks."
    )


def room(device: torch.device) -> tuple[int, int | None, str]:
    """Bytes in use now, bytes that this process can have (None: not known), and what to call the device."""
    if device.type != "cuda":
        return 0, None, "the CPU"
    torch.cuda.empty_cache()
    capacity = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    name = f"{torch.cuda.get_device_name(device)}, {capacity / 2**30:.1f} GiB,"
    return torch.cuda.memory_allocated(device), capacity, name


def used_bytes(device: torch.device) -> int | None:
    """Of a GPU: the most that tensors took since the last call; of the CPU: what the process holds now."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None
