"""Click logs: made on the spot, or a folder's files read block by block.

Invariant: the same version is the same rows under the same numbers; a row that cannot be read is `Broken`, by file and line.
"""

from __future__ import annotations

import bisect
import csv
import math
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from agent.recipes.data import Batch, Broken, generator
from agent.recipes.faults import DataFault
from agent.recipes.files import Files, files_of, read

LOGS = (".csv", ".tsv")
CRITEO = (1, 13, 26)
"""Columns of Criteo's logs, without a header and with tabs: label, dense, categories."""
LATENT = 4
CHUNK_BYTES = 1 << 20


class MadeClicks:
    """Persons and items with tastes in a few dimensions: who is near an item clicks it, with chance in it."""

    sparse, dense = ("user_id", "item_id"), ("dense_hour",)
    person, item = (0,), (1,)
    block = mixed = 1

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

    Only the byte at which each block of rows starts is kept, and the blocks that were read last: a log may be larger than
    the memory. The rows of a batch come from `mixed` blocks, so that a disk (or a network) is read in long pieces.
    """

    def __init__(self, folder: str, held_out: int, buckets: int, block: int, mixed: int, cache: str = "") -> None:
        self.buckets, self.block, self.mixed = buckets, block, mixed
        self._files = files_of(folder, cache)
        self._names = self._files.names(LOGS)
        self._layout = _layout_of(self._files, self._names)
        names = self._layout.names
        self.sparse = tuple(names[column] for column in self._layout.sparse)
        self.dense = tuple(names[column] for column in self._layout.dense)
        self.person = tuple(place for place, name in enumerate(self.sparse) if name.startswith("user"))
        self.item = tuple(place for place, name in enumerate(self.sparse) if name.startswith("item"))
        found = [_blocks(self._files, name, self._layout.skipped, block) for name in self._names]
        self._blocks = [(file, at, rows) for file, starts in enumerate(found) for at, rows in starts]
        self._ends: list[int] = []
        for _, _, rows in self._blocks:
            self._ends.append((self._ends[-1] if self._ends else 0) + rows)
        total = self._ends[-1] if self._ends else 0
        if total < 2:
            raise DataFault(f"--data {folder} has {total or 'no'} row{'s' * (total != 1)} of clicks, and it needs two or more.")
        self.held_out = min(held_out, total // 5)
        self.version = self._files.version(self._names)
        self._kept: OrderedDict[int, list[str]] = OrderedDict()

    def __len__(self) -> int:
        return self._ends[-1] - self.held_out

    def name(self, number: int) -> str:
        block, place = self._place(number)
        file = self._blocks[block][0]
        before = sum(rows for other, _, rows in self._blocks[:block] if other == file)
        return f"{self._names[file]} line {self._layout.skipped + before + place + 1}"

    def batch(self, numbers: Sequence[int]) -> Batch:
        """sparse (samples, fields), dense (samples, dense fields), labels (samples,) of 0 and 1."""
        rows = [self._row(number) for number in numbers]
        labels, dense, sparse = zip(*rows, strict=True)
        return {
            "sparse": torch.tensor(sparse, dtype=torch.int64).view(len(rows), len(self.sparse)),
            "dense": torch.tensor(dense, dtype=torch.float32).view(len(rows), len(self.dense)),
            "labels": torch.tensor(labels, dtype=torch.float32),
        }

    def _place(self, number: int) -> tuple[int, int]:
        block = bisect.bisect_right(self._ends, number)
        return block, number - (self._ends[block - 1] if block else 0)

    def _row(self, number: int) -> tuple[float, list[float], list[int]]:
        block, place = self._place(number)
        lines = self._lines(number, block)
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

    def _lines(self, number: int, block: int) -> list[str]:
        """Of a block; those that were read last are kept."""
        if block in self._kept:
            self._kept.move_to_end(block)
            return self._kept[block]
        file, at, _ = self._blocks[block]
        end = self._blocks[block + 1][1] if block + 1 < len(self._blocks) and self._blocks[block + 1][0] == file else None
        try:
            content = read(self._files, self._names[file], at, -1 if end is None else end - at)
        except OSError as error:
            raise Broken(number, (error.strerror or str(error)).lower()) from None
        lines = self._kept[block] = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
        while len(self._kept) > 2 * self.mixed + 1:  # blocks of numbers may lie across two of a file's
            self._kept.popitem(last=False)
        return lines


def _squeezed(text: str) -> float:
    """A count as its logarithm, with its sign; a missing one is 0. Raises `ValueError`."""
    if not text:
        return 0.0
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no finite number")
    return math.copysign(math.log1p(abs(value)), value)


def _layout_of(files: Files, names: Sequence[str]) -> _Layout:
    """All files have that of the first. Raises `DataFault`."""
    if not names:
        raise DataFault(f"--data {files.data} has no click logs ({', '.join(LOGS)}).")
    first = _layout(files, names[0])
    for name in names[1:]:
        if _layout(files, name) != first:
            raise DataFault(f"{name} has other columns than {names[0]}: all logs of a folder need the same.")
    return first


def _layout(files: Files, path: str) -> _Layout:
    separator = "\t" if path.lower().endswith(".tsv") else ","
    try:
        with files.open(path) as file:
            line = file.readline(CHUNK_BYTES).decode("utf-8", "replace").rstrip("\r\n")
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


def _blocks(files: Files, name: str, skipped: int, block: int) -> list[tuple[int, int]]:
    """(first byte, rows) of each block of a file: one pass over it, and a line that has no end counts."""
    starts, rows, at = [], 0, 0
    with files.open(name) as file:
        for _ in range(skipped):
            at += len(file.readline())
        begin = at
        for line in file:
            rows += 1
            at += len(line)
            if rows == block:
                starts.append((begin, rows))
                begin, rows = at, 0
    return [*starts, (begin, rows)] if rows else starts
