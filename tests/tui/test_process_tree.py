"""Processes on GPUs as a tree: each once a GPU, below those that started them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tui.gpu_use import GpuUse, gpu_use
from tui.process_tree import TreeRow, tree


def use(index: int, *processes: tuple[int, int | None]) -> GpuUse:
    held = tuple(wire.Process(pid=pid, parent_pid=parent) for pid, parent in processes)
    return gpu_use(wire.Gpu(index=index, uuid=f"G{index}", state="ok", processes=held))


def drawn(rows: list[TreeRow]) -> list[str]:
    return [f"{row.prefix}{(row.process or row.ancestor).pid}{'' if row.use is None else f'@{row.use.gpu.index}'}" for row in rows]  # type: ignore[union-attr]


def test_a_launcher_stands_above_its_ranks_and_a_shell_above_it() -> None:
    above = (wire.Ancestor(pid=10, parent_pid=5), wire.Ancestor(pid=5, parent_pid=1), wire.Ancestor(pid=77, parent_pid=1))
    rows = tree([use(0, (11, 10)), use(1, (12, 10)), use(2, (90, 1))], above)
    assert drawn(rows) == ["5", "└─ 10", "   ├─ 11@0", "   └─ 12@1", "90@2"], "77 started nobody who holds a GPU"


def test_a_process_on_two_gpus_has_a_line_for_each() -> None:
    assert drawn(tree([use(0, (11, 10)), use(1, (11, 10))], (wire.Ancestor(pid=10),))) == ["10", "└─ 11@0", "   11@1"]
    assert drawn(tree([use(0, (11, None)), use(1, (11, None), (12, 11))], ())) == ["11@0", "11@1", "└─ 12@1"]


def test_a_ring_of_parents_is_no_ring_here() -> None:
    assert len(tree([use(0, (1, 2), (2, 1)), use(1, (3, 3))], ())) == 3


PIDS = st.integers(1, 8)


@given(st.lists(st.lists(st.tuples(PIDS, PIDS), max_size=5, unique_by=lambda pair: pair[0]), max_size=4), st.lists(st.tuples(PIDS, PIDS), max_size=8))
def test_every_process_is_there_once_a_gpu_whatever_the_parents(gpus: list[list[tuple[int, int]]], above: list[tuple[int, int]]) -> None:
    uses = [use(index, *processes) for index, processes in enumerate(gpus)]
    rows = tree(uses, tuple(wire.Ancestor(pid=pid, parent_pid=parent) for pid, parent in above))
    found = sorted((row.use.gpu.index, row.process.pid) for row in rows if row.use and row.process)
    assert found == sorted((index, pid) for index, processes in enumerate(gpus) for pid, _ in processes)
