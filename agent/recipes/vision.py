"""An image classifier: a ResNet (torchvision's where installed, else a small one of our own), from a folder or made images.

    python -m agent.recipes.vision --data /data/flowers --steps 5000
    torchrun --nproc-per-node 8 -m agent.recipes.vision --data /data/flowers --batch-size 1024

Invariant: this file needs no torch: what it does is in vision_task.py, vision_model.py and the loop in train.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from agent.recipes.entry import main
from agent.recipes.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Vision(Settings):
    """An image classifier: a ResNet, of a folder's images or made ones."""

    model: str = setting("auto", "auto: resnet18 where torchvision is installed, else small",
                         choices=("auto", "small", "resnet18", "resnet34", "resnet50"))
    width: int = setting(32, "channels of the small model's first stage; each of the three doubles them", least=8)
    blocks: int = setting(1, "residual blocks of each of its stages", least=1)
    image_size: int = setting(32, "pixels of a side; images of a folder are scaled to it", least=8)
    classes: int = setting(10, "of the images made on the spot; a folder has its own", least=2)
    momentum: float = setting(0.9, "of the gradient's running average (Nesterov)", least=0)
    label_smoothing: float = setting(0.0, "share of each label that is spread over all classes", least=0)
    shift: float = setting(0.125, "of the augmentation: most that an image is moved, as a part of its side", least=0)
    flip: bool = setting(True, "of the augmentation: half of the images are mirrored")
    channels_last: bool = setting(True, "keep images in the memory order that tensor cores want")


if __name__ == "__main__":
    sys.exit(main(Vision, "vision"))
