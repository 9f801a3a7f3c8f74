"""Images and their labels: made on the spot, or from a folder with one subfolder a class.

Invariant: the same version is the same samples under the same numbers, on every node; a file that cannot be read is
`Broken`, with its name, and never stands for an image.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
import torch
from torch import Tensor, nn

from agent.recipes.data import Batch, Broken, Numbered, generator
from agent.recipes.faults import DataFault
from agent.recipes.files import Files, files_of, read
from agent.recipes.versions import in_their_order

OWN = (".npy", ".ppm")
"""Read without another package: arrays (height, width, 3) of uint8, and binary P6."""
PILLOW = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
NOISE = 0.4
_P6 = re.compile(rb"P6\s+(?:#[^\n]*\n\s*)*(\d+)\s+(\d+)\s+255\s")


class MadeImages(Numbered):
    """Coloured stripes in noise: a class is a direction, a width and a colour, so that it can be learned and not by heart."""

    def __init__(self, samples: int, held_out: int, classes: int, side: int, seed: int) -> None:
        self._samples, self.held_out, self._classes, self._side, self._seed = samples, held_out, classes, side, seed
        self.version = f"made:images samples={samples} classes={classes} side={side} seed={seed}"
        angles = torch.arange(classes) * (math.pi / 2 / classes)  # within a quarter turn: mirrored, it is still the same class
        turns = 2 + torch.arange(classes) % 3
        lines = torch.linspace(0, 2 * math.pi, side + 1)[:side]
        self._across = (turns * angles.cos())[:, None] * lines
        self._down = (turns * angles.sin())[:, None] * lines
        self._colours = 0.3 + 0.7 * torch.rand(classes, 3, generator=generator(seed, 2))

    def __len__(self) -> int:
        return self._samples

    def name(self, number: int) -> str:
        return f"sample {number}"

    def batch(self, numbers: Sequence[int]) -> Batch:
        """images (samples, 3, side, side) of uint8, labels (samples,)."""
        labels = torch.tensor([number % self._classes for number in numbers])
        noise, phases = [], []
        for number in numbers:
            chance = generator(self._seed, 3, number)
            phases.append(torch.rand((), generator=chance) * 2 * math.pi)
            noise.append(torch.randn(3, self._side, self._side, generator=chance))
        waves = self._across[labels][:, None, :] + self._down[labels][:, :, None] + torch.stack(phases)[:, None, None]
        images = waves.cos()[:, None] * self._colours[labels][:, :, None, None] + NOISE * torch.stack(noise)
        return {"images": images.mul(64).add(128).clamp(0, 255).to(torch.uint8), "labels": labels}


class ImageFolder(Numbered):
    """FOLDER/CLASS/**/IMAGE. Raises `DataFault` where there is nothing to learn from."""

    def __init__(self, folder: str, side: int, held_out: int, cache: str = "") -> None:
        self._files, self._side = files_of(folder, cache), side
        names, self.classes = _listed(self._files)
        names = in_their_order(names)  # those that are kept apart are of all classes
        self.held_out = min(held_out, len(names) // 5)
        self._names = names
        self._numbers = {name: number for number, name in enumerate(self.classes)}
        self.version = self._files.version(names)

    def __len__(self) -> int:
        return len(self._names) - self.held_out

    def name(self, number: int) -> str:
        return self._names[number]

    def batch(self, numbers: Sequence[int]) -> Batch:
        images = [self._image(number) for number in numbers]
        labels = [self._numbers[self._names[number].partition("/")[0]] for number in numbers]
        return {"images": torch.stack(images), "labels": torch.tensor(labels)}

    def _image(self, number: int) -> Tensor:
        try:
            pixels = _decoded(self._names[number], read(self._files, self._names[number]))
        except Exception as error:  # noqa: BLE001 - decoders raise what they like: Pillow says SyntaxError of a broken PNG
            raise Broken(number, " ".join(str(error).split())[:120] or type(error).__name__) from None
        image = torch.from_numpy(pixels).permute(2, 0, 1)
        if image.shape[1:] == (self._side, self._side):
            return image
        scaled = nn.functional.interpolate(image[None].float(), (self._side, self._side), mode="bilinear", antialias=True)
        return scaled[0].round().clamp(0, 255).to(torch.uint8)


def _listed(files: Files) -> tuple[list[str], list[str]]:
    known = {*OWN, *PILLOW}
    names = [name for name in files.names(known) if "/" in name]
    classes = sorted({name.partition("/")[0] for name in names})
    if len(classes) < 2:
        raise DataFault(
            f"--data {files.data} has images in {len(classes) or 'no'} subfolder{'s' * (len(classes) != 1)}, and it needs two or more,"
            f" one a class, with {', '.join(sorted(known))}."
        )
    if any(PurePosixPath(name).suffix.lower() in PILLOW for name in names) and not _pillow():
        raise DataFault(f"--data {files.data} has images that Pillow reads, and it is not installed here: `pip install pillow`.")
    return names, classes


def _pillow() -> bool:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        return False
    return True


def _decoded(name: str, content: bytes) -> np.ndarray:
    """(height, width, 3) of uint8."""
    kind = PurePosixPath(name).suffix.lower()
    if kind == ".npy":
        try:
            pixels = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError):  # numpy advises to trust the file
            raise ValueError("it is cut off" if content.startswith(b"\x93NUMPY") else "it is no .npy file of numbers") from None
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
            raise ValueError(f"it is {pixels.dtype} {pixels.shape}, not uint8 (height, width, 3)")
        return np.ascontiguousarray(pixels)
    if kind == ".ppm":
        return _ppm(content)
    import PIL.Image

    with PIL.Image.open(io.BytesIO(content)) as image:
        return np.array(image.convert("RGB"))


def _ppm(content: bytes) -> np.ndarray:
    head = _P6.match(content)
    if head is None:
        raise ValueError("it is no binary PPM of 8 bits")
    width, height = int(head[1]), int(head[2])
    pixels = content[head.end() : head.end() + 3 * width * height]
    if not width * height or len(pixels) < 3 * width * height:
        raise ValueError("it is cut off")
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3).copy()
