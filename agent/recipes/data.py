"""Which sample comes when, and how a rank gets its part of each batch.

Invariant: sample, order and random draws of a step depend on the seed and the step alone: not on the number of ranks, not on
the worker that loads it, not on where the training was resumed. So nothing of it needs to be in a checkpoint.
"""

from __future__ import annotations

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
    """Samples, each known by a number; in which order they come is `order`'s, and `held` are kept apart."""

    version: str
    """A path and hash, a DVC revision, or the seed: the same version is the same data."""
    held_out: int
    """How many are kept apart, at most."""

    @property
    def samples(self) -> int | None:
        """Of an epoch; None: not known yet, for it is read as it comes."""

    @property
    def files(self) -> int:
        """How many things could be broken; an estimate while `samples` is not known."""

    @property
    def held(self) -> Sequence[int]: ...

    def order(self, batch_size: int, seed: int) -> Ordered: ...

    def batch(self, numbers: Sequence[int]) -> Batch:
        """Raises `Broken` where one of them cannot be read."""

    def instead(self, number: int) -> Iterable[int]:
        """Itself, and then what may take its place where it is broken."""

    def name(self, number: int) -> str: ...


class Ordered(Protocol):
    """Which samples come when."""

    def step(self, step: int) -> list[int]:
        """Numbers of the whole batch; the first step is 1."""

    def mark(self, position: int) -> Mapping[str, Any]:
        """What spares a run that goes on from there the search for it, as JSON has it; it is never needed."""

    def take(self, mark: object) -> None:
        """One of before, of these data or of others."""


class Numbered:
    """Of a source whose samples are 0 to `len`, with `held_out` behind them that are kept apart."""

    held_out: int

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def samples(self) -> int:
        return len(self)

    @property
    def files(self) -> int:
        return len(self) + self.held_out

    @property
    def held(self) -> Sequence[int]:
        return range(len(self), len(self) + self.held_out)

    def order(self, batch_size: int, seed: int) -> Order:
        return Order(len(self), batch_size, seed)

    def instead(self, number: int) -> Iterator[int]:
        """Those behind it, of its own part."""
        first, size = (0, len(self)) if number < len(self) else (len(self), self.held_out)
        return (first + (number - first + ahead) % size for ahead in range(size))


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
    """Every epoch in an order of its own, batches running over its end."""

    def __init__(self, samples: int, batch_size: int, seed: int) -> None:
        self._samples, self._batch, self._seed = samples, batch_size, seed
        self._epochs: dict[int, torch.Tensor] = {}

    def step(self, step: int) -> list[int]:
        positions = range((step - 1) * self._batch, step * self._batch)
        return [self._number(*divmod(position, self._samples)) for position in positions]

    def mark(self, position: int) -> Mapping[str, Any]:
        return {}

    def take(self, mark: object) -> None:
        pass

    def _number(self, epoch: int, place: int) -> int:
        if epoch not in self._epochs:
            self._epochs = {key: numbers for key, numbers in self._epochs.items() if key == epoch - 1}
            self._epochs[epoch] = torch.randperm(self._samples, generator=generator(self._seed, epoch))
        return int(self._epochs[epoch][place])


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
        return next((candidate for candidate in self._source.instead(number) if candidate not in self._broken), None)


def _as_it_is(loaded: Loaded) -> Loaded:
    return loaded


def loader(source: Source, batches: Iterable[list[int]], workers: int, *, pinned: bool) -> DataLoader[Any]:
    return DataLoader(
        _Reader(source), batch_sampler=batches, num_workers=workers, collate_fn=_as_it_is, pin_memory=pinned,  # type: ignore[arg-type]
        prefetch_factor=4 if workers else None,
    )  # fmt: skip


class Steps:
    """A rank's part of every step from `first` to `last`."""

    def __init__(self, order: Ordered, part: slice, first: int, last: int) -> None:
        self._order, self._part, self._first, self._last = order, part, first, last

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._first, self._last + 1):
            yield self._order.step(step)[self._part]

    def __len__(self) -> int:
        return max(0, self._last - self._first + 1)


class BrokenFiles:
    """Counts those that were met, names the first, and ends the training beyond the limit."""

    def __init__(self, source: Source, limit: float) -> None:
        self._source, self._share = source, limit
        self.numbers: set[int] = set()
        self._why: dict[int, str] = {}
        """Of the first ones."""

    def met(self, broken: Sequence[tuple[int, str]]) -> list[str]:
        """Sentences on new ones. Raises `DataFault`."""
        new = [(number, why) for number, why in broken if number not in self.numbers]
        told = [
            f"{self._source.name(number)} is broken ({why}); another sample is taken in its place"
            for number, why in new[: max(0, NAMED - len(self.numbers))]
        ]
        self.numbers |= {number for number, _ in new}
        self._why |= dict(new[: max(0, NAMED - len(self._why))])
        limit = int(self._share * self._source.files)
        if len(self.numbers) > limit or len(self.numbers) >= self._source.files:
            raise DataFault(self._beyond(limit))
        return told

    def _beyond(self, limit: int) -> str:
        count, files = len(self.numbers), self._source.files
        about = "about " * (self._source.samples is None)
        names = "; ".join(f"{self._source.name(number)}: {why}" for number, why in sorted(self._why.items()))
        more, them = "; ..." * (count > len(self._why)), "it" if count == 1 else "them"
        return (
            f"{count} of {about}{files} samples {'is' if count == 1 else 'are'} broken ({names}{more}), and --max-broken {self._share:g}"
            f" allows {limit or 'none'}: repair or remove {them}, or raise --max-broken."
        )
