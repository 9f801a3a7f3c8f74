"""Logs that are read as they come: cut at fixed bytes into blocks, of which no more is read than the steps so far needed.

Invariant: a line belongs to the block in which it begins. Which lines a step has depends on the seed, the data and the step
alone, though nobody has counted the lines before the first one: a position in an epoch is found by counting the blocks
that come before it, or by the mark that a checkpoint carries.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from agent.recipes.data import generator
from agent.recipes.faults import DataFault
from agent.recipes.files import Files

LINES = 1 << 32
"""The number of a line is that of its block times this, and its place there."""
LEAST_BLOCKS, LEAST_BYTES = 64, 64
"""Little data are cut finer, so that some can be kept apart."""
BEYOND_BYTES = 4096
"""Read behind a block, for its last line."""
AT_ONCE = 8


class Blocks:
    """Of some files. `skipped`: lines before the first one of each. `check` may refuse one that is read first. Raises `DataFault`."""

    def __init__(
        self, files: Files, names: Sequence[str], block_bytes: int, mixed: int, skipped: int, check: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.names, self.mixed, self._files, self._skipped, self._check = tuple(names), mixed, files, skipped, check
        self._sizes = [files.size(name) for name in names]
        self.bytes = sum(self._sizes)
        self.each = max(LEAST_BYTES, min(block_bytes, self.bytes // LEAST_BLOCKS))
        self._firsts = [0]
        """The number of each file's first block, and behind them that of all."""
        for size in self._sizes:
            self._firsts.append(self._firsts[-1] - (-size // self.each))
        self._rows: dict[int, int] = {}
        self._kept: OrderedDict[int, list[str]] = OrderedDict()

    def __len__(self) -> int:
        return self._firsts[-1]

    def place(self, block: int) -> tuple[int, int]:
        """The number of its file, and its first byte there."""
        file = bisect.bisect_right(self._firsts, block) - 1
        return file, (block - self._firsts[file]) * self.each

    def counted(self, blocks: Sequence[int]) -> list[int]:
        """Lines of each of them, read where they are not known."""
        missing = [block for block in blocks if block not in self._rows]
        for name in dict.fromkeys(self.names[self.place(block)[0]] for block in missing):
            self._check(name)
        try:
            if len(missing) > 1:
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    found = list(pool.map(self._read, missing))
            else:
                found = [self._read(block) for block in missing]
        except OSError as error:
            names = ", ".join(dict.fromkeys(self.names[self.place(block)[0]] for block in missing[:3]))
            raise DataFault(f"{names}: a part of it cannot be read ({(error.strerror or str(error)).lower()}).") from None
        for block, lines in zip(missing, found, strict=True):
            self._rows[block] = len(lines)
            self._keep(block, lines)
        return [self._rows[block] for block in blocks]

    def known(self, blocks: Sequence[int]) -> int | None:
        """Lines of all of them; None where not all were read."""
        found = [self._rows.get(block) for block in blocks]
        return None if None in found else sum(one for one in found if one is not None)

    def lines(self, block: int) -> list[str]:
        """Those that were read last are kept. Raises `OSError`."""
        if block not in self._kept:
            self._keep(block, self._read(block))
        self._kept.move_to_end(block)
        return self._kept[block]

    def line_name(self, block: int, place: int) -> str:
        """As an editor counts, where all before it was read."""
        file, at = self.place(block)
        before = self.known(range(self._firsts[file], block))
        where = f"line {place + 1} from byte {at:,}" if before is None else f"line {self._skipped + before + place + 1}"
        return f"{self.names[file]} {where}"

    def _keep(self, block: int, lines: list[str]) -> None:
        self._kept[block] = lines
        while len(self._kept) > 2 * self.mixed + 1:  # a batch may lie across two groups of blocks
            self._kept.popitem(last=False)

    def _read(self, block: int) -> list[str]:
        file, at = self.place(block)
        name, size = self.names[file], self._sizes[file]
        first, end = max(0, at - 1), min(at + self.each, size)
        content = self._files.piece(name, first, end - first + BEYOND_BYTES)
        begin = content.find(b"\n") + 1 if at else 0
        if (at and not begin) or first + begin >= end:
            return []  # one line is longer than the block
        stop, more = content.find(b"\n", end - 1 - first), BEYOND_BYTES
        while stop < 0 and first + len(content) < size:
            more *= 8
            piece = self._files.piece(name, first + len(content), more)
            if not piece:
                break  # it has become shorter
            content += piece
            stop = content.find(b"\n", end - 1 - first)
        lines = content[begin : stop if stop >= 0 else None].decode("utf-8", "replace").split("\n")
        return lines if at else lines[self._skipped :]


class BlockOrder:
    """The first `count` blocks: in every epoch mixed in an order of their own, and lines within `mixed` blocks that come together.

    So a log is read in long pieces, and of what is read all is used before the next piece is. `key`: what the order depends on.
    """

    def __init__(self, blocks: Blocks, count: int, batch_size: int, seed: int, version: str) -> None:
        self._blocks, self._count, self._batch, self._seed = blocks, count, batch_size, seed
        self._key = [version, seed, blocks.each, blocks.mixed, count]
        self._groups = -(-count // blocks.mixed)
        self.total: int | None = None
        """Lines of an epoch, once one was read to its end."""
        self._starts: dict[int, tuple[int, list[int]]] = {}
        """Of an epoch: its first group that is known, and where it and those behind it begin."""
        self._orders: dict[int, torch.Tensor] = {}
        self._mixed: dict[tuple[int, int], torch.Tensor] = {}

    def step(self, step: int) -> list[int]:
        return [self._number(position) for position in range((step - 1) * self._batch, step * self._batch)]

    def mark(self, position: int) -> Mapping[str, Any]:
        epoch, group, start = self._find(position)
        return {"of": self._key, "epoch": epoch, "group": group, "start": start, "total": self.total}

    def take(self, mark: object) -> None:
        if isinstance(mark, Mapping) and mark.get("of") == self._key:
            self.total = mark["total"]
            self._starts = {mark["epoch"]: (mark["group"], [mark["start"]])}

    def _number(self, position: int) -> int:
        epoch, group, start = self._find(position)
        return int(self._lines(epoch, group)[position - start - (epoch * self.total if epoch and self.total else 0)])

    def _find(self, position: int) -> tuple[int, int, int]:
        """Epoch and group of a position, and the place in the epoch at which the group begins."""
        if self.total is None:
            found = self._group_at(0, position)
            if found is not None:
                return (0, *found)
            self.total = self._starts[0][1][-1]
            if not self.total:
                raise DataFault(f"--data: there is no line in {', '.join(self._blocks.names[:3])}.")
        epoch, place = divmod(position, self.total)
        found = self._group_at(epoch, place)
        assert found is not None, "an epoch has as many lines as the one before"
        return (epoch, *found)

    def _group_at(self, epoch: int, place: int) -> tuple[int, int] | None:
        """None: it lies behind the epoch's end."""
        known = self._starts.get(epoch)
        if known is None or known[1][0] > place:
            self._starts = {key: value for key, value in self._starts.items() if key == epoch - 1} | {epoch: (0, [0])}
        first, starts = self._starts[epoch]
        while starts[-1] <= place and first + len(starts) - 1 < self._groups:
            starts.append(starts[-1] + sum(self._blocks.counted(self._members(epoch, first + len(starts) - 1))))
        if starts[-1] <= place:
            return None
        at = bisect.bisect_right(starts, place) - 1
        return first + at, starts[at]

    def _members(self, epoch: int, group: int) -> list[int]:
        """The blocks of a group."""
        if epoch not in self._orders:
            self._orders = {key: order for key, order in self._orders.items() if key == epoch - 1}
            self._orders[epoch] = torch.randperm(self._count, generator=generator(self._seed, epoch, 8))
        mixed = self._blocks.mixed
        return self._orders[epoch][group * mixed : (group + 1) * mixed].tolist()

    def _lines(self, epoch: int, group: int) -> torch.Tensor:
        if (epoch, group) not in self._mixed:
            self._mixed = dict(list(self._mixed.items())[-1:])
            numbers = torch.cat(list(self._numbers(self._members(epoch, group))))
            self._mixed[epoch, group] = numbers[torch.randperm(len(numbers), generator=generator(self._seed, epoch, 9, group))]
        return self._mixed[epoch, group]

    def _numbers(self, members: Sequence[int]) -> Iterator[torch.Tensor]:
        for block, rows in zip(members, self._blocks.counted(members), strict=True):
            yield block * LINES + torch.arange(rows)
