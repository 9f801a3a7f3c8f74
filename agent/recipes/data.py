"""Which sample comes when, and how a rank gets its part of each batch.

Invariant: sample, order and random draws of a step depend on the seed and the step alone: not on the number of ranks, not on
the worker that loads it, not on where the training was resumed. So nothing of it needs to be in a checkpoint.
"""

from __future__ import annotations

import bisect
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from agent.recipes.faults import DataFault

NAMED = 5
Batch = Mapping[str, torch.Tensor]


class Source(Protocol):
    """Samples by their number: 0 to `len` for training, and `held_out` numbers behind them that are kept apart."""

    version: str
    """A path and hash, a DVC revision, or the seed: the same version is the same data."""
    held_out: int
    block: int
    """Neighbours that are read at once; 1: each sample by itself."""
    mixed: int
    """Blocks whose samples are mixed."""

    def __len__(self) -> int: ...

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Raises `Broken` where one of them cannot be read."""

    def name(self, number: int) -> str: ...


class Broken(Exception):
    """A sample that cannot be read: its number and why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number, self.why = number, why


def mix(*numbers: int) -> int:
    """One seed of several numbers."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()) >> 1


def generator(*numbers: int) -> torch.Generator:
    return torch.Generator().manual_seed(mix(*numbers))


class Order:
    """Numbers of the samples of each step: every epoch in an order of its own, batches running over its end.

    Samples of which `block` neighbours are read at once are mixed within `mixed` blocks drawn together, so that a log is
    read in long pieces; with blocks of one sample, or fewer blocks than that, they are mixed all together.
    """

    def __init__(self, samples: int, batch_size: int, seed: int, block: int = 1, mixed: int = 1) -> None:
        self._samples, self._batch, self._seed = samples, batch_size, seed
        self._block, self._mixed = (block, mixed) if 1 < block * mixed < samples else (1, samples)
        self._plans: dict[int, tuple[torch.Tensor, list[int]]] = {}
        self._groups: dict[tuple[int, int], torch.Tensor] = {}

    def step(self, step: int) -> list[int]:
        """Of the whole batch; the first step is 1."""
        positions = range((step - 1) * self._batch, step * self._batch)
        return [self._number(*divmod(position, self._samples)) for position in positions]

    def _number(self, epoch: int, place: int) -> int:
        _, ends = self._plan(epoch)
        group = bisect.bisect_right(ends, place)
        return int(self._group(epoch, group)[place - (ends[group - 1] if group else 0)])

    def _plan(self, epoch: int) -> tuple[torch.Tensor, list[int]]:
        """The blocks in their order, and where each group of them ends."""
        if epoch not in self._plans:
            self._plans = {key: plan for key, plan in self._plans.items() if key == epoch - 1}
            count = -(-self._samples // self._block)
            one = self._block == 1
            order = torch.arange(count) if one else torch.randperm(count, generator=generator(self._seed, epoch, 8))
            sizes = torch.full((count,), self._block)
            sizes[order == count - 1] = self._samples - (count - 1) * self._block
            self._plans[epoch] = order, [int(part.sum()) for part in sizes.split(self._mixed)]
            for group, size in enumerate(ends := self._plans[epoch][1]):
                ends[group] = size + (ends[group - 1] if group else 0)
        return self._plans[epoch]

    def _group(self, epoch: int, group: int) -> torch.Tensor:
        if (epoch, group) not in self._groups:
            self._groups = dict(list(self._groups.items())[-1:])
            blocks = self._plan(epoch)[0].split(self._mixed)[group]
            numbers = (blocks[:, None] * self._block + torch.arange(self._block)).flatten()
            numbers = numbers[numbers < self._samples]
            seeds = (self._seed, epoch) if self._block == 1 else (self._seed, epoch, 9, group)
            self._groups[epoch, group] = numbers[torch.randperm(len(numbers), generator=generator(*seeds))]
        return self._groups[epoch, group]


@dataclass(frozen=True)
class Loaded:
    """A batch, empty where every sample is broken, and the broken ones that were met."""

    batch: Batch
    broken: tuple[tuple[int, str], ...]


class _Reader(Dataset[Any]):
    """Reads whole batches. In the place of a broken sample comes the next one that can be read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._broken: dict[int, str] = {}

    def __getitems__(self, numbers: list[int]) -> Loaded:
        found: dict[int, str] = {}
        while None not in (used := [self._instead(number) for number in numbers]):
            try:
                return Loaded(self._source.batch([number for number in used if number is not None]), tuple(found.items()))
            except Broken as broken:
                found[broken.number] = self._broken[broken.number] = broken.why
        return Loaded({}, tuple(self._broken.items()))

    def _instead(self, number: int) -> int | None:
        """None: all are broken."""
        count = len(self._source)
        first, size = (0, count) if number < count else (count, self._source.held_out)
        candidates = (first + (number - first + ahead) % size for ahead in range(size))
        return next((candidate for candidate in candidates if candidate not in self._broken), None)


def _as_it_is(loaded: Loaded) -> Loaded:
    return loaded


def loader(source: Source, batches: Iterable[list[int]], workers: int, *, pinned: bool) -> DataLoader[Any]:
    return DataLoader(
        _Reader(source), batch_sampler=batches, num_workers=workers, collate_fn=_as_it_is, pin_memory=pinned,  # type: ignore[arg-type]
        prefetch_factor=4 if workers else None,
    )  # fmt: skip


class Steps:
    """A rank's part of every step from `first` to `last`."""

    def __init__(self, order: Order, part: slice, first: int, last: int) -> None:
        self._order, self._part, self._first, self._last = order, part, first, last

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._first, self._last + 1):
            yield self._order.step(step)[self._part]

    def __len__(self) -> int:
        return max(0, self._last - self._first + 1)



class BrokenFiles:
    """Counts those that were met, names the first, and ends the training beyond the limit."""

    def __init__(self, source: Source, limit: float) -> None:
        self._source, self._limit = source, int(limit * (len(source) + source.held_out))
        self.numbers: set[int] = set()

    def met(self, broken: Sequence[tuple[int, str]]) -> list[str]:
        """Sentences on new ones. Raises `DataFault`."""
        new = [(number, why) for number, why in broken if number not in self.numbers]
        told = [
            f"{self._source.name(number)} is broken ({why}); another sample is taken in its place"
            for number, why in new[: max(0, NAMED - len(self.numbers))]
        ]
        self.numbers |= {number for number, _ in new}
        if len(self.numbers) > self._limit or len(self.numbers) >= len(self._source):
            names = ", ".join(self._source.name(number) for number in sorted(self.numbers)[:NAMED])
            files, more = len(self._source) + self._source.held_out, ", ..." * (len(self.numbers) > NAMED)
            raise DataFault(
                f"{len(self.numbers)} files are broken and --max-broken allows {self._limit} of {files}: {names}{more}."
            )
        return told
