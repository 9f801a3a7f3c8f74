"""How long a plan over the whole catalog takes, and how near three ways to tell ResNet-50's speed come to what was measured.

Invariant: prints figures and ratios, asserts none. `python tests/bench/bench_planner.py`
SkyPilot's figures are those of the estimator that its example of the optimizer carries (examples/time_estimators.py): a third
of the peak, and 0.15 or 0.30 s a step for 4 or 8 GPUs; without such a function it counts an hour for every task.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from datetime import UTC, datetime

from pricing.catalog import Catalog
from pricing.planner import plan
from pricing.planner_file import example_names, find, load, read, table_of

NOW = datetime(2026, 11, 30, tzinfo=UTC)
MEASURED = {("V100", 1): 1200, ("V100", 8): 8322, ("A100", 1): 2470, ("A100", 8): 16_621}
"""img/s, mixed precision: NVIDIA/DeepLearningExamples, ResNet50 v1.5 PyTorch."""
TYPES = {("V100", 1): "p3.2xlarge", ("V100", 8): "p3.16xlarge", ("A100", 1): "a2-highgpu-1g", ("A100", 8): "p4d.24xlarge"}
SKYPILOT_PEAKS = {"V100": 120e12}


def skypilot(model: str, count: int) -> float | None:
    """img/s by its example's estimator, which knows no A100."""
    if model not in SKYPILOT_PEAKS:
        return None
    step = 3.8e9 * 2 * 3 * 256 / (SKYPILOT_PEAKS[model] / 3) + {4: 0.15, 8: 0.30}.get(count, 0.0)
    return 256 * count / step


def ours(model: str, count: int, measured: list[dict[str, object]]) -> tuple[float, str]:
    """img/s of our plan, and how it was told, when only `measured` is known."""
    table = table_of(find("image-classifier"))
    table["measured"] = measured
    table["train"]["global_batch"] = 256 * count
    table["limits"] = {"instance_types": [TYPES[model, count]], "max_nodes": 1}
    for key in ("data", "reference", "checkpoint"):
        del table[key]
    (option, *_) = plan(read(table), Catalog.embedded(), NOW).options
    return option.candidate.step.samples / option.candidate.step.seconds, option.candidate.speed.how


def accuracy() -> None:
    print(f"ResNet-50, img/s        {'measured':>9} {'peak only':>10} {'error':>7} {'scaled':>8} {'error':>7} {'SkyPilot':>9} {'error':>7}")
    for (model, count), goal in MEASURED.items():
        other = "A100" if model == "V100" else "V100"
        base = [{"gpu": other, "samples_per_second": MEASURED[other, 1], "source": "DeepLearningExamples"}]
        peak, scaled, theirs = ours(model, count, [])[0], ours(model, count, base)[0], skypilot(model, count)
        told = "        –       –" if theirs is None else f"{theirs:9,.0f} {theirs / goal - 1:+7.0%}"
        print(
            f"  {count} x {model:<18} {goal:9,} {peak:10,.0f} {peak / goal - 1:+7.0%} {scaled:8,.0f} {scaled / goal - 1:+7.0%} {told}"
        )


def speed() -> None:
    catalog = Catalog.embedded()
    for name in example_names():
        work = load(find(name))
        begun = time.process_time()
        found = plan(work, catalog, NOW)
        print(f"  {name:<20} {len(found.options):5,} options {time.process_time() - begun:6.2f} s of CPU, with the hardware in mind")
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "tui.cli", "plan", "image-classifier", "--json"], stdout=subprocess.DEVNULL, check=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begun
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"  rackrate plan image-classifier --json, with its start: {wall:.2f} s, {used:.2f} s of CPU")


if __name__ == "__main__":
    accuracy()
    print("a plan over the whole catalog")
    speed()
