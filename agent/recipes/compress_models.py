"""Four ways to a smaller model: weights set to 0, inner units taken out, int8, and a smaller model that learns from it.

Invariant: taking units out changes nothing but what those units did: the smaller model answers as the larger one does with
them silent. Pruning is that of torch.nn.utils.prune and int8 that of torchao; only the taking out is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from agent.recipes.faults import WrongSettings

NO_TORCHAO = "quantise needs torchao, which is not installed here: `pip install torchao`, or leave quantise out of --methods."
_DENSE = (nn.Linear, nn.Conv2d)


class Inner(NamedTuple):
    """Units between two layers, that nothing else sees: `into` makes them, `norm` (or nothing) is theirs, `out` takes them."""

    name: str
    into: Any
    norm: Any
    out: Any


def inner_units(model: nn.Module) -> Iterator[Inner]:
    """Of all places where units can be taken out: Linear or Conv2d, perhaps a norm, an activation, the next such layer."""
    for name, part in model.named_modules():
        if isinstance(part, nn.Sequential):
            yield from _in_a_row(name, list(part.named_children()))
        elif hasattr(part, "conv1") and hasattr(part, "conv2"):  # torchvision's blocks
            yield Inner(f"{name}.conv1", part.conv1, part.bn1, part.conv2)
            if hasattr(part, "conv3"):
                yield Inner(f"{name}.conv2", part.conv2, part.bn2, part.conv3)


def _in_a_row(name: str, parts: Sequence[tuple[str, nn.Module]]) -> Iterator[Inner]:
    dense = [place for place, (_, part) in enumerate(parts) if isinstance(part, _DENSE)]
    for first, then in zip(dense, dense[1:], strict=False):
        between = [part for _, part in parts[first + 1 : then]]
        norms = [part for part in between if isinstance(part, nn.GroupNorm)]
        if all(isinstance(part, (nn.GroupNorm, nn.ReLU, nn.GELU)) for part in between) and len(norms) <= 1:
            yield Inner(f"{name}.{parts[first][0]}", parts[first][1], norms[0] if norms else None, parts[then][1])


def prune_weights(model: nn.Module, share: float) -> None:
    """Sets the smallest weights of all dense layers to 0, wherever they are; they stay 0 while it is tuned (see `fix`).

    Han, Pool, Tran, Dally: Learning both Weights and Connections for Efficient Neural Networks (2015).
    """
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # torch makes one long vector of them
    prune.global_unstructured(_weights(model), prune.L1Unstructured, amount=share)


def fix(model: nn.Module) -> None:
    """Makes the zeros the weights themselves."""
    for part, name in _weights(model):
        if prune.is_pruned(part):
            prune.remove(part, name)


def _weights(model: nn.Module) -> list[tuple[nn.Module, str]]:
    return [(part, "weight") for part in model.modules() if isinstance(part, _DENSE)]


def weakest(units: Inner, share: float) -> list[int]:
    """Numbers of the units that stay: those with the longer rows of weights; channels of one norm's group go together."""
    total = units.into.weight.shape[0]
    together = total // units.norm.num_groups if units.norm is not None else 1
    gone = min(int(share * (total // together)), total // together - 1)
    if not gone:
        return list(range(total))
    if together == 1:
        prune.ln_structured(units.into, "weight", amount=gone, n=2, dim=0)
    else:
        long = units.into.weight.detach().flatten(1).square().sum(1).view(-1, together).sum(1)
        stays = torch.ones(len(long)).index_fill_(0, long.argsort()[:gone].cpu(), 0).repeat_interleave(together)
        mask = stays.to(long.device).view(-1, *[1] * (units.into.weight.ndim - 1)).expand_as(units.into.weight)
        prune.custom_from_mask(units.into, "weight", mask.contiguous())
    kept = units.into.weight_mask.flatten(1).any(1).nonzero().flatten().tolist()
    prune.remove(units.into, "weight")
    return kept


def cut_units(model: nn.Module, share: float) -> dict[str, list[int]]:
    """Takes out the weakest inner units; of each place, which ones stayed. Li et al., Pruning Filters (2017), inside blocks."""
    kept = {units.name: weakest(units, share) for units in inner_units(model)}
    take_out(model, kept)
    return kept


def take_out(model: nn.Module, kept: Mapping[str, Sequence[int]]) -> None:
    """Makes the layers smaller: only the units that are named stay."""
    for units in inner_units(model):
        if units.name in kept:
            stays = torch.tensor(list(kept[units.name]), device=units.into.weight.device)
            _keep(units.into, "weight", 0, stays)
            if units.into.bias is not None:
                _keep(units.into, "bias", 0, stays)
            _keep(units.out, "weight", 1, stays)
            for layer, linear, conv in ((units.into, "out_features", "out_channels"), (units.out, "in_features", "in_channels")):
                setattr(layer, linear if isinstance(layer, nn.Linear) else conv, len(stays))
            if units.norm is not None:
                units.norm.num_groups = units.norm.num_groups * len(stays) // units.norm.num_channels
                units.norm.num_channels = len(stays)
                _keep(units.norm, "weight", 0, stays)
                _keep(units.norm, "bias", 0, stays)


def _keep(layer: Any, name: str, side: int, stays: Tensor) -> None:
    setattr(layer, name, nn.Parameter(getattr(layer, name).detach().index_select(side, stays).contiguous()))


def quantise(model: nn.Module, how: str) -> float:
    """Linear layers to int8 (torchao), in place; the share of the weights that this is. Raises `WrongSettings`."""
    for noisy in ("torchao", "torch.utils._pytree"):  # they tell of kernels for other GPUs, and of their own future
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
    except ImportError:
        raise WrongSettings(NO_TORCHAO) from None
    linear = sum(part.weight.numel() for part in model.modules() if isinstance(part, nn.Linear))
    whole = sum(one.numel() for one in model.parameters())
    quantize_(model, Int8DynamicActivationInt8WeightConfig() if how == "int8_dynamic" else Int8WeightOnlyConfig())
    return linear / whole


def smaller(recipe: str, settings: Any, share: float) -> Any:
    """Settings of the student."""
    if recipe == "vision":
        if settings.model != "small":
            return replace(settings, model="small", width=max(8, int(64 * share) // 8 * 8))
        return replace(settings, width=max(8, int(settings.width * share) // 8 * 8))
    if recipe == "language":
        width = max(1, int(settings.width * share) // settings.heads) * settings.heads
        return replace(settings, width=max(8, width), layers=max(1, round(settings.layers * share)))
    return replace(settings, width=max(1, int(settings.width * share)), hidden=max(1, int(settings.hidden * share)))


def likeness(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """How far the student's answers are from the teacher's. Hinton, Vinyals, Dean: Distilling the Knowledge (2015).

    Both (samples, ..., classes), or (samples,) where the answer is one logit of yes.
    """
    if student.ndim == 1:
        student, teacher = (torch.stack([one, torch.zeros_like(one)], 1) for one in (student, teacher))
    wanted = (teacher.float() / temperature).log_softmax(-1).flatten(0, -2)
    found = (student.float() / temperature).log_softmax(-1).flatten(0, -2)
    return nn.functional.kl_div(found, wanted, reduction="batchmean", log_target=True) * temperature**2
