"""The processes of one training: which one this is, on which device, and what they tell each other.

Invariant: alone, nothing of torch.distributed is touched; under torchrun every rank reaches the same calls in the same order.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from agent.recipes.faults import WrongSettings


@dataclass(frozen=True)
class Ranks:
    """`tensor`: so many neighbours share each matrix and see the same samples; 1: each rank has samples of its own."""

    rank: int
    world: int
    device: torch.device
    tensor: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def data(self) -> int:
        """How many parts a batch has."""
        return self.world // self.tensor

    @property
    def place(self) -> int:
        """Which of them is this rank's."""
        return self.rank // self.tensor

    def sum(self, *values: float) -> list[float]:
        """Of each value over all ranks."""
        if self.world == 1:
            return list(values)
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(together)
        return [float(value) for value in together.tolist()]

    def share(self, value: Any) -> Any:
        """What the first rank has, on all of them."""
        if self.world == 1:
            return value
        values = [value if self.first else None]
        dist.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def all(self, value: Any) -> list[Any]:
        """What each rank has, on all of them."""
        if self.world == 1:
            return [value]
        values = [None] * self.world
        dist.all_gather_object(values, value)
        return values

    def part(self, batch: int) -> slice:
        """This rank's part of a batch. Raises `WrongSettings` where the batch cannot be shared evenly."""
        if batch % self.data:
            those = f"{self.data} ranks" if self.tensor == 1 else f"{self.data} groups of {self.tensor} tensor ranks"
            raise WrongSettings(f"--batch-size {batch} cannot be shared by {those}; make it a multiple of {self.data}.")
        each = batch // self.data
        return slice(self.place * each, (self.place + 1) * each)


@contextlib.contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """By the environment of torchrun, or alone. Raises `WrongSettings`."""
    rank, world, local, local_world = (
        _number(name, default) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    )
    chosen = choose(device, local, local_world, torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if world > 1:
        with_device = {"device_id": chosen} if chosen.type == "cuda" else {}
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", **with_device)
    yield Ranks(rank, world, chosen)
    if world > 1:  # after a fault the others may never come: the process ends as it is
        gc.collect()  # what holds on to the group, and whose end would wait for a thread that waits for it
        dist.destroy_process_group()


def choose(device: str, local: int, local_world: int, gpus: int) -> torch.device:
    """This rank's device, on a node with so many ranks and GPUs."""
    if device == "cpu" or (device == "auto" and not gpus):
        return torch.device("cpu")
    if not gpus:
        raise WrongSettings("--device cuda: torch sees no GPU here; ask for one with --gpus, or use --device cpu.")
    if local_world > gpus:
        raise WrongSettings(
            f"there are {local_world} ranks on this node and {gpus} GPU{'s' * (gpus > 1)}: a rank needs a GPU of its own;"
            f" start {gpus} with --nproc-per-node, or use --device cpu."
        )
    return torch.device("cuda", local)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdigit():
        raise WrongSettings(f"the environment variable {name} is {text!r}, and torchrun sets it to a number.")
    return int(text)
