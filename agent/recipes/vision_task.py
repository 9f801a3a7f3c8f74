"""What the vision recipe brings to the loop: model, images, augmentation, loss.

Invariant: the augmentation of a sample depends on the step and its place in the whole batch, not on the rank that has it.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from agent.recipes.data import Batch, Source
from agent.recipes.faults import WrongSettings
from agent.recipes.images import ImageFolder, MadeImages
from agent.recipes.vision_model import SmallResNet, torchvision_model

if TYPE_CHECKING:
    from agent.recipes.vision import Vision

TORCHVISION = "torchvision"

LAYOUT = 1


def make(settings: Vision) -> VisionTask:
    """Raises `DataFault` and `WrongSettings`."""
    source: ImageFolder | MadeImages
    if settings.data:
        source = ImageFolder(settings.data, settings.image_size, settings.held_out, settings.cache)
        return VisionTask(settings, source, len(source.classes))
    source = MadeImages(settings.samples, settings.held_out, settings.classes, settings.image_size, settings.seed)
    return VisionTask(settings, source, settings.classes)


class VisionTask:
    name = "vision"
    layout = LAYOUT

    def __init__(self, settings: Vision, source: Source, classes: int) -> None:
        self.settings, self.source, self._classes = settings, source, classes
        self._model = _which(settings.model)
        shape = {"width": settings.width, "blocks": settings.blocks} if self._model == "small" else {}
        self.clip = 0.0
        self.about = {"model": self._model, "classes": classes}
        self.identity = {"model": self._model, "classes": classes, **shape}
        self._order = torch.channels_last if settings.channels_last else torch.contiguous_format

    def model(self) -> nn.Module:
        if self._model == "small":
            made: nn.Module = SmallResNet(self._classes, self.settings.width, self.settings.blocks)
        else:
            made = torchvision_model(self._model, self._classes)
        return made.to(memory_format=self._order)  # type: ignore[call-overload, no-any-return]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Norms and biases are not decayed."""
        decayed = [one for one in model.parameters() if one.ndim > 1]
        others = [one for one in model.parameters() if one.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": self.settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        momentum = self.settings.momentum
        return torch.optim.SGD(groups, self.settings.learning_rate, momentum, nesterov=momentum > 0)

    def draws(self, samples: int, chance: torch.Generator) -> Tensor:
        """(samples, 3): right or left, up or down, mirrored or not; each from 0 to 1."""
        return torch.rand(samples, 3, generator=chance)

    def prepare(self, batch: Batch, draws: Tensor | None, device: torch.device) -> Batch:
        images = batch["images"].to(device, non_blocking=True).float().div_(127.5).sub_(1)
        if draws is not None:
            images = augmented(images, draws.to(device, non_blocking=True), self.settings.shift, flip=self.settings.flip)
        return {
            "images": images.contiguous(memory_format=self._order),
            "labels": batch["labels"].to(device, non_blocking=True),
        }

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["images"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        smoothing = self.settings.label_smoothing
        return nn.functional.cross_entropy(self.logits(model, batch).float(), batch["labels"], label_smoothing=smoothing)

    def right(self, model: nn.Module, batch: Batch) -> Tensor:
        return (self.logits(model, batch).argmax(1) == batch["labels"]).float()


def augmented(images: Tensor, draws: Tensor, shift: float, *, flip: bool) -> Tensor:
    """Each image moved by up to `shift` of its side (its edge mirrored) and perhaps flipped; one gather for the batch.

    images (samples, channels, side, side), draws (samples, 3).
    """
    side = images.shape[-1]
    most = min(int(shift * side), side - 1)
    padded = nn.functional.pad(images, (most,) * 4, mode="reflect") if most else images
    steps = torch.arange(side, device=images.device)
    moved = (draws[:, :2] * (2 * most + 1)).long().clamp_(max=2 * most)
    rows, columns = steps + moved[:, :1], steps + moved[:, 1:]
    if flip:
        columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
    samples = torch.arange(len(images), device=images.device)
    channels = torch.arange(images.shape[1], device=images.device)
    return padded[samples[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def _which(asked: str) -> str:
    installed = importlib.util.find_spec(TORCHVISION) is not None
    if asked == "auto":
        return "resnet18" if installed else "small"
    if asked != "small" and not installed:
        raise WrongSettings(f"--model {asked} needs torchvision, which is not installed here; use --model small.")
    return asked
