"""A small residual network, for where torchvision is not installed and for tests.

Invariant: no layer looks at more than one sample (GroupNorm, not BatchNorm): the gradients of a batch are the same however
it is cut over pieces and ranks. He et al., Deep Residual Learning, 2016, section 3.3; Wu and He, Group Normalization, 2018.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

GROUP = 8
"""Channels that are normalised together."""


def norm(channels: int) -> nn.Module:
    return nn.GroupNorm(max(1, channels // GROUP), channels)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride, 1, bias=False), norm(outward), nn.ReLU(),
            nn.Conv2d(outward, outward, 3, 1, 1, bias=False), norm(outward),
        )  # fmt: skip
        same = inward == outward and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inward, outward, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.relu(self.body(images) + self.shortcut(images))


class SmallResNet(nn.Module):
    """(samples, 3, any, any) -> (samples, classes)."""

    def __init__(self, classes: int, width: int, blocks: int) -> None:
        super().__init__()
        stages: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width), nn.ReLU()]
        channels = width
        for stage in range(3):
            outward = width << stage
            for number in range(blocks):
                stages.append(Block(channels, outward, 2 if stage and not number else 1))
                channels = outward
        self.body = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


def torchvision_model(name: str, classes: int) -> nn.Module:
    """One of torchvision's ResNets, with GroupNorm. Raises `ImportError`."""
    import torchvision

    make: Any = getattr(torchvision.models, name)
    return make(num_classes=classes, norm_layer=norm)
