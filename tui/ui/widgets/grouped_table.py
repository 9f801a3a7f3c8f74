"""A table whose rows may stand in groups that fold.

Invariant: rows are grouped, and who holds them is counted, once an arrangement; what a group adds up to is worked out once a
redraw, for the groups that are on the screen. What is folded stays so while the app runs; the cursor never vanishes into a fold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from textual.actions import SkipAction

from tui.columns import Column, sort_rows
from tui.fleet import Fleet, NodeView
from tui.fleet_totals import totals_of
from tui.groups import Group, is_group, key_of, split, users_of, value
from tui.ui.widgets.arranged_table import ArrangedTable

SOME_MARKED = "○"


class GroupedTable(ArrangedTable):
    """Rows are nodes. `by` empty: no groups."""

    def __init__(
        self, fleet: Fleet, columns: tuple[Column, ...], sorted_by: str, clock: Callable[[], float], *, id: str | None = None
    ) -> None:
        super().__init__(columns, sorted_by, clock, id=id)
        self._fleet = fleet
        self.by = ""
        self._folded: set[str] = set()
        """Keys of groups, of whatever grouping."""
        self._members: dict[str, list[NodeView]] = {}
        self._names: dict[str, str | None] = {}
        self._home: dict[str, str] = {}
        """Node -> key of its group."""
        self._groups: dict[str, Group] = {}
        self._users: dict[str, tuple[str, ...]] = {}

    def group(self, key: str) -> Group:
        """The group of that row as it is at this redraw."""
        found = self._groups.get(key)
        if found is None or found.users is None:
            if key not in self._users:
                self._users[key] = users_of(self._members[key])
            found = self._groups[key] = self._summed(key)._replace(users=self._users[key])
        return found

    def _summed(self, key: str) -> Group:
        """Without its users: they are counted for the groups that are on the screen alone."""
        found = self._groups.get(key)
        if found is None:
            views = self._members[key]
            found = self._groups[key] = Group(self.by, self._names[key], tuple(views), totals_of(views, self._clock()))
        return found

    def row_of(self, key: str) -> NodeView | Group:
        return self.group(key) if is_group(key) else self._fleet[key]

    def look_of(self, row: Any, now: float) -> Hashable:
        return None

    def update(self, now: float) -> None:
        self._groups.clear()
        super().update(now)

    def lines_of(self, rows: list[Any], now: float) -> list[str]:
        if not self.by:
            self._members, self._names, self._home = {}, {}, {}
            return super().lines_of(rows, now)
        parts = {key_of(self.by, name): (name, views) for name, views in split(rows, self.by, now).items()}
        self._members = {key: views for key, (_, views) in parts.items()}
        self._names = {key: name for key, (name, _) in parts.items()}
        self._home = {view.name: key for key, views in self._members.items() for view in views}
        self._groups.clear()
        self._users.clear()
        order = [group.key for group in self._in_order([self._summed(key) for key in parts], now)]
        self.passing = [view.name for key in order for view in self._members[key]]
        if self.cursor_key is not None and self._home.get(self.cursor_key) in self._folded:
            self.cursor_key = self._home[self.cursor_key]
        return [line for key in order for line in (key, *self._lines_below(key))]

    def _in_order(self, groups: list[Group], now: float) -> list[Group]:
        """By what they add up to in the column by which their rows are sorted."""
        ident = self.sort_column.id
        sums = Column(id=ident, title="", width=0, priority=1, value=lambda group, now: value(group, ident), text=lambda group, now: "")
        return sort_rows(groups, sums, now, descending=self._descending, tie=lambda group: group.title)

    def _lines_below(self, key: str) -> list[str]:
        return [] if key in self._folded else [view.name for view in self._members[key]]

    def group_by(self, by: str) -> None:
        """Groups by something else; empty: not at all. The cursor stays on its node."""
        if is_group(self.cursor_key):
            self.cursor_key = next((view.name for view in self._members.get(self.cursor_key or "", ())), None)
        self.by = by
        self.forget()
        self._rearranged()

    def action_sideways(self, step: int) -> None:
        """The screen folds and unfolds."""
        raise SkipAction

    def folded(self, key: str) -> bool:
        return key in self._folded

    def fold(self) -> bool:
        """Folds the group under the cursor, or that of the row under it; False where there is none to fold."""
        key = self.cursor_key if is_group(self.cursor_key) else self._home.get(self.cursor_key or "")
        if key is None or key in self._folded:
            return False
        self._folded.add(key)
        self.cursor_key = key
        self._refolded()
        return True

    def unfold(self) -> bool:
        """Shows what is in the group under the cursor; False where it is not folded."""
        if self.cursor_key not in self._folded:
            return False
        self._folded.discard(self.cursor_key)
        self._refolded()
        return True

    def fold_all(self, folded: bool) -> None:
        """Folds all groups of this grouping, or none."""
        if folded and self.cursor_key in self._home:
            self.cursor_key = self._home[self.cursor_key]
        self._folded = self._folded | set(self._members) if folded else self._folded - set(self._members)
        self._refolded()

    def _refolded(self) -> None:
        self.note_moved()
        self.order_rows(self._clock())
        self.refresh_rows({key for key in self.keys if is_group(key)})
        self.keep_in_view()

    def opens_at(self, key: str, x: int) -> bool:
        """On the sign that says whether a group is folded."""
        return is_group(key) and x < self.gutter_cells + 2

    def keys_under(self, key: str | None) -> list[str]:
        return [view.name for view in self._members[key]] if key in self._members else super().keys_under(key)

    def keys_in_range(self, key: str) -> list[str]:
        """A group that is unfolded stands for none of its rows: they are lines of their own."""
        if key not in self._members:
            return [key]
        return self.keys_under(key) if key in self._folded else []

    def gutter_of(self, key: str) -> str:
        if key not in self._members or not self.marks:
            return super().gutter_of(key)
        marked = sum(view.name in self.marks for view in self._members[key])
        return "●" if marked == len(self._members[key]) else SOME_MARKED if marked else " "
