"""The list of advice, ranked by what it saves; what was dismissed stands below, dimmed.

Invariant: ranks, marks and figures are those of `rackrate advise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from textual import events

from pricing.advice import Action, Advice
from tui import format as fmt
from tui.advice_text import in_order, money, rank_mark, span
from tui.columns import Column, fit
from tui.dismissed import Dismissed, identity
from tui.ui.lines import Line, fitted
from tui.ui.panes.advice import kind_text
from tui.ui.widgets.line_table import Cells, LineTable


class AdviceRow(NamedTuple):
    """`place` in the ranked advice; None for what was dismissed."""

    action: Action
    place: int | None
    share: Fraction | None
    dismissed: Dismissed | None

    @property
    def what(self) -> str:
        reason = f"dismissed ({self.dismissed.reason}): " if self.dismissed else ""
        return fmt.clean(f"{reason}{self.action.what}")


def rows_of(advice: Advice, actions: Sequence[Action], dismissed: Mapping[str, Dismissed], with_dismissed: bool) -> list[AdviceRow]:
    """The advice in the command's order, then what was dismissed where it is asked for."""
    rows = [AdviceRow(advice.actions[place], place, advice.shares.get(place), None) for place in in_order(advice)]
    if with_dismissed:
        left_out = [action for action in actions if identity(action) in dismissed]
        left_out.sort(key=lambda action: (-action.saving_per_month, action.what))
        rows += [AdviceRow(action, None, None, dismissed[identity(action)]) for action in left_out]
    return rows


def _text(ident: str, row: AdviceRow) -> str:
    match ident:
        case "rank":
            return "–" if row.place is None else f"{row.place + 1}{rank_mark(row.share)}"
        case "kind":
            return kind_text(row.action)
        case "saves":
            return money(row.action.saving_per_month) + ("~" if row.action.partial else "")
        case "range":
            return span(*row.action.saving_range)
    return f" {row.what}"


def _column(ident: str, title: str, width: int, priority: int, right: bool = False) -> Column:
    return Column(id=ident, title=title, width=width, priority=priority, value=lambda row, now: None, align="right" if right else "left",
                  text=lambda row, now: _text(ident, row))  # fmt: skip


COLUMNS = (
    _column("rank", "#", 4, 3, True),
    _column("kind", "KIND", 6, 2),
    _column("saves", "SAVES/MONTH", 11, 1, True),
    _column("range", "RANGE", 18, 5, True),
    _column("what", " WHAT", 20, 4),
)


class AdviceTable(LineTable):
    """Rows are pieces of advice, by their identity."""

    def __init__(self) -> None:
        super().__init__(id="advice")
        self._shown: list[tuple[Column, int]] = []
        self._rows: dict[str, AdviceRow] = {}

    def show_rows(self, rows: Sequence[AdviceRow]) -> None:
        """Other rows, at once; of two alike the second has a key of its own."""
        keyed: dict[str, AdviceRow] = {}
        for row in rows:
            key = identity(row.action)
            while key in keyed:
                key += "'"
            keyed[key] = row
        if list(self._rows.values()) == list(keyed.values()):
            return
        self._rows = keyed
        self.set_keys(list(keyed))
        self.refresh_rows()
        self.drop_rows(set(keyed))

    @property
    def chosen(self) -> AdviceRow | None:
        return self._rows.get(self.cursor_key) if self.cursor_key is not None else None

    def on_resize(self, event: events.Resize) -> None:
        self.forget()
        shown = fit(COLUMNS, self.room)[0]
        used = sum(cells for _, cells in shown) + len(shown) - 1
        if shown and shown[-1][0].id == "what":
            shown[-1] = (shown[-1][0], shown[-1][1] + self.room - used)
        self._shown = shown
        self.set_titles([(c.id, c.title, cells, c.align == "right") for c, cells in shown], ("", False))
        self.keep_in_view()

    def cells_of(self, key: str) -> Cells:
        row = self._rows[key]
        return tuple(
            ((fitted(column.text(row, 0.0), cells, right=column.align == "right"), _style(column, row)),)
            for column, cells in self._shown
        )


def _style(column: Column, row: AdviceRow) -> str:
    if row.dismissed is not None or column.id == "range":
        return "dim"
    together = row.share is not None
    match column.id:
        case "saves":
            return "strong" if together else "text"
        case "rank" | "kind":
            return "accent" if together else "dim"
    return "text"


def line_of(row: AdviceRow) -> Line:
    """For a title."""
    return ((f" {kind_text(row.action)} ", "accent"), (row.what, "strong"))
