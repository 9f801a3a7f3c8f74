"""The table of what groups cost.

Invariant: the money is that of the report's cells, which add up to its totals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from tui import format as fmt
from tui.columns import Column
from tui.costs_view import Grouping, Groups
from tui.query import Words
from tui.ui.lines import Line, fitted
from tui.ui.widgets.arranged_table import ArrangedTable
from tui.ui.widgets.plot import bar

SEPARATOR = "\x1f"
BAR_CELLS = 10


class GroupRow(NamedTuple):
    """`cells` by the report's columns; `share` of the largest total."""

    labels: tuple[str, ...]
    cells: dict[str, Any]
    share: float | None

    @property
    def key(self) -> str:
        return SEPARATOR.join(self.labels)

    @property
    def name(self) -> str:
        return fmt.clean("/".join(self.labels))


def rows_of(groups: Groups) -> list[GroupRow]:
    """The groups of a report."""
    cells = groups.table.rows
    most = max((row["total_cost"] for row in cells if isinstance(row["total_cost"], Decimal)), default=Decimal(0))
    return [
        GroupRow(
            tuple(str(row[key]) for key in groups.grouping.keys),
            row,
            None if row["total_cost"] is None else float(row["total_cost"] / most) if most > 0 else 0.0,  # type: ignore[operator]
        )
        for row in cells
    ]


def _cost(ident: str, title: str, priority: int, key: str, width: int = 11) -> Column:
    def text(row: GroupRow, now: float) -> str:
        mark = "*" if ident == "total_cost" and not row.cells["complete"] else ""
        value = row.cells[ident]
        return fmt.UNKNOWN if value is None else f"{fmt.usd(value)}{mark}"

    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, now: row.cells[ident], text=text,
                  align="right", descending=True, sort_key=key)  # fmt: skip


def _hours(ident: str, title: str, priority: int, key: str, width: int = 9) -> Column:
    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, now: row.cells[ident], align="right",
                  text=lambda row, now: f"{row.cells[ident]:,.1f}", descending=True, sort_key=key)  # fmt: skip


def _ratio(row: GroupRow, now: float) -> float | None:
    value = row.cells["utilization_ratio"]
    return None if value is None else float(value)


@cache
def columns_of(grouping: Grouping) -> tuple[Column, ...]:
    """The same for each grouping, but for the first title."""
    return (
        Column(id="name", title=grouping.title.upper(), width=18, priority=1, flex=True, sort_key="1",
               value=lambda row, now: row.labels, text=lambda row, now: row.name),
        _cost("total_cost", "TOTAL", 1, "2", 12),
        Column(id="share", title="", width=BAR_CELLS, priority=6, value=lambda row, now: row.share, text=lambda row, now: ""),
        _cost("allocated_cost", "ALLOCATED", 2, "3"),
        _cost("allocated_unused_cost", "OF IT UNUSED", 3, "4", 12),
        _cost("idle_cost", "IDLE", 2, "5"),
        _cost("unused_commitment_cost", "UNUSED CMT", 4, "6"),
        _hours("gpu_hours", "GPU-H", 5, "7"),
        _hours("idle_gpu_hours", "IDLE GPU-H", 8, "8", 11),
        Column(id="utilization", title="UTIL", width=5, priority=7, align="right", value=_ratio, descending=True, sort_key="9",
               text=lambda row, now: fmt.percent(_ratio(row, now))),
    )  # fmt: skip


_NUMBERS = {"total": "total_cost", "cost": "total_cost", "idle": "idle_cost", "unused": "allocated_unused_cost", "hours": "gpu_hours"}


def _number(row: GroupRow, key: str, now: float) -> float | None:
    if key == "util":
        ratio = _ratio(row, now)
        return None if ratio is None else ratio * 100
    value = row.cells[_NUMBERS[key]]
    return None if value is None else float(value)


COST_WORDS = Words(("name",), (*_NUMBERS, "util"), lambda row, key, now: list(row.labels), _number, lambda row: list(row.labels))


class CostsTable(ArrangedTable):
    """Rows are groups, by their labels; the dearest first."""

    def __init__(self, grouping: Grouping, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(columns_of(grouping), "total_cost", clock, id=id)
        self._descending = True
        self._groups: Groups | None = None
        self._by_key: dict[str, GroupRow] = {}

    def show_groups(self, groups: Groups) -> None:
        """Other rows, at once."""
        if groups is self._groups:
            return
        other = self._groups is None or self._groups[1:3] != groups[1:3]
        self._groups = groups
        self._by_key = {row.key: row for row in rows_of(groups)}
        if other:
            self._to_grouping(groups.grouping)
        self.order_rows(self._clock())
        if other:
            self.cursor_key = self.keys[0] if self.keys else None
            self.scroll_to(y=0, animate=False)
            self.refresh(self.size.region)
        self.refresh_rows()

    def _to_grouping(self, grouping: Grouping) -> None:
        """Sorted by the same column as before."""
        columns = columns_of(grouping)
        self._column = next(column for column in columns if column.id == self._column.id)
        self.set_columns(columns)

    @property
    def chosen(self) -> GroupRow | None:
        return self._by_key.get(self.cursor_key) if self.cursor_key is not None else None

    @property
    def shown(self) -> Sequence[GroupRow]:
        """The rows that are let through, in their order."""
        return [self._by_key[key] for key in self.keys]

    def rows(self) -> Iterable[GroupRow]:
        return self._by_key.values()

    def key_of(self, row: GroupRow) -> str:
        return row.key

    def row_of(self, key: str) -> GroupRow:
        return self._by_key[key]

    def changed(self) -> bool:
        return False

    def look_of(self, row: GroupRow, now: float) -> Hashable:
        return id(row.cells)

    def cell(self, row: GroupRow, column: Column, cells: int, now: float) -> Line:
        if column.id == "share":
            filled, empty = bar(None if row.share is None else max(0.0, row.share), cells)
            return ((filled, "accent"), (empty, "rule"))
        text = column.text(row, now)
        return ((fitted(text, cells, right=column.align == "right"), _style(row, column, text)),)


def _style(row: GroupRow, column: Column, text: str) -> str:
    if text in (fmt.UNKNOWN, "$0.00", "0.0"):
        return "dim"
    match column.id:
        case "name":
            return "dim" if row.labels[0].startswith("(") else "strong"
        case "total_cost":
            return "strong"
        case "idle_cost" | "unused_commitment_cost":
            return "idle"
        case "gpu_hours" | "idle_gpu_hours" | "utilization":
            return "dim"
    return "text"
