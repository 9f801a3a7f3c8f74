"""A small real training (torch, gloo, CPU): saves every few steps, and once more when it is told to stop.

Usage: torchrun ... ddp_train.py FOLDER STEPS [--every N] [--pause SECONDS] [--hold STEP] [--least-world N]
                                      [--plain] [--stubborn] [--fail-at STEP]
FOLDER holds `model.pt` (step and weights, replaced in one step) and, a line each, `steps` (`step world` that rank 0
trained), `saved` (`step` that is in model.pt), `resumed` (`step` that rank 0 went on from) and `handled` (`rank pid` of each
SIGTERM that a worker handled).
`--hold`: after that step rank 0 waits until there is a file FOLDER/go, or it is told to stop. `--least-world`: no
first step with fewer workers. `--plain` averages the gradients itself: DistributedDataParallel and the optimizers of torch
import its compiler, which takes longer than all the rest. `--stubborn`: the workers ignore SIGTERM, and each has a descendant
that forks away from itself without end, into sessions of its own. `--fail-at`: rank 0 raises an exception after that step.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

RATE = 0.01


class Training:
    """One worker's part."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, options.folder
        self.stop = torch.zeros(1)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 1)
        self.step = self._load()
        self.optimizer: torch.optim.Optimizer | None = None
        self.trained: torch.nn.Module = self.model
        if not options.plain:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
            self.trained = torch.nn.parallel.DistributedDataParallel(self.model)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def told(self, number: int, frame: object) -> None:
        append(self.folder / "handled", f"{self.rank} {os.getpid()}")
        self.stop[0] = 1

    def run(self) -> None:
        while self.step == 0 and self.world < self.options.least_world:
            time.sleep(0.02)
            if self.stop.item():
                return
        print(f"rank {self.rank} of {self.world} starts at step {self.step}", flush=True)
        if self.rank == 0:
            append(self.folder / "resumed", str(self.step))
        while self.step < self.options.steps:
            self._train()
            time.sleep(self.options.pause)
            asked = self.stop.clone()
            dist.all_reduce(asked, op=dist.ReduceOp.MAX)
            if self.rank == 0:
                self._note(bool(asked.item()))
            if asked.item():
                print(f"rank {self.rank} stops after step {self.step}", flush=True)
                break

    def _train(self) -> None:
        inputs = torch.randn(4, 8)
        loss = (self.trained(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.model.zero_grad()
        loss.backward()
        self._improve()
        self.step += 1

    def _improve(self) -> None:
        if self.optimizer is not None:
            self.optimizer.step()
            return
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.data -= RATE * parameter.grad / self.world

    def _note(self, stopping: bool) -> None:
        append(self.folder / "steps", f"{self.step} {self.world}")
        if self.step % self.options.every == 0 or self.step == self.options.steps or stopping:
            self._save()
        if self.step == self.options.fail_at:
            raise ValueError(f"the loss is not finite after step {self.step}\nand a second line")
        while self.step == self.options.hold and not self.stop.item() and not (self.folder / "go").exists():
            time.sleep(0.02)

    def _load(self) -> int:
        """The step to go on from."""
        if not (self.folder / "model.pt").exists():
            return 0
        kept = torch.load(self.folder / "model.pt", weights_only=True)
        self.model.load_state_dict(kept["model"])
        return int(kept["step"])

    def _save(self) -> None:
        torch.save({"step": self.step, "model": self.model.state_dict()}, self.folder / "model.tmp")
        os.replace(self.folder / "model.tmp", self.folder / "model.pt")
        append(self.folder / "saved", str(self.step))


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(line + "\n")


def fork_away() -> None:
    """A descendant that is never the same process for long: each one forks the next, in another session, and ends."""
    if os.fork():
        return
    while True:
        os.setsid()
        time.sleep(0.02)
        if os.fork():
            os._exit(0)


@record
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", type=int)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--hold", type=int)
    parser.add_argument("--least-world", type=int, default=1)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--fail-at", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    training = Training(options)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        fork_away()
    else:
        signal.signal(signal.SIGTERM, training.told)
    training.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
