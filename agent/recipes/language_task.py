"""What the language recipe brings to the loop: model, sequences, loss.

Invariant: the loss of a batch is the mean over its sequences, which are all as long, so that cutting it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from agent.recipes.data import Batch
from agent.recipes.faults import WrongSettings
from agent.recipes.language_model import Block, Decoder
from agent.recipes.texts import MadeTexts, TextFolder

if TYPE_CHECKING:
    from agent.recipes.language import Language

BETAS = (0.9, 0.95)

LAYOUT = 2
"""2: queries, keys and values lie head by head."""


def make(settings: Language) -> LanguageTask:
    """Raises `DataFault` and `WrongSettings`."""
    if settings.width % settings.heads:
        raise WrongSettings(f"--width {settings.width} is no multiple of --heads {settings.heads}.")
    if settings.dropout >= 1:
        raise WrongSettings(f"--dropout {settings.dropout} drops everything; it is below 1.")
    if settings.data:
        return LanguageTask(settings, TextFolder(settings.data, settings.context, settings.held_out, settings.cache))
    made = MadeTexts(settings.samples, settings.held_out, settings.vocabulary, settings.context, settings.seed)
    return LanguageTask(settings, made)


class LanguageTask:
    name = "language"
    layout = LAYOUT

    def __init__(self, settings: Language, source: MadeTexts | TextFolder) -> None:
        self.settings, self.source = settings, source
        shape = {name: getattr(settings, name) for name in ("context", "layers", "width", "heads")}
        self.identity = {"vocabulary": source.vocabulary, **shape}
        self.about = {"tokens_a_sample": settings.context}
        self.clip = settings.clip

    def model(self) -> nn.Module:
        one = self.settings
        made = Decoder(self.source.vocabulary, one.context, one.layers, one.width, one.heads, one.dropout)
        made.checkpoints = one.checkpoint_activations
        return made

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """What ranks share one by one."""
        return [one for one in model.modules() if isinstance(one, Block)]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Norms and biases are not decayed."""
        decayed = [one for one in model.parameters() if one.ndim > 1]
        others = [one for one in model.parameters() if one.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": self.settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, self.settings.learning_rate, BETAS)

    def draws(self, samples: int, chance: torch.Generator) -> Tensor:
        """(samples, 0): nothing is augmented."""
        return torch.empty(samples, 0)

    def prepare(self, batch: Batch, draws: Tensor | None, device: torch.device) -> Batch:
        return {"tokens": batch["tokens"].to(device, non_blocking=True)}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["tokens"][:, :-1])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        tokens = batch["tokens"]
        return nn.functional.cross_entropy(self.logits(model, batch).float().flatten(0, 1), tokens[:, 1:].flatten())

    def right(self, model: nn.Module, batch: Batch) -> Tensor:
        """Share of each sequence's tokens that were foretold."""
        tokens = batch["tokens"]
        return (self.logits(model, batch).argmax(2) == tokens[:, 1:]).float().mean(1)
