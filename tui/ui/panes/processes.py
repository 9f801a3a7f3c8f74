"""The processes on the GPUs of a node, or of one GPU, as lines: a tree in which those that started them stand above.

Invariant: who cannot be told is said so; a process that cannot be seen from here keeps its memory and its line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from agent import wire
from tui import format as fmt
from tui.fleet import GpuUse
from tui.process_tree import TreeRow, tree
from tui.ui.lines import Line, cropped, fitted


class _Column(NamedTuple):
    title: str
    cells: int
    text: Callable[[TreeRow, datetime], str]
    right: bool = True
    style: str = "text"
    from_cells: int = 0
    """Shown on screens that are at least so wide."""


def _user(row: TreeRow, at: datetime) -> str:
    owner = row.process or row.ancestor
    return fmt.clean(owner.user or "?") if owner else ""


def _job(row: TreeRow, at: datetime) -> str:
    owner = row.process or row.ancestor
    return fmt.clean(owner.job or fmt.UNKNOWN) if owner else ""


def _since(row: TreeRow, at: datetime) -> str:
    started = (row.process or row.ancestor or wire.Ancestor(pid=0)).started_at
    return fmt.age((at - started).total_seconds() if started else None)


def _of(read: Callable[[wire.Process], str]) -> Callable[[TreeRow, datetime], str]:
    return lambda row, at: read(row.process) if row.process is not None else ""


def _pid(row: TreeRow, at: datetime) -> str:
    owner = row.process or row.ancestor
    return str(owner.pid) if owner else ""


_COLUMNS = (
    _Column("GPU", 4, lambda row, at: str(row.use.gpu.index) if row.use else "", style="dim"),
    _Column("PID", 8, _pid),
    _Column("USER", 8, _user, right=False),
    _Column("PROJECT", 10, _of(lambda process: fmt.clean(process.project or fmt.UNKNOWN)), right=False, style="dim", from_cells=118),
    _Column("JOB", 10, _job, right=False, style="dim"),
    _Column("MEMORY", 6, _of(lambda process: fmt.size(process.memory_used_bytes))),
    _Column("SM", 4, _of(lambda process: fmt.percent(process.utilization_ratio))),
    _Column("TYPE", 8, _of(lambda process: process.kind), right=False, style="dim", from_cells=150),
    _Column("CPU", 5, _of(lambda process: fmt.percent(process.cpu_ratio)), from_cells=100),
    _Column("HOST", 6, _of(lambda process: fmt.size(process.host_memory_bytes)), from_cells=110),
    _Column("FOR", 4, _since, style="dim"),
)  # fmt: skip
_JOB_WIDE = 18
_JOB_WIDE_FROM = 130


def process_lines(
    uses: Sequence[GpuUse], cells: int, at: datetime, ancestors: Sequence[wire.Ancestor] = ()
) -> list[tuple[Line, TreeRow | None]]:
    """Each line with its row; titles and sentences have none."""
    if all(use.gpu.processes is None for use in uses):
        return [((("  the driver does not tell which processes there are", "dim"),), None)]
    rows = tree(uses, ancestors)
    if not rows:
        return [((("  none", "dim"),), None)]
    columns = [
        column._replace(cells=_JOB_WIDE) if column.title == "JOB" and cells >= _JOB_WIDE_FROM else column
        for column in _COLUMNS
        if cells >= column.from_cells
    ]
    head = " ".join(fitted(column.title, column.cells, right=column.right) for column in columns)
    return [
        (((fitted(f"{head}  COMMAND", cells).rstrip(), "dim"),), None),
        *((_line(row, columns, cells, at), row) for row in rows),
    ]


def _line(row: TreeRow, columns: Sequence[_Column], cells: int, at: datetime) -> Line:
    quiet = row.process is None
    spans: list[tuple[str, str]] = []
    for place, column in enumerate(columns):
        text = fitted(column.text(row, at), column.cells, right=column.right)
        spans.append((f"{' ' * (place > 0)}{text}", "dim" if quiet else column.style))
    return cropped((*spans, (f"  {row.prefix}", "rule"), (_command(row), "dim" if quiet else "text")), cells)


def _command(row: TreeRow) -> str:
    if row.ancestor is not None:
        return fmt.clean(row.ancestor.command or fmt.UNKNOWN)
    process = row.process
    assert process is not None
    where = f" in {fmt.clean(process.mig_instance)}" if process.mig_instance else ""
    return fmt.clean(process.command or ("not visible from here" if not process.visible else fmt.UNKNOWN)) + where
