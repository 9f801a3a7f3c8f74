"""How the ranks of a training share its model: a copy each (ddp), each block in shards (fsdp), each matrix in parts (tensor), or both.

Invariant: whatever the kind, a step is that of one process with the whole batch, within rounding.

A copy each is DistributedDataParallel, not DataParallel: a process a GPU has an interpreter lock of its own, and nothing is
copied to the GPUs at each step; DataParallel has one process for all GPUs of one node, and copies the model with every step
(torch's notes on both say so). Shards are FSDP2's `fully_shard`: a block is gathered while it is computed, so a rank keeps
1/n of weights, gradients and averages. Parts of matrices (Shoeybi et al., Megatron-LM, 2019, section 3) cost a sum of the
values over the ranks twice a block, so they belong onto the GPUs of one node: neighbours share a matrix, and FSDP goes over
the nodes. Weights are kept and gathered in fp32; autocast computes in less, as it does without shards.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from agent.recipes.faults import WrongSettings
from agent.recipes.ranks import Ranks
from agent.recipes.settings import Settings

DDP, FSDP, TENSOR, BOTH = "ddp", "fsdp", "tensor", "both"


class Shared(Protocol):
    """A recipe whose model ranks can share: each block names its `columns` and `rows`, matrices that are cut."""

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]: ...


def kind(settings: Settings, team: Ranks) -> str:
    """Of a recipe that has no such setting, and of one process alone, `ddp`: the whole model."""
    return str(getattr(settings, "parallel", DDP)) if team.world > 1 else DDP


def laid_out(settings: Settings, team: Ranks) -> Ranks:
    """The ranks with those together that share a matrix. Raises `WrongSettings`."""
    asked, how = int(getattr(settings, "tensor_ranks", 0)), kind(settings, team)
    if team.world == 1:
        return team
    if how in (DDP, FSDP):
        if asked > 1:
            raise WrongSettings(f"--tensor-ranks {asked} goes with --parallel tensor or both, and this is {how}.")
        return team
    if how == BOTH and not asked:
        raise WrongSettings(f"--parallel both: how many of the {team.world} ranks share a matrix? Say it with --tensor-ranks.")
    tensor = asked or team.world
    if team.world % tensor:
        raise WrongSettings(f"--tensor-ranks {tensor} does not divide the {team.world} ranks.")
    if how == TENSOR and tensor != team.world:
        raise WrongSettings(f"--parallel tensor takes all {team.world} ranks; with --tensor-ranks {tensor} use --parallel both.")
    heads = int(getattr(settings, "heads", tensor))
    if heads % tensor:
        raise WrongSettings(f"--heads {heads} cannot be shared by {tensor} tensor ranks; make it a multiple of {tensor}.")
    return replace(team, tensor=tensor)


def precision_fits(how: str, precision: str) -> None:
    """Raises `WrongSettings`. fp16's scale has to shrink on all ranks at once, which torch does for one kind of shards only."""
    if precision == "fp16" and how in (TENSOR, BOTH):
        raise WrongSettings(f"--precision fp16 does not go with --parallel {how}: use bf16 or fp32, or --parallel fsdp.")


def placed(model: nn.Module, task: Any, how: str, team: Ranks) -> nn.Module:
    """The same model on the device, this rank's share of it. From the CPU block by block: no GPU ever has to hold all of it."""
    if how == DDP:
        return model.to(team.device)
    mesh = init_device_mesh(team.device.type, (team.data, team.tensor), mesh_dim_names=("data", "tensor"))
    blocks = task.blocks(model)
    if how in (TENSOR, BOTH):
        for block in blocks:
            plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in block.columns}
            plan |= {name: RowwiseParallel() for name in block.rows}
            parallelize_module(block, mesh["tensor"], plan, src_data_rank=None)  # made of the same seed on all ranks
    if how in (FSDP, BOTH):
        for block in (*blocks, model):
            fully_shard(block, mesh=mesh["data"])
    return model.to(team.device)


def alone_until(model: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
    """While a piece of a batch is computed: gradients are exchanged with the last one only."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    elif isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return contextlib.nullcontext()


def shorten(parameters: Iterable[nn.Parameter], longest: float, how: str, team: Ranks) -> None:
    """Gradients to a length of at most `longest`, all together. torch's own takes no mixture of whole and shared ones."""
    given = list(parameters)
    if how == DDP:
        nn.utils.clip_grad_norm_(given, longest)
        return
    square = torch.zeros((), device=team.device)
    parts = [(_here(one.grad), _copies(one.grad, team)) for one in given if one.grad is not None]
    for part, copies in parts:
        square += part.float().square().sum() / copies
    dist.all_reduce(square)
    less = (longest / (square.sqrt() + 1e-6)).clamp(max=1.0)
    for part, _ in parts:
        part.mul_(less.to(part.dtype))


def fitted(value: Tensor, like: Tensor) -> Tensor:
    """This rank's share of a whole tensor, as that of `like`."""
    value = value.to(like.device, like.dtype)
    if not isinstance(like, DTensor):
        return value
    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None).clone()  # of it alone, not of the whole


def _here(value: Tensor) -> Tensor:
    return value.to_local() if isinstance(value, DTensor) else value


def _copies(value: Tensor, team: Ranks) -> int:
    """How many ranks have the same elements."""
    if not isinstance(value, DTensor):
        return team.world
    cut = [size for size, placement in zip(value.device_mesh.shape, value.placements, strict=True) if not placement.is_replicate()]
    return team.world // math.prod(cut)
