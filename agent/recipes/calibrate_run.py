"""The measurements of `calibrate` in rounds, each figure with its median and its spread.

Invariant: a figure is the median of `repeats` runs, and `spread_ratio` half of what lies between the lowest and the highest of
them, as a part of the median, and no less than LEAST_SPREAD. Every round measures everything once, so that whatever slows the
machine for a while, or little by little, is within the spread of each figure: measured again, two medians that are of the
same machine differ by no more than both spreads together. The first round warms up and does not count.
"""

from __future__ import annotations

import contextlib
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from agent.recipes.calibrate import Calibrate
from agent.recipes.calibrate_measure import Measurement, measurements
from agent.recipes.journal import Journal
from agent.recipes.ranks import Ranks, ranks

Figure = dict[str, Any]
FORMAT = 1
"""Of the lines; raised when a reader of before would read them wrong."""
LEAST_SPREAD = 0.01
"""A machine differs so much from one hour to the next, however still it is within a minute."""


def run(settings: Calibrate, journal: Journal | None = None, team: Ranks | None = None) -> list[Figure]:
    """All measurements, told when the rounds are over. Raises `RecipeFault`s."""
    with contextlib.nullcontext(team) if team else ranks(settings.device) as found, contextlib.ExitStack() as kept:
        journal = journal or Journal(speaks=found.first)
        journal.line(event="start", recipe="calibrate", format=FORMAT, **hardware(found))
        ready = list(measurements(settings, found, kept))
        figures = rounds(ready, settings.repeats, lambda number: journal.line(event="round", round=number, rounds=settings.repeats))
        for one in figures:
            journal.line(event="figure", **one)
        journal.line(event="end", figures=len(figures))
        return figures


def rounds(ready: Sequence[Measurement], repeats: int, told: Callable[[int], None] = lambda number: None) -> list[Figure]:
    """Each measured once a round; `told` of every round that is over, 0 the one that warms up."""
    values: list[list[float]] = [[] for _ in ready]
    for number in range(repeats + 1):
        for one, of_it in zip(ready, values, strict=True):
            of_it.append(one.once())
        told(number)
    return [figure(one.name, one.unit, of_it[1:], **one.about) for one, of_it in zip(ready, values, strict=True)]


def figure(name: str, unit: str, values: Sequence[float], **more: object) -> Figure:
    """`values` of the repeats, each in `unit`."""
    middle = statistics.median(values)
    spread = max(LEAST_SPREAD, (max(values) - min(values)) / 2 / middle)
    return {"name": name, "value": middle, "unit": unit, "spread_ratio": spread, "repeats": len(values), **more}


def hardware(team: Ranks) -> dict[str, object]:
    """What was measured, and when (UTC)."""
    gpu = torch.cuda.get_device_name(team.device) if team.device.type == "cuda" else None
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"), "ranks": team.world, "device": team.device.type, "gpu": gpu,
        "gpu_memory_bytes": torch.cuda.get_device_properties(team.device).total_memory if gpu else None,
        "gpus": torch.cuda.device_count() if gpu else 0,
        "cpu": cpu_model(), "threads": torch.get_num_threads(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "driver": driver() if gpu else None, "host": platform.node(),
    }  # fmt: skip


def cpu_model() -> str | None:
    """As the kernel calls it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


def driver() -> str | None:
    """Version of NVIDIA's kernel module."""
    with contextlib.suppress(OSError):
        found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
        return found[0] if found else None
    return None
