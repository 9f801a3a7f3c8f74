"""Sequences of tokens: made on the spot, or the bytes of a folder's texts, cut into windows.

Invariant: the same version is the same sequences under the same numbers; a window that cannot be read is `Broken`.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate

import torch

from agent.recipes.data import Batch, Broken, Numbered, generator
from agent.recipes.faults import DataFault
from agent.recipes.files import files_of, read
from agent.recipes.versions import in_their_order

TEXTS = (".txt", ".md")
BYTES = 256
NOISE = 0.05
"""Share of the made tokens that follow no rule."""


class MadeTexts(Numbered):
    """Two languages: in each a token has one successor, and the first token tells which of the two is spoken."""

    vocabulary: int

    def __init__(self, samples: int, held_out: int, vocabulary: int, context: int, seed: int) -> None:
        self._samples, self.held_out, self.vocabulary, self._context, self._seed = samples, held_out, vocabulary, context, seed
        self.version = f"made:texts samples={samples} vocabulary={vocabulary} context={context} seed={seed}"
        self._next = torch.stack([torch.randperm(vocabulary, generator=generator(seed, 4, one)) for one in (0, 1)])

    def __len__(self) -> int:
        return self._samples

    def name(self, number: int) -> str:
        return f"sample {number}"

    def batch(self, numbers: Sequence[int]) -> Batch:
        """tokens (samples, context + 1)."""
        length = self._context + 1
        chances = [generator(self._seed, 5, number) for number in numbers]
        noisy = torch.stack([torch.rand(length, generator=chance) for chance in chances]) < NOISE
        found = torch.stack([torch.randint(self.vocabulary, (length,), generator=chance) for chance in chances])
        spoken = found[:, 0] % 2
        for at in range(1, length):
            found[:, at] = torch.where(noisy[:, at], found[:, at], self._next[spoken, found[:, at - 1]])
        return {"tokens": found}


class TextFolder(Numbered):
    """FOLDER/**/TEXT. Raises `DataFault` where there is nothing to learn from."""

    vocabulary = BYTES

    def __init__(self, folder: str, context: int, held_out: int, cache: str = "") -> None:
        self._files, self._context = files_of(folder, cache), context
        found = self._files.names(TEXTS)
        self._names = in_their_order(found)
        self._ends = list(accumulate(max(0, self._files.size(name) - 1) // context for name in self._names))
        windows = self._ends[-1] if self._ends else 0
        if windows < 2:
            raise DataFault(
                f"--data {folder} has {len(found)} text{'s' * (len(found) != 1)} ({', '.join(TEXTS)}), which do not give two"
                f" windows of --context {context}: it needs more text, or a smaller context."
            )
        self.held_out = min(held_out, windows // 5)
        self._windows = torch.randperm(windows, generator=generator(0)).tolist()
        self.version = self._files.version(self._names)

    def __len__(self) -> int:
        return len(self._windows) - self.held_out

    def name(self, number: int) -> str:
        return "{} from byte {}".format(*self._place(number))

    def batch(self, numbers: Sequence[int]) -> Batch:
        return {"tokens": torch.stack([self._window(number) for number in numbers])}

    def _place(self, number: int) -> tuple[str, int]:
        window = self._windows[number]
        file = bisect.bisect_right(self._ends, window)
        return self._names[file], (window - (self._ends[file - 1] if file else 0)) * self._context

    def _window(self, number: int) -> torch.Tensor:
        try:
            content = read(self._files, *self._place(number), self._context + 1)
        except OSError as error:
            raise Broken(number, (error.strerror or str(error)).lower()) from None
        if len(content) <= self._context:
            raise Broken(number, "it has become shorter")
        if b"\0" in content:
            raise Broken(number, "it is no text: it has zero bytes")
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
