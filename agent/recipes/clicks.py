"""Click logs: made on the spot, or a folder's files read block by block as they come (blocks.py).

Invariant: the same version is the same rows under the same numbers; a row that cannot be read is `Broken`, by file and line.
"""

from __future__ import annotations

import csv
import functools
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from agent.recipes.blocks import LINES, BlockOrder, Blocks
from agent.recipes.data import Batch, Broken, Numbered, generator
from agent.recipes.faults import DataFault
from agent.recipes.files import Files, files_of

LOGS = (".csv", ".tsv")
CRITEO = (1, 13, 26)
"""Columns of Criteo's logs, without a header and with tabs: label, dense, categories."""
LATENT = 4
HEAD_BYTES = 1 << 16
"""In which the first line of a log ends."""
CHECKED = 64
"""Logs of which the columns are looked at before the first step."""
COUNTED_BYTES = 1 << 24
"""Up to so much is read before the first step, to know how many rows there are."""


class MadeClicks(Numbered):
    """Persons and items with tastes in a few dimensions: who is near an item clicks it, with chance in it."""

    sparse, dense = ("user_id", "item_id"), ("dense_hour",)
    person, item = (0,), (1,)
    def __init__(self, samples: int, held_out: int, people: int, items: int, seed: int) -> None:
        self._samples, self.held_out, self._seed = samples, held_out, seed
        self._people, self._items, self.buckets = people, items, max(people, items)
        self.version = f"made:clicks samples={samples} people={people} items={items} seed={seed}"
        self._tastes, self._kinds = (torch.randn(count, LATENT, generator=generator(seed, 6, count)) for count in (people, items))

    def __len__(self) -> int:
        return self._samples

    def name(self, number: int) -> str:
        return f"sample {number}"

    def chance(self, sparse: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Of a click, as the rows are made: (samples,)."""
        near = (self._tastes[sparse[:, 0]] * self._kinds[sparse[:, 1]]).sum(1)
        return torch.sigmoid(2 * near + 0.5 * dense[:, 0])

    def batch(self, numbers: Sequence[int]) -> Batch:
        """sparse (samples, 2), dense (samples, 1), labels (samples,) of 0 and 1."""
        drawn = torch.stack([torch.rand(4, generator=generator(self._seed, 7, number)) for number in numbers])
        sparse = torch.stack([(drawn[:, 0] * self._people).long(), (drawn[:, 1] * self._items).long()], 1)
        dense = 4 * drawn[:, 2:3] - 2
        return {"sparse": sparse, "dense": dense, "labels": (drawn[:, 3] < self.chance(sparse, dense)).float()}


@dataclass(frozen=True)
class _Layout:
    """Which columns are what; `separator`, and lines before the first row."""

    label: int
    dense: tuple[int, ...]
    sparse: tuple[int, ...]
    names: tuple[str, ...]
    separator: str
    skipped: int


class ClickFolder:
    """FOLDER/**/LOG. Raises `DataFault` where there is nothing to learn from.

    Only the blocks that were read last are kept: a log may be larger than the memory. What is not much is counted at once;
    of more it is not known how many rows there are until an epoch was read. The last blocks are kept apart.
    """

    def __init__(self, folder: str, held_out: int, buckets: int, block: int, mixed: int, cache: str = "") -> None:
        self.buckets, self.held_out = buckets, held_out
        self._files = files_of(folder, cache)
        names = self._files.names(LOGS)
        self._layout = _layout_of(self._files, names)
        self._alike = set(names[:CHECKED])
        columns = self._layout.names
        self.sparse = tuple(columns[column] for column in self._layout.sparse)
        self.dense = tuple(columns[column] for column in self._layout.dense)
        self.person = tuple(place for place, name in enumerate(self.sparse) if name.startswith("user"))
        self.item = tuple(place for place, name in enumerate(self.sparse) if name.startswith("item"))
        self._blocks = Blocks(self._files, names, block, mixed, self._layout.skipped, self._check)
        self._row_bytes = self._of_a_row() if len(self._blocks) else 1
        usual = -(-held_out * self._row_bytes // self._blocks.each)  # and one more, for rows are not all as long
        apart = min(usual + 1 if usual else 0, len(self._blocks) // 5)
        self._count, self.held_out = len(self._blocks) - apart, held_out if apart else 0
        self._counted: int | None = None
        if self._blocks.bytes <= COUNTED_BYTES:
            self._counted = sum(self._blocks.counted(range(self._count)))
            total = self._counted + len(self.held)
            if total < 2:
                raise DataFault(f"--data {folder} has {total or 'no'} row{'s' * (total != 1)} of clicks, and it needs two or more.")
        self.version = self._files.version(names)
        self._order: BlockOrder | None = None

    @property
    def samples(self) -> int | None:
        return self._order.total if self._counted is None and self._order is not None else self._counted

    @property
    def files(self) -> int:
        """Rows, by their usual length where they are not counted."""
        return self.samples or max(1, self._blocks.bytes // self._row_bytes)

    @functools.cached_property
    def held(self) -> list[int]:
        """Of the blocks that are kept apart the last rows."""
        apart = range(self._count, len(self._blocks))
        rows = zip(apart, self._blocks.counted(apart), strict=True)
        return [block * LINES + place for block, count in rows for place in range(count)][-self.held_out :]

    def order(self, batch_size: int, seed: int) -> BlockOrder:
        self._order = BlockOrder(self._blocks, self._count, batch_size, seed, self.version)
        return self._order

    def instead(self, number: int) -> Iterator[int]:
        """The rows behind it in its block, those before it, and the next block's."""
        block, place = divmod(number, LINES)
        first, size = (0, self._count) if block < self._count else (self._count, len(self._blocks) - self._count)
        yield number
        try:
            count = len(self._blocks.lines(block))
            yield from (block * LINES + (place + ahead) % count for ahead in range(1, count))
            after = first + (block - first + 1) % size
            yield from (after * LINES + other for other in range(len(self._blocks.lines(after))))
        except OSError:
            return

    def name(self, number: int) -> str:
        return self._blocks.line_name(*divmod(number, LINES))

    def batch(self, numbers: Sequence[int]) -> Batch:
        """sparse (samples, fields), dense (samples, dense fields), labels (samples,) of 0 and 1."""
        rows = [self._row(number) for number in numbers]
        labels, dense, sparse = zip(*rows, strict=True)
        return {
            "sparse": torch.tensor(sparse, dtype=torch.int64).view(len(rows), len(self.sparse)),
            "dense": torch.tensor(dense, dtype=torch.float32).view(len(rows), len(self.dense)),
            "labels": torch.tensor(labels, dtype=torch.float32),
        }

    def _of_a_row(self) -> int:
        """Bytes of a row, by the first ones."""
        lines = self._blocks.lines(0)
        return max(1, (sum(map(len, lines)) + len(lines)) // max(1, len(lines)))

    def _row(self, number: int) -> tuple[float, list[float], list[int]]:
        block, place = divmod(number, LINES)
        try:
            lines = self._blocks.lines(block)
        except OSError as error:
            raise Broken(number, (error.strerror or str(error)).lower()) from None
        if place >= len(lines):
            raise Broken(number, "the file has become shorter")
        cells = next(csv.reader([lines[place]], delimiter=self._layout.separator), [])
        if len(cells) != len(self._layout.names):
            raise Broken(number, f"it has {len(cells)} columns, not {len(self._layout.names)}")
        try:
            label = float(cells[self._layout.label])
            dense = [_squeezed(cells[column]) for column in self._layout.dense]
        except ValueError as error:
            raise Broken(number, f"{error}") from None
        if label not in (0.0, 1.0):
            raise Broken(number, f"its label is {cells[self._layout.label]!r}, not 0 or 1")
        return label, dense, [zlib.crc32(cells[column].encode()) % self.buckets for column in self._layout.sparse]

    def _check(self, name: str) -> None:
        """The columns of a file from which nothing was read yet. Raises `DataFault`."""
        if name not in self._alike:
            _same(self._files, name, self._layout, "the first of them")
            self._alike.add(name)


def _squeezed(text: str) -> float:
    """A count as its logarithm, with its sign; a missing one is 0. Raises `ValueError`."""
    if not text:
        return 0.0
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return math.copysign(math.log1p(abs(value)), value)


def _layout_of(files: Files, names: Sequence[str]) -> _Layout:
    """All files have that of the first; of many the others are looked at when they are read. Raises `DataFault`."""
    if not names:
        raise DataFault(f"--data {files.data} has no click logs ({', '.join(LOGS)}).")
    first = _layout(files, names[0])
    for name in names[1:CHECKED]:
        _same(files, name, first, names[0])
    return first


def _same(files: Files, name: str, layout: _Layout, first: str) -> None:
    if _layout(files, name) != layout:
        raise DataFault(f"{name} has other columns than {first}: all logs of a folder need the same.")


def _layout(files: Files, path: str) -> _Layout:
    separator = "\t" if path.lower().endswith(".tsv") else ","
    try:
        line = files.piece(path, 0, HEAD_BYTES).partition(b"\n")[0].decode("utf-8", "replace").rstrip("\r")
    except OSError as error:
        raise DataFault(f"{path}: it cannot be read ({(error.strerror or str(error)).lower()}).") from None
    cells = next(csv.reader([line], delimiter=separator), [])
    labels, dense, sparse = CRITEO
    if "label" not in cells and len(cells) == sum(CRITEO):
        names = ("label", *(f"dense_{one}" for one in range(1, dense + 1)), *(f"field_{one}" for one in range(1, sparse + 1)))
        return _Layout(0, tuple(range(labels, labels + dense)), tuple(range(labels + dense, len(names))), names, separator, 0)
    others = [(place, name) for place, name in enumerate(cells) if name != "label"]
    if "label" not in cells or not any(not name.startswith("dense") for _, name in others):
        raise DataFault(
            f"{path}: its first line names no column `label` and one to learn from: call them label, user_*, item_* or field_*,"
            f" and dense_* for numbers; or give Criteo's {sum(CRITEO)} columns with tabs."
        )
    numbers = tuple(place for place, name in others if name.startswith("dense"))
    categories = tuple(place for place, name in others if not name.startswith("dense"))
    return _Layout(cells.index("label"), numbers, categories, tuple(cells), separator, 1)
