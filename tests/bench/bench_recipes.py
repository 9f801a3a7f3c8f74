"""What a recipe's loop costs above a bare one (same model, batches ready), and how long a step waits for its data; and what
shards of the model (FSDP2) and parts of its matrices cost above copies (DDP) on two ranks of this machine's CPUs.

CPU seconds of this process on one thread, medians of three runs each; with a worker the loading is another process's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 30
SHAPE: dict[str, Any] = {
    "width": 16, "image_size": 32, "batch_size": 32, "samples": 512, "held_out": 0, "checkpoint_every": 0,
    "deterministic": False, "steps": STEPS,
}  # fmt: skip


def recipe(workers: int) -> tuple[float, float]:
    """Seconds of CPU a step, and seconds that a step waited for its data."""
    from tests.agent.recipes.small import Watched, begun

    journal = Watched()
    with tempfile.TemporaryDirectory() as folder:
        trainer = begun(Path(folder), journal, **SHAPE, workers=workers)
        began = time.process_time()
        trainer.run()
        used = time.process_time() - began
    waits = [line["data_wait_seconds"] for line in journal.lines if "step" in line and "event" not in line]
    return used / STEPS, statistics.median(waits)


def bare() -> float:
    """Seconds of CPU a step of the least loop that trains the same model."""
    import torch

    from tests.agent.recipes.small import begun

    with tempfile.TemporaryDirectory() as folder:
        trainer = begun(Path(folder), **SHAPE)
    task, model, optimizer = trainer.task, trainer.plain, trainer.optimizer
    batches = [task.source.batch(range(32)) for _ in range(STEPS)]
    began = time.process_time()
    for batch in batches:
        loss = task.loss(model, task.prepare(batch, task.draws(32, torch.Generator()), trainer.team.device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
    return (time.process_time() - began) / STEPS


def shared() -> dict[str, float]:
    """CPU seconds a step of the first of two ranks, by kind."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.agent.recipes.small_ranks", "2", folder, "paces"]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=600)
        return {str(kind): float(seconds) for kind, seconds in json.loads((Path(folder) / "paces.json").read_text()).items()}


def main() -> None:
    try:
        import torch
    except ImportError:
        print("the extra `train` is not installed: nothing is measured")
        return
    torch.set_num_threads(1)
    bare()
    least, alone, ahead = [], [], []
    for _ in range(3):
        least.append(bare())
        alone.append(recipe(0))
        ahead.append(recipe(1))
    base = statistics.median(least)
    print(f"bare loop, batches ready       {base * 1e3:7.2f} ms a step")
    for words, runs in (("recipe, loads its data itself", alone), ("recipe, a worker loads ahead", ahead)):
        used, waited = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{words:<30} {used * 1e3:7.2f} ms a step, {used / base:.2f} x the bare loop; waits {waited * 1e3:.2f} ms for data")
    paces = shared()
    for kind, seconds in paces.items():
        print(f"language, 2 ranks, {kind:<11} {seconds * 1e3:7.2f} ms a step, {seconds / paces['ddp']:.2f} x ddp")


if __name__ == "__main__":
    main()
