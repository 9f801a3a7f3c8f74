"""The processes that hold GPUs of a node as a tree, with those above them that started them.

Invariant: every process of every GPU is in it exactly once a GPU; one whose parent is not known, or names itself above
itself, is a root. Order: by the lowest GPU below, then by pid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agent import wire
from tui.gpu_use import GpuUse

_BRANCH, _LAST, _ALONG, _NOTHING = "├─ ", "└─ ", "│  ", "   "
DEEPEST = 12


class TreeRow(NamedTuple):
    """One line: a process on a GPU, or (`ancestor`) one that holds none. `prefix` draws where it hangs."""

    prefix: str
    use: GpuUse | None
    process: wire.Process | None
    ancestor: wire.Ancestor | None


class _Node:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.holds: list[tuple[GpuUse, wire.Process]] = []
        self.ancestor: wire.Ancestor | None = None
        self.children: list[_Node] = []
        self.is_child = False

    @property
    def parent_pid(self) -> int | None:
        return self.holds[0][1].parent_pid if self.holds else self.ancestor.parent_pid if self.ancestor else None

    def order(self, depth: int = 0) -> tuple[int, int]:
        own = min((use.gpu.index for use, _ in self.holds), default=1 << 30)
        below = min((child.order(depth + 1)[0] for child in self.children), default=1 << 30) if depth < DEEPEST else own
        return min(own, below), self.pid


def tree(uses: Sequence[GpuUse], ancestors: Sequence[wire.Ancestor]) -> list[TreeRow]:
    """All rows from the top."""
    nodes = _nodes(uses, ancestors)
    for node in nodes.values():
        parent = nodes.get(node.parent_pid or 0)
        if parent is not None and not _is_above(node, parent, nodes):
            parent.children.append(node)
            node.is_child = True
    roots = sorted((node for node in nodes.values() if not node.is_child and _matters(node)), key=_Node.order)
    return [row for root in roots for row in _rows(root, "", "")]


def _nodes(uses: Sequence[GpuUse], ancestors: Sequence[wire.Ancestor]) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    for use in uses:
        for process in use.gpu.processes or ():
            nodes.setdefault(process.pid, _Node(process.pid)).holds.append((use, process))
    for ancestor in ancestors:
        if ancestor.pid not in nodes:
            nodes[ancestor.pid] = _Node(ancestor.pid)
            nodes[ancestor.pid].ancestor = ancestor
    return nodes


def _is_above(node: _Node, parent: _Node, nodes: dict[int, _Node]) -> bool:
    """Whether `node` stands above its own parent: pids that were used again make such rings."""
    seen: set[int] = set()
    while parent.pid not in seen:
        if parent is node:
            return True
        seen.add(parent.pid)
        above = nodes.get(parent.parent_pid or 0)
        if above is None:
            return False
        parent = above
    return True


def _matters(node: _Node) -> bool:
    """Whether it, or one below it, holds a GPU."""
    return bool(node.holds) or any(map(_matters, node.children))


def _rows(node: _Node, prefix: str, below: str) -> Iterator[TreeRow]:
    children = sorted(filter(_matters, node.children), key=_Node.order)
    if node.ancestor is not None:
        yield TreeRow(prefix, None, None, node.ancestor)
    for place, (use, process) in enumerate(node.holds):
        yield TreeRow(below if place else prefix, use, process, None)
    for place, child in enumerate(children):
        last = place == len(children) - 1
        yield from _rows(child, below + (_LAST if last else _BRANCH), below + (_NOTHING if last else _ALONG))
