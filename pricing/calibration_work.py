"""What one sample of a recipe costs to compute: parameters and operations, worked out of its settings.

Invariant: operations are of a whole training step for one sample, forward and backward (three times the forward pass), two
a multiply-and-add; what cannot be worked out is None, and settings that no formula covers make two works not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

Settings = Mapping[str, Any]
Bound = Literal["matrix", "memory"]
BOUND: Mapping[str, Bound] = {"vision": "matrix", "language": "matrix", "recommender": "memory"}
"""By which of a GPU's peaks a recipe is scaled to another GPU."""
SAME: Mapping[str, tuple[str, ...]] = {
    "vision": ("channels_last", "accumulate"),
    "language": ("parallel", "tensor_ranks", "accumulate"),
    "recommender": ("model", "width", "hidden", "layers", "buckets", "accumulate"),
}
"""Settings of which speed depends, and that no formula scales."""
COUNTED: Mapping[str, tuple[str, ...]] = {
    "vision": ("model", "width", "blocks", "image_size"),
    "language": ("context", "layers", "width", "heads", "vocabulary", "checkpoint_activations"),
    "recommender": (),
}
"""Settings of which the operations depend."""
TEXT_VOCABULARY = 256
AUTO_MODEL = "resnet18"
RESNETS = {"resnet18": ((2, 2, 2, 2), 1), "resnet34": ((3, 4, 6, 3), 1), "resnet50": ((3, 4, 6, 3), 4)}
"""Blocks of each stage, and how much a block widens at its end: 1 of two 3x3, 4 of 1x1, 3x3, 1x1 (He et al. 2016, table 1)."""


class Size(NamedTuple):
    """Of a recipe's model."""

    parameters: int
    flops_per_sample: int


def size_of(recipe: str, settings: Settings) -> Size | None:
    """None: no formula tells it."""
    try:
        if recipe == "language":
            return _decoder(settings)
        if recipe == "vision":
            return _images(settings)
    except (KeyError, TypeError, ValueError):
        return None
    return None


def settled(recipe: str, settings: Settings, measured: Settings) -> dict[str, Any]:
    """Settings as they will be: `auto` is what it was where it was measured, and texts are bytes."""
    found = {**measured, **settings}
    if recipe == "vision" and found.get("model") == "auto":
        found["model"] = measured.get("model", AUTO_MODEL)
    if recipe == "language" and found.get("data"):
        found["vocabulary"] = TEXT_VOCABULARY
    return found


def different(recipe: str, one: Settings, other: Settings) -> tuple[list[str], list[str]]:
    """(settings that no formula scales, settings that change the operations alone) in which the two differ."""

    def names(keys: tuple[str, ...]) -> list[str]:
        return [key for key in keys if one.get(key) != other.get(key)]

    counted = names(COUNTED.get(recipe, ()))
    if recipe == "vision" and one.get("model") == other.get("model") != "small":
        counted = [key for key in counted if key not in ("width", "blocks")]
    return names(SAME.get(recipe, ())), counted


def _decoder(settings: Settings) -> Size:
    """Of `agent.recipes.language_model`: 6 operations a weight and token, and 12 layers x width x context for attention
    (Chowdhery et al., PaLM, 2022, appendix B); a third more where blocks are computed twice."""
    layers, width, context = (int(settings[key]) for key in ("layers", "width", "context"))
    vocabulary = int(settings["vocabulary"])
    block = 12 * width * width + 13 * width
    parameters = vocabulary * width + context * width + layers * block + 2 * width
    token = 6 * (layers * 12 * width * width + vocabulary * width) + 12 * layers * width * context
    if settings.get("checkpoint_activations"):
        token += (6 * layers * 12 * width * width + 12 * layers * width * context) // 3
    return Size(parameters, token * context)


def _images(settings: Settings) -> Size:
    model, side, classes = settings["model"], int(settings["image_size"]), int(settings["classes"])
    if model in RESNETS:
        convolutions = list(_resnet(*RESNETS[model], side))
    elif model == "small":
        convolutions = list(_small(int(settings["width"]), int(settings["blocks"]), side))
    else:
        raise ValueError(model)
    channels = max(one.outward for one in convolutions)
    parameters = sum(one.weights + 2 * one.outward * one.norm for one in convolutions) + (channels + 1) * classes
    products = sum(one.weights * one.side**2 for one in convolutions) + channels * classes
    return Size(parameters, 6 * products)


class _Convolution(NamedTuple):
    """Without bias."""

    kernel: int
    inward: int
    outward: int
    side: int
    """Of what comes out."""
    norm: bool = True

    @property
    def weights(self) -> int:
        return self.kernel**2 * self.inward * self.outward


def _small(width: int, blocks: int, side: int) -> Iterator[_Convolution]:
    yield _Convolution(3, 3, width, side)
    channels = width
    for stage in range(3):
        outward = width << stage
        for number in range(blocks):
            halved = bool(stage and not number)
            side = -(-side // 2) if halved else side
            yield _Convolution(3, channels, outward, side)
            yield _Convolution(3, outward, outward, side)
            if halved or channels != outward:
                yield _Convolution(1, channels, outward, side, norm=False)
            channels = outward


def _resnet(stages: tuple[int, ...], wider: int, side: int) -> Iterator[_Convolution]:
    side = -(-side // 2)
    yield _Convolution(7, 3, 64, side)
    side, channels = -(-side // 2), 64
    for stage, blocks in enumerate(stages):
        inner, outward = 64 << stage, (64 << stage) * wider
        for number in range(blocks):
            before, halved = side, bool(stage and not number)
            side = -(-side // 2) if halved else side
            if wider == 1:
                yield _Convolution(3, channels, inner, side)
                yield _Convolution(3, inner, outward, side)
            else:
                yield _Convolution(1, channels, inner, before)
                yield _Convolution(3, inner, inner, side)
                yield _Convolution(1, inner, outward, side)
            if channels != outward or halved:
                yield _Convolution(1, channels, outward, side)
            channels = outward
