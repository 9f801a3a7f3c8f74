"""Checkpoints that all ranks write together, each its shares, while the training goes on.

Invariant: as in checkpoints.py, a folder called `step-N` is whole: the first rank gives it that name when it has the hash of
every shard from the rank that wrote it. The ranks' words on this go over a group of their own, beside those of the steps.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from agent.recipes import shards
from agent.recipes.checkpoints import FILES, SHARDS, Checkpoints
from agent.recipes.faults import CheckpointFault
from agent.recipes.ranks import Ranks


class ShardedCheckpoints(Checkpoints):
    """One on each rank; every call but `newest`, `mark` and `unmark` is made by all of them. Raises `CheckpointFault`."""

    def __init__(self, folder: Path, identity: Mapping[str, object], keep: int, team: Ranks) -> None:
        super().__init__(folder, identity, keep)
        self._team = team
        self._group = dist.new_group(backend="gloo")  # also where the steps have nccl: writing is the CPU's
        if (other := elsewhere(folder, team)) is not None:
            raise CheckpointFault(
                f"shards need a folder that all nodes share, and {other} is not the one of the first rank;"
                " name one with --checkpoint-dir, or use --parallel ddp."
            )

    def save_shards(self, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, **about: object) -> None:
        """Copies the shares now and writes them in the background. Raises `CheckpointFault` where the one before failed."""
        self.wait()
        if step == self._saved:
            return
        writer = dcp.FileSystemWriter(self._aside(step), sync_files=True)
        copied = dcp.async_save(shards.named(model, optimizer), storage_writer=writer, process_group=self._group)
        assert isinstance(copied, Future)
        self._writer = threading.Thread(target=self._finish, args=(step, copied, about), name="checkpoint")
        self._writer.start()

    def load(self, name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        shards.load(self.folder / name, model, optimizer, self._group)

    def _finish(self, step: int, written: Future[Any], about: Mapping[str, object]) -> None:
        """Runs beside the steps; all ranks fail together."""
        try:
            written.result()
        except CheckpointException as error:
            self._fails(step, shards.first_fault(error))
            return
        except Exception as error:  # noqa: BLE001 - torch may raise anything here, and it is told at the next save
            self._fails(step, str(error))
            return
        try:
            self._commit_shards(step, about)
        except (OSError, RuntimeError) as error:
            self._fails(step, str(error))

    def _fails(self, step: int, why: str) -> None:
        self._failed = OSError(why)
        if self._team.first:
            shutil.rmtree(self._aside(step), ignore_errors=True)

    def _commit_shards(self, step: int, about: Mapping[str, object]) -> None:
        aside, rank = self._aside(step), self._team.rank
        mine = {path.name: shards.sha256(path) for path in sorted(aside.glob(f"__{rank}_*"))}
        if self._team.first:
            mine[shards.METADATA] = shards.sha256(aside / shards.METADATA)
        every: list[Any] | None = [None] * self._team.world if self._team.first else None
        dist.gather_object(mine, every, group=self._group)
        if every is not None:
            files = {name: sha256 for one in every for name, sha256 in one.items()}
            self._commit(step, {"format": SHARDS, FILES: files, **about})
        self._saved = step


def elsewhere(folder: Path, team: Ranks) -> str | None:
    """The host of a rank for which `folder` is not the one of the first rank; None where all share it."""
    probe = folder / f".shared-{os.getpid()}" if team.first else None
    if probe is not None:
        with contextlib.suppress(OSError):  # of a full disk the first checkpoint tells
            probe.touch()
    name = team.share(probe.name if probe else None)
    with contextlib.suppress(OSError):
        os.listdir(folder)  # a network file system may remember what was not there
    seen = team.all(None if (folder / name).exists() else f"{folder} on {socket.gethostname()}")
    if probe is not None:
        probe.unlink(missing_ok=True)
    return next((one for one in seen if one), None)
