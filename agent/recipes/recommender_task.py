"""What the recommender recipe brings to the loop: model, clicks, loss.

Invariant: the loss of a batch is the mean over its rows; it has no negatives taken from the batch, so cutting it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from agent.recipes.clicks import ClickFolder, MadeClicks
from agent.recipes.data import Batch
from agent.recipes.faults import WrongSettings
from agent.recipes.recommender_model import Dlrm, TwoTower

if TYPE_CHECKING:
    from agent.recipes.recommender import Recommender

LAYOUT = 2
"""2: which fields there are, in which order, is part of the model."""


def make(settings: Recommender) -> RecommenderTask:
    """Raises `DataFault` and `WrongSettings`."""
    torch.sparse.check_sparse_tensor_invariants.disable()  # torch asks for a choice; its own gradients need no check
    source: MadeClicks | ClickFolder
    if settings.data:
        place = (settings.data, settings.held_out, settings.buckets)
        source = ClickFolder(*place, settings.block, settings.mixed_blocks, settings.cache)
    else:
        source = MadeClicks(settings.samples, settings.held_out, settings.people, settings.items, settings.seed)
    if settings.model == "two_tower" and not (source.person and source.item):
        raise WrongSettings(
            f"--model two_tower: {settings.data} has no fields named user_* and item_*; name them so, or use --model dlrm."
        )
    return RecommenderTask(settings, source)


class RecommenderTask:
    name = "recommender"
    layout = LAYOUT
    clip = 0.0
    """Sparse gradients are not shortened."""

    def __init__(self, settings: Recommender, source: MadeClicks | ClickFolder) -> None:
        self.settings, self.source = settings, source
        shape = {name: getattr(settings, name) for name in ("model", "width", "hidden", "layers")}
        self.identity = {**shape, "fields": " ".join(source.sparse), "dense": " ".join(source.dense), "buckets": source.buckets}
        self.about = {"fields": len(source.sparse), "dense": len(source.dense), "buckets": source.buckets}

    def model(self) -> nn.Module:
        one, source = self.settings, self.source
        sizes = (len(source.dense), source.buckets, one.width, one.hidden, one.layers)
        if one.model == "dlrm":
            return Dlrm(len(source.sparse), *sizes)
        return TwoTower(source.person, source.item, *sizes)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adagrad: it has steps for sparse gradients, and rare rows get larger ones (Duchi, Hazan, Singer 2011)."""
        tables = [one for name, one in model.named_parameters() if name.startswith("tables.")]
        others = [one for name, one in model.named_parameters() if not name.startswith("tables.")]
        groups = [{"params": tables, "weight_decay": 0.0}, {"params": others, "weight_decay": self.settings.weight_decay}]
        return torch.optim.Adagrad(groups, self.settings.learning_rate)

    def draws(self, samples: int, chance: torch.Generator) -> Tensor:
        """(samples, 0): nothing is augmented."""
        return torch.empty(samples, 0)

    def prepare(self, batch: Batch, draws: Tensor | None, device: torch.device) -> Batch:
        return {name: values.to(device, non_blocking=True) for name, values in batch.items()}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["sparse"], batch["dense"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(self.logits(model, batch).float(), batch["labels"])

    def right(self, model: nn.Module, batch: Batch) -> Tensor:
        """1 where the likelier of click and no click was foretold."""
        return ((self.logits(model, batch) > 0).float() == batch["labels"]).float()
