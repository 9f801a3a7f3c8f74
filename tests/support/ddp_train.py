"""A small real DDP training (torch, gloo, CPU): saves every few steps, and once more when it is told to stop.

Usage: torchrun ... ddp_train.py FOLDER STEPS [--every N] [--pause SECONDS]
FOLDER holds `model.pt` (step and weights, replaced in one step), `steps` (one line `step world restart` for each step that
rank 0 trained) and `handled` (one line `rank pid` for each SIGTERM that a worker handled).
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step to go on from."""
    if not (folder / "model.pt").exists():
        return 0
    kept = torch.load(folder / "model.pt", weights_only=True)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return int(kept["step"])


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    kept = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(kept, folder / "model.tmp")
    os.replace(folder / "model.tmp", folder / "model.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.05)
    options = parser.parse_args()
    stop = torch.zeros(1)

    def told(number: int, frame: object) -> None:
        append(options.folder / "handled", f"{os.environ['RANK']} {os.getpid()}")
        stop[0] = 1

    signal.signal(signal.SIGTERM, told)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = load(options.folder, model, optimizer)
    trained = DistributedDataParallel(model)
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} starts at step {step}", flush=True)
    while step < options.steps:
        inputs = torch.randn(4, 8)
        optimizer.zero_grad()
        (trained(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        step += 1
        time.sleep(options.pause)
        asked = stop.clone()
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        if rank == 0:
            append(options.folder / "steps", f"{step} {world} {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}")
            if step % options.every == 0 or step == options.steps or asked.item():
                save(options.folder, step, model, optimizer)
        if asked.item():
            print(f"rank {rank} stops after step {step}", flush=True)
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
